"""GDC: PageRank by a dense inverse and the largest entries of each column; computed once per graph."""

import copy
import weakref

import pytest
import torch

from pprgnn import Adjacency
from pprgnn.baselines import deep
from pprgnn.baselines.deep import GDCNet
from pprgnn.errors import DataError
from tests.baselines.dense import CLASSES, FEATURES, N, build, graph, normalized


def rewired(edge_index, weight, alpha, keep):
    """Row i: the ``keep`` largest PageRanks from i, to sum 1 (of a symmetric graph)."""
    eye = torch.eye(N, dtype=torch.float64)
    pagerank = alpha * torch.linalg.inv(eye - (1 - alpha) * normalized(edge_index, weight))
    result = torch.zeros_like(pagerank)
    for node in range(N):
        best = sorted(range(N), key=lambda other: -float(pagerank[node, other]))[:keep]
        result[node, best] = pagerank[node, best] / pagerank[node, best].sum()
    return result


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("alpha", "keep"), [(0.05, 4), (0.3, 2), (0.15, 100)])
def test_the_dense_formula(alpha, keep, weighted):
    edge_index, weight, x = graph(edges=80)
    weight = weight if weighted else None
    network = build(GDCNet, hidden=4, alpha=alpha, keep=keep)
    a = rewired(edge_index, weight, alpha, keep)
    torch.testing.assert_close(network.adjacency(x, edge_index, weight).to_dense(), a)
    first, last = network.convs
    expected = a @ (a @ x @ first.lin.weight.t() + first.bias).relu() @ last.lin.weight.t() + last.bias
    torch.testing.assert_close(network(x, edge_index, weight), expected)
    adj = Adjacency.from_edge_index(edge_index, weight, N, dtype=torch.float64, **network.adjacency_options)
    torch.testing.assert_close(network(x, adj), expected)


def test_the_inner_order_of_nodes_does_not_matter():
    edge_index, _, x = graph(edges=80)
    network = build(GDCNet, keep=4)
    adj = Adjacency.from_edge_index(edge_index, None, N, dtype=torch.float64, normalize=None, reorder=True)
    assert adj.order is not None
    torch.testing.assert_close(network(x, adj), network(x, edge_index))


def test_it_is_computed_once_per_graph_and_forgotten_with_it(monkeypatch):
    edge_index, _, x = graph()
    network, count = build(GDCNet), []
    plain = GDCNet._rewire
    monkeypatch.setattr(GDCNet, "_rewire", lambda self, adj: count.append(1) or plain(self, adj))
    options = network.adjacency_options | {"dtype": torch.float64}
    one, other = (
        Adjacency.from_edge_index(edges, None, N, **options) for edges in (edge_index, edge_index[:, 2:])
    )
    for _ in range(3):
        network(x, one), network(x, other), network(x, edge_index)
    assert len(count) == 3
    copy.deepcopy(network)(x, edge_index)
    assert len(count) == 3
    build(GDCNet, keep=2)(x, edge_index)
    assert len(count) == 4
    kept = weakref.ref(network.adjacency(x, one, None))
    assert kept() is not None
    del one, other
    assert kept() is None


@pytest.mark.parametrize("loops", [0, 1])
def test_one_node_keeps_to_itself(loops):
    _, _, x = graph()
    adj = build(GDCNet).adjacency(x[:1], torch.zeros(2, loops, dtype=torch.long), None)
    torch.testing.assert_close(adj.to_dense(), torch.ones(1, 1, dtype=torch.float64))


def test_graphs_that_are_too_large_are_refused(monkeypatch):
    edge_index, _, x = graph()
    monkeypatch.setattr(deep, "MOST_NODES", N - 1)
    with pytest.raises(DataError, match=f"too much for {N} nodes"):
        build(GDCNet)(x, edge_index)
    with pytest.raises(ValueError, match="for node tasks"):
        GDCNet(FEATURES, CLASSES, "graph")
