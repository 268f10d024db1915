"""APPNP and PPNP: dense formulas, one the limit of the other, and their paper's way to train them."""

import pytest
import torch

from pprgnn import Adjacency
from pprgnn.baselines.appnp import APPNPNet, PPNPNet, exact_pagerank
from pprgnn.baselines.appnp import power_iteration as steps
from pprgnn.core.solution import ConvergenceWarning
from pprgnn.training.config import Config
from pprgnn.training.optimization import make_optimizer
from tests.baselines.dense import CLASSES, FEATURES, N, build, graph, normalized
from tests.problems import ZOO

EXACT = {"tol": 1e-13}


def perceptron(network, x):
    first, last = network.mlp.lins
    return (x @ first.weight.t() + first.bias).relu() @ last.weight.t() + last.bias


def inverse(a, alpha):
    return alpha * torch.linalg.inv(torch.eye(len(a), dtype=torch.float64) - (1 - alpha) * a)


def power_iteration(a, h, alpha, hops):
    z = h
    for _ in range(hops):
        z = (1 - alpha) * a @ z + alpha * h
    return z


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_the_dense_formulas(directed, weighted):
    edge_index, weight, x = graph(directed=directed)
    weight = weight if weighted else None
    a = normalized(edge_index, weight)
    few, all_ = build(APPNPNet, hops=3, alpha=0.2), build(PPNPNet, alpha=0.2, solve_tol=1e-13)
    expected = {
        few: power_iteration(a, perceptron(few, x), 0.2, 3),
        all_: inverse(a, 0.2) @ perceptron(all_, x),
    }
    for network, logits in expected.items():
        adj = Adjacency.from_edge_index(edge_index, weight, N, dtype=x.dtype, **network.adjacency_options)
        torch.testing.assert_close(network(x, adj), logits)
        torch.testing.assert_close(network(x, edge_index, weight), logits)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.5])
def test_appnp_tends_to_ppnp_by_one_minus_alpha_per_step(alpha):
    edge_index, _, x = graph()
    limit = build(PPNPNet, alpha=alpha, solve_tol=1e-13)(x, edge_index)
    errors = []
    for hops in (0, 1, 5, 10, 20, 400):
        network = build(APPNPNet, hops=hops, alpha=alpha)
        distance = float((network(x, edge_index) - limit).detach().norm())
        errors.append(distance)
        assert distance <= (1 - alpha) ** hops * errors[0] + 1e-6  # ‖Ã‖ = 1
    assert errors[3] >= (1 - alpha) ** 10 * errors[0] * 1e-3  # and not much faster: 1 is an eigenvalue
    assert errors[-1] < 1e-6


def test_what_is_constant_over_the_square_roots_of_degrees_stays():
    """The eigenvector of the eigenvalue 1: nothing to propagate."""
    adj = ZOO["karate"].adjacency(add_self_loops=True)
    h = adj.to_dense().gt(0).sum(1, keepdim=True).double().sqrt()
    torch.testing.assert_close(exact_pagerank(adj, h, **EXACT), h)


