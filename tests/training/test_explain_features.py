"""Features: what they add is complete, is that of a linear model, and points to the feature that decides."""

import json
import math

import pytest
import torch
from torch_geometric.data import Data

from pprgnn.data.dataset import GraphDataset
from pprgnn.data.own.tables import from_tables
from pprgnn.nn.infinite_layer import depth_state
from pprgnn.training.attribution import ENOUGH, FEWEST, MOST, ROUNDING
from pprgnn.training.errors import TrainingError
from pprgnn.training.explain import explain_graph, explain_node
from pprgnn.training.explain_features import drawn_rows, explain_features, feature_columns, overall_features
from pprgnn.training.model import Model
from pprgnn.training.train import train

from ..problems import ZOO
from .small_data import divided, facts, is_sentence, one_graph, quick, several_graphs, without_signs
from .test_explain import of_graph, untrained


def trained(dataset, folder, *settings):
    train(quick("epochs=15", *settings), dataset=dataset, split=divided(dataset), folder=folder)
    return Model.load(folder)


def added(found):
    return sum(each.contribution for each in found.features)


# --------------------------------------------------------------------------------------------------- what adds up
@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("layers=3", "residual=true"),
        ("activation=tanh",),
        ("norm=batch", "layers=2"),
        ("system=gcn", "layers=2"),
        ("system=gat", "layers=2"),
        ("system=mlp", "layers=2"),
        ("system=ignn",),
        ("system=appnp",),
    ],
)
def test_what_features_of_a_trained_network_add_is_complete(settings, tmp_path):
    dataset = one_graph()
    model = trained(dataset, tmp_path / "run", *settings)
    for node, target in ((0, None), (7, 1), (29, 2)):
        found = explain_features(model, dataset, node, target=target, top=8)
        decision = explain_node(model, dataset, node, target=target).decision
        assert found.target == decision.target
        assert found.score == pytest.approx(decision.score, rel=1e-4, abs=1e-5)
        empty = dataset.copy()
        empty._data.x = torch.zeros_like(dataset._data.x)
        wanted = model.facts.class_names.index(found.target)
        without = explain_node(model, empty, node, target=wanted).decision.score
        assert found.baseline == pytest.approx(without, rel=1e-3, abs=1e-4)
        assert added(found) + found.residual == pytest.approx(found.score - found.baseline, rel=1e-9)
        missing = abs(found.score - found.baseline - added(found))
        assert missing <= 0.02 * abs(found.score - found.baseline) + 1e-4, (found, settings)
        assert 2 * FEWEST - 1 <= found.gradients <= 2 * MOST - 1


@pytest.mark.parametrize("settings", [(), ("system=gin",), ("system=gcn", "pooling=mean")])
def test_what_features_of_a_graph_add_is_complete(settings, tmp_path):
    dataset = several_graphs()
    model = trained(dataset, tmp_path / "run", *settings)
    for graph in (0, 5, 13):
        found = explain_features(model, dataset, graph=graph)
        assert found.score == pytest.approx(
            explain_graph(model, dataset, graph).decision.score, rel=1e-4, abs=1e-5
        )
        missing = abs(found.score - found.baseline - added(found))
        assert missing <= 0.02 * abs(found.score - found.baseline) + 1e-4
        assert [each.own for each in found.features] == [each.contribution for each in found.features]
        means = dict(enumerate(dataset[graph].x.mean(0).tolist()))
        for each in found.features:
            assert each.value == pytest.approx(means[int(each.name.removeprefix("feature "))], abs=1e-6)


def test_pieces_are_halved_until_enough_adds_up(monkeypatch):
    from pprgnn.training import attribution

    dataset = of_graph(ZOO["karate"])
    model = untrained(dataset, "hidden=6", "layers=2", "activation=tanh")
    fine = explain_features(model, dataset, 5)
    assert fine.gradients > 2 * FEWEST - 1
    assert abs(fine.residual) <= ENOUGH * abs(fine.score - fine.baseline) + 2 * ROUNDING * abs(fine.score)
    monkeypatch.setattr(attribution, "PATIENCE", 0.0)
    hasty = explain_features(model, dataset, 5)
    assert hasty.gradients == 2 * FEWEST - 1
    assert abs(fine.residual) < abs(hasty.residual)
    monkeypatch.setattr(attribution, "MOST", 1)
    coarse = explain_features(model, dataset, 5)
    assert coarse.gradients == 1
    assert abs(coarse.residual) > 2 * abs(fine.residual)  # and it is told


# ----------------------------------------------------------------------------------------------------- is it right
def test_a_linear_model_gives_weight_times_input():
    dataset = of_graph(ZOO["karate"])
    model = untrained(dataset, "system=mlp", "layers=1")
    weights, biases = sorted((each.detach() for each in model.network.parameters()), key=lambda p: -p.dim())
    weight = weights[1] - (weights[0] + weights[2]) / 2
    bias = float(biases[1] - (biases[0] + biases[2]) / 2)
    for node in (0, 12):
        found = explain_features(model, dataset, node, target=1, top=4)
        expected = weight * dataset._data.x[node]
        for each in found.features:
            place = int(each.name.removeprefix("feature "))
            assert each.contribution == pytest.approx(float(expected[place]), rel=1e-4, abs=1e-6)
            assert each.own == pytest.approx(each.contribution, rel=1e-6)
            assert each.value == pytest.approx(float(dataset._data.x[node, place]))
        assert found.baseline == pytest.approx(bias, rel=1e-4)
        assert found.residual == pytest.approx(0, abs=1e-5)
        assert found.gradients == 2 * FEWEST - 1
        sizes = [abs(each.contribution) for each in found.features]
        assert sizes == sorted(sizes, reverse=True)


