"""Explanations: they add up to the score, agree with a dense reference, and point where the information is."""

import json
import math

import pytest
import torch
from torch_geometric.data import Data

from pprgnn.core.depth import Measured
from pprgnn.data import load
from pprgnn.data.dataset import Facts, GraphDataset, find_node, node_name
from pprgnn.errors import DataError
from pprgnn.nn.infinite_layer import depth_state
from pprgnn.nn.network import ppr_layers
from pprgnn.training import attribution, memory
from pprgnn.training.build import Shape, build_network, feature_kind, features
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.explain import explain_graph, explain_node
from pprgnn.training.model import Model
from pprgnn.training.reach import hops_to

from .. import reference
from ..problems import ZOO, random_graph

NO_BIAS = ("bias=false", "hidden=6", "eps=0.3", "eval_tol=1e-7")


def untrained(dataset, *settings, norm=1.5, seed=0):
    """A model with random weights, ‖W‖₂ = norm; where it has biases, none of them is 0."""
    config = Config().with_settings(settings)
    kind = feature_kind(dataset, config.data.features)
    shape = Shape.of(dataset, features(dataset, kind))
    torch.manual_seed(seed)
    network = build_network(config.model, shape)
    with torch.no_grad():
        for _, layer in ppr_layers(network):
            layer.weight.mul_(norm / torch.linalg.matrix_norm(layer.weight, ord=2))
        for name, parameter in network.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    return Model(network.eval(), config, dataset.facts, shape, kind)


def without_head_bias(model):
    model.network.head.bias.data.zero_()
    return model


def of_graph(graph, *, classes=3, multi_label=False, channels=4, seed=0):
    draw = torch.Generator().manual_seed(seed)
    data = Data(edge_index=graph.edge_index, num_nodes=graph.num_nodes)
    if graph.edge_weight is not None:
        data.edge_weight = graph.edge_weight.float()
    if channels:
        data.x = torch.randn(graph.num_nodes, channels, generator=draw)
    shape = (graph.num_nodes, classes) if multi_label else (graph.num_nodes,)
    data.y = torch.randint(2 if multi_label else classes, shape, generator=draw)
    data.y = data.y.float() if multi_label else data.y
    names = tuple("abcdefgh"[:classes])
    return GraphDataset.from_graphs([data], Facts(graph.name, "node", multi_label, "accuracy", names))


def contrast(logits, target):
    others = [value for i, value in enumerate(logits) if i != target]
    return logits[target] - sum(others) / len(others)


# ---------------------------------------------------------------------------------------------------- what adds up
@pytest.mark.parametrize("activation", ["relu", "identity", "leaky_relu"])
@pytest.mark.parametrize(
    "more", [(), ("layers=3",), ("layers=2", "jk=cat", "residual=true"), ("smooth_input=true",)]
)
def test_contributions_add_up_to_the_score(activation, more):
    dataset = of_graph(ZOO["karate"])
    model = without_head_bias(untrained(dataset, *NO_BIAS, f"activation={activation}", *more))
    for node, target in ((0, None), (5, 2), (33, 1)):
        found = explain_node(model, dataset, node, target=target, top=34)
        logits = model.logits(dataset)[node]
        wanted = int(logits.argmax()) if target is None else target
        assert found.decision.target == "abc"[wanted]
        assert found.decision.score == pytest.approx(contrast(logits.tolist(), wanted), rel=1e-4, abs=1e-5)
        assert found.decision.biases == 0
        total = sum(each.contribution for each in found.influential)
        assert total == pytest.approx(found.decision.score, rel=1e-4, abs=1e-5)
        assert found.decision.rest == pytest.approx(0, abs=1e-4 * abs(found.decision.score) + 1e-5)


def test_biases_are_told_apart_from_inputs():
    dataset = of_graph(ZOO["karate"])
    model = untrained(dataset, "hidden=6", "layers=2")
    found = explain_node(model, dataset, 3).decision
    assert abs(found.biases) > 1e-3
    assert found.inputs + found.biases == pytest.approx(found.score, rel=1e-4)
    assert found.rest == pytest.approx(0, abs=1e-4)
    nothing = dataset.copy()
    nothing._data.x = torch.zeros_like(dataset._data.x)  # without inputs only the biases are left
    found = explain_node(model, nothing, 3)
    assert found.decision.inputs == 0
    assert found.decision.biases == pytest.approx(found.decision.score, rel=1e-4)
    assert not any(found.share_by_distance)
    assert (found.radius, found.influential, found.far) == (None, [], [])


