"""What every system must do, whoever wrote it: a case for each system and each kind of label."""

import inspect
import json
import math
import random
import signal
from dataclasses import fields
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

from pprgnn import GraphClassifier, NodeClassifier
from pprgnn.cli.main import app
from pprgnn.data.dataset import GraphDataset
from pprgnn.errors import DataError
from pprgnn.nn.network import Network
from pprgnn.training.build import Shape, build_network
from pprgnn.training.config import Config, ModelConfig, settings
from pprgnn.training.errors import TrainingError
from pprgnn.training.explain import explain_graph, explain_node
from pprgnn.training.explain_features import explain_features
from pprgnn.training.model import Model
from pprgnn.training.optimization import start_at_prior
from pprgnn.training.option import checked, tomllib
from pprgnn.training.run import Run
from pprgnn.training.system import EXTRAS
from pprgnn.training.systems import SYSTEMS, System, find_system
from pprgnn.training.train import resume, train
from tests.training.small_data import (
    Recorder,
    divided,
    facts,
    is_sentence,
    one_graph,
    random_edges,
    several_graphs,
)

IDS = [system.name for system in SYSTEMS]
EVERY = pytest.mark.parametrize("system", SYSTEMS, ids=IDS)
CASES = [(system, task) for system in SYSTEMS for task in system.tasks]
EACH = pytest.mark.parametrize(("system", "task"), CASES, ids=[f"{system.name}-{task}" for system, task in CASES])
ON_NODES = pytest.mark.parametrize(
    "system", [system for system, task in CASES if task == "node"], ids=lambda system: system.name
)
ON_GRAPHS = pytest.mark.parametrize(
    "system", [system for system, task in CASES if task == "graph"], ids=lambda system: system.name
)
EDGES_CHANGE_NOTHING = ("mlp", "structure-free")
SMALL = {
    "model.hidden": 8,
    "model.layers": 2,
    "model.dropout": 0.1,
    "lr": 0.02,
    "epochs": 4,
    "device": "cpu",
    "patience": 0,
    "eval_tol": 1e-6,
}
CLOSE = {"atol": 1e-4, "rtol": 1e-4}


def small(system: System, **changes) -> Config:
    """Its usual settings, but few of everything."""
    known = {each.key for each in settings(system.name)} | {each.name for each in settings(system.name)}
    wanted = {key: value for key, value in SMALL.items() if key in known}
    return Config.for_system(system.name).with_values(wanted | changes)


def has_epochs(system: System) -> bool:
    return system.kind in ("infinite", "network")


def trained(config: Config, dataset: GraphDataset, listener: Recorder | None = None) -> Model:
    return train(config, dataset=dataset, split=divided(dataset), listener=listener or Recorder()).model


@pytest.fixture(autouse=True)
def installed(request):
    system = request.node.callspec.params.get("system") if hasattr(request.node, "callspec") else None
    if system is not None and system.missing and "entry" not in request.node.name:
        pytest.skip(f"{system.title} needs {system.missing}")


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda file: None)


# ------------------------------------------------------------------------------------------------------- the data
@cache
def some_graphs() -> GraphDataset:
    """Graphs of one to seven nodes, each of one of four kinds, as atoms are; some without edges."""
    draw, made = torch.Generator().manual_seed(0), []
    for number in range(20):
        nodes = 1 + number % 7
        x = torch.eye(4)[torch.randint(4, (nodes,), generator=draw)]
        edges = random_edges(nodes, 3 * (number % 3), draw)
        made.append(Data(x=x, edge_index=edges, y=torch.tensor([number % 2]), num_nodes=nodes))
    return GraphDataset.from_graphs(made, facts("some", "graph", 2))


def data_for(task: str) -> GraphDataset:
    return one_graph() if task == "node" else some_graphs()


def changed(dataset: GraphDataset, change) -> GraphDataset:
    """The same data set, each graph changed."""
    return GraphDataset.from_graphs(
        [change(data.clone(), number) for number, data in enumerate(dataset)], dataset.facts
    )


def weighted(data: Data, number: int) -> Data:
    draw = torch.Generator().manual_seed(number)
    data.edge_weight = torch.rand(data.edge_index.size(1), generator=draw) + 0.2
    return data