def test_without_biases_it_is_gradient_times_input():
    dataset = of_graph(ZOO["karate"])
    model = untrained(dataset, "bias=false", "hidden=6", "eps=0.3", "eval_tol=1e-7")
    model.network.head.bias.data.zero_()
    found, by_node = explain_features(model, dataset, 3, top=4), explain_node(model, dataset, 3, top=34)
    assert found.baseline == 0
    assert added(found) == pytest.approx(by_node.decision.inputs, rel=1e-4)
    here = next(each.contribution for each in by_node.influential if each.node == 3)
    assert sum(each.own for each in found.features) == pytest.approx(here, rel=1e-3)


@pytest.mark.parametrize("settings", [("epochs=60",), ("system=gcn", "layers=2", "epochs=60")])
def test_a_feature_that_alone_decides_is_found(settings, tmp_path):
    draw = torch.Generator().manual_seed(0)
    dataset = one_graph(200, 2, channels=6, edges=60)
    dataset._data.x = torch.randn(200, 6, generator=draw)
    dataset._data.y = (dataset._data.x[:, 4] > 0).long()
    train(quick(*settings), dataset=dataset, split=divided(dataset), folder=tmp_path / "run")
    model = Model.load(tmp_path / "run")
    batches = model.batches(dataset)
    overall = overall_features(model, batches, drawn_rows(batches, torch.ones(200, dtype=torch.bool), 40))
    assert overall.samples == 40
    assert overall.features[0].name == "feature 4"
    assert overall.features[0].share > 2 * overall.features[1].share
    assert sum(each.share for each in overall.features) == pytest.approx(1)
    found = explain_features(model, dataset, 199)
    assert found.features[0].name == "feature 4"  # alone in the graph: nothing but its own features
    assert found.features[0].contribution > 0
    assert all(each.own == pytest.approx(each.contribution) for each in found.features)


# ----------------------------------------------------------------------------------------------------------- names
EDGES = "source,target\n" + "".join(f"p{i},p{(i + 1) % 12}\n" for i in range(12))
NODES = "id,age,city,joined,team\n" + "".join(
    f"p{i},{20 + 3 * i},{('Oslo', 'Rome', '')[i % 3]},2020-01-{i + 1:02},{('red', 'blue')[i % 2]}\n"
    for i in range(12)
)


