"""`pprgnn reproduce`: what runs, what is kept and shown, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from pprgnn.cli import reproduce as reproduce_view
from pprgnn.cli.main import app
from pprgnn.data.atomic_io import write_text
from pprgnn.experiments import EXPERIMENTS, chains, page, runner
from pprgnn.experiments.plan import Estimates
from pprgnn.training import loop, terminal

from ..experiments.tiny import hurry, tiny_cell, tiny_line

SMOKE = ["chains", "--smoke", "--models", "gcn", "--seeds", 2]
LINE = re.compile(
    r"(\d+)/(\d+) chains chains gcn honest length \d+ fold 0 seed \d: test accuracy \d+\.\d %, \d+ s"
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PPRGNN_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("PPRGNN_DEBUG", raising=False)
    hurry(monkeypatch)
    monkeypatch.setattr(chains, "LENGTHS", (4, 10))
    usual = chains.conditions  # trials have tests of their own
    monkeypatch.setattr(chains, "conditions", lambda length: replace(usual(length), trials=1))
    return tmp_path


@pytest.fixture
def empty_page(monkeypatch):
    monkeypatch.setattr(page, "write_page", lambda store, path, figures: write_text(path, ""))


@pytest.fixture
def no_training(monkeypatch, empty_page):
    """Results without training; cells of some seeds fail as told."""

    def run(cell, folder, threads=0):
        reason = run.bad.get(cell.config.training.seed)
        return tiny_line(cell) | ({reason: "Oh."} if reason else {})

    run.bad = {}
    monkeypatch.setattr(runner, "run_cell", run)
    return run


def call(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def scores(folder):
    lines = map(json.loads, (folder / "chains.jsonl").read_text().splitlines())
    return {(line["at"]["length"], line["seed"]): line["scores"] for line in lines}


def loky_children():
    """Living worker processes of this one."""
    done = subprocess.run(["ps", "-o", "stat=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if "LokyProcess" in line and not line.startswith("Z")]


# ------------------------------------------------------------------------------------------------------ end to end
def test_from_the_grid_to_the_page_and_nothing_twice(folder):
    done = call(*SMOKE)
    assert done.exit_code == 0, done.output
    first, *lines, last = done.output.splitlines()
    assert first == "2 cells, 0 done; 2 to run."
    assert [LINE.fullmatch(line).groups() for line in lines] == [("1", "2"), ("2", "2")]
    assert last == "The page is runs/smoke/RESULTS.md."
    assert (folder / "runs/smoke/RESULTS.md").is_file()
    assert len(scores(folder / "runs/smoke")) == 2
    assert not (folder / "results").exists()
    assert list((folder / "runs/reproduce").iterdir()) == []

    kept = (folder / "runs/smoke/chains.jsonl").read_bytes()
    again = call(*SMOKE)
    assert again.exit_code == 0
    assert again.output.startswith("2 cells, 2 done; nothing is left to run.\n")
    assert (folder / "runs/smoke/chains.jsonl").read_bytes() == kept

    report = call("report", "--results", "runs/smoke", "--page", "page.md")
    assert (report.exit_code, report.output) == (0, "The page is page.md.\n")
    assert (folder / "page.md").is_file()


def test_two_at_once_give_the_same_and_a_stop_leaves_no_process(folder, monkeypatch, empty_page):
    monkeypatch.setattr(chains, "LENGTHS", (4,))
    more = [*SMOKE, "--seeds", 4]
    assert call(*more).exit_code == 0
    there = ["--results", "there", "--jobs", 2]
    done = call(*SMOKE, "--seeds", 2, *there)
    assert done.exit_code == 0, done.output
    usual = reproduce_view.CellLines.finished

    def stop(self, line):
        usual(self, line)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reproduce_view.CellLines, "finished", stop)
        stopped = call(*more, *there)
    assert stopped.exit_code == 130
    assert stopped.output.endswith("The page is there/RESULTS.md.\nStopped; the same command goes on.\n")
    assert stopped.stderr == ""
    assert len(scores(folder / "there")) == 3
    assert loky_children() == []

    assert call(*more, "--results", "there").output.startswith("4 cells, 3 done; 1 to run")
    assert scores(folder / "there") == scores(folder / "runs/smoke")
    assert len({each["test"]["loss"] for each in scores(folder / "there").values()}) == 4  # seeds matter
    assert list((folder / "runs/reproduce").iterdir()) == []


def test_ctrl_c_in_the_middle_of_a_training(folder, monkeypatch, empty_page):
    check = loop.check_loss

    def checked(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        check(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "check_loss", checked)
        stopped = call(*SMOKE)
    assert stopped.exit_code == 130
    assert stopped.output.endswith("Stopped; the same command goes on.\n")
    assert len(list((folder / "runs/reproduce").iterdir())) == 1
    done = call(*SMOKE)
    assert done.exit_code == 0
    assert len(scores(folder / "runs/smoke")) == 2


# -------------------------------------------------------------------------------------------------------- failures
def test_failures_are_told_the_rest_runs_and_retry_repeats_them(no_training):
    no_training.bad = {1: "error"}
    done = call("chains", "--models", "gcn", "--seeds", 3)
    assert done.exit_code == 1
    assert done.output.count(": failed: Oh.\n") == 2  # two lengths
    assert "6/6 chains" in done.output
    assert done.output.endswith("2 cells failed; --retry runs them again.\n")
    again = call("chains", "--models", "gcn", "--seeds", 3)
    assert again.exit_code == 1
    assert "6 done; nothing is left to run." in again.output
    no_training.bad.clear()
    retried = call("chains", "--models", "gcn", "--seeds", 3, "--retry")
    assert retried.exit_code == 0
    assert retried.output.startswith("6 cells, 4 done; 2 to run")


def test_a_mistake_in_the_code_stops_only_its_cell(no_training, folder):
    no_training.bad = {0: "broken"}
    done = call("chains", "--models", "gcn", "--seeds", 2)
    assert done.exit_code == 1
    assert done.output.endswith("2 cells without a result; the same command tries again.\n")
    assert len((folder / "results/chains.jsonl").read_text().splitlines()) == 2


def test_data_that_are_not_there_are_told_once_and_the_others_run(empty_page):
    done = call(
        "chains", "heterophily", "--smoke", "--folds", 3, "--models", "mlp", "--data", "chains,texas,cornell"
    )
    assert done.exit_code == 1
    skipped = [line for line in done.output.splitlines() if " skipped: " in line]
    assert [line.split()[0] for line in skipped] == ["texas", "cornell"]
    assert done.output.count("test accuracy") == 1  # chains
    assert "12 cells without a result" in done.output  # each set: three folds, trials and training


def test_the_page_is_made_whatever_happens(folder, monkeypatch):
    def full(cell, folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runner, "run_cell", full)
    done = call(*SMOKE)
    assert done.exit_code == 1
    assert "No space left" in done.stderr
    assert (folder / "runs/smoke/RESULTS.md").is_file()


# ----------------------------------------------------------------------------------------------- what is selected
def test_experiments_run_in_their_own_order(no_training, folder):
    call("chains", "depth", "--models", "gcn", "--models", "mlp,pprgnn", "--seeds", 1)
    wanted = ["chains", "depth", "--models", "gcn", "--models", "mlp,pprgnn", "--seeds", 1]
    done = call(*wanted, "--retry", "--plan", "--verbose")
    order = [line.split()[0] for line in done.output.splitlines()[1:] if line.startswith(("chains", "depth"))]
    assert order == ["depth"] * 2 + ["chains"] * 3
    lines = [json.loads(line) for line in (folder / "results/depth.jsonl").read_text().splitlines()]
    assert {line["system"] for line in lines} == {"gcn", "pprgnn"}
    assert (folder / "RESULTS.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chans"], "There is no experiment 'chans'; did you mean 'chains'?"),
        (["xyz"], "there are graphs, ppi,"),
        (["chains", "report"], "it stands alone"),
        (["chains", "--models", "gcnx"], "There is no model 'gcnx'; did you mean 'gcn'?"),
        (["chains", "--models", "gcn,wl"], "There is no model 'wl' in chains; there are pprgnn, gcn,"),
        (["graphs", "--data", "MUTG"], "There is no data set 'MUTG' in graphs; did you mean 'MUTAG'?"),
        (["chains", "--protocol", "paper"], "leave no cell of chains"),
        (["chains", "--protocol", "fair"], "--protocol must be paper, honest or both, but is 'fair'."),
        (["chains", "--backend", "threading"], "must be one of loky, dask, ray, but is 'threading'"),
        (["chains", "--address", "x:1"], "name its kind with --backend"),
        (["chains", "--smoke", "--results", "results"], "cannot go into results"),
        (["chains", "--json"], "--json goes with --plan"),
    ],
)
def test_bad_input_is_one_sentence(arguments, said, folder, no_training):
    done = call(*arguments)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_the_help_names_all_experiments():
    shown = " ".join(call("--help").output.split())
    assert f"{', '.join(EXPERIMENTS)}, or all of them" in shown
    assert "Example: pprgnn reproduce" in shown


# ------------------------------------------------------------------------------------------------------------ plan
def test_a_plan_runs_nothing_and_says_where_times_come_from(no_training, folder, monkeypatch):
    call("chains", "--models", "gcn", "--seeds", 1)
    monkeypatch.setattr(runner, "run_cell", None)
    before = sorted(folder.rglob("*"))
    done = call("chains", "depth", "--models", "gcn,mlp", "--plan", "--jobs", 2, "--verbose")
    assert done.exit_code == 0, done.output
    rows = [re.split(r"  +", line) for line in done.output.splitlines()]
    assert rows[0] == ["experiment", "system", "data", "cells", "done", "time", "as"]
    assert rows[1] == ["depth", "gcn", "Cora", "18", "0", "no estimate"]
    assert rows[2] == ["chains", "gcn", "chains", "6", "2", "0:04", "the same variant"]
    assert rows[3] == ["chains", "mlp", "chains", "6", "0", "0:06", "other systems"]
    assert "30 cells, 2 done, 28 to run: about 0:05 with 2 at once; 18 cells without an estimate." in done.output
    short = call("chains", "depth", "--models", "gcn,mlp", "--plan", "--jobs", 2)
    lines = [re.split(r"  +", line) for line in short.output.splitlines()]
    assert lines[0] == ["experiment", "systems", "data sets", "cells", "done", "time"]
    assert [line[0] for line in lines[1:3]] == ["depth", "chains"]
    assert lines[2][1:] == ["2", "1", "12", "2", "0:10"]
    assert lines[4:6] == rows[5:7]  # in all
    assert "--verbose" in lines[-1][0]
    alone = call("chains", "--models", "gcn,mlp", "--plan", "--jobs", 2)
    assert alone.output.splitlines()[1].split()[:2] == ["chains", "gcn"]
    assert sorted(folder.rglob("*")) == before
    found = json.loads(call("chains", "--models", "gcn", "--plan", "--json").output)
    assert (found["cells"], found["done"], found["seconds"]) == (6, 2, 4.0)
    assert found["rows"][0]["sources"] == ["the same variant"]


@pytest.mark.parametrize("arguments", [["--help"], ["all", "--plan"], ["report"]], ids=" ".join)
def test_without_torch(arguments):
    code = (
        "import sys\nfrom pprgnn.cli.main import run\ntry: run()\n"
        "finally: print([name for name in ('torch', 'torch_geometric') if name in sys.modules], file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "reproduce", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "[]\n")


# -------------------------------------------------------------------------------------------------- on a terminal
def test_the_line_that_moves(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    monkeypatch.setattr(terminal, "width", lambda: 70)
    view = reproduce_view.CellLines(Estimates(), 1)
    cells = [tiny_cell({"training.seed": seed}) for seed in range(4)]

    def shown():
        return str(view._live.get_renderable())

    view.started(cells, 2)
    try:
        assert shown() == "2/6  0:00"
        view.finished(tiny_line(cells[0], total_seconds=61.0))
        assert shown().startswith("3/6  0:00  about 3:03 left  test accuracy 50.0 %, 1:01: chains")
        assert len(shown()) <= 69
        view.finished(tiny_line(cells[1], error="Oh."))
        view.finished(tiny_line(cells[2], test=None))
        assert "test accuracy undefined" in shown()
    finally:
        view.stop()
    above = capsys.readouterr().out
    assert "4/6 chains chains gcn honest fold 0 seed 1: failed: Oh." in above  # stays above the line
    assert "3/6 chains" not in above
