"""`pprgnn explore`: how it begins, what it refuses, and how it ends."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from pprgnn.cli import explore as command
from pprgnn.cli.main import app
from pprgnn.explore import server
from pprgnn.explore.answers import Question
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.study import Study
from pprgnn.training.train import train

from ..training.small_data import one_graph, several_graphs

QUICK = ("epochs=2", "hidden=4")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    data = one_graph(40, weighted=True)
    settings = [*QUICK, "split.train_fraction=0.4"]
    for name, more in (("one", ()), ("two", ("system=gcn",)), ("sse", ("system=sse",))):
        train(Config().with_settings([*settings, *more]), dataset=data, folder=folder / name)
    train(Config().with_settings(settings), dataset=one_graph(40, seed=1), folder=folder / "other")
    Study.create(folder / "study", Config().with_settings(QUICK), several_graphs(20), folds=2).run()
    shutil.copytree(folder / "one", folder / "damaged")
    (folder / "damaged" / "model.safetensors").write_bytes(b"no model")
    return folder


@pytest.fixture
def served(monkeypatch):
    """Whatever would be served is kept instead."""
    kept = SimpleNamespace(answers=None)

    def serve(answers, sock, ready, ended, debug=False):
        kept.answers, kept.sock, kept.debug = answers, sock.getsockname(), debug
        ready()
        ended()

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.delenv("PPRGNN_DEBUG", raising=False)
    return kept


def call(*arguments):
    return CliRunner().invoke(app, ["explore", *map(str, arguments)])


def test_it_says_what_it_does(home, served):
    before = {path: path.stat().st_mtime_ns for path in (home / "one").rglob("*")}
    result = call(home / "one", home / "two")
    lines = result.output.splitlines()
    assert result.exit_code == 0, result.output
    assert lines[0] == f"Reading {home / 'one'} ..."
    assert any(re.fullmatch(r"Preparing depth \d+ of \d+ \.\.\.", line) for line in lines)
    assert re.fullmatch(r"The page is at http://127\.0\.0\.1:\d+/", lines[-3])
    assert lines[-2:] == ["Ctrl-C stops it.", "Stopped."]
    told = served.answers.runs()
    assert [run["name"] for run in told["runs"]] == ["one", "two"]
    assert told["runs"][0]["scores"]["test"] is not None
    assert served.answers.explain(Question(node=1), 5)["part"] in ("train", "val", "test")
    assert {path: path.stat().st_mtime_ns for path in (home / "one").rglob("*")} == before  # only read


def test_runs_that_do_not_fit_are_left_out(home, served):
    result = call(home / "damaged", home / "one", home / "other", home / "study", home / "sse", home / "nowhere")
    assert result.exit_code == 0, result.output
    problems = served.answers.runs()["problems"]
    assert [run["name"] for run in served.answers.runs()["runs"]] == ["one"]
    assert problems[0].startswith(f"{home / 'damaged'}: ")
    assert "only runs on the same data can be compared." in problems[1]
    assert "is a study of 2 runs (fold-0-seed-0, fold-1-seed-0); name one of them" in problems[2]
    assert "there is no gradient from its logits back to all nodes" in problems[3]
    assert "There is no run and no model at" in problems[4]
    assert all(f"Left out: {problem}" in result.output for problem in problems)


def test_depths_are_those_of_the_run_unless_its_summary_is_damaged(home, served):
    shutil.copytree(home / "one", home / "known")
    summary = json.loads((home / "known" / "summary.json").read_text())
    (layer,) = summary["layers"]

    def told(*layers):
        (home / "known" / "summary.json").write_text(json.dumps({**summary, "layers": layers}))
        assert call(home / "known").exit_code == 0
        return served.answers.runs()["runs"][0]["layers"][0]

    assert told({**layer, "depth": 3, "truncation_bound": 0.5})["depth"] == 3
    assert served.answers.runs()["runs"][0]["depths"] == [0, 1, 2, 3]
    assert served.answers.views[0].model.network.convs[0].last_solution.depth == 3
    for damaged in ({"layer": layer["layer"]}, {**layer, "depth": None}, {**layer, "status": "?"}, 5, None):
        assert told(damaged)["depth"] == layer["depth"]


@pytest.mark.parametrize("name", ["damaged", "study", "sse", "nowhere"])
def test_nothing_to_show_is_one_sentence(home, name, served):
    result = call(home / name)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert len(result.stderr.splitlines()) == 1
    assert served.answers is None
    assert call(home / name, home / name).exit_code == 1


def test_kernels_have_no_gradient():
    with pytest.raises(TrainingError, match="no gradient from its logits"):
        command.check_system(SimpleNamespace(config=Config.for_system("wl")), "explored")


def test_another_graph(home, served, tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    result = call(home / "one", "--edges", tmp_path / "edges.csv")
    assert result.exit_code == 1
    assert "not on tables" in result.stderr or "trained on" in result.stderr
    result = call(home / "one", home / "other", "--data", home / "other" / "data.safetensors")
    assert result.exit_code == 0, result.output
    told = served.answers.runs()
    assert len(told["runs"]) == 2
    assert told["runs"][0]["scores"] == {}
    assert served.answers.explain(Question(node=1), 5)["part"] is None


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "example.com", "::"])
def test_only_this_machine(home, host, served):
    result = call(home / "one", "--host", host)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: The explorer serves this machine alone, so --host must be 127.0.0.1,")
    assert f"but came as {host!r}; from elsewhere, use `ssh -L 8471:127.0.0.1:8471`." in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_ports(home, served):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = call(home / "one", "--port", port)
        assert result.exit_code == 1
        assert (
            f"Error: The explorer cannot use port {port} of 127.0.0.1 (Address already in use);" in result.stderr
        )
        assert "Reading" not in result.output  # known before anything is read
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server, "PORT", port)
            assert call(home / "one").exit_code == 0  # none was asked for: any will do
    assert served.sock[0] == "127.0.0.1"
    assert served.sock[1] != port
    with server.listen("127.0.0.1", None) as sock:
        assert sock.proto == socket.IPPROTO_TCP  # otherwise every answer waits for 40 ms


def test_what_is_missing_can_be_installed(home, monkeypatch):
    find = command.importlib.util.find_spec
    monkeypatch.setattr(
        command.importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name)
    )
    result = call(home / "one")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: The explorer needs uvicorn, which is not installed; run `pip install 'pprgnn[explore]'`.\n"
    )


# ------------------------------------------------------------------------------------------------- the real thing
SLOW = """
import time
from pprgnn.explore.answers import Answers
quick = Answers.search
Answers.search = lambda self, q, *more: time.sleep(60) if q == "slow" else quick(self, q, *more)
from pprgnn.cli.main import run
run()
"""
AT_ONCE = 8  # seconds, on a busy machine; what it must not wait for takes 60


@pytest.fixture
def process(home):
    """A server in a process of its own."""
    started = subprocess.Popen(
        [sys.executable, "-u", "-c", SLOW, "explore", str(home / "one"), "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        lines = []
        while not lines or not lines[-1].startswith("The page is at"):
            lines.append(started.stdout.readline())
            assert lines[-1], started.stderr.read()
        started.port = int(re.search(r":(\d+)/", lines[-1])[1])
        yield started
    finally:
        started.kill()
        started.communicate()


def raw(port, text):
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.sendall(text.encode("latin-1"))
        return int(sock.recv(200).split()[1])


def test_a_real_server_and_its_end(process):
    """A browser that keeps its connection, a question that never ends, and Ctrl-C."""
    port = process.port
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as kept:
        for _ in range(2):
            kept.request("GET", "/api/explain?node=3")
            answer = kept.getresponse()
            assert answer.status == 200
            assert "server" not in answer.headers
            assert json.loads(answer.read())["node"] == 3
        host = f"Host: 127.0.0.1:{port}\r\n"
        assert raw(port, f"GET /static/../server.py HTTP/1.1\r\n{host}\r\n") == 404
        assert raw(port, "GET /api/runs HTTP/1.1\r\nHost: evil.example\r\n\r\n") == 403
        assert raw(port, f"GET / HTTP/1.1\r\n{host}Content-Length: 9\r\n\r\n") == 413
        assert raw(port, f"GET / HTTP/1.1\r\n{host}X-A: {'a' * 100_000}\r\n\r\n") in (400, 431)
        assert raw(port, "\x16\x03\x01 nonsense\r\n\r\n") == 400
        with socket.create_connection(("127.0.0.1", port), 5) as slow:
            slow.sendall(f"GET /api/search?q=slow HTTP/1.1\r\n{host}\r\n".encode())
            time.sleep(0.5)
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=30)
    assert time.monotonic() - start < AT_ONCE
    assert process.returncode == 0
    assert out.endswith("Stopped.\n")
    assert error == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it(number):
    """Here and now: whoever handled them before does so again afterwards."""
    before, told = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)], []
    stop = threading.Timer(0.5, os.kill, (os.getpid(), number))
    with server.listen("localhost", None) as sock:
        server.serve(
            SimpleNamespace(), sock, lambda: (told.append("ready"), stop.start()), lambda: told.append("ended")
        )
    assert told == ["ready", "ended"]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
