"""Anderson's acceleration: the same equilibria and gradients in fewer steps, with plain steps to fall back on."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from pprgnn import Status
from pprgnn.baselines import equilibrium as module
from pprgnn.baselines import fixed_point
from pprgnn.baselines.equilibrium import equilibrium
from pprgnn.baselines.fixed_point import Anderson
from tests.baselines.test_equilibrium import contracting, dense, unrolled
from tests.problems import draw_b, random_graph, ring

SLOW = 0.95 * torch.eye(4, dtype=torch.float64)


def slow_problem(dtype=torch.float64):
    """Steps that keep 95 % of what all nodes have in common."""
    graph = random_graph(2, 60, directed=False, weighted=False)
    b = draw_b(60, 4).abs().to(dtype)
    return graph, graph.adjacency(dtype=dtype, add_self_loops=True), b, SLOW.to(dtype)


# ---------------------------------------------------------------------------------------- the same, in fewer steps
@pytest.mark.parametrize("kernel", ["fused", "torch"])
@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-4), (torch.float64, 1e-4), (torch.float64, 1e-9)])
def test_the_same_equilibrium_in_fewer_products(monkeypatch, kernel, dtype, tol):
    if kernel == "torch":
        monkeypatch.setenv("PPRGNN_KERNEL", "torch")
    graph, adj, b, weight = slow_problem(dtype)
    plain = equilibrium(b, weight, adj, tol=tol, max_depth=2000)
    mixed = equilibrium(b, weight, adj, tol=tol, max_depth=2000, accelerate=True)
    a = dense(graph, add_self_loops=True)
    wanted = torch.linalg.solve(torch.eye(60, dtype=torch.float64) - 0.95 * a, b.double())  # nothing is negative
    assert mixed.converged
    assert float((mixed.state - wanted).norm() / b.norm()) <= tol
    assert mixed.products < plain.products / 3


@pytest.mark.parametrize("phi", ["relu", "tanh", "identity"])
@pytest.mark.parametrize("hops", [1, 2])
def test_the_same_gradient(phi, hops):
    _, adj, b, weight = slow_problem()
    incoming, found = draw_b(60, 4), []
    for accelerate in (False, True):
        leaves = [each.clone().requires_grad_() for each in ((b - 0.3) / 20, weight + 0.01)]  # tanh is steep at 0
        options = {"activation": phi, "hops": hops, "tol": 1e-11, "max_depth": 5000}
        solution = equilibrium(*leaves, adj, accelerate=accelerate, **options)
        found.append((solution.products, *torch.autograd.grad(solution.state, leaves, incoming)))
    (plain_products, *plain), (products, *ours) = found
    assert products < plain_products
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)


def test_gradcheck(monkeypatch):
    used = []
    monkeypatch.setattr(module, "Anderson", lambda like: used.append(1) or Anderson(like))
    adj = random_graph(3, 8, directed=False, weighted=True).adjacency()
    b, weight = (draw_b(8, 3) / 20).requires_grad_(), contracting(3, 0.95).abs().requires_grad_()
    assert gradcheck(
        lambda b, w: equilibrium(b, w, adj, activation="tanh", tol=1e-13, max_depth=3000, accelerate=True).state,
        (b, weight),
        atol=1e-6,
    )
    assert len(used) > 10


@given(
    seed=st.integers(0, 10_000),
    nodes=st.integers(2, 12),
    column_sum=st.floats(0.05, 0.99),
    tol=st.sampled_from([1e-2, 1e-4, 1e-7]),
    phi=st.sampled_from(["relu", "tanh", "identity", "leaky_relu"]),
    sign=st.sampled_from([-1.0, 0.0, 1.0]),
)
def test_what_is_proved_holds_and_what_is_estimated_is_near(seed, nodes, column_sum, tol, phi, sign):
    graph = random_graph(seed, nodes, directed=False, weighted=True)
    adj, b = graph.adjacency(), draw_b(nodes, 4)
    weight = contracting(4, column_sum, seed)
    weight = weight if sign == 0 else sign * weight.abs()  # of one sign, steps contract as slowly as they may
    found = equilibrium(b, weight, adj, activation=phi, tol=tol, max_depth=5000, accelerate=True)
    error = float((found.state - unrolled_to_the_end(graph, b, weight, phi)).norm() / b.norm())
    assert found.converged
    assert found.truncation_bound is None or error <= found.truncation_bound * (1 + 1e-6) + 1e-12
    assert found.status is not Status.CERTIFIED or error <= tol + 1e-12
    assert error <= 20 * tol


def unrolled_to_the_end(graph, b, weight, phi):
    functions = {"relu": torch.relu, "tanh": torch.tanh, "identity": lambda x: x}
    functions["leaky_relu"] = torch.nn.LeakyReLU(0.01)
    return unrolled(dense(graph), b, weight, functions[phi], steps=3000)


# --------------------------------------------------------------------------------------------- the plain way out
@pytest.mark.parametrize("garbage", [1e6, float("nan"), float("inf")])
def test_bad_mixtures_are_rejected_and_plain_steps_go_on(monkeypatch, garbage):
    _, adj, b, weight = slow_problem()
    plain = equilibrium(b, weight, adj, tol=1e-9, max_depth=2000)
    monkeypatch.setattr(Anderson, "mix", lambda self, out: bool(out.fill_(garbage).numel()))
    found = equilibrium(b, weight, adj, tol=1e-9, max_depth=2000, accelerate=True)
    assert found.converged
    torch.testing.assert_close(found.state, plain.state, rtol=1e-7, atol=1e-7)
    assert found.products <= plain.products + 40


def test_no_mixture_counts_that_is_worse_than_plain_steps_are_proved_to_be(monkeypatch):
    """Every bundle that is kept ends with a change that plain steps would have guaranteed."""
    _, adj, b, weight = slow_problem()
    sizes, mixing, rejected = [], [], []
    accepts, mix, reject = Anderson.accepts, Anderson.mix, Anderson.reject

    def worse(self, out):
        mixing.append(mix(self, out))
        if len(mixing) % 3 == 0:
            out.mul_(1.02)
        return mixing[-1]

    monkeypatch.setattr(
        Anderson, "accepts", lambda self, size, *rest: sizes.append(size) or accepts(self, size, *rest)
    )
    monkeypatch.setattr(Anderson, "mix", worse)
    monkeypatch.setattr(Anderson, "reject", lambda self, out: rejected.append(sizes.pop()) or reject(self, out))
    equilibrium(b, weight, adj, tol=1e-9, max_depth=2000, accelerate=True)
    assert rejected
    for before, after in pairwise(sizes):
        assert after <= before * (0.95 * (1 + 1e-5)) ** module.BUNDLE


def test_converges_where_plain_steps_do_though_nothing_is_proved():
    """Eigenvalues below 1, but norms far above: changes grow before they fall."""
    adj, b = ring(12).adjacency(), draw_b(12, 3)
    weight = torch.tensor([[0.9, 0.0, 0.0], [4.0, 0.9, 0.0], [0.0, 4.0, 0.9]], dtype=torch.float64)
    options = {"activation": "identity", "tol": 1e-8, "max_depth": 5000}
    plain, found = (equilibrium(b, weight, adj, accelerate=mixed, **options) for mixed in (False, True))
    assert plain.converged
    assert found.converged
    torch.testing.assert_close(found.state, plain.state, rtol=1e-5, atol=1e-4)


def test_a_cap_is_kept_and_nothing_stays_nothing():
    _, adj, b, weight = slow_problem()
    with pytest.warns(UserWarning, match="max_depth = 17"):
        found = equilibrium(b, weight, adj, tol=1e-12, max_depth=17, accelerate=True)
    assert (found.depth, found.status) == (17, Status.CAPPED)
    zero = equilibrium(torch.zeros_like(b), weight, adj, accelerate=True)
    assert zero.converged
    assert not zero.state.any()


def test_a_fixed_number_of_steps_is_plain():
    _, adj, b, weight = slow_problem()
    plain, found = (equilibrium(b, weight, adj, steps=50, accelerate=mixed) for mixed in (False, True))
    assert torch.equal(plain.state, found.state)


def test_memory_does_not_depend_on_the_number_of_steps(monkeypatch):
    _, adj, b, weight = slow_problem()
    counts = []
    for tol in (1e-3, 1e-12):
        taken = []
        for where in (module, fixed_point):
            real = where.acquire
            monkeypatch.setattr(
                where, "acquire", lambda like, real=real, taken=taken: taken.append(like.numel()) or real(like)
            )
        solution = equilibrium(b, weight, adj, tol=tol, max_depth=2000, accelerate=True)
        counts.append((solution.products, sum(taken)))
        monkeypatch.undo()
    assert counts[0][0] < counts[1][0]
    assert counts[0][1] == counts[1][1]


# ----------------------------------------------------------------------------------------------------- the mixture
def test_the_mixture_has_the_least_residual():
    torch.manual_seed(0)
    mixing, pairs = Anderson(torch.empty(20, 2, dtype=torch.float64), memory=3), []
    for _ in range(5):  # two more than it remembers
        pairs.append(tuple(torch.randn(2, 20, 2, dtype=torch.float64)))
        mixing.add(*pairs[-1])
    out = torch.empty(20, 2, dtype=torch.float64)
    assert mixing.mix(out)
    residuals = torch.stack([(result - x).flatten() for x, result in pairs[-3:]], 1)
    differences = residuals[:, :2] - residuals[:, 2:]
    share = torch.linalg.lstsq(differences, -residuals[:, 2:]).solution
    weights = torch.cat([share, 1 - share.sum(0, keepdim=True)]).flatten()
    wanted = sum(weight * result for weight, (_, result) in zip(weights, pairs[-3:], strict=True))
    torch.testing.assert_close(out, wanted, rtol=1e-8, atol=1e-8)
    assert mixing.residual == pytest.approx(float(residuals[:, 2].norm()))


def test_a_linear_iteration_ends_after_as_many_pairs_as_it_has_directions():
    """As many as conjugate residuals would take: that is what makes it fast."""
    matrix = torch.diag(torch.tensor([0.9, 0.5, -0.7], dtype=torch.float64))
    b = torch.ones(3, 1, dtype=torch.float64)
    mixing, x = Anderson(b), torch.zeros_like(b)
    for _ in range(4):
        mixing.add(x, matrix @ x + b)
        x = torch.empty_like(b)
        mixing.mix(x)
    torch.testing.assert_close(
        x, torch.linalg.solve(torch.eye(3, dtype=torch.float64) - matrix, b), rtol=1e-6, atol=1e-6
    )


def test_equal_pairs_are_no_reason_to_fail():
    mixing, x = Anderson(torch.empty(4, 2)), torch.ones(4, 2)
    for _ in range(3):
        mixing.add(x, x + 1)
    out = torch.empty(4, 2)
    mixing.mix(out)
    torch.testing.assert_close(out, x + 1)
