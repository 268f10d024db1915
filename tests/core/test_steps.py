"""Recursions of any step: the certificate, the depth rules, the truncated gradient."""

import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pprgnn import Certificate, ConvergenceWarning, Fixed, Influence, Measured, Status
from pprgnn.core.bounds import StepBounds
from pprgnn.core.solution import NotFiniteError
from pprgnn.core.steps import solve_steps


def step_with(seed: int, norm: float, offset: float):
    """A nonlinear function with this Lipschitz constant and this value at zero, and a state to start from."""
    generator = torch.Generator().manual_seed(seed)
    a, w, c, b = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((5, 5), (3, 3), (5, 3), (5, 3))
    )
    a, w = a / torch.linalg.matrix_norm(a, 2), norm * w / torch.linalg.matrix_norm(w, 2)
    return (lambda g: torch.sin(a @ g @ w + 0 * c) + offset * c), b


def unrolled(function, b, eps, depth, phi=torch.relu):
    g = phi(b)
    for n in range(depth - 1, -1, -1):
        g = phi(function(g) / (1 + n * eps) + b)
    return g


PROBLEMS = {
    "seed": st.integers(0, 10**6),
    "norm": st.floats(0.1, 4),
    "offset": st.sampled_from([0.0, 0.3, 3.0]),
    "eps": st.sampled_from([0.1, 0.5, 2.0]),
}


@given(depth=st.integers(0, 30), **PROBLEMS)
def test_the_certificate_is_never_below_the_true_error(seed, norm, offset, eps, depth):
    function, b = step_with(seed, norm, offset)
    at_zero = float(function(torch.zeros_like(b)).norm() / b.norm())
    bound = StepBounds(norm, eps, 1.0, at_zero).error(depth)
    error = unrolled(function, b, eps, depth) - unrolled(function, b, eps, 400)
    assert float(error.norm() / b.norm()) <= bound + 1e-12


def test_without_offset_the_certificate_is_that_of_the_linear_recursion():
    for depth in range(12):
        product = math.prod(0.8 / (1 + n * 0.3) for n in range(depth + 1))
        following = 0.8 / (1 + (depth + 1) * 0.3)
        assert StepBounds(0.8, 0.3, 1.0).error(depth) == pytest.approx(product / (1 - following))


def test_the_certificate_counts_what_the_step_answers_to_nothing():
    rate, eps, lipschitz, offset, k = 1.2, 0.5, 2.0, 3.0, 6
    beta = [1 / (1 + n * eps) for n in range(k + 2)]
    size = lipschitz * (1 + beta[k + 1] * offset) / (1 - rate * beta[k + 1])  # of the state below, relative to B
    product = math.prod(rate * beta[n] for n in range(k))
    expected = product * (lipschitz * beta[k] * offset + rate * beta[k] * size)
    assert StepBounds(rate, eps, lipschitz, offset).error(k) == pytest.approx(expected)


def test_a_constant_step_needs_one_level_below_the_last():
    bounds = StepBounds(0.0, 1.0, 1.0, offset=2.0)
    assert bounds.depth(1e-5, 100) == 1
    assert bounds.depth(1e-5, 100, levels=5) == 6
    assert StepBounds(0.0, 1.0, 1.0).depth(1e-5, 100) == 0
    constant = torch.ones(5, 3)
    solution = solve_steps(torch.zeros(5, 3), lambda g: constant, depth=Certificate(), lipschitz=lambda: 0.0)
    assert torch.equal(solution.state, constant)


@pytest.mark.parametrize("rule", [Certificate(), Measured()])
@given(tol=st.sampled_from([1e-3, 1e-7]), **PROBLEMS)
def test_proved_solutions_keep_their_promise(rule, seed, norm, offset, eps, tol):
    function, b = step_with(seed, norm, offset)
    solution = solve_steps(b, function, eps=eps, depth=rule, tol=tol, lipschitz=lambda: norm, wants_grad=False)
    assert solution.status in (Status.CERTIFIED, Status.MEASURED)
    assert solution.truncation_bound <= tol
    assert solution.error_bound is None  # how a function rounds is not known
    error = solution.state - unrolled(function, b, eps, 400)
    assert float(error.norm() / b.norm()) <= solution.truncation_bound + 1e-12


