"""`pprgnn tune`: what it prints, what it keeps, and how it ends."""

import json
import os
import signal

import pytest
from typer.testing import CliRunner

from pprgnn.cli import tune as tuning_view
from pprgnn.cli.main import app
from pprgnn.training.config import Config

RING = ["ring", *(f"-soptions.{word}" for word in ("length=4", "train=3", "val=2", "test=2")), "-sepochs=4"]
SEARCH = ["--search", "lr=0.01,0.02", "--search", "hidden=4..8"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PPRGNN_DEBUG", raising=False)
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(app, ["tune", *map(str, arguments)])


def test_a_line_per_trial_then_the_best(folder):
    done = call(*RING, *SEARCH, "--trials", 3, "-o", "t")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    trials = [line for line in lines if line.startswith("trial ") and "val accuracy" in line and ";" in line]
    assert [line.split()[1] for line in trials] == ["1", "2", "3"]
    assert all("lr=0.0" in line and "hidden=" in line for line in trials)
    assert "search   training.lr 0.01,0.02" in lines
    assert any(line.split()[:3] == ["trial", "val", "accuracy"] for line in lines)  # the table
    assert "trials   3 of 3" in done.output
    assert lines[-1] == "`pprgnn train t/best.toml` trains with it."
    assert "\x1b" not in done.output

    recipe = Config.from_toml("t/best.toml")
    assert recipe.data.options == {"length": 4, "train": 3, "val": 2, "test": 2}
    trained = CliRunner().invoke(app, ["train", "t/best.toml", "-o", "run", "--json"])
    kept = json.loads((folder / "t" / "tune.json").read_text())
    assert json.loads(trained.output)["scores"]["val"] == kept["best"]["val"]

    more = call("--resume", "t", "--trials", 4, "--json")
    assert more.exit_code == 0
    summary = json.loads(more.output)
    assert summary["trials"][:3] == kept["trials"]
    assert len(summary["trials"]) == 4
    assert call("--resume", "t").exit_code == 0  # nothing is left to do

    used = call(*RING, "-o", "t")
    assert used.exit_code == 1
    assert "continue with `pprgnn tune --resume t`" in used.stderr


def own_tables(folder):
    rows = range(20)
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"{i},{(i + 1) % 20}\n" for i in rows))
    (folder / "nodes.csv").write_text("id,size,team\n" + "".join(f"{i},{i % 2},{'ab'[i % 2]}\n" for i in rows))
    return ["--edges", "edges.csv", "--nodes", "nodes.csv", "--target", "team"]


def test_own_tables(folder):
    tables = own_tables(folder)
    done = call(*tables, *SEARCH, "-s", "epochs=4", "--trials", 2)
    assert done.exit_code == 0, done.output
    assert "guessed" in done.output
    (made,) = (folder / "tunings").iterdir()
    assert made.name.startswith("edges-")
    (folder / "edges.csv").unlink()  # the folder has a copy
    assert call("--resume", made, "--trials", 3).exit_code == 0
    trained = CliRunner().invoke(app, ["train", str(made / "best.toml"), "-o", "run", "--json"])
    assert trained.exit_code == 0, trained.output
    best = json.loads((made / "tune.json").read_text())["best"]
    assert json.loads(trained.output)["scores"]["val"] == best["val"]


def test_a_graph_in_a_file_is_found_from_everywhere(folder, monkeypatch):
    tables = own_tables(folder)
    CliRunner().invoke(app, ["data", "import", *tables, "-o", "own.safetensors"])
    assert call("own.safetensors", *SEARCH, "-s", "epochs=2", "--trials", 1, "-o", "t").exit_code == 0
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    trained = CliRunner().invoke(app, ["train", "../t/best.toml", "-o", "run", "--json"])
    assert trained.exit_code == 0, trained.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Expected a recipe or data set"),
        ([*RING, "--edges", "x.csv"], "Expected a data set or --edges"),
        ([*RING, "--search", "lr"], "A search must look like"),
        ([*RING, "--search", "lrr=1..2"], "did you mean 'lr'?"),
        ([*RING, "--search", "seed=1,2"], "cannot be searched"),
        ([*RING, "-s", "protocol=paper", "-s", "lr=x"], "training.lr must be a number"),
        (["absent"], "is neither a recipe"),
        (["--resume", "absent"], "must be the folder of a tuning"),
        (["--resume", "absent", "-s", "lr=1"], "--resume takes all settings"),
        (["--resume", "absent", *SEARCH], "--resume takes all settings"),
    ],
)
def test_bad_input_is_one_sentence(arguments, said, folder):
    done = call(*arguments)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "tunings").exists()


def test_ctrl_c(monkeypatch):
    usual = tuning_view.TrialLines.epoch

    def epoch(self, record):
        usual(self, record)
        if (self._trial, record.epoch) == (2, 1):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(tuning_view.TrialLines, "epoch", epoch)
    done = call(*RING, *SEARCH, "--trials", 3, "-o", "t")
    assert done.exit_code == 130
    assert "Stopping after this epoch" in done.output
    assert "trials   1 of 3" in done.output
    assert done.output.endswith("Stopped; go on with `pprgnn tune --resume t`.\n")


def test_a_time_limit_is_no_failure():
    done = call(*RING, *SEARCH, "--trials", 3, "-o", "t", "--timeout", 0)
    assert done.exit_code == 0
    assert "No trial is complete yet." in done.output
    assert "go on with `pprgnn tune --resume t`" in done.output
    assert call("--resume", "t").exit_code == 0


def entry(**change):
    return {
        "trial": 7,
        "state": "complete",
        "value": 0.5,
        "val": {"loss": 1.0},
        "epochs": 12,
        "seconds": 61.0,
        "settings": {"training.lr": 0.01, "model.eps": [1.0, 0.1]},
    } | change


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({}, "trial 7  val accuracy 50.00%, the best so far; lr=0.01 eps=[1.0, 0.1]; 1:01\n"),
        ({"state": "pruned"}, "trial 7  cut short after epoch 12 with 50.00%; lr=0.01 eps=[1.0, 0.1]; 1:01\n"),
        ({"state": "failed", "error": "No."}, "trial 7  failed: No.; lr=0.01 eps=[1.0, 0.1]; 1:01\n"),
    ],
)
def test_how_a_trial_is_told(change, line, capsys):
    class Tuning:
        figure = "accuracy"

    view = tuning_view.TrialLines()
    view.tuning = Tuning()
    view.trial_finished(entry(**change))
    assert capsys.readouterr().out == line


def test_a_wide_table_turns_in_a_narrow_window(monkeypatch):
    many = {f"model.setting_{i}": i for i in range(12)}
    best = [entry(trial=i, settings=many) for i in range(5)]
    monkeypatch.setattr(tuning_view, "width", lambda: 60)
    lines = tuning_view._table(best, "accuracy")
    assert max(map(len, lines)) <= 60
    assert lines[0].split() == ["trial", "0", "1", "2", "3", "4"]
    assert len(lines) == 14
    monkeypatch.setattr(tuning_view, "width", lambda: None)
    assert len(tuning_view._table(best, "accuracy")) == 6


def test_figures():
    assert tuning_view.figure(0.123456, "loss") == "0.1235"
    assert tuning_view.figure(0.5, "accuracy") == "50.00%"
    assert tuning_view.figure(None, "accuracy") == "–"
