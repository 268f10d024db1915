"""DGCNN: the sorting of its paper by a slow loop, the same result whatever the order of the nodes, and padding."""

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from pprgnn import Adjacency
from pprgnn.baselines.classic import DGCNNet
from pprgnn.errors import DataError
from pprgnn.training.build import Shape, build_network
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from tests.baselines.dense import CLASSES, FEATURES, N, build, graph, matrix

SMALL = {"hidden": 3, "layers": 3}  # rows of 7


def before(a, b):
    """Whether a row comes first: larger in the last channel, or in the one before it if that is tied, ..."""
    for left, right in zip(reversed(a), reversed(b), strict=True):
        if left != right:
            return -1 if left > right else 1
    return 0


def slow_logits(network, rows, k):
    """One graph: its rows sorted, cut or filled up, then the layers of the head written out."""
    rows = sorted(rows.tolist(), key=functools.cmp_to_key(before))[:k]
    rows += [[0.0] * network.row] * (k - len(rows))
    first, second, dense, out = (part for part in network.head if hasattr(part, "weight"))
    h = (torch.tensor(rows, dtype=torch.float64) @ first.weight[:, 0].t() + first.bias).relu()  # (k, 16)
    h = torch.stack([torch.maximum(h[2 * i], h[2 * i + 1]) for i in range(k // 2)])
    windows = [h[i : i + 5] for i in range(len(h) - 4)]
    h = torch.stack([torch.einsum("tc,oct->o", w, second.weight) + second.bias for w in windows]).relu()
    return F.linear(F.linear(h.t().flatten(), dense.weight, dense.bias).relu(), out.weight, out.bias)


def test_the_dense_formula_before_the_sorting():
    edge_index, weight, x = graph()
    network = build(DGCNNet, "graph", **SMALL)
    for given_weight in (None, weight):
        a = matrix(edge_index, given_weight) + torch.eye(N, dtype=torch.float64)
        a = a / a.sum(1, keepdim=True)
        states, h = [], x
        for conv in network.convs:
            h = (a @ h @ conv.lin.weight.t() + conv.bias).tanh()
            states.append(h)
        expected = torch.cat(states, dim=1)
        torch.testing.assert_close(network.encode(x, edge_index, given_weight), expected)
        adj = Adjacency.from_edge_index(edge_index, given_weight, N, dtype=x.dtype, **network.adjacency_options)
        torch.testing.assert_close(network.encode(x, adj), expected)


@st.composite
def tied_rows(draw):
    """Graphs of 1 to 14 nodes whose states have few values, so that many are tied in some or all channels."""
    sizes = draw(st.lists(st.integers(1, 14), min_size=1, max_size=3))
    rows = draw(
        st.lists(st.lists(st.sampled_from([-1.0, 0.0, 0.5]), min_size=7, max_size=7), min_size=2, max_size=6)
    )
    chosen = [draw(st.lists(st.sampled_from(rows), min_size=size, max_size=size)) for size in sizes]
    orders = [draw(st.permutations(range(size))) for size in sizes]
    return chosen, orders


@given(tied_rows(), st.sampled_from([10, 11, 13]))
def test_sorted_as_the_paper_says_in_whatever_order_the_nodes_come(case, k):
    chosen, orders = case
    network = build(DGCNNet, "graph", k=k, **SMALL)
    graphs = [torch.tensor(rows, dtype=torch.float64) for rows in chosen]
    batch = torch.repeat_interleave(torch.arange(len(graphs)), torch.tensor([len(rows) for rows in graphs]))
    logits = network.decode(torch.cat(graphs), batch, len(graphs))
    for rows, found in zip(graphs, logits, strict=True):
        torch.testing.assert_close(found, slow_logits(network, rows, k))
    shuffled = torch.cat([rows[order] for rows, order in zip(graphs, orders, strict=True)])
    assert torch.equal(network.decode(shuffled, batch, len(graphs)), logits)


@given(st.integers(0, 1000), st.permutations(range(N)))
def test_the_whole_network_does_not_see_how_nodes_are_numbered(seed, order):
    """Features are one of two, so that many nodes look alike."""
    edge_index, _, _ = graph(seed)
    x = F.one_hot(torch.arange(N) % 2, FEATURES).double()
    order = torch.tensor(order)
    network = build(DGCNNet, "graph", k=10, hidden=3)
    batch = torch.zeros(N, dtype=torch.long)
    moved = torch.empty_like(x).index_copy_(0, order, x)  # node i is now called order[i]
    torch.testing.assert_close(network(moved, order[edge_index], None, batch), network(x, edge_index, None, batch))


@pytest.mark.parametrize("seed", range(4))
def test_the_order_in_which_a_sum_is_rounded_does_not_sort_nodes(seed):
    """The centres of two stars are tied in the last channel, exactly but for rounding, and differ before it."""
    torch.manual_seed(seed)
    network = DGCNNet(FEATURES, CLASSES, hidden=8, layers=2, k=10).eval()
    values = torch.randn(4, FEATURES)  # what the first layer averages to: at the centre first, then at its leaves
    features = [torch.randn(FEATURES)]  # a node by itself: pooling of pairs would hide two that change places
    for centre, *leaves in ((0, 1, 2, 3), (1, 0, 2, 3)):
        middle = values[leaves].sum(0) - 2 * values[centre]
        features += [middle, *(2 * values[leaf] - middle for leaf in leaves)]
    x = torch.stack(features)
    star = torch.tensor([[1, 1, 1], [2, 3, 4]])
    edges = torch.cat([star, star.flip(0), star + 4, star.flip(0) + 4], dim=1)
    batch = torch.zeros(9, dtype=torch.long)
    expected = network(x, edges, None, batch)
    for number in range(15):
        order = torch.randperm(9, generator=torch.Generator().manual_seed(number))
        moved = torch.empty_like(x).index_copy_(0, order, x)
        torch.testing.assert_close(network(moved, order[edges], None, batch), expected, atol=1e-5, rtol=1e-5)


def test_nodes_that_are_not_kept_change_nothing():
    network = build(DGCNNet, "graph", k=10, **SMALL)
    rows = torch.randn(12, 7, dtype=torch.float64)
    rows[:, -1] = torch.linspace(1, -1, 12)
    one = torch.zeros(12, dtype=torch.long)
    kept = network.decode(rows[:10], one[:10])
    assert torch.equal(network.decode(rows, one), kept)
    assert not torch.allclose(network.decode(rows[1:], one[1:]), kept)


def test_gradients_flow_to_the_states_that_are_kept():
    network = build(DGCNNet, "graph", k=10, **SMALL)
    rows = torch.randn(13, 7, dtype=torch.float64, requires_grad=True)
    batch = torch.tensor([0] * 11 + [1] * 2)
    assert torch.autograd.gradcheck(lambda r: network.decode(r, batch, 2), rows)


def test_a_graph_without_nodes_is_all_padding():
    network = build(DGCNNet, "graph", k=10, **SMALL)
    rows = torch.randn(3, 7, dtype=torch.float64)
    logits = network.decode(rows, torch.tensor([0, 0, 2]), 3)
    torch.testing.assert_close(logits[1], slow_logits(network, rows[:0], 10))
    torch.testing.assert_close(logits[2], slow_logits(network, rows[2:], 10))


# ----------------------------------------------------------------------------------------------- how many are kept
@pytest.mark.parametrize(
    ("typical", "k", "kept"), [(50, 0, 50), (4, 0, 10), (50, 12, 12), (4, 10, 10), (None, 0, 30)]
)
def test_as_many_nodes_are_kept_as_the_data_or_the_user_says(typical, k, kept):
    config = Config.for_system("dgcnn").with_values({"model.own.k": k})
    network = build_network(config.model, Shape("graph", FEATURES, CLASSES, typical_nodes=typical))
    assert network.sort.k == kept
    assert [conv.out_channels for conv in network.convs] == [32, 32, 32, 1]


def test_what_it_refuses():
    with pytest.raises(TrainingError, match="k >= 10 nodes of a graph, but k came as 9"):
        build_network(
            Config.for_system("dgcnn").with_values({"model.own.k": 9}).model,
            Shape("graph", FEATURES, CLASSES, typical_nodes=30),
        )
    with pytest.raises(ValueError, match="labels graphs"):
        DGCNNet(FEATURES, CLASSES, "node")
    with pytest.raises(DataError, match="needs batch"):
        DGCNNet(FEATURES, CLASSES)(torch.ones(2, FEATURES), torch.tensor([[0], [1]]))
