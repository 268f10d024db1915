"""PageRank, against networkx and against the eigenvector."""

import networkx as nx
import pytest
import torch

from pprgnn import Adjacency, ConvergenceWarning, pagerank


def weighted(graph: nx.DiGraph, seed: int = 0) -> nx.DiGraph:
    draw = torch.Generator().manual_seed(seed)
    for _, _, data in graph.edges(data=True):
        data["weight"] = float(torch.rand(1, generator=draw, dtype=torch.float64)) + 0.1
    return graph


def directed(seed: int) -> nx.DiGraph:
    graph = nx.gnp_random_graph(15, 0.15, seed=seed, directed=True)
    graph.add_nodes_from([15, 16])  # isolated
    graph.add_edges_from([(0, 17), (1, 17)])  # 17 has no way out
    return graph


GRAPHS = {
    "karate": nx.karate_club_graph(),  # undirected, weighted
    "path": nx.path_graph(6),
    "directed_dangling": directed(0),
    "directed_weighted_dangling": weighted(directed(1)),
    "self_loops": nx.DiGraph([(0, 0), (0, 1), (1, 2), (2, 0), (2, 2)]),
    "no_edges": nx.empty_graph(4),
    "one_node": nx.empty_graph(1),
}


def adjacency(graph, **options) -> Adjacency:
    return Adjacency.from_networkx(graph, normalize=None, dtype=torch.float64, **options)


def scores(graph, **options) -> torch.Tensor:
    found = nx.pagerank(graph, tol=1e-13, max_iter=10_000, **options)
    return torch.tensor([found[node] for node in graph.nodes], dtype=torch.float64)


def assert_equal(actual, wanted):
    torch.testing.assert_close(actual, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("teleport", [0.05, 0.15, 0.6, 1.0])
@pytest.mark.parametrize("reorder", [False, True])
def test_equals_networkx(name, teleport, reorder):
    graph = GRAPHS[name]
    ours = pagerank(adjacency(graph, reorder=reorder), teleport=teleport, tol=1e-12)
    assert_equal(ours, scores(graph, alpha=1 - teleport))
    assert ours.shape == (graph.number_of_nodes(),)


@pytest.mark.parametrize("name", ["karate", "directed_dangling", "directed_weighted_dangling", "self_loops"])
@pytest.mark.parametrize("reorder", [False, True])
def test_personalised_equals_networkx_and_columns_are_independent(name, reorder):
    graph = GRAPHS[name]
    n = graph.number_of_nodes()
    u = torch.rand(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u[:, 1] = torch.eye(n, dtype=torch.float64)[2] * 7  # one node, and not scaled to 1
    adj = adjacency(graph, reorder=reorder)
    together = pagerank(adj, u, tol=1e-12)
    assert together.shape == (n, 3)
    for column in range(3):
        wanted = scores(graph, personalization=dict(zip(graph.nodes, u[:, column].tolist(), strict=True)))
        assert_equal(together[:, column], wanted)
        assert_equal(pagerank(adj, u[:, column], tol=1e-12), wanted)
    assert_equal(together.sum(0), torch.ones(3, dtype=torch.float64))


def test_without_teleport_it_is_the_dominant_eigenvector():
    # strongly connected, and aperiodic because of the self-loop
    graph = weighted(nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (2, 0), (1, 1)]))
    adj = adjacency(graph)
    dense = adj.to_dense()
    values, vectors = torch.linalg.eig(dense / dense.sum(0))
    dominant = vectors[:, values.real.argmax()].real
    assert_equal(pagerank(adj, teleport=0.0, tol=1e-13), dominant / dominant.sum())


def test_a_walk_that_never_settles_warns():
    two_cycle = adjacency(nx.DiGraph([(0, 1), (1, 0)]))
    with pytest.warns(ConvergenceWarning, match=r"changed by .* tol = 1e-08; raise max_iterations") as record:
        pagerank(two_cycle, torch.tensor([1.0, 0.0]), teleport=0.0, max_iterations=50)
    assert record[0].filename == __file__
    with pytest.warns(ConvergenceWarning, match=r"\(now 3\) or teleport \(now 0.15\)"):
        pagerank(adjacency(GRAPHS["karate"]), max_iterations=3)


def test_single_precision_settles_without_a_warning():
    """The default tolerance must be reachable with the rounding of the default type."""
    graph = nx.barabasi_albert_graph(3000, 3, seed=0)
    ours = pagerank(Adjacency.from_networkx(graph, normalize=None, dtype=torch.float32))
    assert float((ours.double() - scores(graph)).abs().sum()) < 1e-5


def test_edge_weights_that_learn_do_not_disturb():
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    adj = Adjacency.from_edge_index(edges, torch.ones(3, requires_grad=True), normalize=None)
    assert not pagerank(adj).requires_grad


PLAIN = adjacency(GRAPHS["path"])


@pytest.mark.parametrize(
    ("adj", "options", "message"),
    [
        (Adjacency.from_networkx(GRAPHS["path"]), {}, r"needs the plain weights.*normalize='sym'; build it with"),
        (Adjacency.from_networkx(GRAPHS["path"], normalize="row"), {}, r"normalize='row'"),
        (PLAIN, {"teleport": -0.1}, r"teleport must be in \[0, 1\], but came as -0.1"),
        (PLAIN, {"teleport": 1.1}, r"teleport must be in \[0, 1\], but came as 1.1"),
        (PLAIN, {"teleport": float("nan")}, r"teleport must be in \[0, 1\]"),
        (PLAIN, {"personalization": torch.ones(5)}, r"must have shape \(6,\) or \(6, k\), but has shape \(5,\)"),
        (PLAIN, {"personalization": torch.ones(6, 1, 1)}, r"must have shape \(6,\) or \(6, k\)"),
        (PLAIN, {"personalization": -torch.ones(6)}, r"must be finite, non-negative and not all zero"),
        (PLAIN, {"personalization": torch.tensor([3.0, -1, 0, 0, 0, 0])}, r"must be finite, non-negative"),
        (PLAIN, {"personalization": torch.zeros(6, 2)}, r"not all zero in any column"),
        (PLAIN, {"personalization": torch.full((6,), float("nan"))}, r"must be finite"),
    ],
)
def test_bad_input(adj, options, message):
    with pytest.raises(ValueError, match=message):
        pagerank(adj, **options)


def test_negative_weights():
    adj = Adjacency.from_edge_index(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, -1.0]), normalize=None)
    with pytest.raises(ValueError, match="non-negative edge weights"):
        pagerank(adj)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_iterations": 0}, "max_iterations must be >= 1, but came as 0"),
        ({"tol": float("nan")}, "tol must be >= 0, but came as nan"),
    ],
)
def test_limits_that_make_no_sense(options, message):
    adj = Adjacency.from_edge_index(torch.tensor([[0, 1], [1, 0]]), normalize=None)
    with pytest.raises(ValueError, match=message):
        pagerank(adj, **options)