@pytest.fixture
def people(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    (tmp_path / "nodes.csv").write_text(NODES)
    return from_tables(tmp_path / "edges.csv", tmp_path / "nodes.csv", label="team", name="people")


def test_names_and_values_are_those_of_the_table(people):
    model = untrained(people, "hidden=6")
    names = ["age", "city = Oslo", "city = Rome", "city is missing", "joined"]
    columns = feature_columns(model, people)
    assert [each.name for each in columns] == names
    assert [each.source for each in columns] == ["age", "city", "city", "city", "joined"]
    for node in (0, 4, 11):
        found = explain_features(model, people, node)
        assert (found.num_features, {each.name for each in found.features}) == (5, set(names))
        values = {each.name: each.value for each in found.features}
        assert values["age"] == pytest.approx(20 + 3 * node, rel=1e-5)
        assert [values[name] for name in names[1:4]] == [float(i == node % 3) for i in range(3)]
    json.dumps(found.to_dict())


def test_columns_of_one_column_are_summed_up(people):
    model = untrained(people, "hidden=6")
    batches = model.batches(people)
    overall = overall_features(model, batches, {0: [2, 5, 9]})
    assert overall.samples == 3
    assert {each.name for each in overall.features} == {"age", "city", "joined"}
    each = [explain_features(model, people, node) for node in (2, 5, 9)]
    cities = [sum(one.contribution for one in found.features if one.name.startswith("city")) for found in each]
    expected = sum(map(abs, cities)) / 3
    found = {one.name: one.importance for one in overall.features}
    assert found["city"] == pytest.approx(expected, rel=1e-5)
    missed = sum(abs(one.residual) for one in each) / sum(abs(one.score - one.baseline) for one in each)
    assert overall.residual == pytest.approx(missed, rel=1e-3, abs=1e-6)
    assert overall.gradients == sum(one.gradients for one in each)
    sizes = [one.importance for one in overall.features]
    assert sizes == sorted(sizes, reverse=True)
    json.dumps(overall.to_dict())


@pytest.mark.parametrize("kind", ["normalized", "given+degree", "degree", "given+labels", "labels", "edges"])
def test_every_kind_of_features_has_names(kind, people, tmp_path):
    people._data.edge_attr = torch.ones(people._data.edge_index.size(1), 2)
    if kind == "normalized":
        without_signs(people)
    architecture = ("architecture=labels",) if kind == "labels" else ()
    model = trained(people, tmp_path / "run", f"features={kind}", *architecture)
    names = [each.name for each in feature_columns(model, people)]
    assert len(names) == len(set(names)) == model.shape.in_channels
    assert ("age" in names) == (kind in ("normalized", "given+degree", "given+labels", "edges"))
    expected = {
        "given+degree": "degree = 9 or more",
        "degree": "log(1 + degree)",
        "labels": "label = red",
        "given+labels": "label is known",
        "edges": "sum of edge attribute 1",
    }
    assert kind == "normalized" or expected[kind] in names
    assert explain_features(model, people, 3, top=99).num_features == len(names)


def test_without_names_features_are_numbered():
    dataset = of_graph(ZOO["path"])
    found = explain_features(untrained(dataset, "hidden=6"), dataset, 3, top=2)
    assert len(found.features) == 2
    assert {each.name for each in found.features} <= {f"feature {i}" for i in range(4)}


# -------------------------------------------------------------------------------------------------- many decisions
def test_rows_are_drawn_from_a_mask_and_are_always_the_same():
    dataset = several_graphs(task="node")
    batches = untrained(dataset, "hidden=6").batches(dataset)
    mask = torch.arange(dataset.num_nodes) % 3 == 0
    drawn = drawn_rows(batches, mask, 10)
    assert drawn == drawn_rows(batches, mask, 10)
    starts = batches.starts.tolist()
    rows = [starts[graph] + node for graph, nodes in drawn.items() for node in nodes]
    assert len(set(rows)) == 10
    assert bool(mask[rows].all())
    assert sum(map(len, drawn_rows(batches, mask, 999).values())) == int(mask.sum())
    graphs = several_graphs()
    batches = untrained(graphs, "hidden=6").batches(graphs)
    mask = torch.arange(len(graphs)) > 20
    assert drawn_rows(batches, mask, 9) == {graph: [0] for graph in drawn_rows(batches, mask, 9)}
    assert set(drawn_rows(batches, mask, 9)) == {21, 22, 23}


def test_one_may_stop_early():
    dataset = several_graphs(task="node")
    model = untrained(dataset, "hidden=6")
    batches, asked = model.batches(dataset), []
    rows = {2: [0, 1], 3: [0], 6: [3, 4]}
    found = overall_features(model, batches, rows, lambda done: asked.append(done) or done < 4)
    assert (found.samples, asked) == (4, [1, 2, 3, 4])
    assert overall_features(model, batches, rows, lambda done: False).samples == 1


def test_it_is_deterministic_and_leaves_the_model_as_it_was():
    dataset = of_graph(ZOO["karate"])
    model = untrained(dataset, "hidden=6", "layers=2", "grad_terms=3")
    model.network.train()
    model.logits(dataset)
    before = depth_state(model.network)[0]
    first = explain_features(model, dataset, 7).to_dict()
    assert explain_features(model, dataset, 7).to_dict() == first
    assert depth_state(model.network)[0] == before
    assert model.network.training
    assert all(each.requires_grad and each.grad is None for each in model.network.parameters())
    assert all(math.isfinite(each["contribution"]) for each in first["features"])


# ---------------------------------------------------------------------------------------------------------- errors
def test_what_has_no_features_or_no_gradient_says_so(tmp_path):
    dataset = one_graph(channels=0)
    model = untrained(dataset, "hidden=6")
    with pytest.raises(TrainingError, match="reads no features") as caught:
        explain_features(model, dataset, 3)
    assert is_sentence(str(caught.value))
    with pytest.raises(TrainingError, match="reads no features"):
        overall_features(model, model.batches(dataset), {0: [3]})
    dataset = one_graph()
    model = trained(dataset, tmp_path / "run", "system=sse")
    for question in (
        lambda: explain_features(model, dataset, 3),
        lambda: overall_features(model, model.batches(dataset), {0: [3]}),
    ):
        with pytest.raises(TrainingError, match="cannot be explained, because there is no gradient"):
            question()


def test_a_score_that_is_not_finite_on_the_way_is_an_error(monkeypatch):
    dataset = of_graph(ZOO["path"])
    model = untrained(dataset, "hidden=6")
    encode = model.network.encode
    monkeypatch.setattr(
        model.network, "encode", lambda x, *more: encode(x, *more) / (x.detach().abs().sum() != 0).float()
    )
    with pytest.raises(TrainingError, match="not finite when features are smaller") as caught:
        explain_features(model, dataset, 3)
    assert is_sentence(str(caught.value))


def test_nodes_without_edges():
    data = Data(edge_index=torch.empty(2, 0).long(), x=torch.eye(8), y=torch.arange(8) % 2, num_nodes=8)
    dataset = GraphDataset.from_graphs([data], facts("lonely", "node", 2))
    found = explain_features(untrained(dataset, "hidden=6"), dataset, 3)
    assert [each.name for each in found.features] == ["feature 3"]  # those that are 0 add nothing
