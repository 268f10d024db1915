"""Tuning: validation alone decides, the hopeless is cut short, and a killed search goes on as if never killed."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import optuna
import pytest
import torch

from pprgnn.training import tune as module
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.listener import Listener
from pprgnn.training.loop import Training
from pprgnn.training.search import Choice, Range, importance, open_study
from pprgnn.training.tune import ranked, resume_tuning, run_trial, tune
from pprgnn.training.workers import Workers
from tests import warm

from .small_data import is_sentence, one_graph, quick

SPACE = {"lr": "0.001..0.1:log", "hidden": [4, 8], "dropout": "0..0.5"}
TEST = torch.arange(30) % 5 == 4


def easy(*, test_labels=None):
    """The features tell the class; the parts are fixed, so that labels can change without changing them."""
    dataset = one_graph()
    data = dataset._data
    data.x = torch.nn.functional.one_hot(data.y, 8).float() + 0.3 * data.x
    data.part = torch.tensor([0, 0, 0, 1, 2]).repeat(6)
    if test_labels is not None:
        data.y[TEST] = test_labels
    return dataset


class Watching(Listener):
    """Counts, and does something at an epoch of a trial."""

    def __init__(self, at=None, what=None):
        self.at, self.what = at, what
        self.begun, self.over, self.notes = [], [], []

    def trial_started(self, number, settings):
        self.begun.append(number)

    def epoch(self, record):
        if (self.begun[-1], record.epoch) == self.at:
            self.what()

    def trial_finished(self, entry):
        self.over.append(entry)

    def note(self, text):
        self.notes.append(text)


def comparable(summary):
    """All that must not depend on how often the search was stopped."""
    return [{key: value for key, value in each.items() if key != "seconds"} for each in summary["trials"]]


def nearly(summary):
    """The same for data that were read from a file: they lie elsewhere in memory, and BLAS may round otherwise."""
    return [
        {key: pytest.approx(value, rel=1e-4) if key in ("val", "value") else value for key, value in each.items()}
        for each in comparable(summary)
    ]


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_search_from_start_to_end(tmp_path):
    listener = Watching()
    folder = tmp_path / "tuning"
    summary = tune(quick(), folder, trials=16, dataset=easy(), search=SPACE, listener=listener, command="typed")

    assert (summary["finished"], summary["stopped"], summary["figure"]) == (True, None, "accuracy")
    assert listener.begun == list(range(1, 17))
    assert listener.over == summary["trials"]
    assert [each["trial"] for each in summary["trials"]] == list(range(1, 17))
    first = summary["trials"][0]["settings"]  # the recipe itself
    assert first == {"training.lr": 0.02, "model.hidden": first["model.hidden"], "model.dropout": 0.0}
    for each in summary["trials"]:
        assert 0.001 <= each["settings"]["training.lr"] <= 0.1
        assert each["settings"]["model.hidden"] in (4, 8)
        assert each["seconds"] > 0
    best = max(each["value"] for each in summary["trials"] if each["state"] == "complete")
    assert summary["best"]["value"] == best

    assert json.loads((folder / "tune.json").read_text()) == json.loads(json.dumps(summary))
    assert files(folder) == sorted(
        ["base.toml", "search.json", "split.json", "data.safetensors", "trials.log", "tune.json", "best.toml"]
    )
    assert json.loads((folder / "search.json").read_text())["command"] == "typed"
    assert summary["command"] == f"pprgnn train {folder / 'best.toml'}"
    assert set(summary["importance"] or summary["search"]) == set(summary["search"])  # None: too few to say
    assert "test" not in json.dumps([each.get("val", {}) for each in summary["trials"]])

    recipe = Config.from_toml(folder / "best.toml")
    assert recipe.training.lr == summary["best"]["settings"]["training.lr"]
    assert recipe.model.hidden == summary["best"]["settings"]["model.hidden"]
    assert recipe.training.epochs == 20  # what was not searched stays
    again = recipe.with_values({"data.name": str(folder / recipe.data.name)})
    from pprgnn.training.train import train

    assert train(again).summary["scores"]["val"] == pytest.approx(summary["best"]["val"], rel=1e-4)


def test_labels_of_the_test_part_change_nothing(tmp_path):
    true = tune(quick(), tmp_path / "true", trials=4, dataset=easy(), search=SPACE)
    false = tune(quick(), tmp_path / "false", trials=4, dataset=easy(test_labels=0), search=SPACE)
    assert comparable(true) == comparable(false)
    one, other = (Config.from_toml(tmp_path / name / "best.toml") for name in ("true", "false"))
    assert one == other


@pytest.mark.parametrize("monitor", ["metric", "loss"])
def test_hopeless_trials_are_cut_short(monitor, tmp_path):
    """Two of the learning rates do not move at all."""
    listener = Watching()
    hopeless = {1e-8, 1e-9}
    search = {"lr": [0.05, 0.04, 0.06, *sorted(hopeless)]}
    config = quick("epochs=30", "lr=0.05", f"monitor={monitor}")
    summary = tune(config, tmp_path / "t", trials=14, dataset=easy(), search=search, listener=listener)
    cut = [each for each in summary["trials"] if each["state"] == "pruned"]
    assert cut
    for each in cut:
        assert 0.2 * 30 <= each["epochs"] < 30  # every trial has its first epochs
        ratio = each["value"] / summary["best"]["value"]
        assert ratio <= 1 if monitor == "metric" else ratio >= 1
    assert hopeless & {each["settings"]["training.lr"] for each in cut}
    assert all(each["state"] == "complete" for each in summary["trials"][:5])
    assert summary["best"]["settings"]["training.lr"] not in hopeless


def test_loss_is_better_when_it_is_smaller(tmp_path):
    search = {"lr": [1e-9, 0.05]}
    config = quick("monitor=loss", "lr=1e-9")
    summary = tune(config, tmp_path / "t", trials=6, dataset=easy(), search=search)
    assert summary["figure"] == "loss"
    assert summary["best"]["settings"]["training.lr"] == 0.05
    assert summary["best"]["value"] == min(each["value"] for each in summary["trials"] if "val" in each)


def test_equal_scores_are_told_apart_by_the_loss():
    entries = [
        {"trial": 1, "state": "complete", "value": 0.5, "val": {"loss": 2.0}},
        {"trial": 2, "state": "complete", "value": 0.5, "val": {"loss": 1.0}},
        {"trial": 3, "state": "pruned", "value": 0.9},
        {"trial": 4, "state": "complete", "value": 0.4, "val": {"loss": 0.1}},
        {"trial": 5, "state": "complete", "value": 0.5, "val": {"loss": 1.0}},
    ]
    assert [each["trial"] for each in ranked(entries, "accuracy")] == [2, 5, 1, 4]
    assert [each["trial"] for each in ranked(entries, "loss")] == [4, 2, 5, 1]


def test_which_settings_matter(tmp_path):
    study = open_study(tmp_path / "journal", "maximize")
    for number in range(10):
        assert importance(study, 10) is None
        study.sampler = optuna.samplers.RandomSampler(seed=number)
        trial = study.ask()
        rate = Range(0.0, 1.0).suggest(trial, "lr")
        Choice((8, 16)).suggest(trial, "hidden")
        study.tell(trial, 3 * rate)
    found = importance(study, 10)
    assert list(found) == ["lr", "hidden"]  # what matters most comes first
    assert found["lr"] > 0.8


KILLED = """
import os, sys, warnings
sys.path.insert(0, {tests!r})
import torch
torch.set_num_threads(1)
from tests.training.test_tune import Watching, easy, quick, tune, SPACE
listener = Watching((4, 3), lambda: os._exit(9))
tune(quick("epochs=6"), {folder!r}, trials=13, dataset=easy(), search=SPACE, listener=listener)
"""


def test_a_killed_search_goes_on_as_if_it_had_not_been(tmp_path):
    folder = tmp_path / "killed"
    tests = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = KILLED.format(folder=str(folder), tests=tests)
    assert warm.run(code).returncode == 9
    so_far = json.loads((folder / "tune.json").read_text())
    assert len(so_far["trials"]) == 3
    assert (folder / "best.toml").is_file()
    with open(folder / "trials.log", "ab") as journal:
        journal.write(b'{"op_code": 6, "wor')  # the machine went down in the middle of a line

    listener = Watching()
    summary = resume_tuning(folder, listener=listener)
    assert listener.begun == list(range(4, 14))  # none of the finished ones again
    assert comparable(summary)[:3] == comparable(so_far)
    whole = tune(quick("epochs=6"), tmp_path / "whole", trials=13, dataset=easy(), search=SPACE)
    assert comparable(summary) == nearly(whole)
    assert Config.from_toml(folder / "best.toml") == Config.from_toml(tmp_path / "whole" / "best.toml")
    states = [each.state.name for each in journal_of(folder).get_trials()]
    assert (states.count("FAIL"), states.count("RUNNING")) == (1, 0)


def journal_of(folder):
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "trials.log"))
    return optuna.load_study(study_name="pprgnn", storage=optuna.storages.JournalStorage(backend))


def test_ctrl_c_saves_and_does_not_count(tmp_path):
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    listener = Watching((2, 3), lambda: os.kill(os.getpid(), signal.SIGINT))
    summary = tune(quick(), tmp_path / "t", trials=3, dataset=easy(), search=SPACE, listener=listener)
    assert (summary["finished"], summary["stopped"], len(summary["trials"])) == (False, "Ctrl-C", 1)
    assert "Stopping after this epoch" in listener.notes[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert json.loads((tmp_path / "t" / "tune.json").read_text())["stopped"] == "Ctrl-C"
    assert resume_tuning(tmp_path / "t")["finished"]


def test_a_second_ctrl_c_stops_at_once_and_says_how_to_go_on(tmp_path):
    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    folder = tmp_path / "t"
    with pytest.raises(KeyboardInterrupt, match=f"pprgnn tune --resume {folder}"):
        tune(quick(), folder, trials=2, dataset=easy(), search=SPACE, listener=Watching((2, 3), twice))
    assert resume_tuning(folder)["finished"]


def test_a_time_limit(tmp_path):
    listener = Watching((2, 3), lambda: time.sleep(1.2))
    began = time.monotonic()
    folder = tmp_path / "t"
    config = quick("epochs=3000", "hidden=4")
    summary = tune(config, folder, trials=3, dataset=easy(), search=SPACE, timeout=1.0, listener=listener)
    assert time.monotonic() - began < 20
    assert (summary["finished"], summary["stopped"]) == (False, "time")
    assert len(listener.begun) == len(summary["trials"]) + 1  # the one that was stopped does not count


def test_rounds_of_trials_at_once_are_the_same_every_time(tmp_path):
    """Whichever worker is first; and the hopeless are cut short there, too."""
    search = {"lr": [0.05, 0.04, 0.06, 1e-8, 1e-9]}
    config = quick("epochs=10", "lr=0.05")
    listener = Watching()
    folder = tmp_path / "t"
    options = {"trials": 12, "dataset": easy(), "search": search}
    summary = tune(config, folder, **options, workers=Workers(2), listener=listener)
    assert summary["finished"]
    assert listener.begun == list(range(1, 13))
    assert sorted(each["trial"] for each in listener.over) == list(range(1, 13))
    assert summary["trials"][0]["settings"] == {"training.lr": 0.05}  # the recipe itself
    assert "pruned" in {each["state"] for each in summary["trials"]}
    again = tune(config, tmp_path / "again", **options, workers=Workers(2))
    assert comparable(again) == comparable(summary)
    recipe = Config.from_toml(folder / "best.toml")
    assert recipe.training.threads == config.training.threads
    states = [each.state.name for each in journal_of(folder).get_trials()]
    assert set(states) == {"COMPLETE", "PRUNED"}
    more = resume_tuning(folder, trials=13)  # with the workers it was begun with
    assert comparable(more)[:12] == comparable(summary)


def test_a_round_that_loses_a_worker_keeps_what_is_finished(tmp_path, monkeypatch):
    folder = tmp_path / "t"
    monkeypatch.setattr(module, "run_trial", second_dies)
    with pytest.raises(TrainingError, match=f"and `pprgnn tune --resume {folder}` goes on"):
        tune(quick("epochs=2"), folder, trials=3, dataset=easy(), search=SPACE, workers=Workers(2))
    kept = json.loads((folder / "tune.json").read_text())
    assert [each["trial"] for each in kept["trials"]] == [1]
    monkeypatch.undo()
    listener = Watching()
    summary = resume_tuning(folder, workers=Workers(), listener=listener)
    assert listener.begun == [2, 3]
    assert comparable(summary)[:1] == comparable(kept)


def second_dies(job):
    if job.number == 2:
        while not Path(job.config.data.name).with_name("tune.json").exists():  # until the first is kept
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    return run_trial(job)


def test_more_trials_later(tmp_path):
    folder = tmp_path / "t"
    tune(quick(), folder, trials=2, dataset=easy(), search=SPACE)
    listener = Watching()
    assert len(resume_tuning(folder, listener=listener)["trials"]) == 2
    assert listener.begun == []
    assert len(resume_tuning(folder, trials=3)["trials"]) == 3
    assert resume_tuning(folder)["wanted"] == 3


def test_a_trial_that_explodes_is_only_a_bad_trial(tmp_path, monkeypatch):
    usual = Training.fit

    def fit(self, **options):
        if self.settings.lr == 0.5:
            raise TrainingError("The loss is nan: lower it.")
        return usual(self, **options)

    monkeypatch.setattr(Training, "fit", fit)
    search = {"lr": [0.5, 0.01]}
    summary = tune(quick("lr=0.5"), tmp_path / "t", trials=5, dataset=easy(), search=search)
    first = summary["trials"][0]
    assert (first["state"], first["error"], first["value"]) == ("failed", "The loss is nan: lower it.", None)
    assert summary["best"]["settings"]["training.lr"] == 0.01


def test_nothing_but_failures_is_an_error(tmp_path, monkeypatch):
    def fit(self, **options):
        raise TrainingError("It is broken.")

    monkeypatch.setattr(Training, "fit", fit)
    listener = Watching()
    with pytest.raises(TrainingError, match="All 3 trials failed, the last one so: It is broken"):
        tune(quick(), tmp_path / "t", trials=9, dataset=easy(), search=SPACE, listener=listener)
    assert listener.begun == [1, 2, 3]


def test_a_mistake_in_the_code_is_not_hidden(tmp_path):
    def mistake():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tune(quick(), tmp_path / "t", dataset=easy(), search=SPACE, listener=Watching((1, 2), mistake))


def test_what_a_listener_raises_leaves_nothing_behind():
    """The loop lets it through: random numbers, signal handlers and determinism are as they were."""
    from .small_data import Recorder, divided

    class Raising(Recorder):
        def epoch(self, record):
            raise optuna.TrialPruned

    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    random = torch.get_rng_state()
    dataset = one_graph()
    training = Training(quick("deterministic=true"), dataset, divided(dataset), listener=Raising())
    with pytest.raises(optuna.TrialPruned):
        training.fit()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert bool((torch.get_rng_state() == random).all())
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: tune(quick("protocol=paper"), folder, dataset=easy()), "need the honest protocol"),
        (lambda folder: tune(quick(), folder, dataset=easy(), trials=0), "whole number from 1 on"),
        (lambda folder: tune(quick(), folder, dataset=easy(), search={"seed": [1]}), "cannot be searched"),
        (lambda folder: tune(quick(), folder), "There is no data to learn from"),
        (resume_tuning, "must be the folder of a tuning"),
    ],
)
def test_refused_before_there_is_a_folder(change, said, tmp_path):
    with pytest.raises(TrainingError, match=said) as caught:
        change(tmp_path / "t")
    assert is_sentence(str(caught.value))
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("name", ["base.toml", "config.toml"])
def test_a_folder_in_use(name, tmp_path):
    (tmp_path / name).write_text("")
    with pytest.raises(TrainingError, match="is already in use"):
        tune(quick(), tmp_path, dataset=easy(), search=SPACE)


def test_a_split_without_validation_is_refused():
    from pprgnn.data.split import Split

    dataset = one_graph()
    parts = [torch.arange(20), torch.arange(0), torch.arange(20, 30)]
    split = Split.of(dataset, parts, unit="node", protocol="paper")
    with pytest.raises(TrainingError, match="honest"):
        module._check_honest(Config(), split)


def test_without_optuna(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(TrainingError) as caught:
        tune(quick(), tmp_path / "t", dataset=easy())
    assert str(caught.value) == "Tuning needs optuna; install it with `pip install 'pprgnn[tune]'`."


def test_settings_that_only_one_system_has(tmp_path):
    config = quick("system=appnp", "epochs=2", "alpha=0.25")
    search = {"alpha": "0.05..0.5", "lr": [0.01, 0.02]}
    summary = tune(config, tmp_path / "tuning", trials=3, dataset=easy(), search=search)
    tried = [each["settings"]["model.own.alpha"] for each in summary["trials"]]
    assert tried[0] == 0.25  # the recipe itself
    assert all(0.05 <= alpha <= 0.5 for alpha in tried)
    best = Config.from_toml(tmp_path / "tuning" / "best.toml")
    assert best.model.system == "appnp"
    assert best.model.own == config.model.own | {"alpha": summary["best"]["settings"]["model.own.alpha"]}
    resumed = resume_tuning(tmp_path / "tuning", trials=4)
    assert comparable(resumed)[:3] == comparable(summary)
