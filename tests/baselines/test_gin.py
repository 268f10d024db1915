"""GIN: the dense formula of its paper, and that it tells apart what the Weisfeiler-Leman test does."""

import networkx as nx
import pytest
import torch

from pprgnn import Adjacency
from pprgnn.baselines.classic import GINNet
from pprgnn.errors import DataError
from tests.baselines.dense import CLASSES, FEATURES, N, build, graph, matrix

BATCH = torch.tensor([0] * 5 + [1] * (N - 5))


def normed(norm, x):
    """Batch norm that evaluates."""
    norm = norm.module
    return (x - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias


def dense_states(network, a, x):
    states = [x]
    for conv, norm in zip(network.convs, network.norms, strict=True):
        first, last = conv.nn.lins
        h = (1 + conv.eps) * states[-1] + a @ states[-1]
        h = normed(conv.nn.norms[0], h @ first.weight.t() + first.bias).relu()
        states.append(normed(norm, h @ last.weight.t() + last.bias).relu())
    return states


def trained_looking(task="node", **options):
    """With statistics of batch norm, and eps, that are not those of the start."""
    network = build(GINNet, task, hidden=4, layers=3, **options)
    draw = torch.Generator().manual_seed(1)
    for name, tensor in network.state_dict().items():
        if "running" in name or name.endswith("eps"):
            tensor.copy_(torch.rand(tensor.shape, generator=draw, dtype=torch.float64) + 0.5)
    return network


@pytest.mark.parametrize("train_eps", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_dense_formula(weighted, directed, train_eps):
    edge_index, weight, x = graph(directed=directed)
    weight = weight if weighted else None
    network = trained_looking(train_eps=train_eps)
    states = dense_states(network, matrix(edge_index, weight), x)
    expected = sum(s @ head.weight.t() + head.bias for s, head in zip(states, network.heads, strict=True))
    torch.testing.assert_close(network(x, edge_index, weight), expected)
    adj = Adjacency.from_edge_index(edge_index, weight, N, dtype=torch.float64, **network.adjacency_options)
    torch.testing.assert_close(network(x, adj), expected)


@pytest.mark.parametrize("pooling", ["sum", "mean", "max"])
def test_graphs_are_read_at_every_layer(pooling):
    edge_index, _, x = graph()
    edge_index = edge_index[:, BATCH[edge_index[0]] == BATCH[edge_index[1]]]
    network = trained_looking("graph", pooling=pooling)
    states = dense_states(network, matrix(edge_index), x)
    pool = {"sum": lambda s: s.sum(0), "mean": lambda s: s.mean(0), "max": lambda s: s.max(0).values}[pooling]
    for number in (0, 1):
        expected = sum(
            pool(s[number == BATCH]) @ head.weight.t() + head.bias
            for s, head in zip(states, network.heads, strict=True)
        )
        torch.testing.assert_close(network(x, edge_index, None, BATCH, 2)[number], expected)


def test_eps_is_learned_only_if_wanted():
    assert not any(name.endswith("eps") for name, _ in GINNet(3, 2).named_parameters())
    network = GINNet(3, 2, train_eps=True, layers=2)
    network(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])).sum().backward()
    assert [float(p.grad) != 0 for name, p in network.named_parameters() if name.endswith("eps")] == [True, True]


def test_dropout_is_on_the_outputs_of_the_linear_maps():
    """As the paper has it: whole logits of a layer are dropped, never a part of one."""
    torch.manual_seed(0)
    network = build(GINNet, hidden=4, layers=1, dropout=0.5)
    edge_index, _, x = graph()
    state = network.encode(x, edge_index)
    parts = state.split([FEATURES, 4], dim=1)
    logits = [head(part) for head, part in zip(network.heads, parts, strict=True)]
    network.head_dropout.train()
    possible = torch.stack([torch.zeros_like(logits[0]), 2 * logits[0], 2 * logits[1], 2 * sum(logits)])
    distance = (network.decode(state) - possible).abs().min(0).values
    assert bool((distance < 1e-12).all())


# ------------------------------------------------------------------------------------------- Weisfeiler and Leman
def colours(graph_, rounds):
    """How often each colour occurs, by the test itself."""
    colour = dict.fromkeys(graph_, ())
    for _ in range(rounds):
        colour = {v: (colour[v], tuple(sorted(colour[u] for u in graph_[v]))) for v in graph_}
    return sorted(colour.values())


def logits_of(network, graph_):
    edges = torch.tensor(list(nx.convert_node_labels_to_integers(graph_).edges)).t()
    x, batch = torch.ones(len(graph_), 1, dtype=torch.float64), torch.zeros(len(graph_), dtype=torch.long)
    return network(x, torch.cat([edges, edges.flip(0)], dim=1), None, batch, 1)


def two_triangles():
    return nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))


PAIRS = {
    "six-ring and two triangles": (nx.cycle_graph(6), two_triangles()),
    "prism and K33": (nx.circular_ladder_graph(3), nx.complete_bipartite_graph(3, 3)),
    "decalin and bicyclopentyl": (
        nx.Graph([*nx.cycle_graph(10).edges, (0, 5)]),
        nx.Graph([*nx.cycle_graph(5).edges, *((u + 5, v + 5) for u, v in nx.cycle_graph(5).edges), (0, 5)]),
    ),
    "path and star": (nx.path_graph(4), nx.star_graph(3)),
    "trees of the same degrees": (
        nx.Graph([(0, 1), (1, 2), (2, 3), (3, 4), (1, 5)]),
        nx.Graph([(0, 1), (1, 2), (2, 3), (3, 4), (2, 5)]),
    ),
    "one more edge far away": (nx.path_graph(6), nx.disjoint_union(nx.path_graph(3), nx.path_graph(3))),
}


@pytest.mark.parametrize("name", PAIRS)
def test_tells_graphs_apart_exactly_where_weisfeiler_and_leman_do(name):
    torch.manual_seed(0)
    network = GINNet(1, CLASSES, "graph", hidden=16).double().eval()
    first, second = PAIRS[name]
    same = colours(first, 4) == colours(second, 4)
    difference = float((logits_of(network, first) - logits_of(network, second)).detach().abs().max())
    assert difference < 1e-12 if same else difference > 1e-4
    assert same == (name in list(PAIRS)[:3])


# --------------------------------------------------------------------------------------------------------- borders
def test_a_batch_of_one_node_can_be_trained_on():
    network = GINNet(3, 2, "graph", hidden=4)
    logits = network(
        torch.ones(1, 3), torch.empty(2, 0, dtype=torch.long), None, torch.zeros(1, dtype=torch.long), 1
    )
    logits.sum().backward()
    assert torch.isfinite(logits).all()


def test_what_it_refuses():
    network, x = GINNet(3, 2, "graph", hidden=4), torch.ones(2, 3)
    edges = torch.tensor([[0], [1]])
    with pytest.raises(DataError, match="reads 3 features"):
        network(torch.ones(2, 4), edges)
    with pytest.raises(DataError, match="needs batch"):
        network(x, edges)
    with pytest.raises(DataError, match="one number for each of the 2 nodes"):
        network(x, edges, None, torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="task must be"):
        GINNet(3, 2, "edge")