# ------------------------------------------------------------------------------------------------------- the solve
DISCONNECTED = torch.tensor([[0, 1, 3, 4, 5, 3], [1, 0, 4, 5, 3, 5]])


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.9, 1.0])
@pytest.mark.parametrize("name", ZOO)
def test_the_solve_is_the_dense_inverse(name, alpha):
    adj = ZOO[name].adjacency(add_self_loops=True)
    h = torch.randn(adj.num_nodes, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    h[:, 1] = 0.0  # a column that is solved before it begins
    expected = inverse(adj.to_dense(), alpha) @ h
    torch.testing.assert_close(exact_pagerank(adj, h, alpha=alpha, **EXACT), expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("reorder", [False, True])
def test_gradients_of_features_and_edge_weights(directed, reorder):
    edges = DISCONNECTED if directed else torch.cat([DISCONNECTED[:, :3], DISCONNECTED[:, :3].flip(0)], dim=1)
    draw = torch.Generator().manual_seed(0)
    count = edges.size(1) if directed else 3
    weight = (torch.rand(count, generator=draw, dtype=torch.float64) + 0.3).requires_grad_()
    h = torch.randn(7, 2, generator=draw, dtype=torch.float64, requires_grad=True)  # node 6 is isolated

    def solve(h, weight):
        both = weight if directed else weight.repeat(2)
        adj = Adjacency.from_edge_index(edges, both, 7, add_self_loops=True, reorder=reorder)
        assert adj.is_symmetric != directed
        return exact_pagerank(adj, h, alpha=0.5, **EXACT)

    assert torch.autograd.gradcheck(solve, (h, weight))


def test_isolated_nodes_and_parts_of_a_graph_keep_to_themselves():
    adj = Adjacency.from_edge_index(DISCONNECTED, None, 7, add_self_loops=True, dtype=torch.float64)
    h = torch.eye(7, dtype=torch.float64)
    z = exact_pagerank(adj, h, **EXACT)
    assert not z[:2, 2:].any()
    assert not z[2, [0, 1, 3, 4, 5, 6]].any()
    torch.testing.assert_close(z[[2, 6]], h[[2, 6]])


@pytest.mark.parametrize("name", ["karate", "directed"])
@pytest.mark.parametrize("tol", [1e-2, 1e-5])
def test_the_equation_holds_to_the_tolerance_in_single_precision(name, tol):
    adj = ZOO[name].adjacency(add_self_loops=True, dtype=torch.float32)
    h = torch.randn(adj.num_nodes, 5, generator=torch.Generator().manual_seed(0))
    z = exact_pagerank(adj, h, tol=tol)
    left = 0.1 * h - (z - 0.9 * (adj @ z))
    assert bool((left.norm(dim=0) <= (tol + 1e-6) * 0.1 * h.norm(dim=0)).all())
    assert bool((left.norm(dim=0) > 1e-3 * tol * 0.1 * h.norm(dim=0)).any())  # and does no more than it must


def test_conjugate_gradients_take_few_steps(monkeypatch):
    """About (1/2) sqrt((2 - alpha) / alpha) ln(2 / tol); the power series would need ln(tol) / ln(1 - alpha)."""
    adj = ZOO["barabasi_albert"].adjacency(add_self_loops=True)
    h = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    monkeypatch.setattr("pprgnn.baselines.appnp.MAX_ITERATIONS", 60)
    exact_pagerank(adj, h, alpha=0.02, tol=1e-8)  # a warning would be an error


@pytest.mark.parametrize("name", ["karate", "directed"])
def test_says_so_when_the_tolerance_is_not_reached(name, monkeypatch):
    adj = ZOO[name].adjacency(add_self_loops=True)
    h = torch.randn(adj.num_nodes, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    monkeypatch.setattr("pprgnn.baselines.appnp.MAX_ITERATIONS", 2)
    with pytest.warns(ConvergenceWarning, match=r"more than tol = 1e-06; raise alpha"):
        exact_pagerank(adj, h)


def test_says_so_when_there_is_no_limit():
    adj = ZOO["directed"].adjacency(normalize=None, add_self_loops=True)
    with pytest.warns(ConvergenceWarning, match="normalise the adjacency"):
        exact_pagerank(adj, torch.ones(6, 1, dtype=torch.float64))


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.1, float("nan")])
def test_alpha_is_checked(alpha):
    adj = ZOO["path"].adjacency()
    with pytest.raises(ValueError, match="alpha must be above 0"):
        exact_pagerank(adj, torch.ones(7, 1, dtype=torch.float64), alpha=alpha)


def test_shape_and_type_are_checked():
    adj = ZOO["path"].adjacency()
    with pytest.raises(ValueError, match=r"h must have shape \(7, channels\)"):
        exact_pagerank(adj, torch.ones(6, 1, dtype=torch.float64))
    with pytest.raises(ValueError, match="convert one"):
        exact_pagerank(adj, torch.ones(7, 1))


# -------------------------------------------------------------------------------------------------------- training
@pytest.mark.parametrize("name", ["appnp", "ppnp"])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_only_the_first_layer_decays(name, task):
    network = build(APPNPNet if name == "appnp" else PPNPNet, task)
    groups = make_optimizer(network, Config.for_system(name).training).param_groups
    decayed = [id(p) for group in groups if group["weight_decay"] for p in group["params"]]
    assert [group["weight_decay"] for group in groups] == [5e-3, 0.0]
    assert decayed == [id(p) for p in network.mlp.lins[0].parameters()]
    assert sum(len(group["params"]) for group in groups) == len(list(network.parameters()))


@pytest.mark.parametrize("kind", [APPNPNet, PPNPNet])
def test_dropout_is_on_the_input_and_on_the_hidden_layer(kind):
    edge_index, _, x = graph()
    network = build(kind, dropout=0.5).train()
    assert not network.encode_is_deterministic
    assert build(kind, dropout=0.0).encode_is_deterministic
    seen = []
    for layer in network.mlp.lins:
        layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network(x, edge_index)
    first, hidden = seen
    assert 0.3 < float((first == 0).double().mean()) < 0.7
    torch.testing.assert_close(first[first != 0], 2 * x[first != 0])
    full = (network.mlp.lins[0](first)).relu()
    assert bool(((hidden == 0) | torch.isclose(hidden, 2 * full)).all())
    assert bool((hidden[full > 0] == 0).any())


def test_graphs_are_pooled_one_by_one():
    edge_index, _, x = graph()
    network = build(PPNPNet, "graph", hidden=4, solve_tol=1e-13)
    h = inverse(normalized(edge_index), 0.1) @ perceptron(network, x)
    batch = torch.tensor([0] * 4 + [1] * (N - 4))
    pooled = torch.stack([h[:4].sum(0), h[4:].sum(0)])
    expected = network.head.out(network.head.hidden[0](pooled).relu())
    torch.testing.assert_close(network(x, edge_index, None, batch, 2), expected)
    assert expected.shape == (2, CLASSES)
    assert network.in_channels == FEATURES


@pytest.mark.parametrize("reorder", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_the_steps_in_two_buffers_have_the_gradient_of_the_dense_formula(directed, reorder):
    edge_index, weight, _ = graph(directed=directed)
    options = {"dtype": torch.float64, "add_self_loops": True, "reorder": reorder}
    adj = Adjacency.from_edge_index(edge_index, weight, N, **options)
    h = torch.randn(N, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    torch.testing.assert_close(steps(adj, h, alpha=0.2, hops=4), power_iteration(adj.to_dense(), h, 0.2, 4))
    assert torch.autograd.gradcheck(lambda each: steps(adj, each, alpha=0.2, hops=4), h)


def test_edge_weights_get_a_gradient_where_they_want_one():
    edge_index, weight, x = graph()
    weight = weight.clone().requires_grad_()
    build(APPNPNet, hops=3)(x, edge_index, weight).square().sum().backward()
    assert weight.grad is not None
    assert float(weight.grad.abs().sum()) > 0


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("reorder", [False, True])
def test_dropped_entries_are_others_in_each_step_and_have_the_right_gradient(directed, reorder, monkeypatch):
    edge_index, weight, x = graph(directed=directed)
    adj = Adjacency.from_edge_index(
        edge_index, weight, N, add_self_loops=True, normalize="sym", reorder=reorder, dtype=torch.float64
    )
    drawn = []

    def dropout(value, rate):
        assert rate == 0.5
        drawn.append(torch.rand_like(value).round() * value / (1 - rate))
        return drawn[-1]

    monkeypatch.setattr("torch.nn.functional.dropout", dropout)
    h = x.clone().requires_grad_()
    found = steps(adj, h, alpha=0.2, hops=3, dropout=0.5)
    assert len(drawn) == 3
    assert not torch.equal(drawn[0], drawn[1])
    order = torch.arange(N) if adj.order is None else adj.order
    z = h
    for value in drawn:
        matrix = torch.zeros(N, N, dtype=torch.float64).index_put((order[adj.row], order[adj.col]), value)
        z = 0.8 * matrix @ z + 0.2 * h
    torch.testing.assert_close(found, z)
    incoming = torch.randn_like(z)
    torch.testing.assert_close(*(torch.autograd.grad(each, h, incoming)[0] for each in (found, z)))


def test_entries_are_dropped_in_training_only():
    edge_index, _, x = graph()
    network = build(APPNPNet, dropout=0.5, drop_entries=True)
    whole = network.pagerank(x, Adjacency.from_edge_index(edge_index, num_nodes=N, dtype=torch.float64))
    network.train()
    adj = Adjacency.from_edge_index(edge_index, num_nodes=N, dtype=torch.float64)
    torch.manual_seed(0)
    some = torch.stack([network.pagerank(x, adj) for _ in range(2000)])
    assert not torch.equal(some[0], some[1])
    torch.testing.assert_close(some.mean(0), whole, atol=0.15, rtol=0.0)  # unbiased: the draws are independent
    network.drop_entries = False
    torch.testing.assert_close(network.pagerank(x, adj), whole)
