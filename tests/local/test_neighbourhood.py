"""A few rows of the infinite recursion from a part of the graph: within the error that the push says it spent."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pprgnn import Adjacency, solve
from pprgnn.core.activation import resolve_activation
from pprgnn.core.depth import Certificate
from pprgnn.local import neighbourhood
from pprgnn.local.neighbourhood import LayerBounds, Neighbourhood, NotWorthwhile, Push, RowGrowth
from tests.problems import ZOO, draw_b, draw_eps, draw_weight, random_graph, ring

# Edges from nodes that nobody points to weigh nothing under symmetric normalisation, which is fine here.
pytestmark = pytest.mark.filterwarnings("ignore:Symmetric normalisation gives weight 0")
LAYER = torch.tensor(7)
NO_LIMIT = 1e9


@pytest.fixture(autouse=True)
def _however_dear(monkeypatch):
    """Small graphs are read as a whole soon: here that is no reason to give up."""
    monkeypatch.setattr(neighbourhood, "WORTH", NO_LIMIT)


def sparse_graph(seed, num_nodes, directed, signed=False):
    """A path with a few shortcuts and a node without edges: far nodes exist."""
    draw = torch.Generator().manual_seed(seed)
    here = torch.arange(num_nodes - 2)
    edges = torch.cat([torch.stack([here, here + 1]), torch.randint(num_nodes - 1, (2, 3), generator=draw)], dim=1)
    weight = torch.rand(edges.size(1), generator=draw, dtype=torch.float64) + 0.2
    if signed:
        weight = weight * torch.randint(0, 2, weight.shape, generator=draw).mul(2).sub(1)
    if not directed:
        edges, weight = torch.cat([edges, edges.flip(0)], dim=1), torch.cat([weight, weight])
    return edges, weight


def answer(adj, asked, b, weight, eps, allowed, *, activation="relu", depth=None, smooth=False):
    """The asked rows of G⁽⁰⁾ from the neighbourhood, with the push and the neighbourhood that they came from."""
    phi, growth = resolve_activation(activation), RowGrowth.of(adj)
    rows = asked if adj.rank is None else adj.rank[asked].long()
    push = Push(adj, growth, rows, allowed, 2 if smooth else 1)
    bounds = LayerBounds.of(weight, eps, phi, 500, depth)
    size = float((torch.linalg.vector_norm(b, dim=1) / adj.unpermute(growth.sizes(adj))).max())
    shares = torch.ones(len(rows), dtype=torch.float64)
    sizes, shares = push.recursion(bounds, shares, size * (growth.rate if smooth else 1.0))
    if smooth:
        push.product(shares, size)
    hood = Neighbourhood(push, max(sizes) if smooth else max([0, *sizes[:-1]]), len(rows), {int(LAYER): sizes})
    inside = b[hood.nodes]
    solution = hood.solve(LAYER, hood @ inside if smooth else inside, weight, eps, phi)
    return solution.state[: len(rows)], push, hood


def exact(adj, b, weight, eps, activation="relu", depth=None):
    rule = Certificate() if depth is None else depth
    return solve(b, weight, adj, eps=eps, activation=activation, depth=rule, tol=1e-13, max_depth=5000).state


def error(found, wanted):
    return float(torch.linalg.vector_norm(found - wanted, dim=1).sum())


@given(
    seed=st.integers(0, 10_000),
    directed=st.booleans(),
    normalize=st.sampled_from(["sym", "row", None]),
    loops=st.booleans(),
    norm=st.sampled_from([0.1, 0.7, 1.5, 4.0]),
    per_channel=st.booleans(),
    activation=st.sampled_from(["relu", "tanh", "identity", "leaky_relu"]),
    depth=st.sampled_from([None, None, 0, 1, 5]),
    smooth=st.booleans(),
    allowed=st.sampled_from([1.0, 1e-2, 1e-4, 1e-7]),
    count=st.integers(1, 4),
)
def test_the_error_is_within_what_was_spent(
    seed, directed, normalize, loops, norm, per_channel, activation, depth, smooth, allowed, count
):
    edges, edge_weight = sparse_graph(seed, 40, directed, signed=normalize is None)
    adj = Adjacency.from_edge_index(
        edges, edge_weight, 40, normalize=normalize, add_self_loops=loops and normalize is not None
    )
    b, weight, eps = draw_b(40, 3, seed), draw_weight(3, norm, seed), draw_eps(3, per_channel)
    asked = torch.randperm(40, generator=torch.Generator().manual_seed(seed))[:count]
    found, push, _ = answer(adj, asked, b, weight, eps, allowed, activation=activation, depth=depth, smooth=smooth)
    wanted = exact(adj, adj @ b if smooth else b, weight, eps, activation, depth)[asked]
    assert error(found, wanted) <= push.spent + 1e-10
    assert push.spent <= allowed * (1 + 1e-12)
    assert push.allowed == pytest.approx(allowed - push.spent)


@pytest.mark.parametrize("graph", ZOO.values(), ids=ZOO)
@pytest.mark.parametrize("reorder", [False, True])
def test_every_node_of_every_graph(graph, reorder):
    adj = graph.adjacency(reorder=reorder)
    b, weight = draw_b(graph.num_nodes, 3), draw_weight(3, 0.8)
    wanted = exact(adj, b, weight, 0.5)
    for node in range(graph.num_nodes):
        found, push, hood = answer(adj, torch.tensor([node]), b, weight, 0.5, 1e-6)
        assert error(found, wanted[[node]]) <= push.spent + 1e-12
        assert int(hood.nodes[0]) == node
    everyone = torch.arange(graph.num_nodes)
    found, push, hood = answer(adj, everyone, b, weight, 0.5, 1e-6)
    assert error(found, wanted) <= push.spent + 1e-12
    assert hood.num_nodes == graph.num_nodes


def test_far_nodes_are_left_out_and_near_ones_are_not():
    adj = ring(1000).adjacency()
    b, weight = draw_b(1000, 2), draw_weight(2, 1.0)
    sizes = []
    for allowed in (1e-2, 1e-4, 1e-8):
        _, _, hood = answer(adj, torch.tensor([500]), b, weight, 1.0, allowed)
        assert (hood.nodes - 500).abs().max() < 30
        sizes.append(hood.num_nodes)
    assert sizes == sorted(set(sizes))
    assert sizes[0] >= 5


def test_the_bound_is_nearly_reached():
    """All signs agree on a ring of ones: whoever leaves out more than is spent would be found out here."""
    adj = ring(400).adjacency()
    b, weight = torch.ones(400, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    for depth in (None, 6):
        wanted = exact(adj, b, weight, 0.5, depth=depth)
        for allowed in (1e-1, 1e-3, 1e-5):
            found, push, _ = answer(adj, torch.tensor([7, 9]), b, weight, 0.5, allowed, depth=depth)
            made = error(found, wanted[[7, 9]])
            assert 0.9 * push.spent <= made <= push.spent * (1 + 1e-4) + 1e-12
            assert push.spent > 0.02 * allowed or depth == 6


def test_levels_grow_and_shrink_again():
    """Deep levels matter less: they need fewer rows than those in the middle."""
    adj = random_graph(3, 30, directed=False, weighted=True).adjacency()
    _, push, hood = answer(adj, torch.tensor([0]), draw_b(30, 2), draw_weight(2, 1.0), 1.0, 1e-3)
    sizes = hood.levels[int(LAYER)]
    assert sizes[0] == 1
    assert sizes[-1] < max(sizes)
    assert push.entries < (len(sizes) - 1) * adj.num_edges


def test_rows_beyond_a_level_count_as_nothing():
    """Also those that this level's memory held before."""
    adj = ring(12).adjacency()
    push = Push(adj, RowGrowth.of(adj), torch.arange(12), 1.0, 1)
    sizes, b, weight = [2, 5, 9, 4, 12, 3], draw_b(12, 2), draw_weight(2, 2.0)
    hood = Neighbourhood(push, 12, 2, {int(LAYER): sizes})
    found = hood.solve(LAYER, b, weight, 0.5, resolve_activation("tanh")).state
    g = torch.zeros_like(b)
    for n in range(len(sizes) - 1, -1, -1):
        g = torch.tanh(adj.to_dense() @ g @ weight / (1 + 0.5 * n) + b)
        g[sizes[n] :] = 0.0
    torch.testing.assert_close(found[:2], g[:2])


