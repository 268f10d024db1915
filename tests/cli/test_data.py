"""`pprgnn data`: what it prints on a terminal and into a pipe, and how it ends."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from pprgnn.cli import data as commands
from pprgnn.cli.main import app
from pprgnn.cli.train import config_for
from pprgnn.data import catalog, download, roots
from pprgnn.data.catalog import CATALOG
from pprgnn.data.registry import State
from pprgnn.training import terminal
from tests import warm

from ..data.server import Server
from ..data.test_fetch import zipped

TOY = {
    "Toy_A.txt": b"1, 2\n2, 1\n",
    "Toy_graph_indicator.txt": b"1\n1\n2\n",
    "Toy_graph_labels.txt": b"0\n1\n",
    "Toy_node_labels.txt": b"0\n1\n0\n",
}
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """A root and a cache of its own for every test, and no way out of this machine."""
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PPRGNN_DATA", str(tmp_path / "root"))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("PPRGNN_DEBUG", raising=False)
    return tmp_path / "root"


@pytest.fixture
def server(monkeypatch):
    """A stand-in for the TU collection, with one set."""
    server = Server()
    monkeypatch.setattr(catalog, "TU_URL", server.url("tu"))
    monkeypatch.setattr(download, "PAUSE", 0.0)
    server.files["tu/Toy.zip"] = zipped({f"Toy/{name}": content for name, content in TOY.items()})
    yield server
    server.close()


def call(*arguments):
    return CliRunner().invoke(app, ["data", *arguments])


def on_terminal(*arguments, columns=80, code="", **environment):
    """What a terminal of this width shows, and the exit code."""
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    settings = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment = settings | {"TERM": "xterm"} | environment
    process = warm.start(code + warm.ENTRY, "data", *arguments, files=(inside,) * 3, environment=environment)
    os.close(inside)
    shown = b""
    while True:
        try:
            block = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        shown += block
    os.close(terminal)
    process.join(30)
    return shown.decode().replace("\r\n", "\n"), process.exitcode


# ------------------------------------------------------------------------------------------------------------ list
def test_list_in_a_pipe_is_plain(monkeypatch):
    monkeypatch.setattr(roots, "find_spec", lambda _: None)
    done = call("list")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert lines[0].split() == ["name", "task", "metric", "graphs", "nodes", "edges", "classes", "state"]
    assert [line.split()[0] for line in lines[1:]] == [card.name for card in CATALOG]
    assert re.fullmatch(r"com-DBLP +node +micro-F1 +1 +317,080 +1,049,866 +50 +to fetch", lines[10])
    assert re.fullmatch(r"PPI-121 .* missing", lines[8])
    assert re.fullmatch(r"PPI-GO .* missing", lines[9])
    assert re.fullmatch(r"chains .* generated", lines[-4])
    assert "\x1b" not in done.stdout


def test_list_tells_what_is_here(monkeypatch):
    words = {"Cora": State("ready")}
    monkeypatch.setattr("pprgnn.cli.data.state", lambda card, root: words.get(card.name, State("needs download")))
    lines = {line.split()[0]: line for line in call("list").stdout.splitlines()}
    assert lines["Cora"].endswith(" here")
    assert lines["NCI1"].endswith(" to fetch")


def test_list_as_json():
    rows = json.loads(call("list", "--json").stdout)
    by_name = {row["name"]: row for row in rows}
    assert len(rows) == len(CATALOG)
    assert by_name["NCI1"] == {
        "name": "NCI1",
        "task": "graph",
        "metric": "accuracy",
        "graphs": 4110,
        "nodes": 122747,
        "edges": 132753,
        "classes": 2,
        "state": "needs download",
    }
    assert by_name["sbm"]["edges"] is None


@pytest.mark.parametrize("columns", [40, 60, 80, 140])
def test_list_fits_the_terminal(columns):
    shown, code = on_terminal("list", columns=columns)
    table = [ANSI.sub("", line) for line in shown.split("\n\n")[0].splitlines()]
    assert code == 0
    assert max(map(len, table)) <= columns
    assert len(table) == len(CATALOG) + 1
    header = table[0].split()
    assert (header[0], header[-1]) == ("name", "state")
    assert len(header) == 8 or columns < 80
    assert "\x1b[36mgenerated\x1b[0m" in shown
    words = " ".join(ANSI.sub("", shown).split())  # lines may be broken
    assert f"their files are in {os.environ['PPRGNN_DATA']}" in words
    assert "PPI-121 (reconstructed labels)" in words


def test_no_color_is_heeded():
    shown, _ = on_terminal("list", NO_COLOR="1")
    assert "\x1b" not in shown


def test_columns_are_dropped_in_turn():
    rows = [{"name": "a", "size": 1000, "more": None, "state": "ready"}]
    assert terminal.table(rows, ("more", "size"), None) == ["name   size  more  state", "a     1,000  –     ready"]
    assert terminal.table(rows, ("more", "size"), 21)[0] == "name  size more state"
    assert terminal.table(rows, ("more", "size"), 20)[0] == "name  size state"
    assert terminal.table(rows, ("more", "size"), 5)[0] == "name state"


# ------------------------------------------------------------------------------------------------------------ info
def test_info_tells_everything(root):
    shown = call("info", "ppi_go").stdout
    for text in ("PPI-GO", "micro-F1", "56,944 nodes", "112 classes", "20 train", "CC BY 4.0", "NOT comparable"):
        assert text in shown
    assert f"\n{root}/PPI-GO/raw\n" in shown
    assert re.search(r"train_entrez\.npy +missing\n", shown)
    assert "state    missing" in shown


def test_info_tells_which_numbers_of_nodes_are_read_and_which_are_not(root):
    shown = " ".join(call("info", "ENZYMES").stdout.split())
    assert "numbers ENZYMES_node_attributes.txt: `pprgnn train ENZYMES` reads it" in shown
    assert config_for("ENZYMES").data.options == {"node_attributes": True}
    assert config_for("ENZYMES", model="gin").data.options == {"node_attributes": True}
    assert config_for("ENZYMES", ["options.node_attributes=false"]).data.options == {"node_attributes": False}
    shown = " ".join(call("info", "COX2").stdout.split())  # there is a recipe
    assert "unread COX2_node_attributes.txt: the recipe leaves it out, as PyG's TUDataset does" in shown
    assert config_for("COX2").data.options == {}
    assert config_for("COX2", ["options.node_attributes=true"]).data.options == {"node_attributes": True}
    for name in ("NCI1", "TU/Other"):
        assert not re.search(r"^(unread|numbers) ", call("info", name).stdout, re.MULTILINE)
    assert config_for("TU/Other").data.options == {}
    path = root / "Other" / "raw" / "Other_node_attributes.txt"  # not in the catalogue: what is there counts
    path.parent.mkdir(parents=True)
    path.write_text("0.5\n")
    assert "numbers  Other_node_attributes.txt" in call("info", "TU/Other").stdout
    assert config_for("TU/Other").data.options == {"node_attributes": True}


def test_info_marks_optional_files(root):
    (root / "splits").mkdir(parents=True)
    (root / "splits" / "DD.json").touch()
    shown = call("info", "DD").stdout
    assert re.search(r"DD\.json +ready \(optional\)", shown)
    assert re.search(r"DD_A\.txt +missing\n", shown)
    assert "from https://www.chrsmrrs.com/graphkerneldatasets/DD.zip" in shown


def test_info_as_json(root):
    facts = json.loads(call("info", "NCI1", "--json").stdout)
    assert (facts["name"], facts["edges"], facts["state"], facts["root"]) == (
        "NCI1",
        132753,
        "needs download",
        str(root),
    )
    assert facts["licence"] == "not stated"
    assert facts["files"][0] == {
        "folder": f"{root}/NCI1/raw",
        "name": "NCI1_A.txt",
        "state": "missing",
        "optional": False,
        "url": "https://www.chrsmrrs.com/graphkerneldatasets/NCI1.zip",
    }


def test_info_wraps_between_words_on_a_terminal():
    shown, _ = on_terminal("info", "PPI-GO", columns=60)
    text = [ANSI.sub("", line) for line in shown.split("\n\n")[0].splitlines()]
    assert max(map(len, text)) <= 60
    assert " ".join(line.strip() for line in text).count("NOT comparable with published PPI numbers") == 1


@pytest.mark.parametrize("command", ["info", "fetch", "verify"])
def test_unknown_names(command):
    done = call(command, "NCI11")
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: There is no data set called 'NCI11'; did you mean NCI1? ")


# ----------------------------------------------------------------------------------------------------------- fetch
def test_fetch_and_verify(server, root):
    done = call("fetch", "TU/Toy", "chains")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"Downloading Toy.zip ({len(server.files['tu/Toy.zip'])} bytes) ...",
        f"Toy: ready, 4 new files (in {root})",
        "chains: generated, nothing to fetch",
    ]
    assert call("fetch", "Toy").stdout == f"Toy: ready, all files were there (in {root})\n"
    done = call("verify", "Toy")
    assert (done.exit_code, done.stdout) == (0, "Toy                ok   0 of 3 files by SHA-256, 0 counts\n")


def test_nothing_is_fetched_when_one_name_is_wrong(server):
    assert call("fetch", "TU/Toy", "nonsense").exit_code == 1
    assert server.requests == []


def test_fetch_on_a_terminal_shows_a_bar(server, root):
    patch = f"from pprgnn.data import catalog; catalog.TU_URL = {server.url('tu')!r}\n"
    shown, code = on_terminal("fetch", "TU/Toy", code=patch)
    assert code == 0, shown
    assert "Toy.zip" in shown
    assert "━" in shown
    assert f"4 new files (in {root})" in shown


def test_without_a_network_the_files_are_named(root):
    done = call("fetch", "COX2")
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: There is no connection to www.chrsmrrs.com (")
    assert f"  {root}/COX2/raw/\n    COX2_A.txt\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_says_that_it_resumes(server, monkeypatch):
    def stop(self, name, done, total):
        raise KeyboardInterrupt

    monkeypatch.setattr("pprgnn.cli.data.Lines.__call__", stop)
    done = call("fetch", "TU/Toy")
    assert done.exit_code == 130
    assert re.fullmatch(
        r"Stopped: Toy\.zip: \d+ bytes are kept, and the same command resumes there\.\n", done.stderr
    )


def test_sigint_ends_a_real_process_with_130(server, tmp_path):
    release = threading.Event()
    server.troubles.append(("stall", release))
    (tmp_path / "sitecustomize.py").write_text(
        f"from pprgnn.data import catalog; catalog.TU_URL = {server.url('tu')!r}\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", "from pprgnn.cli.main import run; run()", "data", "fetch", "TU/Toy"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        # a test run in the background ignores SIGINT, and its children would, too
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 30
    while not server.requests and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    release.set()
    assert process.returncode == 130
    assert said == "Stopped: Toy.zip is not complete; the same command starts it again.\n"


def test_changed_files_need_a_word(server, monkeypatch):
    known = {"Toy/raw/Toy_A.txt": "0" * 64}
    monkeypatch.setattr(download, "known_checksums", lambda: known)
    done = call("fetch", "TU/Toy")
    assert done.exit_code == 1
    assert "does not have the expected SHA-256" in done.stderr
    assert call("fetch", "--unchecked", "TU/Toy").exit_code == 0
    done = call("verify", "Toy")
    assert done.exit_code == 1
    assert re.match(r"Toy +bad  .*/Toy_A\.txt does not have its SHA-256\n", done.stdout)
    assert done.stderr == "Error: 1 of 1 data sets are not as described.\n"


def test_mutag_inside_grakel_is_not_fetched():
    pytest.importorskip("grakel")
    assert call("fetch", "MUTAG").stdout == "MUTAG: ready (inside grakel), nothing to fetch\n"
    assert re.match(r"MUTAG +ok   5 of 5 files by SHA-256, 5 counts\n", call("verify", "MUTAG").stdout)


# ---------------------------------------------------------------------------------------------------------- verify
def test_verify_names_missing_files():
    done = call("verify", "COX2")
    assert done.exit_code == 1
    assert re.match(r"COX2 +bad  .*/COX2_A\.txt is missing; ", done.stdout)


def test_verify_reports_files_that_cannot_be_read(server, root):
    call("fetch", "TU/Toy")
    (root / "Toy" / "raw" / "Toy_A.txt").write_text("1, 2\n2, x\n")
    done = call("verify", "Toy", "chains")
    assert done.exit_code == 1
    toy, chains = done.stdout.splitlines()
    assert re.match(r"Toy +bad  .*Toy_A\.txt, line 2", toy)
    assert re.match(r"chains +ok ", chains)


def test_verify_compares_counts(monkeypatch):
    wrong = replace(catalog.find("chains"), nodes=7)
    monkeypatch.setattr(catalog, "CATALOG", (wrong,))
    monkeypatch.setattr(commands, "CATALOG", (wrong,))
    done = call("verify")
    assert done.exit_code == 1
    assert done.stdout == "chains             bad  14,000 nodes instead of 7\n"


def test_verify_on_a_terminal_overwrites_its_line():
    shown, code = on_terminal("verify", "ring")
    assert code == 0
    assert shown == "ring ...\rring               \x1b[32mok\x1b[0m   0 of 0 files by SHA-256, 5 counts\n"


def test_verify_of_real_files(data_root, monkeypatch):
    monkeypatch.setenv("PPRGNN_DATA", str(data_root))
    done = call("verify", "NCI1", "texas")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "NCI1               ok   5 of 5 files by SHA-256, 5 counts",
        "texas              ok   1 of 1 files by SHA-256, 5 counts",
    ]