def test_what_is_not_linear_is_called_the_rest():
    dataset = of_graph(ZOO["karate"])
    model = untrained(dataset, *NO_BIAS, "activation=tanh")
    found = explain_node(model, dataset, 3).decision
    assert abs(found.rest) > 1e-3 * abs(found.score)
    assert found.inputs + found.biases + found.rest == pytest.approx(found.score)


# ---------------------------------------------------------------------------------------------------- is it right
@pytest.mark.parametrize("graph", ["karate", "directed_weighted", "isolated_nodes", "self_loops", "one_node"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_agrees_with_autograd_through_a_dense_loop(graph, activation):
    graph = ZOO[graph]
    dataset = of_graph(graph)
    model = untrained(dataset, "hidden=6", "eps=0.3", "eval_tol=1e-7", f"activation={activation}")
    conv, head = model.network.convs[0], model.network.head
    weight, lin, bias = (p.detach().double() for p in (conv.weight, conv.lin.weight, conv.bias))
    a = reference.dense_adjacency(graph.edge_index, graph.edge_weight, graph.num_nodes, "sym", True)
    x = dataset._data.x.double().requires_grad_()
    phi = {"relu": torch.relu, "tanh": torch.tanh}[activation]
    state = reference.states(x @ lin.t() + bias, weight, a, 0.3, phi, 300)[0]
    logits = state @ head.weight.detach().double().t() + head.bias.detach().double()
    for node in (0, graph.num_nodes - 1):
        (gradient,) = torch.autograd.grad(contrast(logits[node], 1), x, retain_graph=True)
        expected = (gradient * x.detach()).sum(1)
        found = explain_node(model, dataset, node, target=1, top=graph.num_nodes)
        contributions = torch.zeros(graph.num_nodes, dtype=torch.float64)
        for each in found.influential:
            contributions[each.node] = each.contribution
            assert each.share == pytest.approx(each.contribution / float(expected.abs().sum()), rel=1e-3, abs=1e-5)
        torch.testing.assert_close(contributions, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().sum()))
        sizes = [abs(each.contribution) for each in found.influential]
        assert sizes == sorted(sizes, reverse=True)


def test_does_not_depend_on_the_order_of_the_nodes():
    graph = random_graph(3, 12, directed=True, weighted=False)
    dataset = of_graph(graph)
    model = untrained(dataset, "hidden=6", "eval_tol=1e-7")
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))  # old node order[i] becomes node i
    rank = torch.argsort(order)
    data = Data(
        x=dataset._data.x[order], y=dataset._data.y[order], edge_index=rank[graph.edge_index], num_nodes=12
    )
    moved = GraphDataset.from_graphs([data], dataset.facts)
    for node in range(12):
        one = explain_node(model, dataset, node, top=12)
        other = explain_node(model, moved, int(rank[node]), top=12)
        assert one.share_by_distance == pytest.approx(other.share_by_distance, abs=1e-5)
        assert (one.radius, one.nodes_by_distance) == (other.radius, other.nodes_by_distance)
        shares = {each.node: each.share for each in other.influential}
        for each in one.influential:
            assert each.share == pytest.approx(shares[int(rank[each.node])], abs=1e-5)


def test_is_deterministic_and_leaves_the_model_as_it_was():
    dataset = of_graph(ZOO["karate"])
    model = untrained(dataset, "hidden=6", "layers=2", "grad_terms=3")
    model.network.train()
    model.logits(dataset)
    layers = [layer for _, layer in ppr_layers(model.network)]
    before = [(layer.depth_rule, layer.tol) for layer in layers], depth_state(model.network)[0]
    first = explain_node(model, dataset, 7).to_dict()
    assert explain_node(model, dataset, 7).to_dict() == first
    assert ([(layer.depth_rule, layer.tol) for layer in layers], depth_state(model.network)[0]) == before
    assert all((layer.grad_terms, layer.checkpoint) == (3, False) for layer in layers)
    assert all(layer.last_solution.status.name != "FIXED" for layer in layers)
    assert model.network.training
    assert all(each.requires_grad and each.grad is None for each in model.network.parameters())
    json.dumps(first)


# ------------------------------------------------------------------------------------------------ where it is from
def test_on_chains_all_influence_comes_from_the_head():
    chains = load("chains", length=9, train=1, val=1, test=2)
    model = untrained(chains, *NO_BIAS, "activation=identity", norm=4.0)
    for node in (0, 1, 3, 4, 8):
        found = explain_node(model, chains, node, graph=2)
        shares = [0.0] * (max(node, 8 - node) + 1)
        shares[node] = 1.0
        assert found.share_by_distance == pytest.approx(shares)
        assert found.radius == node
        assert [(each.node, each.distance, abs(each.share)) for each in found.influential] == [(0, node, 1.0)]
        assert found.far == (found.influential if node > 3 else [])
        assert found.signed_by_distance[node] == pytest.approx(found.influential[0].share)
        assert found.decision.truth == [str(int(chains[2].y[node]))]