def test_a_lonely_node_needs_nobody():
    graph = ZOO["isolated_nodes"]
    _, push, hood = answer(graph.adjacency(), torch.tensor([0]), draw_b(10, 2), draw_weight(2, 3.0), 0.1, 1e-9)
    assert hood.num_nodes == 1
    assert push.spent == 0


@pytest.mark.parametrize("normalize", ["sym", "row", None])
@pytest.mark.parametrize("directed", [False, True])
def test_row_growth_bounds_a_product(normalize, directed):
    edges, weight = sparse_graph(0, 50, directed, signed=normalize is None)
    adj = Adjacency.from_edge_index(edges, weight, 50, normalize=normalize)
    growth = RowGrowth.of(adj)
    sizes = adj.unpermute(growth.sizes(adj))
    assert sizes.min() >= 1
    assert bool((adj.to_dense().abs() @ sizes <= growth.rate * sizes * (1 + 1e-12)).all())
    if normalize == "row":
        assert (growth.power, growth.rate) == (0.0, pytest.approx(1.0))


def test_row_growth_of_symmetric_normalisation_is_one():
    for name in ("star", "karate", "grid"):
        assert RowGrowth.of(ZOO[name].adjacency()).rate == pytest.approx(1.0)


def test_signs_do_not_hide_influence():
    """With two paths of opposite sign, the sum of the entries is 0 and the influence is not."""
    edges = torch.tensor([[1, 2, 3, 3], [0, 0, 1, 2]])
    adj = Adjacency.from_edge_index(edges, torch.tensor([1.0, -1.0, 1.0, 1.0]).double(), 4, normalize=None)
    b = torch.tensor([[0.0], [-5.0], [0.0], [10.0]]).double()
    weight = torch.eye(1).double()
    found, _, _ = answer(adj, torch.tensor([0]), b, weight, 1.0, 1e-6, activation="identity")
    assert error(found, exact(adj, b, weight, 1.0, "identity")[[0]]) <= 1e-6
    assert float(found.abs()) > 1