def without_weights(data: Data, number: int) -> Data:
    del data.edge_weight
    return data


def renumbered(data: Data, number: int) -> Data:
    """Node ``i`` becomes ``places(number)[i]``."""
    places = order(data.num_nodes, number)
    new = data.clone()
    new.edge_index = places[data.edge_index]
    for name in ("x", "y"):
        if name in data and data[name].size(0) == data.num_nodes and (name == "x" or data.num_nodes > 7):
            new[name] = torch.empty_like(data[name]).index_copy_(0, places, data[name])
    return new


def order(nodes: int, number: int) -> torch.Tensor:
    return torch.randperm(nodes, generator=torch.Generator().manual_seed(number + 1))


# ------------------------------------------------------------------------------------------------- one short run
@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A short run of each system, made when it is needed; every test may read it."""

    @cache
    def folder(name: str, task: str) -> Path:
        path = tmp_path_factory.mktemp("runs") / name
        dataset = data_for(task)
        train(small(find_system(name)), dataset=dataset, split=divided(dataset), folder=path, listener=Recorder())
        return path

    return folder


@pytest.fixture
def model(runs, system, task) -> Model:
    return Model.load(runs(system.name, task))


# ------------------------------------------------------------------------------------------------------ the entry
@EVERY
def test_entry(system):
    assert system.name == system.name.lower()
    assert find_system(system.name.upper()) is system
    assert 1980 < system.year < 2027
    assert system.link.startswith("https://")
    assert system.paper
    assert system.summary.endswith(".")
    assert "\n" not in system.summary
    assert len(system.summary) < 110
    assert system.tasks
    assert set(system.tasks) <= {"node", "graph"}


def test_entries_are_told_apart():
    assert len(set(IDS)) == len(IDS)
    assert find_system("LP") is find_system("label-propagation")
    with pytest.raises(TrainingError, match="did you mean 'pprgnn'"):
        find_system("pprgn")


@EVERY
def test_entry_needs_what_an_extra_brings(system):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {EXTRAS[module] for module in system.requires} <= set(project["optional-dependencies"])


@EVERY
def test_entry_settings_are_valid(system):
    names = {each.name for each in settings()}
    assert set(system.reads) <= {each.name for each in fields(ModelConfig)} - {"system", "own"}
    assert not names & set(system.own_names), "a setting of its own must have a name of its own"
    for name, default, kind, text in system.describe_own():
        assert checked(system.own, "model.own", name, default, "The default") == default
        assert kind
        assert len(text) > 4
    read = {each.key: each for each in settings(system.name)}
    for key, value in system.settings.items():
        assert key in read, "usual settings must be among those that it reads"
        assert Config().with_values({"system": system.name, key: value}).value(key) == value
        assert value != {each.key: each.default for each in settings()}[key], "this is the default already"


@EVERY
def test_the_constructor_takes_what_is_read(system):
    """Every name, and every default: a network made by hand is the one that is trained."""
    known = inspect.signature(system.load()).parameters
    own = {name: default for name, default, *_ in system.describe_own()}
    if system.kind == "infinite":  # its layer stands in a network that reads the rest
        assert set(own) <= set(known)
    else:
        named = {name: each for name, each in known.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}
        assert list(known)[:3] == ["in_channels", "num_classes", "task"]
        assert set(named) == {*system.reads, *own, *system.facts}
        assert all(each.default is not inspect.Parameter.empty for each in named.values())
        assert set(known) == {"in_channels", "num_classes", "task", *named}
    assert {name: known[name].default for name in own} == own


# ------------------------------------------------------------------------------------------------------- building
@EACH
def test_builds_without_numbers_and_with_them(system, task):
    shape = Shape(task, 5, 3, typical_nodes=10 if task == "graph" else None)
    config = Config.for_system(system.name).model
    with torch.device("meta"):
        empty = build_network(config, shape)
    real = build_network(config, shape)
    sizes = {name: each.shape for name, each in real.named_parameters()}
    assert sizes == {name: each.shape for name, each in empty.named_parameters()}
    assert all(each.is_meta for each in empty.parameters())
    assert isinstance(real, Network)
    if has_epochs(system):
        assert sizes


@EVERY
def test_other_labels_are_refused_in_a_sentence(system):
    for task in {"node", "graph"} - set(system.tasks):
        with pytest.raises(TrainingError, match=f"labels are per {task}"):
            build_network(Config.for_system(system.name).model, Shape(task, 5, 3))


@EACH
def test_parameters_are_drawn_anew(system, task):
    network = build_network(small(system).model, Shape(task, 5, 3, typical_nodes=10 if task == "graph" else None))
    before = {name: each.clone() for name, each in network.named_parameters()}
    torch.manual_seed(1)
    network.reset_parameters()
    after = dict(network.named_parameters())
    assert {name: each.shape for name, each in after.items()} == {
        name: each.shape for name, each in before.items()
    }
    drawn = [
        name for name, each in after.items() if each.dim() > 1 and each.numel()
    ]  # an unfitted kernel has none
    assert not [name for name in drawn if torch.equal(after[name], before[name])]
    torch.manual_seed(1)
    network.reset_parameters()
    assert all(torch.equal(each, after[name]) for name, each in network.named_parameters())


# -------------------------------------------------------------------------------------------- training and keeping
@EACH
def test_trains_and_is_the_same_after_saving(runs, system, task):
    run = Run.open(runs(system.name, task))
    assert run.finished
    assert run.config.model == small(system).model
    assert 0 <= run.summary["scores"]["test"]["accuracy"] <= 1
    if has_epochs(system):
        losses = [record["loss"] for record in run.records()]
        assert min(losses) < losses[0], "it must learn something"
    dataset = data_for(task)
    first, second = Model.load(run.folder), Model.load(run.folder)
    logits = first.logits(dataset)
    rows = dataset.num_nodes if task == "node" else len(dataset)
    assert logits.shape == (rows, dataset.num_classes)
    assert bool(torch.isfinite(logits).all())
    assert torch.equal(logits, second.logits(dataset))
    assert torch.equal(logits, first.logits(dataset)), "predicting must not change the model"


@EACH
def test_a_second_training_gives_the_same_bits(runs, tmp_path, system, task):
    first = Model.load(runs(system.name, task))
    torch.rand(7)  # between the two, so that each draws its numbers from its seed alone
    np.random.rand(7)  # noqa: NPY002
    random.random()
    dataset, folder = data_for(task), tmp_path / "again"
    train(small(system), dataset=dataset, split=divided(dataset), folder=folder, listener=Recorder())
    second = Model.load(folder)
    state, wanted = second.network.state_dict(), first.network.state_dict()
    assert state.keys() == wanted.keys()
    assert not [name for name, tensor in wanted.items() if not torch.equal(state[name], tensor)]
    assert torch.equal(second.logits(dataset), first.logits(dataset))


class Stopper(Recorder):
    """Presses Ctrl-C after the first epoch."""

    def epoch(self, record):
        super().epoch(record)
        if record.epoch == 1:
            signal.raise_signal(signal.SIGINT)


@EACH
def test_stopped_and_resumed_it_ends_as_if_it_had_not_been(runs, tmp_path, system, task):
    dataset = data_for(task)
    stopped = train(
        small(system), dataset=dataset, split=divided(dataset), folder=tmp_path / "run", listener=Stopper()
    )
    if not stopped.summary["finished"]:  # a kernel is done in one go
        assert stopped.summary["epochs"] in (1, 2)  # of an epoch one may be told during the next pass
        resume(tmp_path / "run", listener=Recorder())
    mine, theirs = Run.open(tmp_path / "run"), Run.open(runs(system.name, task))
    for first, second in zip(mine.records(), theirs.records(), strict=True):
        assert first | {"seconds": 0} == second | {"seconds": 0}
    assert mine.summary["scores"] == theirs.summary["scores"]
    state, wanted = (Model.load(each.folder).network.state_dict() for each in (mine, theirs))
    assert state.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(state[name], tensor), name


# ------------------------------------------------------------------------------------------------------- symmetry
@EACH
def test_the_numbering_of_nodes_does_not_matter(model, system, task):
    dataset = data_for(task)
    if not system.new_graphs:
        with pytest.raises(TrainingError, match="labels of its training nodes") as caught:
            model.logits(changed(dataset, renumbered))
        assert is_sentence(str(caught.value))
        return
    logits, other = model.logits(dataset), model.logits(changed(dataset, renumbered))
    torch.testing.assert_close(other[order(len(logits), 0)] if task == "node" else other, logits, **CLOSE)


@ON_GRAPHS
def test_other_graphs_of_the_batch_do_not_matter(runs, system):
    model, dataset = Model.load(runs(system.name, "graph")), some_graphs()
    together = model.logits(dataset)
    for number in (0, 5, 13):  # one node, no edges, some edges
        torch.testing.assert_close(model.logits(dataset[[number]])[0], together[number], **CLOSE)


@EACH
def test_plain_edges_and_an_adjacency_give_the_same(model, system, task):
    """Whoever calls the network by hand has an ``edge_index``."""
    dataset = data_for(task)
    batch = torch.repeat_interleave(torch.tensor(dataset.graph_sizes)) if task == "graph" else None
    starts = torch.tensor(dataset.graph_sizes).cumsum(0) - torch.tensor(dataset.graph_sizes)
    edges = torch.cat([data.edge_index + start for data, start in zip(dataset, starts, strict=True)], 1)
    x = model.features(dataset)
    with model.precise(), torch.no_grad():
        by_hand = model.network(x, edges, None, batch, len(dataset) if task == "graph" else None)
    torch.testing.assert_close(by_hand, model.logits(dataset), **CLOSE)


@EACH
def test_a_deterministic_encoding_is_one(model, system, task):
    if not model.network.encode_is_deterministic:
        pytest.skip("it does not claim to be")
    batches = model.batches(data_for(task))
    batch = batches.batch(batches.all_graphs())
    with torch.no_grad():
        states = []
        for training in (False, True, True):
            model.network.train(training)
            states.append(model.network.encode(batch.x, batch.edges, batch.edge_weight))
    for state in states[1:]:
        torch.testing.assert_close(state.to_dense(), states[0].to_dense(), atol=1e-3, rtol=1e-3)


# --------------------------------------------------------------------------------------------- all kinds of graphs
@EACH
def test_edge_weights_are_used_or_refused(model, system, task):
    dataset = changed(data_for(task), weighted)
    if not system.edge_weights:
        for use in (
            lambda: model.logits(dataset),
            lambda: trained(small(system, epochs=1), dataset),
        ):
            with pytest.raises(DataError, match="weight") as caught:
                use()
            assert is_sentence(str(caught.value))
        return
    weighing = trained(small(system, epochs=1), dataset)
    with_weights = (model if system.new_graphs else weighing).logits(dataset)
    without = model.logits(data_for(task))
    assert torch.allclose(with_weights, without) == (system.name in EDGES_CHANGE_NOTHING)


@ON_NODES
def test_a_graph_without_edges(system):
    dataset = one_graph(edges=0)
    model = trained(small(system, epochs=2), dataset)
    assert bool(torch.isfinite(model.logits(dataset)).all())


@ON_NODES
def test_learned_rows_stand_for_features(system):
    dataset = one_graph(channels=0)
    model = trained(small(system, epochs=2), dataset)
    assert model.network.num_nodes == (dataset.num_nodes if has_epochs(system) else None)
    assert bool(torch.isfinite(model.logits(dataset)).all())


@ON_NODES
def test_several_labels(system):
    dataset = one_graph(multi_label=True)
    classifier = NodeClassifier(system=system.name)
    classifier.config = small(system, epochs=2)
    found = classifier.fit(dataset, split=divided(dataset)).predict()
    assert found.shape == (dataset.num_nodes, 3)
    assert set(found.unique().tolist()) <= {0, 1}


@EACH
def test_the_start_at_the_prior(model, system, task):
    """Without anything else, the logits are in the order of the classes' frequencies."""
    if not has_epochs(system):
        pytest.skip("nothing is learned step by step")
    normed = model.config.with_values({"model.norm": "layer"} if "norm" in system.reads else {})
    network = model.network = build_network(normed.model, model.shape).eval()
    for name, parameter in network.named_parameters():
        if not name.endswith("gamma"):  # with which GPR-GNN weighs hops, also of the bias
            parameter.data.zero_()
    labels, classes = torch.tensor([1, 1, 1, 0]), model.shape.num_classes
    start_at_prior(network, labels, classes)
    logits = model.logits(data_for(task))
    assert logits.argsort(descending=True, stable=True)[:, :2].unique(dim=0).tolist() == [[1, 0]]