@given(**PROBLEMS)
def test_without_a_constant_depths_are_compared(seed, norm, offset, eps):
    function, b = step_with(seed, norm, offset)
    solution = solve_steps(b, function, eps=eps, tol=1e-6)
    assert solution.status is Status.COMPARED
    assert solution.error_bound is None
    error = solution.state - unrolled(function, b, eps, 400)
    assert float(error.norm() / b.norm()) <= 2e-6


def test_influence_leaves_the_offset_out():
    function, b = step_with(1, 0.9, 3.0)
    solution = solve_steps(b, function, eps=0.5, depth=Influence(), tol=1e-6, wants_grad=False)
    assert solution.status is Status.INFLUENCE
    assert 3 < solution.depth < 40


@pytest.mark.parametrize("terms", [1, 3, None])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_gradient_goes_through_the_last_steps(terms, checkpoint):
    function, b = step_with(3, 1.5, 0.3)
    w = torch.eye(3, dtype=torch.float64).requires_grad_()
    eps = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    b.requires_grad_()
    state = solve_steps(
        b, lambda g: function(g @ w), eps=eps, depth=12, grad_terms=terms, checkpoint=checkpoint
    ).state
    found = torch.autograd.grad(state.square().sum(), [b, w, eps])

    last = 12 if terms is None else terms
    with torch.no_grad():
        g = torch.relu(b)
        for n in range(11, last - 1, -1):
            g = torch.relu(function(g @ w) / (1 + n * eps) + b)
    g = torch.relu(b) if terms is None else g
    for n in range(last - 1, -1, -1):
        g = torch.relu(function(g @ w) / (1 + n * eps) + b)
    torch.testing.assert_close(state, g)
    for got, expected in zip(found, torch.autograd.grad(g.square().sum(), [b, w, eps]), strict=True):
        torch.testing.assert_close(got, expected)


def test_gradcheck_with_all_terms():
    function, b = step_with(5, 1.5, 0.3)
    b = b.abs() + 3  # away from the kink
    b.requires_grad_()
    eps = torch.tensor([0.3, 0.5, 0.9], dtype=torch.float64, requires_grad=True)

    def solved(b, eps):
        return solve_steps(b, function, eps=eps, depth=8, grad_terms=None, activation="relu").state

    assert torch.autograd.gradcheck(solved, (b, eps))


def test_memory_does_not_grow_with_depth():
    """What autograd keeps: the tensors that it saves are counted, not the bytes of the process."""

    def saved_bytes(depth):
        total = 0

        def count(t):
            nonlocal total
            total += t.numel() * t.element_size()
            return t

        b = torch.randn(50, 8, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda t: t):
            solve_steps(b, lambda g: torch.tanh(g), eps=0.1, depth=depth, grad_terms=5)
        return total

    assert saved_bytes(10) == saved_bytes(200) > 0


def test_not_converged_warns_and_tells_how_far_it_is():
    function, b = step_with(1, 4.0, 0.0)
    with pytest.warns(ConvergenceWarning, match=r"within max_depth = 4 \(error .*Raise max_depth"):
        assert solve_steps(b, function, eps=0.01, max_depth=4, grad_terms=1).status is Status.CAPPED
    with pytest.warns(ConvergenceWarning, match="overflowed"):
        grown = solve_steps(b.abs() + 1, lambda g: 1e200 * g, eps=0.01, depth=Fixed(9))
    assert grown.status is Status.NOT_FINITE
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve_steps(b, function, eps=1.0)


def test_wrong_numbers():
    b = torch.ones(2, 2)
    with pytest.raises(NotFiniteError, match="must be finite"):
        solve_steps(b * math.nan, torch.sin)
    with pytest.raises(ValueError, match="grad_terms must be >= 1"):
        solve_steps(b, torch.sin, grad_terms=0)
    with pytest.raises(ValueError, match="tol must be > 0"):
        solve_steps(b, torch.sin, tol=0)
