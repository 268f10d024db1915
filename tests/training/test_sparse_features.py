"""Sparse features all the way: each system answers as with dense ones, and runs are trained, kept, explained."""

import pytest
import torch
from torch_geometric.data import Data

from pprgnn import NodeClassifier
from pprgnn.data import from_pyg
from pprgnn.data.sparse_features import is_sparse, row_norms
from pprgnn.data.store import open_file, save
from pprgnn.nn.conv_nets import SUMMING, ConvStack
from pprgnn.training.batches import Batches
from pprgnn.training.build import Shape, build_network, digest, features
from pprgnn.training.config import Config
from pprgnn.training.explain import explain_node
from pprgnn.training.explain_features import explain_features
from pprgnn.training.few_nodes import FewNodes
from pprgnn.training.label_input import VisibleLabels
from pprgnn.training.memory import estimate
from pprgnn.training.model import Model
from pprgnn.training.systems import SYSTEMS
from pprgnn.training.train import resume, train

from .small_data import Recorder, divided, quick, wide_graph, with_dense_features

SYSTEMS_OF_NODES = [each.name for each in SYSTEMS if "node" in each.tasks and each.kind != "labels"]


@pytest.fixture(scope="module")
def both():
    """The same data set, its features sparse and dense."""
    dataset = wide_graph()
    assert is_sparse(dataset._data.x)
    return dataset, with_dense_features(dataset)


def untrained(dataset, *settings, kind="given"):
    config = Config().with_settings(["hidden=8", *settings])
    shape = Shape.of(dataset, features(dataset, kind))
    torch.manual_seed(0)
    return Model(build_network(config.model, shape), config, dataset.facts, shape, kind)


# ------------------------------------------------------------------------------------------------------- systems
@pytest.mark.parametrize("system", SYSTEMS_OF_NODES)
def test_every_system_answers_as_with_dense_features(system, both):
    one, other = (untrained(dataset, f"system={system}").logits(dataset) for dataset in both)
    assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("system", SYSTEMS_OF_NODES)
def test_every_system_learns_as_with_dense_features(system, both):
    """Without dropout nothing is random; what those with steps of their own draw does not depend on features."""
    found = []
    for dataset in both:
        config = quick(f"system={system}", "epochs=3", *_without_randomness(system))
        found.append(train(config, dataset=dataset, split=divided(dataset)).model.logits(dataset))
    assert torch.allclose(*found, atol=1e-3)


def _without_randomness(system):
    random = {"gat": "own.attention_dropout=0", "dropedge": "own.drop_rate=0", "gind": "input_dropout=0"}
    return [random[system]] if system in random else []


@pytest.mark.parametrize("system", SYSTEMS_OF_NODES)
def test_every_system_learns_with_dropout(system, both):
    recorder, dataset = Recorder(), both[0]
    config = quick(f"system={system}", "epochs=3", "dropout=0.5")
    trained = train(config, dataset=dataset, split=divided(dataset), listener=recorder)
    assert recorder.warnings == []
    assert bool(torch.isfinite(trained.model.logits(dataset)).all())


@pytest.mark.parametrize(
    "settings", [["input_dropout=0.3"], ["system=gcn"], ["system=mlp"], ["system=appnp"]], ids=str
)
def test_dropout_does_not_hinder_learning(settings, both):
    config = quick(*settings, "dropout=0.5", "epochs=60")
    summary = train(config, dataset=both[0], split=divided(both[0])).summary
    assert summary["scores"]["train"]["accuracy"] > 0.6  # the edges are random


@pytest.mark.parametrize(
    "settings",
    [
        ("residual=true", "hidden=100"),  # the features themselves would be added
        ("residual=true", "layers=2"),
        ("input_layer=true", "smooth_input=true"),
        ("architecture=ppi",),
        ("jk=cat", "layers=2", "norm=batch"),
    ],
    ids=str,
)
def test_networks_to_put_together(settings, both):
    one, other = (untrained(dataset, *settings).logits(dataset) for dataset in both)
    assert torch.allclose(one, other, atol=1e-5)
    train(quick("epochs=2", *settings), dataset=both[0], split=divided(both[0]))


@pytest.mark.parametrize("conv", ["gcn", "gat", "gatv2", "gin", "sage", "graph", "transformer"])
def test_convolutions_of_pyg(conv, both):
    network = ConvStack(100, 3, conv=conv, hidden=8, heads=2).eval()
    one, other = (network(dataset._data.x, dataset[0].edge_index) for dataset in both)
    assert torch.allclose(one, other, atol=1e-5)
    assert network.linear_first == (conv not in SUMMING)


def test_nothing_is_ever_as_large_as_the_dense_matrix(tmp_path):
    """Of 160 GB here: whatever made it dense would fail."""
    nodes, columns, draw = 40_000, 1_000_000, torch.Generator().manual_seed(0)
    place = torch.stack([torch.randint(size, (500,), generator=draw) for size in (nodes, columns)])
    x = torch.sparse_coo_tensor(place, torch.ones(500), (nodes, columns))
    data = Data(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.arange(nodes) % 2, num_nodes=nodes)
    save(from_pyg(data), tmp_path / "huge.safetensors")
    dataset = open_file(tmp_path / "huge.safetensors")
    for settings in (["input_dropout=0.5", "features=normalized"], ["system=gcn"], ["system=mlp"]):
        config = quick("epochs=1", "hidden=2", *settings, "dropout=0.5")
        model = train(config, dataset=dataset, split=divided(dataset)).model
        assert model.logits(dataset).shape == (nodes, 2)
    assert features(dataset, "given+degree").shape == (nodes, columns + 10)


