"""Graph kernels against slow references: dictionaries of colours, dense product graphs, all triples of nodes."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pprgnn.baselines.kernel_graphs import KernelGraphs
from pprgnn.baselines.kernels import (
    GraphletNet,
    RandomWalkNet,
    WeisfeilerLehmanNet,
    decisions,
    eigenvalue_bounds,
)
from pprgnn.core.adjacency import Adjacency
from pprgnn.errors import DataError
from tests.training.small_data import is_sentence

KINDS = 3
NETS = [GraphletNet, WeisfeilerLehmanNet, RandomWalkNet]
CHOICE = {GraphletNet: 0.0, WeisfeilerLehmanNet: 2, RandomWalkNet: 0.02}
ACCURATE = {"rtol": 1e-10, "atol": 1e-12}


# ---------------------------------------------------------------------------------------------------- small graphs
def undirected(nodes, pairs):
    """The adjacency matrix."""
    matrix = np.zeros((nodes, nodes))
    for first, second in pairs:
        matrix[first, second] = matrix[second, first] = 1
    return matrix


def cycle(nodes, start=0):
    return [(start + i, start + (i + 1) % nodes) for i in range(nodes)]


@st.composite
def labelled(draw, directed=False, kinds=KINDS):
    """An adjacency matrix (row: where the edge ends) and labels; nodes may be alone or joined to themselves."""
    nodes = draw(st.integers(1, 6))
    ends = st.integers(0, nodes - 1)
    matrix = np.zeros((nodes, nodes))
    for first, second in draw(st.lists(st.tuples(ends, ends), max_size=8)):
        matrix[first, second] = 1
        if not directed:
            matrix[second, first] = 1
    return matrix, draw(st.lists(st.integers(0, kinds - 1), min_size=nodes, max_size=nodes))


SOME = settings(max_examples=15)
graphs_of = st.lists(labelled() | labelled(directed=True), min_size=2, max_size=5)


def tensors(graphs, kinds=KINDS):
    """One-hot labels, edges with nodes counted through, the graph of each node."""
    sizes = torch.tensor([len(matrix) for matrix, _ in graphs])
    starts = sizes.cumsum(0) - sizes
    x = torch.eye(kinds)[torch.tensor([label for _, labels in graphs for label in labels])]
    edges = [
        torch.from_numpy(np.stack(matrix.nonzero())).flip(0) + start  # rows are ends, an edge_index begins
        for (matrix, _), start in zip(graphs, starts, strict=True)
    ]
    return x, torch.cat(edges, dim=1), torch.repeat_interleave(sizes)


def labels_are_known(net):
    net.label_columns.fill_(net.uses_labels)
    return net


def network(kind, **options):
    return labels_are_known(kind(KINDS, 2, **options))


def as_kernel_graphs(net, graphs):
    x, edge_index, batch = tensors(graphs, net.in_channels)
    return net.graphs(net.encode(x, edge_index), batch, len(graphs))


def matrix_of(net, graphs, choice):
    return net.matrix(as_kernel_graphs(net, graphs), choice, lambda share: None)


def normalized(reference, firsts, seconds):
    """A kernel of two graphs as a normalised matrix; 0 where a graph is nothing to the kernel."""
    rows = np.array([[reference(one, other) for other in seconds] for one in firsts], dtype=float)
    scale = np.sqrt(np.outer([reference(one, one) for one in firsts], [reference(one, one) for one in seconds]))
    return np.divide(rows, scale, out=np.zeros_like(rows), where=scale > 0)


# ------------------------------------------------------------------------------------------------- slow references
def subtree_kernel(iterations):
    def colours(graph):
        """How often each colour occurs, in all rounds; a colour is what it was and the colours around."""
        matrix, colour = graph[0], list(graph[1])
        counted = Counter((0, each) for each in colour)
        for number in range(1, iterations + 1):
            colour = [
                (colour[v], tuple(sorted((colour[u] for u in np.flatnonzero(matrix[v])), key=repr)))
                for v in range(len(matrix))
            ]
            counted += Counter((number, each) for each in colour)
        return counted

    def value(one, other):
        first, second = colours(one), colours(other)
        return sum(count * second[colour] for colour, count in first.items())

    return value


def product_graph(one, other):
    """The adjacency matrix of the pairs of nodes with the same label."""
    same = np.array([[a == b for b in other[1]] for a in one[1]]).ravel()
    return np.kron(one[0], other[0])[np.ix_(same, same)]


def walk_kernel(decay, steps=0):
    def value(one, other):
        product = product_graph(one, other)
        if not steps:
            return np.linalg.inv(np.eye(len(product)) - decay * product).sum()
        return sum((np.linalg.matrix_power(decay * product, k)).sum() for k in range(steps + 1))

    return value


def triples(graph, connected=False):
    matrix, found = (graph[0] + graph[0].T) > 0, np.zeros(4)
    for nodes in combinations(range(len(matrix)), 3):
        found[sum(matrix[a, b] for a, b in combinations(nodes, 2))] += 1
    return found[2:] if connected else found


# ----------------------------------------------------------------------------------------------- as they should be
@SOME
@given(graphs_of, st.integers(1, 4))
def test_weisfeiler_lehman_counts_common_colours(graphs, iterations):
    found = matrix_of(network(WeisfeilerLehmanNet), graphs, iterations)
    np.testing.assert_allclose(found, normalized(subtree_kernel(iterations), graphs, graphs), **ACCURATE)


@SOME
@given(graphs_of)
def test_random_walks_are_those_of_the_product_graph(graphs):
    found = matrix_of(network(RandomWalkNet), graphs, 0.02)
    np.testing.assert_allclose(found, normalized(walk_kernel(0.02), graphs, graphs), **ACCURATE)


@SOME
@given(graphs_of, st.integers(1, 3))
def test_random_walks_of_a_few_steps_need_no_small_decay(graphs, steps):
    found = matrix_of(network(RandomWalkNet, steps=steps), graphs, 0.9)
    np.testing.assert_allclose(found, normalized(walk_kernel(0.9, steps), graphs, graphs), **ACCURATE)


@SOME
@given(graphs_of, st.booleans())
def test_graphlets_are_all_triples(graphs, connected):
    net = network(GraphletNet, connected=connected)
    wanted = np.array([triples(graph, connected) for graph in graphs])
    np.testing.assert_array_equal(net.counts(as_kernel_graphs(net, graphs)), wanted)
    reference = normalized(lambda one, other: triples(one, connected) @ triples(other, connected), graphs, graphs)
    np.testing.assert_allclose(matrix_of(net, graphs, 0.0), reference, **ACCURATE)


def test_grakel_agrees_on_random_walks_but_for_pairs_with_other_labels():
    """Its slow method also counts pairs of nodes with different labels as walks of no steps."""
    from grakel.kernels import RandomWalkLabeled

    draw = np.random.default_rng(0)
    graphs = [
        (
            undirected(n, [pair for pair in combinations(range(n), 2) if draw.random() < 0.4]),
            draw.integers(2, size=n),
        )
        for n in (4, 5, 6)
    ]
    theirs = RandomWalkLabeled(lamda=0.05, method_type="baseline").fit_transform(
        [[matrix, dict(enumerate(map(int, labels)))] for matrix, labels in graphs]
    )
    mine = np.array([[walk_kernel(0.05)(one, other) for other in graphs] for one in graphs])
    others = [[sum(a != b for a in one[1] for b in other[1]) for other in graphs] for one in graphs]
    np.testing.assert_allclose(mine + others, theirs, rtol=1e-10)
    scale = np.sqrt(np.outer(mine.diagonal(), mine.diagonal()))
    np.testing.assert_allclose(matrix_of(network(RandomWalkNet), graphs, 0.05), mine / scale, rtol=1e-10)


# ------------------------------------------------------------------------------------- what colour refinement sees
REGULAR = {
    "two triangles and a hexagon": (cycle(3) + cycle(3, 3), cycle(6)),
    "a prism and a utility graph": (
        cycle(3) + cycle(3, 3) + [(0, 3), (1, 4), (2, 5)],
        [(a, b) for a in range(3) for b in range(3, 6)],
    ),
}


@pytest.mark.parametrize("pair", REGULAR.values(), ids=REGULAR)
@pytest.mark.parametrize("iterations", [1, 3, 5])
def test_regular_graphs_are_alike_to_weisfeiler_lehman(pair, iterations):
    graphs = [(undirected(6, edges), [1] * 6) for edges in pair]
    assert (matrix_of(network(WeisfeilerLehmanNet), graphs, iterations) == 1).all()


def test_weisfeiler_lehman_needs_as_many_rounds_as_hops():
    """Two trees with the same degrees, told apart by the degrees of neighbours."""
    path = [(0, 1), (1, 2), (2, 3), (3, 4)]
    graphs = [(undirected(6, [*path, (each, 5)]), [0] * 6) for each in (1, 2)]
    found = [matrix_of(network(WeisfeilerLehmanNet), graphs, iterations)[0, 1] for iterations in (1, 2, 3)]
    assert found[0] == 1
    assert 1 > found[1] > found[2]


def test_graphlets_see_triangles():
    graphs = [(undirected(6, edges), [0] * 6) for edges in REGULAR["two triangles and a hexagon"]]
    assert matrix_of(network(GraphletNet), graphs, 0.0)[0, 1] < 0.999


# -------------------------------------------------------------------------------------------------- of all kernels
@pytest.mark.parametrize("kind", NETS)
@SOME
@given(graphs=graphs_of, seed=st.integers(0, 99))
def test_names_of_nodes_mean_nothing(kind, graphs, seed):
    def renamed(matrix, labels):
        order = np.random.default_rng(seed).permutation(len(labels))
        return matrix[np.ix_(order, order)], [labels[i] for i in order]

    other = [renamed(*graph) for graph in graphs]
    net = network(kind)
    np.testing.assert_allclose(
        matrix_of(net, graphs, CHOICE[kind]), matrix_of(net, other, CHOICE[kind]), rtol=1e-12
    )


@pytest.mark.parametrize("kind", NETS)
@SOME
@given(graphs=st.lists(labelled(), min_size=2, max_size=6))
def test_kernels_are_positive_semidefinite_with_ones_on_the_diagonal(kind, graphs):
    found = matrix_of(network(kind), graphs, CHOICE[kind])
    np.testing.assert_array_equal(found, found.T)
    assert np.linalg.eigvalsh(found).min() > -1e-9
    seen = np.array([kind is not GraphletNet or len(matrix) > 2 for matrix, _ in graphs])
    np.testing.assert_allclose(found.diagonal(), seen.astype(float), rtol=1e-12)


@pytest.mark.parametrize("kind", NETS)
@SOME
@given(kept=graphs_of, others=st.lists(labelled(kinds=KINDS + 1), min_size=1, max_size=4))
def test_other_graphs_are_compared_as_if_they_had_been_there(kind, kept, others):
    """Labels that none of the kept graphs has among them; each row is that of its graph alone, to the last bit."""
    net = labels_are_known(kind(KINDS + 1, 2))
    whole = matrix_of(net, [*kept, *others], CHOICE[kind])[len(kept) :, : len(kept)]
    compare = net.comparison(as_kernel_graphs(net, kept), CHOICE[kind])
    together = compare(as_kernel_graphs(net, others))
    np.testing.assert_allclose(together, whole, rtol=1e-11, atol=1e-14)
    for number, graph in enumerate(others):
        np.testing.assert_array_equal(compare(as_kernel_graphs(net, [graph]))[0], together[number])


def test_many_blocks_of_graphs_are_like_one(monkeypatch):
    draw = np.random.default_rng(1)
    graphs = [
        (undirected(n, [(i, i + 1) for i in range(n - 1)]), draw.integers(KINDS, size=n)) for n in range(1, 9)
    ]
    net, shares = network(RandomWalkNet), []
    whole = matrix_of(net, graphs, 0.1)
    monkeypatch.setattr("pprgnn.baselines.kernels.NODES_PER_BLOCK", 7)
    found = net.matrix(as_kernel_graphs(net, graphs), 0.1, shares.append)
    np.testing.assert_allclose(found, whole, rtol=1e-12)
    assert shares == sorted(shares)
    assert shares[-1] == 1


@SOME
@given(graphs_of)
def test_eigenvalues_are_below_their_bounds_but_not_far(graphs):
    bounds = eigenvalue_bounds(as_kernel_graphs(network(RandomWalkNet), graphs))
    for bound, (matrix, _) in zip(bounds, graphs, strict=True):
        largest = np.abs(np.linalg.eigvals(matrix)).max() if np.linalg.matrix_power(matrix, 6).any() else 0.0
        assert largest <= bound + 1e-9
        assert bound <= 1.15 * largest


# ------------------------------------------------------------------------------------------------- labels of nodes
def test_labels_are_patterns_of_zeros_and_ones():
    net = WeisfeilerLehmanNet(4, 2)
    x = torch.tensor([[1.0, 0.0, 0.5, 0.0], [1.0, 1.0, 2.5, 0.0], [0.0, 1.0, 0.5, 0.0], [1.0, 1.0, 0.1, 0.0]])
    assert net.read_labels(x) == 3  # a constant column may still hold something else in a new graph
    assert net.label_columns.tolist() == [True, True, False, True]
    found = net.graphs(net.encode(x, torch.empty(2, 0, dtype=torch.long)), torch.zeros(4, dtype=torch.long), 1)
    labels = [label.tobytes() for label in found.labels]
    assert labels[1] == labels[3]
    assert len(set(labels)) == 3


@pytest.mark.parametrize("x", [torch.rand(4, 2) + 0.1, torch.ones(4, 2)], ids=["numbers", "all the same"])
def test_without_labels_the_degree_is_one(x):
    net = WeisfeilerLehmanNet(2, 2)
    assert net.read_labels(x) == 0
    state = net.encode(x, torch.tensor([[0, 1, 2, 3], [1, 0, 1, 1]]))
    found = net.graphs(state, torch.zeros(4, dtype=torch.long), 1)
    assert found.labels.view(np.int64).ravel().tolist() == [1, 3, 0, 0]  # edges that end there


def test_many_columns_of_labels():
    """More than a machine word has bits."""
    net = labels_are_known(WeisfeilerLehmanNet(100, 2))
    graphs = [(undirected(3, [(0, 1), (1, 2)]), labels) for labels in ([99, 0, 64], [64, 0, 99], [99, 0, 63])]
    found = matrix_of(net, graphs, 2)
    assert found[0, 1] == 1
    assert found[0, 2] < 1


# ----------------------------------------------------------------------------------------------------- the machine
def fitted(kind, classes=2):
    draw = np.random.default_rng(3)
    graphs = [(undirected(n, cycle(n)), draw.integers(KINDS, size=n)) for n in (3, 4, 5, 6, 4)]
    net = labels_are_known(kind(KINDS, classes))
    machines = 1 if classes == 2 else classes
    dual, intercept = draw.normal(size=(5, machines)), draw.normal(size=machines)
    dual[2] = 0
    net.keep(as_kernel_graphs(net, graphs), dual, intercept, CHOICE[kind])
    return net, graphs, dual, intercept


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", NETS)
def test_logits_are_decision_values_over_the_support(kind, classes):
    net, graphs, dual, intercept = fitted(kind, classes)
    assert net.kept_sizes.tolist() == [3, 4, 6, 4]  # the third graph has no weight
    x, edge_index, batch = tensors(graphs)
    logits = net(x, edge_index, None, batch, len(graphs)).double().numpy()
    wanted = matrix_of(net, graphs, CHOICE[kind]) @ dual + intercept
    if classes == 2:
        assert (logits[:, 0] == -logits[:, 1]).all()
        logits = logits[:, 1:] - logits[:, :1]
    np.testing.assert_allclose(logits, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", NETS)
def test_state_dict_goes_into_a_new_network(kind):
    net, graphs, *_ = fitted(kind)
    x, edge_index, batch = tensors(graphs)
    wanted = net(x, edge_index, None, batch, len(graphs))
    new = kind(KINDS, 2)
    new.load_state_dict({name: tensor.clone() for name, tensor in net.state_dict().items()})
    assert torch.equal(new(x, edge_index, None, batch, len(graphs)), wanted)
    other = network(kind)  # used before, then loaded: nothing of before is left
    other.keep(as_kernel_graphs(other, graphs[:2]), np.array([[1.0], [-1.0]]), np.ones(1), CHOICE[kind])
    assert not torch.equal(other(x, edge_index, None, batch, len(graphs)), wanted)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(x, edge_index, None, batch, len(graphs)), wanted)
    with pytest.raises(RuntimeError, match="kept_sizes"):
        new.load_state_dict({name: each for name, each in net.state_dict().items() if name != "kept_sizes"})


def test_decisions_do_not_depend_on_other_rows(monkeypatch):
    monkeypatch.setattr(torch, "get_default_dtype", lambda: torch.float64)  # in which the last bits show
    draw = np.random.default_rng(0)
    values, dual, intercept = draw.normal(size=(50, 333)), draw.normal(size=(333, 3)), draw.normal(size=3)
    together = decisions(values, dual, intercept)
    assert all(torch.equal(decisions(values[i : i + 1], dual, intercept)[0], together[i]) for i in range(50))


# ------------------------------------------------------------------------------------------------- what is refused
def refused(kind, what, *arguments, **options):
    with pytest.raises((DataError, ValueError), match=what) as caught:
        kind(*arguments, **options)
    assert is_sentence(str(caught.value))


def test_what_is_refused():
    net, graphs, *_ = fitted(WeisfeilerLehmanNet)
    x, edge_index, batch = tensors(graphs)
    refused(WeisfeilerLehmanNet, "labels graphs", 3, 2, "node")
    refused(WeisfeilerLehmanNet, "whole numbers from 1", 3, 2, iterations=(1, 2.5))
    refused(WeisfeilerLehmanNet, "whole numbers from 1", 3, 2, iterations=0)
    refused(net, "reads 3 features", x[:, :2], edge_index)
    refused(net, "edge weights", x, edge_index, torch.ones(edge_index.size(1)))
    refused(net, "plain edge_index", x, Adjacency.from_edge_index(edge_index, None, len(x)))
    refused(net, "zeros and ones", x / 2, edge_index)
    refused(net, "needs batch", x, edge_index)
    refused(net, "follow one another", x, edge_index, None, batch.flip(0))
    refused(net, "graph 5 has none", x, edge_index, None, batch, 6)
    refused(network(WeisfeilerLehmanNet), "not been fitted", x, edge_index, None, batch)


def test_walks_without_end_are_refused():
    net = network(RandomWalkNet, decay=(0.2, 0.3, 0.01))
    rings = [(undirected(n, cycle(n)), [0] * n) for n in (3, 4)]  # largest eigenvalue 2
    known = as_kernel_graphs(net, rings)
    assert net.possible_choices(known) == (0.2, 0.01)
    assert network(RandomWalkNet, decay=0.3, steps=2).possible_choices(known) == (0.3,)
    refused(network(RandomWalkNet, decay=(0.5, 0.3)).possible_choices, "below 0.25", known)
    compare = net.comparison(known, 0.2)
    complete = (undirected(5, combinations(range(5), 2)), [0] * 5)
    compare(as_kernel_graphs(net, rings))
    refused(compare, "infinite for graph 1", as_kernel_graphs(net, [rings[0], complete]))


def test_graphs_as_tensors_and_parts():
    net = network(WeisfeilerLehmanNet)
    graphs = [(undirected(n, cycle(n)), [n % KINDS] * n) for n in (3, 4, 5)]
    found = as_kernel_graphs(net, graphs)
    again = KernelGraphs.from_tensors(found.to_tensors())
    assert again.digest() == found.digest()
    part = found.take(np.array([2, 0]))
    assert part.digest() == as_kernel_graphs(net, [graphs[2], graphs[0]]).digest()
    assert part.digest() != found.digest()
