"""Several processes train as one does: the same losses, scores and weights, whoever has which nodes."""

import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from pprgnn.distributed.team import Team
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.loop import Training
from pprgnn.training.model import Model
from pprgnn.training.run import Run
from pprgnn.training.train import resume, train
from tests.distributed.processes import run_team
from tests.training.small_data import Recorder, divided, one_graph, quick, several_graphs

# "depth=12": on other divisions of a batch, other depths may be enough for the tolerance.
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "plain": ({}, ["layers=2", "learn_eps=yes", "schedule=one-cycle"]),
    "random parts": ({"weighted": True}, ["partition=random", "jk=cat", "layers=2", "residual=true"]),
    "ranges": ({"nodes": 90, "edges": 400}, ["partition=range", "smooth_input=true", "class_weights=balanced"]),
    "several labels": ({"multi_label": True}, ["norm=batch", "layers=2", "grad_terms=0", "activation=tanh"]),
    "learned rows": ({"channels": 0}, ["weight_decay=0.01", "clip=0.05", "average=0.9", "optimizer=adamw"]),
    "two classes": ({"classes": 2}, ["norm=layer", "monitor=loss", "memory=checkpoint", "input_layer=true"]),
    "the paper's network": ({"channels": 0}, ["architecture=co-purchase"]),
    "labels as input": ({"channels": 0}, ["features=labels", "dropout=0.0"]),
    "labels, spread": ({"multi_label": True}, ["features=labels", "architecture=labels", "weight_init=1.5"]),
    "three nodes": ({"nodes": 4, "edges": 3, "classes": 2}, ["partition=random"]),
    "graphs": ({"task": "graph"}, ["norm=batch", "batch_size=5", "depth=12", "layers=2"]),
    "graphs, nodes": ({"task": "node"}, ["batch_size=3", "depth=12"]),
    "another system": ({"task": "graph"}, ["system=gcn", "batch_size=5"]),
}
RANDOM = {
    "dropout": ({}, ["layers=2", "dropout=0.4", "input_dropout=0.2"]),
    "dropout of rows": ({"channels": 0}, ["dropout=0.5", "partition=random"]),
}


def data(options: dict[str, Any]):
    return several_graphs(**options) if "task" in options else one_graph(**options)


def fit(options: dict[str, Any], settings: list[str], team: Team | None = None):
    """Losses and scores of each epoch, the summary, and the weights, whole."""
    dataset, listener = data(options), Recorder()
    config = quick("epochs=5", *settings)
    training = Training(config, dataset, divided(dataset), listener=listener, team=team)
    summary = training.fit()
    weights = {name: tensor.clone() for name, tensor in training.network.state_dict().items()}
    curve = [
        (record.loss, record.grad_norm, record.val["loss"], *record.train.values(), *record.val.values())
        for record in listener.records
    ]
    return curve, {key: summary[key] for key in ("scores", "best_epoch", "parameters", "threshold")}, weights


def fit_all(cases: dict[str, tuple[dict[str, Any], list[str]]]):
    return {name: fit(*case, Team()) for name, case in cases.items()}


@cache
def alone(name: str):
    return fit(*CASES[name])


MANY = ("random parts", "several labels", "learned rows", "three nodes", "graphs")  # also with four processes


@cache
def by(processes: int, which: str = "CASES"):
    cases = globals()[which]
    if which == "CASES" and processes != 2:
        cases = {name: cases[name] for name in MANY[:: 2 if processes == 1 else 1]}
    return run_team(fit_all, processes, cases, limit=300)


def assert_alike(found, wanted):
    curve, summary, weights = found
    assert torch.allclose(torch.tensor(curve), torch.tensor(wanted[0]), rtol=1e-4, atol=1e-5, equal_nan=True)
    assert summary["best_epoch"] == wanted[1]["best_epoch"]
    assert summary["parameters"] == wanted[1]["parameters"]
    if wanted[1]["threshold"]:
        assert summary["threshold"]["logit"] == pytest.approx(wanted[1]["threshold"]["logit"], abs=1e-4)
    for part, scores in wanted[1]["scores"].items():
        assert summary["scores"][part] == pytest.approx(scores, rel=1e-4, abs=1e-5, nan_ok=True)
    assert {name: tensor.shape for name, tensor in weights.items()} == {
        name: tensor.shape for name, tensor in wanted[2].items()
    }
    for name, tensor in wanted[2].items():
        if tensor.is_floating_point():
            assert torch.allclose(weights[name], tensor, rtol=1e-4, atol=1e-4), name


