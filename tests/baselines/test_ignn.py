"""IGNN, EIGNN and MGNNI: the projection against a solver, equilibria against dense formulas, drop-in like ours."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch.autograd import gradcheck

from pprgnn import Adjacency, Certificate
from pprgnn.baselines.ignn import EIGNNConv, IGNNConv, MGNNIConv, project_columns
from pprgnn.nn import GraphNet, NodeNet
from pprgnn.nn.network import ppr_layers
from tests import reference
from tests.problems import ZOO, draw_b, random_graph

CONVS = pytest.mark.parametrize("kind", [IGNNConv, EIGNNConv, MGNNIConv])
GRAPH = random_graph(5, 14, directed=False, weighted=False)


@pytest.fixture(autouse=True)
def double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# -------------------------------------------------------------------------------------------------- projection
@given(seed=st.integers(0, 10_000), size=st.integers(1, 6), radius=st.floats(0.05, 3.0))
def test_projection_against_a_quadratic_program(seed, size, radius):
    """Min ‖u - a‖² with u = p - q, p, q >= 0, Σ(p + q) <= radius, by a general solver."""
    a = np.random.default_rng(seed).normal(size=size)
    found = project_columns(torch.tensor(a).unsqueeze(1), radius).squeeze(1).numpy()
    wanted = minimize(
        lambda z: np.sum((z[:size] - z[size:] - a) ** 2),
        np.full(2 * size, radius / (4 * size)),
        jac=lambda z: 2 * np.concatenate([z[:size] - z[size:] - a, a - z[:size] + z[size:]]),
        bounds=[(0, None)] * (2 * size),
        constraints={"type": "ineq", "fun": lambda z: radius - z.sum(), "jac": lambda z: -np.ones(2 * size)},
        method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-14},
    ).x
    np.testing.assert_allclose(found, wanted[:size] - wanted[size:], atol=2e-5)


@given(seed=st.integers(0, 10_000), radius=st.floats(0.01, 5.0))
def test_projection_is_one(seed, radius):
    a = torch.randn(7, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    once = project_columns(a, radius)
    assert float(once.abs().sum(0).max()) <= radius * (1 + 1e-12)
    torch.testing.assert_close(project_columns(once, radius), once)  # it stays where it is
    inside = a.abs().sum(0) <= radius
    assert torch.equal(once[:, inside], a[:, inside])
    assert torch.equal(project_columns(a.flip(0), radius), once.flip(0))
    # The angle to every other point of the ball is obtuse: that is what makes it the nearest one.
    other = project_columns(torch.randn(7, 5, generator=torch.Generator().manual_seed(seed + 1)).double(), radius)
    assert float(((a - once) * (other - once)).sum(0).max()) <= 1e-10


def test_projection_with_ties_and_zeros():
    tied = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]])
    torch.testing.assert_close(project_columns(tied, 1.5)[:, 0], torch.tensor([0.5, -0.5, 0.5]))
    assert not project_columns(tied, 1.5)[:, 1].any()
    with pytest.raises(ValueError, match="radius must be > 0"):
        project_columns(tied, 0.0)


# ---------------------------------------------------------------------------------------------------- the layers
def dense(graph):
    return reference.dense_adjacency(graph.edge_index, graph.edge_weight, graph.num_nodes, add_self_loops=True)


def test_ignn_is_the_equilibrium_of_its_equation():
    conv = IGNNConv(3, 6, tol=1e-12, max_depth=3000, kappa=0.9)
    torch.nn.init.normal_(conv.weight)  # far outside the ball
    x = draw_b(GRAPH.num_nodes, 3)
    out = conv(x, GRAPH.edge_index)
    assert float(conv.weight.detach().abs().sum(0).max()) <= 0.9 + 1e-12
    right = torch.relu(dense(GRAPH) @ out @ conv.weight + x @ conv.lin.weight.t() + conv.bias)
    torch.testing.assert_close(out, right, rtol=1e-9, atol=1e-9)


def test_ignn_gradient_equals_autograd_through_a_long_unroll():
    conv = IGNNConv(3, 5, tol=1e-13, max_depth=3000)
    torch.nn.init.normal_(conv.weight)
    x = draw_b(GRAPH.num_nodes, 3).requires_grad_()
    out = conv(x, GRAPH.edge_index)
    parameters = (x, conv.weight, conv.bias, conv.lin.weight)
    ours = torch.autograd.grad(out.square().sum(), parameters)
    a, b = dense(GRAPH), x @ conv.lin.weight.t() + conv.bias
    state = torch.zeros_like(b)
    for _ in range(800):
        state = torch.relu(a @ state @ conv.weight + b)
    for one, other in zip(ours, torch.autograd.grad(state.square().sum(), parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


@CONVS
def test_the_same_equilibrium_with_and_without_acceleration(kind):
    edge_index = random_graph(1, 60, directed=False, weighted=False).edge_index
    x, found = draw_b(60, 3).abs(), []
    for acceleration in ("none", "anderson"):
        torch.manual_seed(0)
        slow = {"kappa": 0.95} if kind is IGNNConv else {"gamma": 0.95}
        conv = kind(3, 1, tol=1e-10, max_depth=3000, acceleration=acceleration, bias=False, **slow)
        with torch.no_grad():
            for parameter in conv.parameters():
                parameter.abs_().add_(0.5)  # nothing is negative: the slowest there is
        out = conv(x, edge_index)
        products = sum(layer.last_solution.products for _, layer in ppr_layers(torch.nn.ModuleList([conv])))
        found.append((products, out, *torch.autograd.grad(out.square().sum(), [*conv.parameters()])))
    (plain, *wanted), (accelerated, *ours) = found
    assert accelerated < plain / 2
    for one, other in zip(ours, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)


def test_ignn_with_the_plain_matrix_as_published_on_ppi():
    conv = IGNNConv(3, 4, tol=1e-12, max_depth=3000, kappa=0.9, scaling="radius", add_self_loops=True)
    torch.nn.init.normal_(conv.weight)
    x = draw_b(GRAPH.num_nodes, 3)
    out = conv(x, GRAPH.edge_index)
    a = torch.zeros(GRAPH.num_nodes, GRAPH.num_nodes).index_put(tuple(GRAPH.edge_index.flip(0)), torch.ones(()))
    radius = float(torch.linalg.eigvalsh(a).abs().max())
    assert radius > 2
    assert float(conv.weight.detach().abs().sum(0).max()) == pytest.approx(0.9 / radius, rel=1e-4)
    right = torch.relu(a @ out @ conv.weight + x @ conv.lin.weight.t() + conv.bias)
    torch.testing.assert_close(out, right, rtol=1e-9, atol=1e-9)


@CONVS
def test_gradcheck(kind):
    conv = kind(2, 3, tol=1e-13, max_depth=5000, activation="tanh")
    names = [name for name, _ in conv.named_parameters()]
    graph = random_graph(2, 5, directed=True, weighted=False)
    x = draw_b(5, 2).requires_grad_()
    conv(x, graph.edge_index)  # W goes into the ball first: the projection itself has no gradient
    inside = [p.detach().clone() * (0.9 if "weight" in n else 1.0) for n, p in conv.named_parameters()]

    def function(x, *values):
        return torch.func.functional_call(conv, dict(zip(names, values, strict=True)), (x, graph.edge_index))

    assert gradcheck(function, (x, *(value.requires_grad_() for value in inside)), atol=1e-6)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_eignn_is_a_linear_system(hops):
    """Vec(Z) = (I - γ g(F)ᵀ ⊗ Ãᵐ)⁻¹ vec(B), solved densely."""
    conv = EIGNNConv(3, 4, hops=hops, tol=1e-12, max_depth=3000, gamma=0.9)
    x = draw_b(GRAPH.num_nodes, 3)
    b = x @ conv.lin.weight.t() + conv.bias
    square = conv.weight.t() @ conv.weight
    g = square / square.norm()
    a = torch.linalg.matrix_power(dense(GRAPH), hops)
    system = torch.eye(4 * GRAPH.num_nodes) - 0.9 * torch.kron(g.t().contiguous(), a)
    wanted = torch.linalg.solve(system, b.t().reshape(-1)).reshape(4, -1).t()
    torch.testing.assert_close(conv(x, GRAPH.edge_index), wanted, rtol=1e-9, atol=1e-9)


def test_mgnni_mixes_its_scales():
    conv = MGNNIConv(3, 4, scales=3, tol=1e-12)
    x = draw_b(GRAPH.num_nodes, 3)
    out = conv(x, GRAPH.edge_index)
    b = conv.lin(x) + conv.bias
    states = [scale(b, GRAPH.edge_index) for scale in conv.scales]
    assert [scale.hops for scale in conv.scales] == [1, 2, 3]
    for node in range(GRAPH.num_nodes):
        scores = torch.stack([conv.attention(state[node]) for state in states]).flatten()
        shares = scores.exp() / scores.exp().sum()
        wanted = sum(share * state[node] for share, state in zip(shares, states, strict=True))
        torch.testing.assert_close(out[node], wanted)


# ------------------------------------------------------------------------------------------------- drop-in layers
@CONVS
def test_same_result_for_every_kind_of_graph(kind):
    conv = kind(3, 4, tol=1e-12, max_depth=3000)
    graph = ZOO["directed_weighted"]
    x = draw_b(graph.num_nodes, 3)
    wanted = conv(x, graph.edge_index, graph.edge_weight)
    adj = Adjacency.from_edge_index(
        graph.edge_index, graph.edge_weight, graph.num_nodes, add_self_loops=True, normalize="sym"
    )
    torch.testing.assert_close(conv(x, adj), wanted)
    sparse = torch.sparse_coo_tensor(
        graph.edge_index.flip(0), graph.edge_weight, (graph.num_nodes,) * 2, check_invariants=True
    ).coalesce()
    torch.testing.assert_close(conv(x, sparse), wanted)


@CONVS
@pytest.mark.parametrize("net", [NodeNet, GraphNet])
def test_takes_the_place_of_our_layer(kind, net):
    network = net(3, 2, hidden=5, layers=2, layer=kind, dropout=0.0)
    batch = torch.zeros(GRAPH.num_nodes, dtype=torch.long)
    loss = network(draw_b(GRAPH.num_nodes, 3), GRAPH.edge_index, batch=batch).square().sum()
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in network.parameters())
    assert len(ppr_layers(network)) == (4 if kind is MGNNIConv else 2)
    assert all(layer.last_solution.converged for _, layer in ppr_layers(network))


@pytest.mark.parametrize("kind", [IGNNConv, EIGNNConv])
def test_explanations_send_the_same_messages(kind):
    conv = kind(3, 4, tol=1e-12, max_depth=3000, **({"hops": 2} if kind is EIGNNConv else {}))
    x = draw_b(GRAPH.num_nodes, 3)
    wanted = conv(x, GRAPH.edge_index)
    messages = conv._forward_message_passing(x, GRAPH.edge_index, None)
    torch.testing.assert_close(messages, wanted, rtol=1e-8, atol=1e-8)


@CONVS
def test_a_fixed_number_of_steps_and_no_other_rule(kind):
    conv = kind(3, 4, depth=7)
    conv(draw_b(GRAPH.num_nodes, 3), GRAPH.edge_index)
    assert {layer.last_solution.depth for _, layer in ppr_layers(torch.nn.ModuleList([conv]))} == {7}
    with pytest.raises(ValueError, match=r"depth of 'E?IGNNConv' must be None or a number of steps"):
        kind(3, 4, depth=Certificate())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IGNNConv(2, 3, kappa=1.0), "kappa must be between 0 and 1"),
        (lambda: EIGNNConv(2, 3, gamma=0.0), "gamma must be between 0 and 1"),
        (lambda: MGNNIConv(2, 3, scales=0), "scales must be >= 1"),
        (lambda: IGNNConv(2, 3, scaling="none"), "scaling must be 'normalized' or 'radius'"),
        (lambda: EIGNNConv(2, 3, acceleration="fast"), "acceleration must be 'anderson' or 'none'"),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_repr():
    assert repr(IGNNConv(2, 3)) == "IGNNConv(2, 3, kappa=0.95)"
    assert repr(EIGNNConv(2, 3, depth=5)) == "EIGNNConv(2, 3, gamma=0.8, depth=5)"


@CONVS
def test_reset_draws_anew(kind):
    conv = kind(2, 3)
    before = {name: tensor.clone() for name, tensor in conv.state_dict().items()}
    conv.reset_parameters()
    changed = {name for name, tensor in conv.state_dict().items() if not torch.equal(tensor, before[name])}
    assert {name for name in before if not name.endswith("bias")} <= changed | {"attention.0.bias"}


def test_layers_that_bound_their_weights_take_no_scale():
    with pytest.raises(ValueError, match=r"'IGNNConv' bounds its weights itself, but weight_scale=0\.1 was given"):
        IGNNConv(4, 3, weight_scale=0.1)
    assert IGNNConv(4, 3, weight_scale=1.0).weight_scale == 1