@ON_NODES
def test_several_graphs_of_nodes(system):
    """Of one to seven nodes, each a batch of its own."""
    dataset = changed(several_graphs(7, task="node"), without_weights)
    if not system.new_graphs:
        with pytest.raises(TrainingError, match="has 7 graphs") as caught:
            trained(small(system, epochs=1), dataset)
        assert is_sentence(str(caught.value))
        return
    model = trained(small(system, epochs=1), dataset)
    logits = model.logits(dataset)
    assert logits.shape == (dataset.num_nodes, 2)
    torch.testing.assert_close(
        model.logits(dataset[[2]]), logits[3:6], **CLOSE
    )  # after those of one and two nodes


# ------------------------------------------------------------------------------------------------ from the outside
@EACH
def test_classifiers_take_every_system(system, task):
    kind = NodeClassifier if task == "node" else GraphClassifier
    own = {name: default for name, default, *_ in system.describe_own()}
    classifier = kind(system=system.name, epochs=1, device="cpu", **own)
    name = "" if system.name == "pprgnn" else f"system='{system.name}', "
    assert repr(classifier) == f"{kind.__name__}({name}epochs=1, device='cpu')"
    assert classifier.get_params()["system"] == system.name
    assert kind(**classifier.get_params()).config == classifier.config
    if "hidden" in system.reads:
        assert "hidden=5" in repr(classifier.set_params(hidden=5))


