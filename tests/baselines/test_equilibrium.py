"""Equilibria: right against dense loops, with the implicit gradient of the unrolled loop, bounded and honest."""

import gc
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from pprgnn import ConvergenceWarning, Status
from pprgnn.baselines.equilibrium import equilibrium
from tests import reference
from tests.problems import ACTIVATIONS, ZOO, draw_b, random_graph, ring

GRAPHS = pytest.mark.parametrize("graph", ZOO.values(), ids=str)
EVERY_PHI = pytest.mark.parametrize("phi", ACTIVATIONS.values(), ids=str)
HOPS = pytest.mark.parametrize("hops", [1, 2])


def contracting(channels: int, column_sum: float, seed: int = 0) -> torch.Tensor:
    weight = torch.randn(channels, channels, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return weight * (column_sum / weight.abs().sum(0))


def dense(graph, **options) -> torch.Tensor:
    return reference.dense_adjacency(graph.edge_index, graph.edge_weight, graph.num_nodes, **options)


def unrolled(a, b, weight, phi, hops=1, steps=600):
    power = torch.linalg.matrix_power(a, hops)
    x = torch.zeros_like(b)
    for _ in range(steps):
        x = phi(power @ x @ weight + b)
    return x


@GRAPHS
@EVERY_PHI
@HOPS
def test_equals_the_dense_loop(graph, phi, hops):
    b, adj = draw_b(graph.num_nodes, 5), graph.adjacency()
    weight = contracting(5, 0.8 / (phi.lipschitz * max(adj.norm_bound, 0.1) ** hops))
    solution = equilibrium(b, weight, adj, activation=phi.activation, hops=hops, tol=1e-12, max_depth=2000)
    wanted = unrolled(dense(graph), b, weight, phi.plain, hops)
    torch.testing.assert_close(solution.state, wanted, rtol=1e-10, atol=1e-10)
    assert solution.converged
    assert solution.products == hops * solution.depth


@EVERY_PHI
@HOPS
@pytest.mark.parametrize("name", ["directed_weighted", "karate"])
def test_gradient_equals_autograd_through_a_long_unroll(phi, hops, name):
    graph = ZOO[name] if name in ZOO else random_graph(3, 12, directed=False, weighted=True)
    adj = graph.adjacency()
    weight = contracting(4, 0.9 / (phi.lipschitz * adj.norm_bound**hops)).requires_grad_()
    b = draw_b(graph.num_nodes, 4).requires_grad_()
    incoming = torch.randn(graph.num_nodes, 4, dtype=torch.float64)
    state = equilibrium(b, weight, adj, activation=phi.activation, hops=hops, tol=1e-13, max_depth=3000).state
    ours = torch.autograd.grad(state, (b, weight), incoming)
    wanted = torch.autograd.grad(unrolled(dense(graph), b, weight, phi.plain, hops), (b, weight), incoming)
    for one, other in zip(ours, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kernel", ["fused", "torch"])
@pytest.mark.parametrize("hops", [1, 2])
def test_gradcheck(monkeypatch, kernel, hops):
    if kernel == "torch":
        monkeypatch.setenv("PPRGNN_KERNEL", "torch")
    graph = ZOO["directed_weighted"]
    adj = graph.adjacency()
    b, weight = draw_b(graph.num_nodes, 3).requires_grad_(), contracting(3, 0.8 / adj.norm_bound).requires_grad_()

    def function(b, weight):
        return equilibrium(b, weight, adj, activation="tanh", hops=hops, tol=1e-13, max_depth=3000).state

    assert gradcheck(function, (b, weight), atol=1e-6)


@pytest.mark.parametrize("hops", [1, 2])
def test_gradient_of_edge_weights(hops):
    graph = random_graph(1, 6, directed=True, weighted=True)
    b, weight = draw_b(6, 3), contracting(3, 0.3)
    value = graph.edge_weight.clone().requires_grad_()
    adj = type(graph.adjacency()).from_edge_index(graph.edge_index, value, 6, normalize=None, dtype=torch.float64)
    state = equilibrium(b, weight / adj.norm_bound**hops, adj, activation="tanh", hops=hops, tol=1e-13).state
    (ours,) = torch.autograd.grad(state.square().sum(), value)
    a = torch.zeros(6, 6, dtype=torch.float64).index_put((graph.edge_index[1], graph.edge_index[0]), value)
    wanted_state = unrolled(a, b, weight / adj.norm_bound**hops, torch.tanh, hops)
    (wanted,) = torch.autograd.grad(wanted_state.square().sum(), value)
    torch.testing.assert_close(ours, wanted, rtol=1e-8, atol=1e-10)


@given(
    seed=st.integers(0, 10_000),
    nodes=st.integers(2, 12),
    column_sum=st.floats(0.05, 0.97),
    tol=st.sampled_from([1e-2, 1e-4, 1e-7]),
    phi=st.sampled_from(["relu", "tanh", "identity"]),
)
def test_the_proved_bound_holds(seed, nodes, column_sum, tol, phi):
    graph = random_graph(seed, nodes, directed=False, weighted=True)
    adj, b = graph.adjacency(), draw_b(nodes, 4)
    weight = contracting(4, column_sum, seed)
    loose = equilibrium(b, weight, adj, activation=phi, tol=tol, max_depth=5000)
    tight = equilibrium(b, weight, adj, activation=phi, tol=1e-13, max_depth=5000)
    error = float((loose.state - tight.state).norm() / b.norm())
    assert loose.truncation_bound is None or error <= loose.truncation_bound * (1 + 1e-6) + 1e-12
    assert loose.status is not Status.CERTIFIED or error <= tol + 1e-12
    assert loose.converged
    assert error <= 20 * tol  # the estimate is one, but no wild one


@pytest.mark.parametrize("seed", range(5))
def test_kernel_and_torch_agree(monkeypatch, seed):
    graph = random_graph(seed, 40, directed=True, weighted=True)
    for dtype, close in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        adj, results = graph.adjacency(dtype=dtype), []
        for kernel in ("", "torch"):
            monkeypatch.setenv("PPRGNN_KERNEL", kernel) if kernel else monkeypatch.delenv(
                "PPRGNN_KERNEL", raising=False
            )
            b = draw_b(40, 7).to(dtype).requires_grad_()
            weight = contracting(7, 0.9 / adj.norm_bound).to(dtype).requires_grad_()
            solution = equilibrium(b, weight, adj, tol=1e-4, activation="leaky_relu")
            results.append((solution.state, *torch.autograd.grad(solution.state.square().sum(), (b, weight))))
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=close, atol=close)


def test_a_fixed_number_of_steps():
    graph = ring(7)
    adj, b, weight = graph.adjacency(), draw_b(7, 3), contracting(3, 5.0)  # does not contract: still finite
    for steps in (0, 1, 6):
        solution = equilibrium(b, weight, adj, steps=steps)
        assert (solution.status, solution.depth) == (Status.FIXED, steps)
        torch.testing.assert_close(solution.state, unrolled(dense(graph), b, weight, torch.relu, steps=steps + 1))


def test_what_does_not_contract_is_said():
    adj, b = ring(6).adjacency(), draw_b(6, 2).abs()
    with pytest.warns(ConvergenceWarning, match=r"did not come within tol = 1e-05 in max_depth = 50 steps.*kappa"):
        solution = equilibrium(b, torch.eye(2, dtype=torch.float64), adj, max_depth=50)
    assert (solution.status, solution.depth) == (Status.CAPPED, 50)
    with pytest.warns(ConvergenceWarning, match="overflowed"):
        solution = equilibrium(b, 1e30 * torch.eye(2, dtype=torch.float64), adj, max_depth=50)
    assert solution.status is Status.NOT_FINITE


def test_a_gradient_that_does_not_converge_is_said():
    adj = ring(6).adjacency()
    b = draw_b(6, 2).abs().requires_grad_()
    state = equilibrium(b, 2 * torch.eye(2, dtype=torch.float64), adj, steps=3).state
    with pytest.warns(ConvergenceWarning, match="The gradient of an equilibrium"):
        state.sum().backward()


def test_memory_does_not_depend_on_steps():
    """One state is kept for the backward pass, and nothing is left afterwards."""
    adj, weight = ring(50).adjacency(), contracting(4, 0.9).requires_grad_()
    kept = []
    for steps in (2, 200):
        b = draw_b(50, 4).requires_grad_()
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, saved=saved: saved.append(t.shape) or t, lambda t: t
        ):
            equilibrium(b, weight, adj, steps=steps).state.sum().backward()
        kept.append(sorted(saved))
    assert kept[0] == kept[1]
    gc.collect()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hops": 0}, "hops must be >= 1, but came as 0"),
        ({"steps": -1}, "steps must be >= 0, but came as -1"),
        ({"tol": 0.0}, "tol must be > 0"),
        ({"max_depth": 0}, "max_depth must be >= 1"),
        ({"b": torch.full((5, 2), math.nan, dtype=torch.float64)}, "b must be finite"),
        ({"b": torch.zeros(4, 2, dtype=torch.float64)}, "b must have one row per node"),
        ({"weight": torch.zeros(3, 3, dtype=torch.float64)}, "weight must have shape"),
    ],
)
def test_bad_input_gets_a_sentence(change, message):
    given_values = {"b": draw_b(5, 2), "weight": contracting(2, 0.5), "adj": ring(5).adjacency()} | change
    with pytest.raises(ValueError, match=message):
        equilibrium(**given_values)


def test_nothing_in_nothing_out():
    adj = ring(5).adjacency()
    zero = equilibrium(torch.zeros(5, 2, dtype=torch.float64), contracting(2, 0.5), adj)
    assert zero.converged
    assert not zero.state.any()
    empty = equilibrium(torch.zeros(5, 0, dtype=torch.float64), torch.zeros(0, 0, dtype=torch.float64), adj)
    assert empty.state.shape == (5, 0)
