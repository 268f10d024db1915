"""What stops a run, what it says then, and that nothing is lost."""

import math
import os
import signal
import threading
import warnings

import pytest
import torch

from pprgnn.core.solution import ConvergenceWarning
from pprgnn.training.errors import TrainingError
from pprgnn.training.listener import Interruption
from pprgnn.training.loop import Training
from pprgnn.training.model import Model, smallest_eps, weight_norm
from pprgnn.training.optimization import check_loss, collected_warnings
from pprgnn.training.run import Run
from pprgnn.training.train import resume, train
from tests.training.small_data import Recorder, divided, is_sentence, one_graph, quick, several_graphs

REMEDIES = ("training.lr", "training.clip", "model.eps")


def failure(call, remedies=REMEDIES) -> str:
    with pytest.raises(TrainingError) as caught:
        call()
    text = str(caught.value)
    assert is_sentence(text), text
    for remedy in remedies:
        assert remedy in text
    return text


def fitted(config, dataset, listener=None):
    return Training(config, dataset, divided(dataset), listener=listener or Recorder()).fit()


# ------------------------------------------------------------------------------------------------- not finite
@pytest.mark.parametrize("make", [one_graph, several_graphs], ids=["shared", "own validation"])
@pytest.mark.parametrize("lr", [1e3, 1e12, 1e30, 3e38])
def test_a_huge_learning_rate_names_layer_norm_and_remedy(make, lr):
    text = failure(lambda: fitted(quick(f"lr={lr}", "layers=2", "epochs=50"), make()))
    assert "layer convs." in text
    assert "‖W‖₂" in text or "W is not finite" in text
    assert "eps" in text


def test_a_network_without_infinite_layers_names_its_matrix():
    training = REMEDIES[:2]  # GCN reads no eps: the sentence must not send anybody there
    text = failure(lambda: fitted(quick("lr=1e30", "system=gcn", "epochs=50"), one_graph()), training)
    assert "weight" in text
    assert "eps" not in text


def broken(dataset, config, spoil, after: int):
    """Train, and spoil the network after some epochs."""

    class Spoiler(Recorder):
        def epoch(self, record):
            super().epoch(record)
            if record.epoch == after:
                spoil(self.starts[0].network)

    return Spoiler(), dataset, config


@pytest.mark.parametrize("make", [one_graph, several_graphs], ids=["shared", "own validation"])
def test_divergence_may_end_a_training_with_its_best_epoch(make, tmp_path):
    def spoil(network):
        network.convs[0].weight.data.fill_(1e30)

    spoiler, dataset, config = broken(make(), quick("epochs=9"), spoil, after=4)
    options = {"dataset": dataset, "split": divided(dataset), "listener": spoiler, "folder": tmp_path / "run"}
    found = train(config, **options, accept_divergence=True)
    assert found.summary["finished"]
    assert found.summary["best_epoch"] <= found.summary["epochs"] <= 6
    assert any("layer convs.0" in text for text in found.summary["warnings"])
    kept = Model.load(found.run.model_path)
    assert all(bool(torch.isfinite(each).all()) for each in kept.network.parameters())
    scores = found.summary["scores"]["val"]
    assert scores[found.summary["metric"]] == pytest.approx(found.summary["best"], abs=1e-6)


@pytest.mark.parametrize("make", [one_graph, several_graphs], ids=["shared", "own validation"])
def test_the_layer_that_overflows_is_named(make):
    def spoil(network):
        network.convs[1].weight.data.fill_(1e30)

    listener, dataset, config = broken(make(), quick("layers=3"), spoil, 3)
    text = failure(lambda: fitted(config, dataset, listener))
    assert "layer convs.1 (‖W‖₂ = 1.6e+31" in text
    assert len(listener.records) == 3


def test_a_weight_that_is_not_a_number_is_named():
    def spoil(network):
        network.convs[0].weight.data[0, 0] = math.nan

    listener, dataset, config = broken(one_graph(), quick("layers=2"), spoil, 2)
    assert "layer convs.0 (W is not finite" in failure(lambda: fitted(config, dataset, listener))


def test_a_head_that_is_not_a_number_stops_training():
    def spoil(network):
        network.head.weight.data[0, 0] = math.nan

    listener, dataset, config = broken(one_graph(), quick("input_dropout=0.1"), spoil, 2)
    assert "The loss is nan" in failure(lambda: fitted(config, dataset, listener))


def test_check_loss():
    network = Training(quick(), one_graph(), divided(one_graph())).network
    check_loss(1e9, math.inf, network, 0.1)  # the first loss may be anything
    check_loss(9e3, 0.01, network, 0.1)
    assert "exploded from 0.01 to 1.1e+04" in failure(lambda: check_loss(1.1e4, 0.01, network, 0.1))
    assert "exploded" in failure(lambda: check_loss(1.1e9, 1e5, network, 0.1))
    assert "now 0.1" in failure(lambda: check_loss(math.inf, 1.0, network, 0.1))