def test_the_radius_holds_95_percent():
    dataset = of_graph(ZOO["path"])
    model = untrained(dataset, *NO_BIAS, "eps=2")
    found = explain_node(model, dataset, 0)
    inside = sum(found.share_by_distance[: found.radius + 1])
    assert inside >= 0.95 > inside - found.share_by_distance[found.radius]
    assert sum(found.share_by_distance) == pytest.approx(1)


def test_shares_by_distance_are_sums_over_nodes():
    dataset = of_graph(ZOO["karate"])
    found = explain_node(untrained(dataset, "hidden=6"), dataset, 16, top=34)
    assert any(each.share < 0 for each in found.influential)
    for hop, (share, signed) in enumerate(zip(found.share_by_distance, found.signed_by_distance, strict=True)):
        shares = [each.share for each in found.influential if each.distance == hop]
        assert sum(shares) == pytest.approx(signed, abs=1e-9)
        assert sum(map(abs, shares)) == pytest.approx(share, abs=1e-9)


def test_messages_run_along_the_edges():
    graph = ZOO["path"]
    one_way = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    assert hops_to(one_way, 7, 4).tolist() == [4, 3, 2, 1, 0, -1, -1]
    assert hops_to(graph.edge_index, 8, 2).tolist() == [2, 1, 0, 1, 2, 3, 4, -1]
    assert hops_to(torch.empty(2, 0, dtype=torch.long), 2, 1).tolist() == [-1, 0]


@pytest.mark.parametrize("seed", range(5))
def test_hops_are_those_of_networkx(seed):
    import networkx as nx

    graph = nx.gnp_random_graph(60, 0.03, seed=seed, directed=True)
    edges = torch.tensor(list(graph.edges)).t().reshape(2, -1)
    expected = nx.single_target_shortest_path_length(graph, 0)
    found = {node: hop for node, hop in enumerate(hops_to(edges, 60, 0).tolist()) if hop >= 0}
    assert found == dict(expected)


def test_a_long_path_takes_no_time_per_hop():
    here = torch.arange(100_000)
    distance = hops_to(torch.stack([here[:-1], here[1:]]), 100_000, 99_999)
    assert torch.equal(distance, 99_999 - here)


def test_nodes_without_a_path():
    dataset = of_graph(ZOO["isolated_nodes"])
    found = explain_node(untrained(dataset, "hidden=6"), dataset, 1)
    assert (found.unreachable_nodes, found.unreachable_share) == (3, 0)
    assert sum(found.nodes_by_distance) == 7
    alone = explain_node(untrained(dataset, "hidden=6"), dataset, 0)
    assert alone.share_by_distance == pytest.approx([1])
    assert (alone.radius, alone.unreachable_nodes) == (0, 9)
    mixed = explain_node(untrained(dataset, "hidden=6", "norm=graph"), dataset, 1, top=10)
    assert mixed.unreachable_share > 0
    assert sum(mixed.share_by_distance) + mixed.unreachable_share == pytest.approx(1)
    assert any(each.distance is None for each in mixed.influential)


# ------------------------------------------------------------------------------------------------ kinds of models
def test_learned_rows_are_inputs():
    dataset = of_graph(ZOO["karate"], channels=0)
    for more in ((), ("architecture=co-purchase",)):
        model = untrained(dataset, *NO_BIAS, *more)
        if not more:
            without_head_bias(model)
        found = explain_node(model, dataset, 8, top=34)
        assert found.decision.inputs == pytest.approx(found.decision.score, rel=1e-4)
        assert len(found.influential) == 34


def test_several_labels():
    dataset = of_graph(ZOO["karate"], multi_label=True)
    dataset._data.labelled = torch.arange(34) != 4
    model = without_head_bias(untrained(dataset, *NO_BIAS))
    logits = model.logits(dataset)[4]
    found = explain_node(model, dataset, 4)
    assert found.decision.target == "abc"[int(logits.argmax())]
    assert found.decision.predicted == ["abc"[i] for i in range(3) if logits[i] > 0]
    assert found.decision.truth is None
    for target in range(3):
        found = explain_node(model, dataset, 4, target=target)
        assert found.decision.score == pytest.approx(float(logits[target]), rel=1e-4)
        assert found.decision.probability == pytest.approx(float(logits[target].sigmoid()), rel=1e-4)
        assert found.decision.inputs == pytest.approx(float(logits[target]), rel=1e-4)
    labels = {each.node: each.classes for each in explain_node(model, dataset, 4, top=34).influential}
    assert labels.pop(4) is None
    assert all(
        names == [n for n, y in zip("abc", dataset._data.y[i], strict=True) if y] for i, names in labels.items()
    )


