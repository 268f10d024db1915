"""Writing a report: what is measured when, and what is said when it cannot be written."""

import importlib.util
import json

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

import pprgnn.report as report
from pprgnn.errors import DataError
from pprgnn.report import subject, write_report
from pprgnn.report.measured import measure as measuring_room
from pprgnn.report.measured import results as kept
from pprgnn.report.measured.results import Missing

from . import made_up


@pytest.fixture
def run(tmp_path):
    return made_up.make_run(tmp_path / "cora", found=made_up.bare(), epochs=[])


@pytest.fixture
def measuring(monkeypatch):
    """Measurements that are counted."""
    asked = []

    def measure(run, seconds, announce):
        announce("error against depth")
        asked.append((run.folder.name, seconds))
        fingerprint = kept.fingerprint(run.model_path)
        return made_up.bare(fingerprint=fingerprint, machine=f"machine {len(asked)}")

    monkeypatch.setattr(measuring_room, "measure", measure)
    return asked


def test_what_was_measured_is_not_measured_again(run, tmp_path, measuring):
    (run / "measurements.json").unlink()
    told = []
    path = write_report([run], tmp_path / "page.html", seconds=7.0, announce=told.append)
    assert path == tmp_path / "page.html"
    assert measuring == [("cora", 7.0)]
    assert told == ["Measuring cora: error against depth", "Drawing the page"]
    write_report([run], path)
    assert len(measuring) == 1
    write_report([run], path, again=True)
    assert len(measuring) == 2
    assert "machine 2" in path.read_text()


def test_what_had_no_time_is_measured_when_there_is_more(run, tmp_path, measuring):
    def write(seconds, convergence):
        found = made_up.bare(
            fingerprint=kept.fingerprint(run / "model.safetensors"), allowed=20.0, convergence=convergence
        )
        kept.keep_measurements(kept.Run.open(run), found)
        measuring.clear()
        write_report([run], tmp_path / "page.html", seconds=seconds)
        return len(measuring)

    too_long = Missing("It would take 50 s.", seconds=50.0)
    assert write(30.0, too_long) == 1
    assert write(20.0, too_long) == 0  # not more than before
    assert write(30.0, Missing("There is no layer.")) == 0  # more time would not help


def test_of_a_study_the_first_run_is_measured(tmp_path, measuring):
    study = made_up.make_study(tmp_path / "folds", found=made_up.bare(), epochs=[])
    write_report([study], tmp_path / "page.html", again=True)
    assert [name for name, _ in measuring] == ["fold-0-seed-0"]


def test_a_run_that_may_only_be_read_is_reported_all_the_same(run, tmp_path, measuring, monkeypatch):
    def refused(run, found):
        raise kept.TrainingError("measurements.json cannot be written.")

    monkeypatch.setattr(subject, "keep_measurements", refused)
    told = []
    write_report([run], tmp_path / "page.html", announce=told.append, again=True)
    assert any("Not kept for the next time" in text for text in told)


def test_runs_of_one_name_are_told_apart(tmp_path):
    plain = {"found": made_up.bare(), "epochs": []}
    runs = [made_up.make_run(tmp_path / name / "cora", **plain) for name in ("old", "new")]
    text = write_report(runs, tmp_path / "page.html").read_text()
    assert "old/cora" in text
    assert "new/cora" in text


@pytest.mark.parametrize("name", report.NEEDS)
def test_what_is_not_installed_is_named(run, tmp_path, monkeypatch, name):
    find = importlib.util.find_spec
    monkeypatch.setattr(report, "find_spec", lambda wanted: None if wanted == name else find(wanted))
    with pytest.raises(DataError, match=r"pip install 'pprgnn\[report\]'"):
        write_report([run], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


DAMAGES = {
    "not there": (lambda run: run.rename(run.parent / "elsewhere"), "There is no run at"),
    "no config": (lambda run: (run / "config.toml").unlink(), "must be the folder of a run"),
    "no summary": (lambda run: (run / "summary.json").unlink(), "stopped before its end; continue it with"),
    "half a summary": (lambda run: (run / "summary.json").write_text('{"finished": tr'), "the run is damaged"),
    "a strange summary": (lambda run: (run / "summary.json").write_text('{"finished": true}'), "is damaged"),
    "scores are no table": (lambda run: told(run, scores=[1, 2]), "is damaged"),
    "stopped": (lambda run: told(run, finished=False), "stopped before its end"),
    "no split": (lambda run: (run / "split.json").unlink(), "must be a whole file"),
    "half an epoch in the middle": (
        lambda run: (run / "metrics.jsonl").write_text('{"epoch": 1\n{"epoch": 2}\n'),
        "must hold a JSON object in each line",
    ),
    "no model": (
        lambda run: [(run / name).unlink() for name in ("model.safetensors", "measurements.json")],
        "has no model any more",
    ),
}


def told(run, **changes):
    values = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(values | changes))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_one_sentence(run, tmp_path, damage):
    harm, words = DAMAGES[damage]
    harm(run)
    with pytest.raises(DataError, match=words) as caught:
        write_report([run], tmp_path / "page.html")
    assert "\n" not in str(caught.value)


def test_a_study_without_a_finished_run_says_how_to_go_on(tmp_path):
    study = made_up.make_study(tmp_path / "folds", found=made_up.bare(), epochs=[])
    (study / "summary.json").unlink()
    with pytest.raises(DataError, match="pprgnn train --resume"):
        write_report([study], tmp_path / "page.html")


def test_strange_questions_are_refused(run, tmp_path):
    with pytest.raises(DataError, match="at least one run"):
        write_report([], tmp_path / "page.html")
    with pytest.raises(DataError, match="named twice"):
        write_report([run, run], tmp_path / "page.html")
    with pytest.raises(DataError, match="cannot be written"):
        write_report([run], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write_report([run], tmp_path / "file" / "page.html")