def test_norm_and_rate():
    assert weight_norm(torch.diag(torch.tensor([1.0, -3.0]))) == pytest.approx(3)
    assert math.isnan(weight_norm(torch.tensor([[math.inf]])))
    assert smallest_eps(torch.tensor([0.5, 0.25])) == 0.25
    assert smallest_eps(2.0) == 2.0


def test_features_that_are_not_finite_are_refused_at_once():
    dataset = one_graph()
    dataset._data.x[4, 2] = math.inf
    with pytest.raises(TrainingError, match="feature 2 of node 4"):
        Training(quick(), dataset, divided(dataset))


# -------------------------------------------------------------------------------------------- nothing half-written
def test_a_fault_leaves_a_run_that_can_go_on(tmp_path, monkeypatch):
    """Something goes wrong in epoch 6; once it is put right, the run ends as one without the fault."""
    dataset, config = one_graph(), quick("epochs=10", "dropout=0.3", "checkpoint_seconds=0")
    monkeypatch.setattr("pprgnn.training.loop.CHECKPOINT_SHARE", math.inf)  # a checkpoint in every epoch
    whole = train(config, dataset=dataset, split=divided(dataset), folder=tmp_path / "whole")

    def spoil(network):
        network.head.weight.data[0, 0] = math.nan

    listener, *_ = broken(dataset, config, spoil, 5)
    keep = Training._checkpoint

    def keep_the_good(self):
        if self.progress.epoch != 5:
            keep(self)

    monkeypatch.setattr(Training, "_checkpoint", keep_the_good)
    folder = tmp_path / "run"
    split = divided(dataset)
    text = failure(lambda: train(config, dataset=dataset, split=split, folder=folder, listener=listener))
    assert "The best weights so far, of epoch" in text
    assert all(bool(torch.isfinite(p).all()) for p in Model.load(folder).network.parameters())
    monkeypatch.setattr(Training, "_checkpoint", keep)
    run = Run.open(folder)
    assert [record["epoch"] for record in run.records()] == [1, 2, 3, 4, 5]
    assert run.load_checkpoint()[1]["progress"]["epoch"] == 4
    assert run.summary is None
    assert not run.finished
    assert not list(folder.glob("*.part"))
    again = resume(folder)
    for name, tensor in whole.model.network.state_dict().items():
        assert torch.equal(tensor, again.model.network.state_dict()[name])


def test_the_same_fault_comes_again(tmp_path):
    """Nothing is patched up in silence: resuming a run that diverged diverges."""
    dataset = one_graph()
    config = quick("lr=1e12", "epochs=50")
    first = failure(
        lambda: train(config, dataset=dataset, split=divided(dataset), folder=tmp_path / "a", listener=Recorder())
    )
    lines = Run.open(tmp_path / "a").records()
    assert failure(lambda: resume(tmp_path / "a", listener=Recorder())) == first
    again = Run.open(tmp_path / "a").records()
    assert [line["loss"] for line in again] == [line["loss"] for line in lines]


@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoint.safetensors", "model.safetensors", "summary.json"])
def test_a_full_disk_is_a_sentence_and_the_run_goes_on(tmp_path, monkeypatch, name):
    dataset, config = one_graph(), quick("epochs=4", "checkpoint_seconds=0")
    folder = tmp_path / "run"
    if name == "metrics.jsonl":
        import builtins

        usual = builtins.open

        def full(path, mode="r", *args, **kwargs):
            if str(path).endswith(name) and mode == "a":
                raise OSError(28, "No space left on device")
            return usual(path, mode, *args, **kwargs)

        monkeypatch.setattr("builtins.open", full)
    else:
        replace = os.replace

        def full_disk(source, target):
            if str(target).endswith(name):
                raise OSError(28, "No space left on device")
            replace(source, target)

        monkeypatch.setattr("pprgnn.data.atomic_io.os.replace", full_disk)
    with pytest.raises(TrainingError, match="No space left on device") as caught:
        train(config, dataset=dataset, split=divided(dataset), folder=folder)
    assert is_sentence(str(caught.value))
    assert not list(folder.glob("*.part"))
    monkeypatch.undo()
    assert resume(folder).summary["finished"]
    assert [record["epoch"] for record in Run.open(folder).records()] == [1, 2, 3, 4]


# ---------------------------------------------------------------------------------------------------- interruption
class Presser(Recorder):
    """Presses Ctrl-C (or sends another signal) in the middle of training."""

    def __init__(self, at: int, number: int = signal.SIGINT, times: int = 1) -> None:
        super().__init__()
        self.at, self.number, self.times = at, number, times

    def epoch(self, record):
        super().epoch(record)
        if record.epoch == self.at:
            for _ in range(self.times):
                signal.raise_signal(self.number)


