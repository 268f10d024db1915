"""A run that is killed, anywhere and any number of times, ends as if it had not been: to the last bit."""

import json
import random
import shutil
import signal
import time
from functools import cache
from pathlib import Path

import pytest
import torch

from pprgnn.data.atomic_io import read_tensors, write_tensors
from pprgnn.data.store import open_file, save
from pprgnn.errors import DataError
from pprgnn.training.errors import TrainingError
from pprgnn.training.model import Model
from pprgnn.training.run import Run
from pprgnn.training.train import resume, train
from tests import warm
from tests.training.killed_run import CASES, begin, work
from tests.training.small_data import Recorder, divided, is_sentence, one_graph, quick, several_graphs


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda file: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run of each case that nobody disturbed."""

    @cache
    def folder(case: str) -> Path:
        path = tmp_path_factory.mktemp("whole") / case
        begin(case, path, Recorder())
        return path

    return folder


def child(case: str, folder: Path, place: str = "", count: int = 1):
    process = warm.SERVER.Process(target=work, args=(case, folder, place, count))
    process.start()
    return process


def ended(process) -> int:
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


def lines(folder: Path) -> list[dict]:
    return [{**record, "seconds": None} for record in Run.open(folder).records()]


def assert_same(folder: Path, wanted: Path) -> None:
    """The same metrics, weights and summary."""
    assert lines(folder) == lines(wanted)
    mine, theirs = Model.load(folder), Model.load(wanted)
    for name, tensor in theirs.network.state_dict().items():
        assert torch.equal(mine.network.state_dict()[name], tensor), name
    varies = {"seconds", "command", "repeat"}
    summaries = [Run.open(each).summary for each in (folder, wanted)]
    first, second = ({k: v for k, v in each.items() if k not in varies} for each in summaries)
    assert first == second
    assert first["finished"] is True
    assert sorted(each.name for each in folder.iterdir()) == sorted(each.name for each in wanted.iterdir())


# --------------------------------------------------------------------------------------------- killed at a place
PLACES = [
    ("before config.toml", 1),
    ("after config.toml", 1),
    ("inside metrics.jsonl", 1),
    ("inside metrics.jsonl", 9),
    ("before checkpoint.safetensors", 1),
    ("after checkpoint.safetensors", 1),
    ("before checkpoint.safetensors", 12),
    ("after checkpoint.safetensors", 17),
    ("before model.safetensors", 1),
    ("after model.safetensors", 1),
    ("before summary.json", 1),
]


# Every place with one case; the other cases where most is at stake.
@pytest.mark.parametrize(
    ("case", "place", "count"),
    [("node", *place) for place in PLACES]
    + [(case, *place) for case in list(CASES)[1:] for place in PLACES[3:8:4]],
)
def test_killed_at_a_place(tmp_path, whole, case, place, count):
    wanted = whole(case)
    folder = tmp_path / "run"
    assert ended(child(case, folder, place, count)) == -signal.SIGKILL
    if place.startswith("before config"):
        with pytest.raises(TrainingError, match=r"no config\.toml"):
            Run.open(folder)
        begin(case, folder, Recorder())  # a folder without a run is free
    else:
        resume(folder, listener=Recorder())
    assert_same(folder, wanted)


def test_killed_again_and_again(tmp_path, whole):
    """Also while what was lost is being repeated."""
    folder, wanted = tmp_path / "run", whole("node")
    places = [
        "before checkpoint.safetensors",
        "inside metrics.jsonl",
        "before metrics.jsonl",
        "after metrics.jsonl",
    ]
    for number, place in enumerate([*places, places[0]]):
        count = 1 if place.endswith("metrics.jsonl") and not place.startswith("inside") else 2 + number % 4
        assert ended(child("node", folder, place, count)) == -signal.SIGKILL
    resume(folder, listener=Recorder())
    assert_same(folder, wanted)


def test_killed_after_the_summary_is_finished(tmp_path, whole):
    folder = tmp_path / "run"
    assert ended(child("node", folder, "after summary.json", 1)) == -signal.SIGKILL
    assert Run.open(folder).finished
    assert lines(folder) == lines(whole("node"))
    with pytest.raises(TrainingError, match="finished"):
        resume(folder)


# -------------------------------------------------------------------------------------------- killed at any moment
@pytest.mark.parametrize("case", ["node", "graph"])
def test_killed_at_any_moment(tmp_path, whole, case):
    wanted, folder = whole(case), tmp_path / "run"
    draw, kills = random.Random(case), 0
    for _ in range(4):
        process = child(case, folder)
        before = _size(folder)
        until = time.monotonic() + 30
        while _size(folder) == before and process.is_alive() and time.monotonic() < until:
            time.sleep(0.002)  # until it has got somewhere
        time.sleep(draw.uniform(0.0, 0.25))
        process.kill()
        process.join(60)
        kills += process.exitcode == -signal.SIGKILL
        if (folder / "config.toml").is_file() and Run.open(folder).finished:
            break
    if not Run.open(folder).finished:
        assert ended(child(case, folder)) == 0
    assert kills >= 1
    assert_same(folder, wanted)


def test_what_a_killed_writer_left_is_swept_away(tmp_path, whole):
    folder = tmp_path / "run"
    assert ended(child("node", folder, "after checkpoint.safetensors", 3)) == -signal.SIGKILL
    for name in (".tmpAbC123", "model.safetensors.77.0a1b2c3d.part"):
        (folder / name).write_bytes(b"half")
    assert ended(child("node", folder)) == 0
    assert_same(folder, whole("node"))


def _size(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.stat().st_size if path.is_file() else -1


# ------------------------------------------------------------------------------------------------ damaged folders
@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed") / "run"
    assert ended(child("node", folder, "after checkpoint.safetensors", 20)) == -signal.SIGKILL
    return folder


@pytest.fixture
def stopped(tmp_path, killed):
    """A run that was killed in the middle, to be spoiled."""
    return shutil.copytree(killed, tmp_path / "run")


def refused(folder: Path, match: str) -> None:
    with pytest.raises(DataError, match=match) as caught:
        resume(folder, listener=Recorder())
    assert is_sentence(str(caught.value)), str(caught.value)


def test_a_line_cut_short_is_repeated(stopped, whole):
    path = stopped / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-7])
    assert [record["epoch"] for record in Run.open(stopped).records()] == list(range(1, 20))
    checkpoint = stopped / "checkpoint.safetensors"
    metadata = read_tensors(checkpoint)[1]
    assert json.loads(metadata["state"])["progress"]["epoch"] == 20
    checkpoint.unlink()  # the line of an epoch is written before its checkpoint, so this is what can happen
    resume(stopped, listener=Recorder())
    assert_same(stopped, whole("node"))


def test_damaged_metrics(stopped):
    path = stopped / "metrics.jsonl"
    path.write_text("\x00\x00\n" + path.read_text())
    refused(stopped, r"metrics\.jsonl must hold a JSON object in each line")


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.999])
def test_half_a_checkpoint(stopped, whole, share):
    path = stopped / "checkpoint.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.warns(UserWarning, match=r"checkpoint\.safetensors is damaged; the one before it, of epoch 19"):
        resume(stopped, listener=Recorder())
    assert_same(stopped, whole("node"))


def test_one_flipped_bit_in_a_checkpoint(stopped, whole):
    path = stopped / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 64
    path.write_bytes(content)
    with pytest.warns(UserWarning, match="the one before it"):
        resume(stopped, listener=Recorder())
    assert_same(stopped, whole("node"))


def test_a_kill_after_a_damaged_checkpoint_leaves_a_whole_one(stopped):
    path = stopped / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.warns(UserWarning, match="of epoch 19"):
        Run.open(stopped).load_checkpoint()
    run = Run.open(stopped)
    run._keep(path)  # the first half of writing the next one, where it is killed
    tensors, state = run.load_checkpoint()
    assert tensors
    assert state["progress"]["epoch"] == 19


@pytest.mark.parametrize("share", [0, 0.999])
def test_no_checkpoint_is_whole(stopped, share):
    for path in stopped.glob("checkpoint*"):
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])
    refused(stopped, r"is damaged; remove it")


def test_a_foreign_checkpoint(stopped, whole):
    (stopped / "checkpoint-before.safetensors").unlink()
    shutil.copy(whole("node") / "model.safetensors", stopped / "checkpoint.safetensors")
    refused(stopped, "is not a checkpoint")
    write_tensors(
        stopped / "checkpoint.safetensors", {"a/b": torch.ones(1)}, {"format": "pprgnn checkpoint, version 1"}
    )
    refused(stopped, "is damaged")
    (stopped / "checkpoint.safetensors").unlink()
    resume(stopped, listener=Recorder())
    assert_same(stopped, whole("node"))


@pytest.mark.parametrize("change", ["hidden = 17", "layers = 1", 'norm = "none"', "input_layer = true"])
def test_a_config_that_was_changed(stopped, change):
    path = stopped / "config.toml"
    name = change.split(" = ")[0]
    kept = [change if line.startswith(f"{name} = ") else line for line in path.read_text().splitlines()]
    path.write_text("\n".join(kept))
    refused(stopped, r"does not fit its config\.toml")


def test_data_that_were_changed(stopped):
    path = stopped / "data.safetensors"
    dataset = open_file(path)
    y = dataset._data.y.clone()
    y[0] = (y[0] + 1) % 3
    dataset._data.y = y
    save(dataset, path)
    refused(stopped, "was made for other labels or graph sizes")


@pytest.mark.parametrize("name", ["split.json", "config.toml"])
def test_other_damage(stopped, name):
    (stopped / name).write_text("{")
    refused(stopped, name.replace(".", r"\."))


def test_a_finished_run_is_not_continued(whole):
    refused(whole("graph"), "finished")


# ---------------------------------------------------------------------------------------------------- more epochs
@pytest.mark.parametrize("make", [one_graph, several_graphs], ids=["shared", "own pass"])
def test_a_finished_run_goes_on(tmp_path, make):
    dataset, folder = make(), tmp_path / "run"
    told = {"dataset": dataset, "split": divided(dataset)}
    train(quick("epochs=6", "dropout=0.3"), **told, folder=folder, listener=Recorder())
    listener = Recorder()
    longer = resume(folder, changes=["epochs=14"], listener=listener)
    whole = train(quick("epochs=14", "dropout=0.3"), **told, folder=tmp_path / "whole", listener=Recorder())
    assert [record.epoch for record in listener.records] == list(range(7, 15))
    assert longer.summary["finished"] is True
    assert longer.summary["epochs"] == 14
    assert Run.open(folder).config.training.epochs == 14
    losses = [[record["loss"] for record in Run.open(each).records()] for each in (folder, tmp_path / "whole")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert longer.summary["best_epoch"] == whole.summary["best_epoch"]
    refused(folder, "finished")


@pytest.mark.parametrize(
    ("settings", "changes", "match"),
    [
        ([], ["epochs=4"], r"is finished and has 4 epochs, so training\.epochs must be above that, but is 4"),
        ([], ["lr=0.5"], r"Only training\.epochs and training\.patience may change on --resume, but training\.lr"),
        ([], ["system=gcn"], "but model.system would"),
        (["epochs=90", "patience=1", "lr=0.2"], ["epochs=95"], r"ended early.*raise training\.patience, too"),
    ],
    ids=["no more", "other settings", "another system", "patience"],
)
def test_what_a_finished_run_cannot_go_on_with(tmp_path, settings, changes, match):
    dataset, folder = one_graph(), tmp_path / "run"
    config = quick("epochs=4", *settings)
    train(config, dataset=dataset, split=divided(dataset), folder=folder, listener=Recorder())
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    with pytest.raises(TrainingError, match=match) as caught:
        resume(folder, changes=changes, listener=Recorder())
    assert is_sentence(str(caught.value)), str(caught.value)
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before


def test_a_finished_run_without_a_checkpoint(tmp_path):
    dataset, folder = one_graph(), tmp_path / "run"
    train(quick("epochs=4"), dataset=dataset, split=divided(dataset), folder=folder, listener=Recorder())
    (folder / "checkpoint.safetensors").unlink()
    with pytest.raises(TrainingError, match="no checkpoint to go on from"):
        resume(folder, changes=["epochs=8"])
    assert Run.open(folder).finished


def test_killed_while_it_goes_on_beyond_its_end(tmp_path):
    dataset, folder = one_graph(), tmp_path / "run"
    train(quick("epochs=4"), dataset=dataset, split=divided(dataset), folder=folder, listener=Recorder())
    Run.open(folder).extend(["epochs=8"])  # and nothing more
    assert resume(folder, listener=Recorder()).summary["epochs"] == 8


def test_no_run_at_all(tmp_path):
    refused(tmp_path, r"no config\.toml")
    refused(tmp_path / "absent", r"no config\.toml")


def test_a_folder_with_a_run_is_not_used_again(whole, tmp_path):
    before = lines(whole("graph"))
    dataset = one_graph()
    with pytest.raises(TrainingError, match="already holds a run"):
        train(quick(), dataset=dataset, split=divided(dataset), folder=whole("graph"))
    assert lines(whole("graph")) == before


def test_own_data_come_with_the_run(tmp_path):
    """The copy counts, whatever the options of the config were for."""
    dataset = one_graph()
    config = quick("epochs=4", "name=chains", "options.length=30")
    train(config, dataset=dataset, split=divided(dataset), folder=tmp_path / "a", listener=Recorder())
    run = Run.open(tmp_path / "a")
    assert run.config.data.name == str(tmp_path / "a" / "data.safetensors")
    (tmp_path / "a" / "summary.json").unlink()
    assert resume(tmp_path / "a", listener=Recorder()).summary["epochs"] == 4
    assert run.config.training == config.training
