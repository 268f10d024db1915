"""`pprgnn doctor`: what it shows, and when it ends with 1."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from pprgnn.cli import doctor, main
from pprgnn.cli.doctor import _extras
from pprgnn.data.catalog import CATALOG
from pprgnn.training import environment


@pytest.fixture
def run(monkeypatch, tmp_path):
    """The command, with quick measurements and a cache of its own."""
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PPRGNN_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(doctor, "kernel_speed", lambda: 1.25)
    return lambda *arguments: CliRunner().invoke(main.app, ["doctor", *arguments])


def test_a_machine_that_works(run, tmp_path):
    done = run()
    assert done.exit_code == 0, done.output
    labels = [line.split()[0] for line in done.output.splitlines()]
    expected = ["machine", "system", "packages", "extras", "threads", "kernel", "device", "data", "cache", "check"]
    assert labels[: len(expected)] == expected
    assert set(labels[len(expected) :]) <= {"advice"}
    assert "1.2 times as fast" in done.output
    generated = sum(card.family == "generated" for card in CATALOG)
    data = done.output.splitlines()[expected.index("data")]
    assert f"{generated} generated" in data
    assert data.endswith(f"(in {tmp_path / 'data'})")
    assert "\x1b" not in done.output  # plain without a terminal


def test_as_json(run):
    done = run("--json")
    assert done.exit_code == 0
    findings = json.loads(done.output)
    assert findings["check"]["ok"]
    assert findings["broken"] == []
    assert findings["kernel_speed"] == 1.25
    assert findings["cache"]["writable"]
    assert set(findings["data"]) == {card.name for card in CATALOG}
    assert findings["environment"]["versions"]["torch"]


@pytest.mark.parametrize("error", [0.01, float("nan")])
def test_a_wrong_solve_is_broken(run, monkeypatch, error):
    monkeypatch.setattr(doctor, "self_check", lambda: error)
    done = run()
    assert done.exit_code == 1
    assert "check    bad" in done.output
    assert "broken   A small solve is off by" in done.output


def test_a_solve_that_fails_is_broken(run, monkeypatch):
    def fail():
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(doctor, "self_check", fail)
    done = run()
    assert done.exit_code == 1
    assert "RuntimeError: no such instruction" in done.output


def test_a_cache_that_cannot_be_written_is_broken(run, monkeypatch, tmp_path):
    (tmp_path / "cache").touch()
    done = run("--json")
    assert done.exit_code == 1
    assert "set PPRGNN_CACHE" in json.loads(done.output)["broken"][0]


def test_a_data_root_that_is_a_file_is_broken(run, tmp_path):
    (tmp_path / "data").touch()
    done = run()
    assert done.exit_code == 1
    assert "PPRGNN_DATA must name a folder" in done.output


def test_little_disk_is_advice(run, monkeypatch):
    monkeypatch.setattr(doctor, "disk", lambda folder: (True, 1 << 29))
    done = run()
    assert done.exit_code == 0
    assert "advice   Only 0.5 GiB are free" in done.output


def test_missing_extras_come_with_the_command():
    extras = dict.fromkeys(environment.EXTRAS, "1.0") | {"grakel": None, "scikit-learn": None, "optuna": None}
    assert _extras(extras).endswith("missing: grakel, scikit-learn, optuna (pip install 'pprgnn[kernels,tune]')")
    assert "missing" not in _extras(dict.fromkeys(environment.EXTRAS, "1.0"))


CODE = """
import sys
{before}
from pprgnn.cli import main
try: main.run()
finally: print([m for m in ("torch", "numpy", "torch_geometric") if sys.modules.get(m)], file=sys.stderr)
"""


def process(*arguments, before=""):
    command = [sys.executable, "-c", CODE.format(before=before), "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=60)


def test_help_imports_nothing_heavy():
    done = process("--help")
    assert done.returncode == 0
    assert "Example: pprgnn doctor" in done.stdout
    assert done.stderr == "[]\n"


def test_without_torch_it_says_so(tmp_path):
    done = process(before="sys.modules['torch'] = None")
    assert done.returncode == 1
    assert "broken   torch cannot be imported" in done.stdout
    assert "machine" in done.stdout
    assert "Traceback" not in done.stderr