@EACH
def test_explains_or_says_why_not(model, system, task):
    dataset = data_for(task)
    explain = explain_node if task == "node" else explain_graph
    place = {"node": 3} if task == "node" else {"graph": 3}
    if system.kind == "kernel" or not system.whole_gradient:
        with pytest.raises(TrainingError, match="cannot be explained") as caught:
            explain(model, dataset, 3)
        assert is_sentence(str(caught.value))
        with pytest.raises(TrainingError, match="cannot be explained"):
            explain_features(model, dataset, **place)
        return
    found = explain(model, dataset, 3)
    assert math.isfinite(found.decision.score)
    assert found.decision.score == pytest.approx(
        found.decision.inputs + found.decision.biases + found.decision.rest, abs=1e-4
    )
    by_feature = explain_features(model, dataset, top=99, **place)
    assert by_feature.score == pytest.approx(found.decision.score, abs=1e-4)
    difference = by_feature.score - by_feature.baseline
    assert sum(each.contribution for each in by_feature.features) == pytest.approx(difference, rel=0.02, abs=1e-3)


@pytest.mark.parametrize("name", ["gat", "eignn"])
def test_the_command_line_takes_them(name, tmp_path):
    command = ["train", "chains", "--model", name, "--set", "options.length=3", "--set", "epochs=1"]
    done = CliRunner().invoke(app, [*command, "--set", "hidden=4", "-o", str(tmp_path / "run"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["finished"]
    assert Run.open(tmp_path / "run").config.model.system == name
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "run"), "-o", str(tmp_path / "out.csv")])
    assert done.exit_code == 0, done.output


def test_the_command_line_explains_or_says_why_not(runs):
    done = CliRunner().invoke(app, ["explain", str(runs("gat", "node")), "--node", "3"])
    assert done.exit_code == 0, done.output
    assert "95 % of the influence" in done.output
    if not find_system("gk").missing:
        done = CliRunner().invoke(app, ["explain", str(runs("gk", "graph")), "--graph", "3"])
        assert done.exit_code == 1
        assert done.stderr.startswith("Error: What GK decides cannot be explained")
