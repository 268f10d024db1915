"""One cell: what its line holds, and what happens when training or the data fail."""

import os
import signal

import pytest
import torch

from pprgnn.errors import DataError
from pprgnn.experiments.run_cell import forget, run_cell
from pprgnn.training import loop
from pprgnn.training.errors import TrainingError
from pprgnn.training.run import CHECKPOINT, CONFIG, SUMMARY

from .tiny import hurry, tiny_cell


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path / "cache"))
    hurry(monkeypatch)
    return tmp_path / "runs"


def test_a_line_holds_place_scores_costs_and_settings(folder):
    cell = tiny_cell(system="pprgnn", at={"length": 4}, keep_curve=True)
    line = run_cell(cell, folder, threads=1)
    assert cell.is_answered_by(line)
    assert line["metric"] == "accuracy"
    assert line["test"] == line["scores"]["test"]["accuracy"]
    assert line["val"] == line["scores"]["val"]["accuracy"]
    assert line["test_chose_the_epoch"] is False
    assert len(line["depth"]) == len(line["layers"]) == 1
    assert [each["epoch"] for each in line["curve"]] == [1, 2, 3]
    assert (line["epochs"], line["threads"]) == (3, 1)
    assert line["total_seconds"] >= line["seconds"] > 0
    assert line["peak_bytes"] > 2**20
    assert {"cpu", "commit", "version", "date", "parameters", "warnings", "note", "best_epoch"} <= set(line)
    assert (folder / cell.folder_name).is_dir()
    forget(cell, folder)
    assert list(folder.iterdir()) == []


def test_without_a_curve(folder):
    assert "curve" not in run_cell(tiny_cell(), folder)


def stop_at(monkeypatch, wanted):
    """Ctrl-C in this epoch."""
    seen, check = [], loop.check_loss

    def checked(*arguments):
        seen.append(1)
        if len(seen) == wanted:
            os.kill(os.getpid(), signal.SIGINT)
        check(*arguments)

    monkeypatch.setattr(loop, "check_loss", checked)


def test_a_stopped_training_goes_on_to_the_same_result(folder, tmp_path, monkeypatch):
    cell = tiny_cell({"training.epochs": 6, "model.dropout": 0.4})
    whole = run_cell(cell, tmp_path / "whole")
    with monkeypatch.context() as patch:
        stop_at(patch, 2)
        assert run_cell(cell, folder) is None
    assert (folder / cell.folder_name / CHECKPOINT).is_file()
    line = run_cell(cell, folder)
    assert line["scores"] == whole["scores"]
    assert line["epochs"] == 6


def test_a_result_that_was_not_kept_yet_is_read_not_trained(folder, monkeypatch):
    cell = tiny_cell()
    line = run_cell(cell, folder)
    monkeypatch.setattr("pprgnn.training.train.Training", None)
    again = run_cell(cell, folder)
    assert again["scores"] == line["scores"]
    assert again["total_seconds"] >= line["seconds"]


@pytest.mark.parametrize("name", [CONFIG, CHECKPOINT, SUMMARY, "split.json", "environment.json"])
def test_damaged_leftovers_are_removed(folder, monkeypatch, name):
    cell = tiny_cell({"training.epochs": 4})
    with monkeypatch.context() as patch:
        stop_at(patch, 2)
        assert run_cell(cell, folder) is None
    (folder / cell.folder_name / name).write_bytes(b"\xff{")
    assert run_cell(cell, folder)["epochs"] == 4


def test_a_training_that_breaks_off_is_a_result(folder):
    cell = tiny_cell({"training.lr": 1e30, "training.epochs": 20})
    line = run_cell(cell, folder)
    assert "Lower training.lr (now 1e+30)" in line["error"]
    assert cell.is_answered_by(line)
    assert "test" not in line
    assert line["total_seconds"] > 0


def test_data_that_are_not_there_are_no_result(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("PPRGNN_DATA", str(tmp_path / "absent"))
    line = run_cell(tiny_cell({"data.name": "texas", "data.options": {}}), folder)
    assert "texas" in line["missing"]
    assert "error" not in line
    assert line["data"] == "texas"


def test_the_training_stays_when_its_data_are_gone(folder, monkeypatch):
    cell = tiny_cell({"training.epochs": 4})
    with monkeypatch.context() as patch:
        stop_at(patch, 2)
        assert run_cell(cell, folder) is None

    def gone(config):
        raise DataError("gone.")

    with monkeypatch.context() as patch:
        patch.setattr("pprgnn.training.train.load_data", gone)
        assert run_cell(cell, folder)["missing"] == "gone."
    assert (folder / cell.folder_name / CHECKPOINT).is_file()


def test_a_package_that_is_not_there_is_no_result(folder, monkeypatch):
    cell = tiny_cell()
    monkeypatch.setattr("pprgnn.training.system.System.missing", "pip install 'pprgnn[kernels]'")
    assert run_cell(cell, folder)["missing"].endswith("run `pip install 'pprgnn[kernels]'`.")


def test_a_mistake_in_the_code_is_no_result_and_leaves_nothing(folder, monkeypatch, capfd):
    def wrong(*arguments):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(loop, "check_loss", wrong)
    monkeypatch.setenv("PPRGNN_DEBUG", "1")
    assert run_cell(tiny_cell(), folder)["broken"] == "ZeroDivisionError: oh"
    assert list(folder.iterdir()) == []
    assert "in wrong" in capfd.readouterr().err


def test_a_full_disk_is_no_result(folder):
    folder.write_text("a file where the folder should be")
    with pytest.raises(TrainingError, match="cannot be written"):
        run_cell(tiny_cell(), folder)


@pytest.mark.parametrize(("experiment", "wanted"), [("graphs", 1), ("graphs-trials", 1), ("chains", 3)])
def test_small_graphs_have_one_thread_from_loading_to_the_end(folder, monkeypatch, experiment, wanted):
    seen = []
    monkeypatch.setattr(
        "pprgnn.experiments.run_cell._one_training", lambda *_: seen.append(torch.get_num_threads())
    )
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert run_cell(tiny_cell({"training.threads": 0}, experiment=experiment), folder) is None
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert seen == [wanted]