def test_unlabelled_nodes_have_no_class():
    dataset = of_graph(ZOO["path"])
    dataset._data.y[2] = -1
    model = untrained(dataset, "hidden=6")
    assert explain_node(model, dataset, 2).decision.truth is None
    assert explain_node(model, dataset, 1).decision.truth == ["abc"[int(dataset._data.y[1])]]
    del dataset._data.y
    assert explain_node(model, dataset, 1).decision.truth is None


def test_networks_of_pyg():
    dataset = of_graph(ZOO["path"])
    found = explain_node(untrained(dataset, "system=gcn", "layers=2"), dataset, 0)
    assert found.layers == []
    assert found.complete
    assert found.share_by_distance[3:] == [0, 0, 0, 0]  # two layers look two hops far
    assert found.decision.rest == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("architecture", ["graph", "paper-graph"])
def test_graphs(architecture):
    draw = torch.Generator().manual_seed(0)
    graphs = [
        Data(
            x=torch.randn(graph.num_nodes, 4, generator=draw),
            edge_index=graph.edge_index,
            y=torch.tensor([i % 2]),
        )
        for i, graph in enumerate((ZOO["path"], ZOO["star"], ZOO["grid"]))
    ]
    dataset = GraphDataset.from_graphs(graphs, Facts("three", "graph", False, "accuracy", ("yes", "no")))
    model = untrained(dataset, "hidden=6", f"architecture={architecture}")
    found = explain_graph(model, dataset, 2, top=12)
    logits = model.logits(dataset)[2]
    assert found.graph == 2
    assert found.decision.score == pytest.approx(abs(float(logits[0] - logits[1])), rel=1e-4)
    assert found.decision.truth == ["yes"]
    assert found.decision.inputs + found.decision.biases == pytest.approx(found.decision.score, rel=1e-4, abs=1e-5)
    assert {each.node for each in found.influential} == set(range(12))
    assert sum(abs(each.share) for each in found.influential) == pytest.approx(1)
    assert all(each.distance is None and each.classes is None for each in found.influential)
    against = explain_graph(model, dataset, 2, target=int(logits.argmin()))
    assert against.decision.score == pytest.approx(-found.decision.score, rel=1e-4)
    json.dumps(found.to_dict())
    with pytest.raises(TrainingError, match="labels per graph"):
        explain_node(model, dataset, 0)


# -------------------------------------------------------------------------------------------------------- memory
def test_the_depth_is_searched_once():
    class Counted(Measured):
        def choose(self, *given):
            calls.append(given)
            return super().choose(*given)

    calls = []
    dataset = of_graph(ZOO["karate"])
    model = untrained(dataset, "hidden=6")
    model.network.convs[0].depth_rule = Counted()
    assert explain_node(model, dataset, 0).layers[0].status == "MEASURED"
    assert len(calls) == 1


def test_terms_that_do_not_fit_are_left_out_and_bounded():
    dataset = of_graph(ZOO["karate"])
    model = without_head_bias(untrained(dataset, *NO_BIAS, norm=1.0))
    state = 34 * 6 * 4
    whole = explain_node(model, dataset, 0, target=0, top=34)
    assert whole.complete
    assert [layer.left_out for layer in whole.layers] == [0.0]
    gradient = torch.linalg.vector_norm(head_gradient(model, 0))
    inputs = model.network.convs[0].lin(dataset._data.x).norm().detach()
    for states in (5, 7, 10):
        part = explain_node(model, dataset, 0, target=0, top=34, memory=states * state)
        (layer,) = part.layers
        assert not part.complete
        assert layer.terms == states - 4
        steps = [1 / (1 + 0.3 * n) for n in range(layer.depth)]  # cₙ, since ‖Ã‖₂ = ‖W‖₂ = 1
        bound = sum(math.prod(steps[:n]) for n in range(layer.terms, layer.depth + 1))
        assert layer.left_out == pytest.approx(bound, rel=1e-3)
        missing = abs(part.decision.inputs - whole.decision.inputs)
        expected = whole.decision.inputs - part.decision.inputs
        assert part.decision.rest == pytest.approx(expected, rel=1e-3, abs=1e-7)  # of float32 numbers near 1
        assert 1e-6 < missing <= layer.left_out * float(gradient * inputs)
        assert part.to_dict()["complete"] is False