@pytest.mark.parametrize(
    ("name", "processes"),
    [*((name, 2) for name in CASES), *((name, 4) for name in MANY), *((name, 1) for name in MANY[::2])],
)
def test_as_one_process(name, processes):
    first, *others = by(processes)
    assert_alike(first[name], alone(name))
    for other in others:  # all know the same
        assert str(other[name][:2]) == str(first[name][:2])


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("name", RANDOM)
def test_dropout_does_not_depend_on_who_has_the_nodes(name, processes):
    assert_alike(by(processes, "RANDOM")[0][name], by(1, "RANDOM")[0][name])


# ------------------------------------------------------------------------------------------- stopped and resumed
class StopAt(Recorder):
    """As Ctrl-C at an epoch."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.at = epoch

    def epoch(self, record: Any) -> None:
        super().epoch(record)
        if record.epoch == self.at:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)


RESUMED = {
    "learned rows": ({"channels": 0}, ["weight_decay=0.01", "average=0.9", "epochs=8", "lr=0.05"]),
    "features": ({}, ["layers=2", "learn_eps=channel", "schedule=one-cycle", "epochs=8"]),
    "graphs": ({"task": "graph"}, ["norm=batch", "batch_size=5", "depth=12", "epochs=8"]),
}


def begin_all(folder: Path, stop: int):
    for name, (options, settings) in RESUMED.items():
        dataset, team = data(options), Team()
        listener = StopAt(stop) if team.is_main and stop else Recorder()
        train(
            quick(*settings),
            dataset=dataset,
            split=divided(dataset),
            folder=folder / name,
            listener=listener,
            team=team,
        )


def go_on_all(folder: Path):
    for name in RESUMED:
        resume(folder / name, listener=Recorder(), team=Team())


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (4, 2)])
def test_a_run_goes_on_with_any_number_of_processes(before, after, tmp_path):
    run_team(begin_all, before, tmp_path, 3, limit=120)
    assert not any(Run.open(tmp_path / name).finished for name in RESUMED)
    run_team(go_on_all, after, tmp_path, limit=120)
    for name, (options, settings) in RESUMED.items():
        dataset = data(options)
        wanted = Training(quick(*settings), dataset, divided(dataset), listener=Recorder())
        summary, run = wanted.fit(), Run.open(tmp_path / name)
        assert [record["epoch"] for record in run.records()] == [*range(1, 9)]
        assert run.summary["processes"] == after
        wanted_scores = {key: value for key, value in summary["scores"]["test"].items() if not math.isnan(value)}
        found_scores = {key: run.summary["scores"]["test"][key] for key in wanted_scores}
        assert found_scores == pytest.approx(wanted_scores, abs=1e-4)
        found = Model.load(run.folder).network.state_dict()
        for key, tensor in wanted.network.state_dict().items():
            assert torch.allclose(found[key].float(), tensor.float(), atol=1e-4), key
        assert [each.name for each in run.folder.glob("checkpoint*")] == ["checkpoint.safetensors"]  # for more


# ---------------------------------------------------------------------------------------------- what is refused
def refused(kind: str) -> str:
    team = Team()
    dataset = one_graph(seed=team.rank if kind == "data" else 0)
    settings = {
        "settings": [f"lr={0.01 * (1 + team.rank)}"],
        "gcn": ["system=gcn"],
        "graph norm": ["norm=graph"],
        "ignn": ["system=ignn"],
    }.get(kind, [])
    try:
        Training(quick(*settings), dataset, divided(dataset), team=team)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("data", "All processes must have the same data, but that of process 1"),
        ("settings", "All processes must have the same settings, but that of process 1"),
        ("gcn", "One graph can be divided among processes where all layers are PPRConv, but"),
        ("ignn", "One graph can be divided among processes where all layers are PPRConv, but"),
        ("graph norm", "One graph can be divided among processes where all layers are PPRConv, but"),
    ],
)
def test_refused_by_all(kind, sentence):
    for said in run_team(refused, 2, kind):
        assert sentence in said


def test_kernels_are_fitted_by_one():
    dataset, config = several_graphs(), Config().with_settings(["system=wl"])
    with pytest.raises(TrainingError, match="Graph kernels are fitted by one process"):
        train(config, dataset=dataset, split=divided(dataset), team=_Two())


class _Two(Team):
    """Looks as two processes do."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 2

    def all_true(self, fact: bool) -> bool:
        return fact