@pytest.fixture
def hangup_is_heard():
    """Also where the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_ends_after_the_epoch_and_can_be_resumed(tmp_path, number, hangup_is_heard):
    dataset, config = one_graph(), quick("epochs=12", "dropout=0.3")
    split = divided(dataset)
    whole = train(config, dataset=dataset, split=split, folder=tmp_path / "whole")
    handler, listener = signal.getsignal(number), Presser(5, number)
    part = train(config, dataset=dataset, split=split, folder=tmp_path / "part", listener=listener)
    assert signal.getsignal(number) is handler
    assert part.summary["finished"] is False
    assert part.summary["epochs"] == 6  # of epoch 5 one is told during the next pass, which scores its weights
    assert len(listener.records) == 5
    assert any("again" in note for note in listener.notes) == (number != signal.SIGHUP)  # nobody reads it
    run = Run.open(tmp_path / "part")
    assert not run.finished
    assert run.model_path.is_file()
    again = resume(tmp_path / "part")
    assert again.summary["finished"] is True
    assert again.summary["scores"] == whole.summary["scores"]
    for name, tensor in whole.model.network.state_dict().items():
        assert torch.equal(tensor, again.model.network.state_dict()[name])


def test_what_nohup_ignores_stays_ignored(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        listener = Presser(2, signal.SIGHUP)
        done = train(quick("epochs=4"), dataset=one_graph(), split=divided(one_graph()), listener=listener)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert done.summary["finished"] is True


def test_interrupted_in_the_last_epoch_is_finished(tmp_path):
    dataset, config = one_graph(), quick("epochs=4")
    done = train(config, dataset=dataset, split=divided(dataset), folder=tmp_path / "a", listener=Presser(4))
    assert done.summary["finished"] is True
    assert len(Run.open(tmp_path / "a").records()) == 4


def test_the_second_ctrl_c_does_not_wait(tmp_path):
    handler = signal.getsignal(signal.SIGINT)
    dataset, config = one_graph(), quick("epochs=8", "checkpoint_seconds=0")
    with pytest.raises(KeyboardInterrupt):
        train(config, dataset=dataset, split=divided(dataset), folder=tmp_path / "a", listener=Presser(3, times=2))
    assert signal.getsignal(signal.SIGINT) is handler
    assert resume(tmp_path / "a").summary["epochs"] == 8


def test_elsewhere_than_in_the_main_thread_signals_are_left_alone():
    found = []
    dataset = one_graph()

    def run():
        found.append(fitted(quick("epochs=2"), dataset)["epochs"])

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [2]


def test_interruption_alone():
    notes: list[str] = []
    with Interruption(notes.append) as interruption:
        assert not interruption.wanted
        signal.raise_signal(signal.SIGINT)
        assert interruption.wanted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert len(notes) == 1


# -------------------------------------------------------------------------------------------------------- warnings
def test_one_warning_per_kind():
    said: list[str] = []
    seen: set[str] = set()
    for norm in (1.0, 2.0):
        with collected_warnings(said.append, seen):
            for error in ("", " (error 1e-2)", " (error 2e-2)"):
                warnings.warn(f"Not converged{error}: ‖W‖₂ = {norm}.", ConvergenceWarning, stacklevel=1)
            warnings.warn(f"The state overflowed (‖W‖₂ = {norm}).", ConvergenceWarning, stacklevel=1)
    assert said == ["Not converged: ‖W‖₂ = 1.0.", "The state overflowed (‖W‖₂ = 1.0)."]


def test_other_warnings_are_passed_on():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with collected_warnings(lambda text: None, set()):
            warnings.warn("something else", RuntimeWarning, stacklevel=1)
    assert [(each.category, str(each.message)) for each in caught] == [(RuntimeWarning, "something else")]


@pytest.mark.parametrize("rule", ["measured", "certificate", "influence"])
def test_a_run_that_does_not_converge_says_so_once(rule):
    listener = Recorder()
    config = quick(f"depth={rule}", "max_depth=2", "eps=0.01", "grad_terms=1", "epochs=6", "tol=1e-6")
    summary = fitted(config, one_graph(), listener)
    while_learning = [text for text in listener.warnings if "tol = 1e-06" in text]
    assert len(while_learning) == 1
    assert len(listener.warnings) <= 2  # and once for the final tolerance
    assert summary["warnings"]
    assert "max_depth" in while_learning[0]


def test_a_silent_run_warns_as_python_does():
    dataset = one_graph()
    config = quick("max_depth=2", "eps=0.01", "grad_terms=1", "epochs=2", "tol=1e-6")
    with pytest.warns(ConvergenceWarning, match="max_depth"):
        Training(config, dataset, divided(dataset)).fit()