def head_gradient(model, target):
    weight = model.network.head.weight.detach()
    return weight[target] - (weight.sum(0) - weight[target]) / 2


def test_states_are_computed_twice_before_terms_are_left_out(monkeypatch):
    dataset = of_graph(ZOO["karate"])
    model = untrained(dataset, "hidden=6", "layers=3")
    seen = []
    original = attribution._at_depths
    monkeypatch.setattr(attribution, "_at_depths", lambda *given: seen.append(given[1:]) or original(*given))
    whole = explain_node(model, dataset, 0).to_dict()
    depths = [layer["depth"] for layer in whole["layers"]]
    state = 34 * 6 * 4
    enough = (sum(depths) + 12) * state
    assert explain_node(model, dataset, 0, memory=enough).to_dict() == whole
    again = explain_node(model, dataset, 0, memory=enough - 1)
    assert again.complete
    assert again.share_by_distance == pytest.approx(whole["share_by_distance"], abs=1e-6)
    least = explain_node(model, dataset, 0, memory=0)
    assert [layer.terms for layer in least.layers] == [1, 1, 1]
    assert seen == [(None, False), (None, False), (None, True), (1, False)]


def test_half_of_the_memory_may_be_used(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr(memory, "available_memory", lambda device: 1000)
    assert memory.memory_budget(None, cpu) == 500
    assert memory.memory_budget(70, cpu) == 70
    monkeypatch.setattr(memory, "available_memory", lambda device: None)
    assert memory.memory_budget(None, cpu) == memory.UNKNOWN_MEMORY // 2


# -------------------------------------------------------------------------------------------------- names, errors
def test_names_of_nodes():
    dataset = of_graph(ZOO["path"])
    assert (node_name(dataset, 3), find_node(dataset, "3")) == ("3", 3)
    with pytest.raises(DataError, match="path has no node '7'; the closest are 0 to 6"):
        find_node(dataset, "7")
    dataset._data.node_id = torch.tensor([10, 20, 30, 40, 50, 60, 70])
    assert (node_name(dataset, 3), find_node(dataset, "40")) == ("40", 3)
    assert explain_node(untrained(dataset, "hidden=6"), dataset, 3).name == "40"
    with pytest.raises(DataError, match="no node '33'; the closest are 20, 30, 40"):
        find_node(dataset, "33")
    with pytest.raises(DataError, match="no node 'x'; the closest are 10, 20, 30"):
        find_node(dataset, "x")
    dataset.node_names = ["ann", "bob", "cleo", "dan", "eve", "fay", "Gus"]
    assert (node_name(dataset, 3), find_node(dataset, "dan")) == ("dan", 3)
    with pytest.raises(DataError, match="no node 'gus'; the closest are Gus"):
        find_node(dataset, "gus")
    with pytest.raises(DataError, match="no node 'ANN'; the closest are ann"):
        find_node(dataset, "ANN")
    with pytest.raises(DataError, match="no node 'clea'; the closest are cleo"):
        find_node(dataset, "clea")
    with pytest.raises(DataError, match="no node 'zzz'; give it as the source names it"):
        find_node(dataset, "zzz")


def test_nodes_of_several_graphs():
    chains = load("chains", length=3, train=1, val=1, test=1)
    assert find_node(chains, "2", 1) == 2
    with pytest.raises(DataError, match=r"chains \(graph 1\) has no node '3'"):
        find_node(chains, "3", 1)
    with pytest.raises(DataError, match="has 3 graphs, numbered from 0, but graph 3 was asked for"):
        find_node(chains, "0", 3)
    chains.node_names = list("abcdefghi")
    assert (node_name(chains, 2, 1), find_node(chains, "f", 1)) == ("f", 2)


def test_errors():
    dataset = of_graph(ZOO["path"])
    model = untrained(dataset, "hidden=6")
    for node in (-1, 7):
        with pytest.raises(TrainingError, match=f"from 0 to 6, but came as {node}"):
            explain_node(model, dataset, node)
    for target in (-1, 3):
        with pytest.raises(TrainingError, match=f"0 to 2, but came as {target}"):
            explain_node(model, dataset, 0, target=target)
    with pytest.raises(TrainingError, match="has 1 graph, numbered from 0, but graph 1 was asked for"):
        explain_node(model, dataset, 0, graph=1)
    with pytest.raises(TrainingError, match="labels per node, so it has nothing to say about a single graph"):
        explain_graph(model, dataset, 0)
    model.network.head.weight.data.fill_(math.inf)
    with pytest.raises(TrainingError, match="not finite"):
        explain_node(model, dataset, 0)