def test_gathering_and_multiplying_agree(monkeypatch):
    adj = random_graph(5, 60, directed=False, weighted=True).adjacency()
    b, weight = draw_b(60, 2), draw_weight(2, 1.0)
    found = []
    for many in (0.0, NO_LIMIT):
        monkeypatch.setattr(neighbourhood, "MANY", many)
        monkeypatch.setattr(neighbourhood, "ROWS_AT_ONCE", 7)
        assert adj.is_symmetric
        found.append(answer(adj, torch.tensor([3, 4]), b, weight, 1.0, 1e-4))
    (one, push, hood), (other, other_push, other_hood) = found
    assert hood.levels == other_hood.levels
    torch.testing.assert_close(one, other)
    assert push.spent == pytest.approx(other_push.spent)


@pytest.mark.parametrize("at_once", [1, 5, 10_000])
def test_rows_are_gathered_in_pieces(at_once, monkeypatch):
    monkeypatch.setattr(neighbourhood, "ROWS_AT_ONCE", at_once)
    adj = ring(2000).adjacency()  # large beside what is reached
    push = Push(adj, RowGrowth.of(adj), torch.tensor([3, 500, 1000]), 1.0, 1)
    rows, shares = push._spread(push.nodes, torch.tensor([1.0, 2.0, 4.0]).double())
    assert rows.tolist() == [2, 4, 499, 501, 999, 1001]
    assert shares.tolist() == pytest.approx([0.5, 0.5, 1.0, 1.0, 2.0, 2.0])


def test_gives_up_when_the_whole_graph_matters(monkeypatch):
    monkeypatch.setattr(neighbourhood, "WORTH", 0.5)
    adj = random_graph(1, 40, directed=False, weighted=False).adjacency()
    asked, b = torch.tensor([0]), draw_b(40, 2)
    with pytest.raises(NotWorthwhile, match=r"of all edges matter within \d+ of at most \d+ steps"):
        answer(adj, asked, b, draw_weight(2, 2.0), 0.1, 1e-6)
    with pytest.raises(NotWorthwhile, match="more than max_depth = 500"):
        answer(adj, asked, b, draw_weight(2, 900.0), 0.01, 1e-6)
    with pytest.raises(NotWorthwhile):
        answer(adj, asked, b, draw_weight(2, 1.0), 1.0, 0.0)
