"""Several runs of one config."""

import json
import os
import shutil
import signal
import statistics

import pytest

from pprgnn.errors import DataError
from pprgnn.training.comparison import Comparison
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.run import Run
from pprgnn.training.study import Study, is_study
from pprgnn.training.workers import Workers

from .small_data import Recorder

CONFIG = Config().with_settings(
    ["name=chains", "options.length=5", "epochs=2", "hidden=4", "dropout=0", "batch_size=10"]
)


def test_seeds_make_runs_and_the_summary_is_their_mean(tmp_path):
    summary = Study.create(tmp_path / "s", CONFIG, seeds=3, command="pprgnn train ...").run()
    assert is_study(tmp_path / "s")
    assert not is_study(tmp_path)
    assert summary["finished"]
    assert [each["seed"] for each in summary["runs"]] == [0, 1, 2]
    values = [each["scores"]["test"]["accuracy"] for each in summary["runs"]]
    assert summary["mean"]["test"]["accuracy"] == pytest.approx(statistics.fmean(values))
    assert summary["std"]["test"]["accuracy"] == pytest.approx(statistics.pstdev(values))
    assert json.loads((tmp_path / "s" / "summary.json").read_text()) == summary


def test_what_is_finished_is_not_run_again(tmp_path):
    study = Study.create(tmp_path / "s", CONFIG, seeds=2)
    study.run()
    model = tmp_path / "s" / "fold-0-seed-0" / "model.safetensors"
    before = model.stat().st_mtime_ns
    (tmp_path / "s" / "fold-0-seed-1" / "summary.json").unlink()  # as if it had been killed at its very end
    summary = Study.open(tmp_path / "s").run()
    assert summary["finished"]
    assert len(summary["runs"]) == 2
    assert model.stat().st_mtime_ns == before


@pytest.mark.parametrize("workers", [2, Workers(2, "dask")])
def test_runs_in_processes_of_their_own_end_alike(tmp_path, workers, monkeypatch):
    notes = Recorder()
    monkeypatch.chdir(tmp_path)
    alone = Study.create("alone", CONFIG.with_values({"training.threads": 1}), seeds=3).run()
    Study.create("beside", CONFIG, seeds=3, workers=workers)
    shutil.copytree(tmp_path / "alone" / "fold-0-seed-1", tmp_path / "beside" / "fold-0-seed-1")
    beside = Study.open("beside").run(lambda label: notes)
    assert [each["scores"] for each in alone["runs"]] == [each["scores"] for each in beside["runs"]]
    assert sorted(note.split()[0] for note in notes.notes) == ["fold-0-seed-0", "fold-0-seed-2"]
    assert [note.split()[1] for note in notes.notes] == ["(1/2):", "(2/2):"]
    for seed in (0, 2):
        assert Run.open(f"beside/fold-0-seed-{seed}").config.training.threads == 1


def test_a_worker_that_is_killed_says_how_to_go_on(tmp_path, monkeypatch):
    study = Study.create(tmp_path / "s", CONFIG, seeds=2, workers=2)
    monkeypatch.setattr("pprgnn.training.study._job", die)
    with pytest.raises(TrainingError, match=f"is kept, and `pprgnn train --resume {tmp_path}/s` goes on"):
        study.run()
    monkeypatch.undo()
    assert Study.open(tmp_path / "s", Workers()).run()["finished"]  # others than it was made with


def die(job):
    os.kill(os.getpid(), signal.SIGKILL)


def test_errors(tmp_path):
    Study.create(tmp_path / "s", CONFIG)
    with pytest.raises(TrainingError, match="already holds runs; continue with"):
        Study.create(tmp_path / "s", CONFIG)
    with pytest.raises(TrainingError, match="only 1 splits under this protocol, not 4"):
        Study.create(tmp_path / "t", CONFIG, folds=4)


def test_stopped_in_the_first_run(tmp_path, monkeypatch):
    study = Study.create(tmp_path / "s", CONFIG, seeds=2)
    monkeypatch.setattr("pprgnn.training.study._one", lambda *_: {"finished": False})
    summary = study.run()
    assert not summary["finished"]
    assert summary["runs"] == []
    monkeypatch.undo()
    assert Study.open(tmp_path / "s").run()["finished"]


def test_the_seeds_of_a_split_together(tmp_path):
    from pprgnn.data import load
    from pprgnn.training.model import Model

    summary = Study.create(tmp_path / "s", CONFIG, seeds=3, ensemble=True).run()
    dataset = load("chains", length=5)
    folders = [tmp_path / "s" / f"fold-0-seed-{seed}" for seed in range(3)]
    models = [Model.load(folder) for folder in folders]
    mean = sum(model.logits(dataset).softmax(1) for model in models) / 3
    mask = Run.open(folders[0]).split.masks(dataset)["test"]
    expected = float((mean[mask].argmax(1) == dataset.labels()[mask]).float().mean())
    assert summary["ensemble"]["mean"]["test"]["accuracy"] == pytest.approx(expected)
    assert "ensemble" not in Study.create(tmp_path / "t", CONFIG, seeds=2).run()


def test_a_metric_may_be_undefined_on_a_part():
    from pprgnn.training.study import _statistics

    scores = [{"val": {"ROC AUC": None, "accuracy": 1.0}}, {"val": {"ROC AUC": 0.5, "accuracy": 0.5}}]
    mean, std = _statistics(scores)
    assert mean == {"val": {"ROC AUC": None, "accuracy": 0.75}}
    assert std == {"val": {"ROC AUC": None, "accuracy": 0.25}}


@pytest.mark.parametrize(("name", "opened"), [("study.json", Study.open), ("comparison.json", Comparison.open)])
def test_a_damaged_folder_is_refused_in_a_sentence(name, opened, tmp_path):
    (tmp_path / name).write_text("{")
    with pytest.raises(DataError, match=rf"{name} cannot be read .*; the {name.partition('.')[0]} is damaged\.$"):
        opened(tmp_path)