# ------------------------------------------------------------------------------------------- features and batches
@pytest.mark.parametrize("kind", ["given", "normalized", "given+degree", "given+labels", "degree"])
def test_kinds_of_features(kind, both):
    visible = VisibleLabels.of(both[0], torch.arange(40) < 20, kind)
    one, other = (features(dataset, kind, visible) for dataset in both)
    assert is_sparse(one) == (kind != "degree")
    assert torch.allclose(one.to_dense(), other)


def test_attributes_of_edges_beside_the_features(both):
    for dataset in both:
        dataset._data.edge_attr = torch.arange(dataset._data.edge_index.size(1)).float()
    one, other = (features(dataset, "edges") for dataset in both)
    assert torch.equal(one.to_dense(), other)
    for dataset in both:
        del dataset._data.edge_attr


def test_labels_of_scored_nodes_are_hidden(both):
    visible = VisibleLabels.of(both[0], torch.arange(40) < 20, "given+labels")
    batches = [
        Batches(dataset, features(dataset, "given+labels", visible), None, torch.device("cpu"), visible.width)
        for dataset in both
    ]
    one, other = (each.batch(each.all_graphs(), torch.arange(40) < 5, hide=True) for each in batches)
    assert torch.equal(one.x.to_dense(), other.x)
    assert float(other.x[:5, 100:].abs().sum()) == 0 < float(other.x[5:20, 100:].sum())
    trained = train(quick("epochs=3", "features=given+labels"), dataset=both[0], split=divided(both[0]))
    assert trained.model.visible is not None


def test_what_is_not_finite_is_named(both):
    dataset = wide_graph()
    dataset._data.x.values()[0] = torch.nan
    column = int(dataset._data.x.col_indices()[0])
    with pytest.raises(Exception, match=f"feature {column} of node 0 of wide is nan; fill or drop such values"):
        features(dataset, "given")


def test_other_features_have_another_digest(both):
    other = wide_graph()
    assert digest(other) == digest(both[0])
    other._data.x.values()[3] += 1
    assert digest(other) != digest(both[0])


def test_less_memory_is_planned_for(both):
    config, shape = Config(), Shape.of(both[1], both[1]._data.x)
    one, other = (estimate(config, each, each._data.x, shape, False).parts["for the data"] for each in both)
    assert one < 0.3 * other == 0.3 * 40 * 100 * 4


# ------------------------------------------------------------------------------------------------ after training
@pytest.mark.parametrize("system", ["pprgnn", "gcn", "mlp", "gin", "sse"])
def test_a_run_is_kept_and_goes_on(system, both, tmp_path):
    config = quick(f"system={system}", "epochs=2", "dropout=0.5")
    train(config, dataset=both[0], split=divided(both[0]), folder=tmp_path / "run")
    kept = open_file(next((tmp_path / "run").glob("*data*.safetensors")))
    assert is_sparse(kept._data.x)
    model = Model.load(tmp_path / "run")
    assert torch.allclose(model.logits(kept), model.logits(both[1]), atol=1e-5)
    longer = resume(tmp_path / "run", changes=["epochs=4"]).model
    once = train(config.with_settings(["epochs=4"]), dataset=both[0], split=divided(both[0])).model
    assert torch.allclose(longer.logits(kept), once.logits(kept), atol=1e-5)


def test_explanations_are_those_of_dense_features(both):
    model = untrained(both[0], "eval_tol=1e-7")
    nodes = [explain_node(model, dataset, 4) for dataset in both]
    assert nodes[0].decision.score == pytest.approx(nodes[1].decision.score, rel=1e-4)
    assert nodes[0].share_by_distance == pytest.approx(nodes[1].share_by_distance, abs=1e-4)
    one, other = (explain_features(model, dataset, 4) for dataset in both)
    assert [each.name for each in one.features] == [each.name for each in other.features]
    for mine, theirs in zip(one.features, other.features, strict=True):
        assert mine.value == theirs.value
        assert mine.contribution == pytest.approx(theirs.contribution, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("kind", ["given", "normalized", "given+degree"])
def test_a_few_nodes(kind, both):
    model, asked = untrained(both[0], "eps=1.0", "eval_tol=1e-4", kind=kind), [3, 17]
    one, other = (FewNodes(model, dataset) for dataset in both)
    assert one.size == pytest.approx(other.size, rel=1e-5)
    assert torch.allclose(one.logits(asked)[0], other.logits(asked)[0], atol=1e-3)
    found = one._features(torch.tensor(asked))
    assert torch.allclose(found.to_dense(), other._features(torch.tensor(asked)))
    if kind == "normalized":
        assert torch.allclose(row_norms(found, 1), torch.ones(2))


def test_in_the_manner_of_scikit_learn(both, tmp_path):
    model = NodeClassifier(hidden=8, epochs=2).fit(both[0])
    model.save(tmp_path / "wide.safetensors")
    again = NodeClassifier.load(tmp_path / "wide.safetensors")
    data = both[1][0]
    for x in (data.x, data.x.to_sparse_coo(), data.x.to_sparse_csr()):
        graph = Data(x=x, edge_index=data.edge_index, num_nodes=40)
        assert torch.equal(again.predict(graph), model.predict())
