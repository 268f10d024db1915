"""What rounding does to a solution: a bound where it is good enough, an estimate elsewhere."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from pprgnn.core.backend.buffers import acquire, release
from pprgnn.core.backend.passes import in_inner_order, run_pass, step, unpermute
from pprgnn.core.bounds import StepBounds
from pprgnn.core.checks import finite
from pprgnn.core.problem import Recursion
from pprgnn.core.recursion import descend
from pprgnn.core.solution import ConvergenceWarning, Depth, Solution, Status, failure, unit_roundoff

ROUNDINGS = 64  # of the state: what an accurate pass may come to
STRONG = 16.0  # times what rounding does
# In pairs of opposite signs: of two branches that rounding decides between, each falls on another one.
PAIRS = ((0, STRONG), (0, -STRONG), (1, STRONG), (1, -STRONG))
BRANCH = 0.02  # of the state: what differs more is on another branch
CLAIMS = (Status.CERTIFIED, Status.MEASURED, Status.COMPARED)
_looks = ContextVar("_looks", default=True)


@contextmanager
def rounding_ignored() -> Iterator[None]:
    """Within it nobody asks what rounding does, which takes several passes: for scores that are only compared."""
    token = _looks.set(False)
    try:
        yield
    finally:
        _looks.reset(token)


def described(problem: Recursion, state: Tensor, found: Depth, tol: float, max_depth: int) -> Solution:
    """The solution with all that is known about it; warns when it is not what was asked for."""
    status = found.status if problem.space.all_true(finite(state.detach())) else Status.NOT_FINITE
    solution = with_rounding(problem, state, found, status, tol)
    if not solution.converged:
        warnings.warn(failure(solution, problem.facts(), tol, max_depth), ConvergenceWarning, stacklevel=3)
    return solution


def with_rounding(problem: Recursion, state: Tensor, found: Depth, status: Status, tol: float) -> Solution:
    """The solution at the depth that was found, with what rounding adds to it.

    Where it was measured against a deeper pass, that pass is the one whose rounding counts: the state differs from
    its result by what was seen.
    """
    bound = estimate = None
    if status in CLAIMS and not found.includes_rounding and _looks.get():
        depth, bounds = found.reference or found.k, problem.bounds()
        safe = rounding_bound(bounds, depth, unit_roundoff(state))
        bound = safe if math.isfinite(safe) else None
        if bounds.underflow > tol:  # numbers too small for their type: a disturbance would not show it
            return found.solution(state, Status.ROUNDING, bound, None)
        if not safe <= tol:  # the bound is pessimistic: what does rounding really do?
            decides = safe > 1 and (found.sketch is None or found.sketch.decides(unit_roundoff(state)))
            pairs = PAIRS if decides else PAIRS[:1]
            estimate, harmless, products = estimated(problem, state.detach(), depth, tol, pairs)
            found, status = found.with_products(products), status if harmless else Status.ROUNDING
    return found.solution(state, status, bound, estimate)


def rounding_bound(bounds: StepBounds, depth: int, unit: float) -> float:
    """What rounding adds to the state of a pass of this depth, at most; infinite where nothing is known.

    A running error analysis. One step, computed from what was computed before, is off by at most
    γ (βₙ |Ã||G⁽ⁿ⁺¹⁾||W| + |B|) with γ = m u / (1 - m u), where u is the unit roundoff and m the length of its
    sums; and it enlarges what is wrong already by cₙ.
    """
    if not bounds.absolute_rate < math.inf or bounds.sum_length * unit >= 0.5:
        return math.inf
    gamma = bounds.sum_length * unit / (1 - bounds.sum_length * unit)
    size, wrong = bounds.lipschitz, gamma * bounds.lipschitz  # ‖G⁽ⁿ⁾‖ and the rounding in it
    for n in range(depth - 1, -1, -1):
        fresh = gamma * (bounds.absolute_rate * bounds.decay(n) * (size + wrong) + 2 * bounds.lipschitz)
        fresh += bounds.underflow
        size = bounds.step(n) * size + bounds.lipschitz
        wrong = bounds.step(n) * wrong + fresh
        if not wrong < 1e300:
            return math.inf
    return wrong


def estimated(
    problem: Recursion, state: Tensor, depth: int, tol: float, disturbances: Sequence[tuple[int, float]]
) -> tuple[float, bool, int]:
    """What rounding adds to a state, whether it may, and the products that took."""
    allowed, error, products = tolerable(problem, state, tol), 0.0, 0
    for seed, times in disturbances:
        error, products = max(error, _estimate(problem, state, depth, seed, times)), products + depth
        if not error <= allowed:
            return error, False, products
    return error, True, products


def tolerable(problem: Recursion, state: Tensor, tol: float) -> float:
    """What rounding may add, relative to ‖B‖: the tolerance, or a few roundings of the state itself.

    A state that is much larger than B cannot even be stored to ``tol`` of ‖B‖.
    """
    growth = problem.space.norm(state) / (problem.space.norm(problem.b) or 1.0)
    return max(tol, ROUNDINGS * unit_roundoff(state) * growth)


def _estimate(problem: Recursion, state: Tensor, depth: int, seed: int, times: float) -> float:
    """From a pass that is disturbed more than by rounding, so that it does not miss another branch of φ."""
    scale = problem.space.norm(problem.b) or 1.0
    with torch.no_grad(), another_pass(problem, depth, 0, seed, times) as (ends, room):
        error = problem.space.norm(torch.sub(state, ends[0], out=room)) / scale
        if error <= BRANCH * problem.space.norm(state) / scale:  # in proportion to the disturbance
            error /= STRONG
    return error if math.isfinite(error) else math.inf


@contextmanager
def another_pass(
    problem: Recursion, depth: int, levels: int, seed: int, times: float
) -> Iterator[tuple[list[Tensor], Tensor]]:
    """G⁽⁰⁾ and G⁽ˡᵉᵛᵉˡˢ⁾ of a pass, disturbed by ``times`` what rounding does (or opposite); and scratch."""
    with in_inner_order(problem) as inner:
        room = [acquire(inner.b) for _ in range(4)]
        if times:
            ends = _disturbed_pass(inner, depth, levels, seed, times, room)
        else:
            ends = run_pass(inner, depth, levels, room[1:], caller_order=True, ends=True)
    scratch = next(each for each in room if all(each is not end for end in ends))
    yield ends, scratch
    release(*room)


def _disturbed_pass(
    problem: Recursion, depth: int, levels: int, seed: int, times: float, room: list[Tensor]
) -> list[Tensor]:
    """At each level in another way: a disturbance that is the same at all levels may cancel itself."""
    first, second, product, kept = room
    rows, columns = first.numel() // max(first.size(-1), 1), first.size(-1)
    generator = torch.Generator("cpu").manual_seed(seed)
    size = 2 * times * unit_roundoff(first)  # one rounding would be lost in that of the factor itself

    def disturbed(n: int, g: Tensor) -> Tensor:
        if n == levels - 1:
            kept.copy_(g)
        if n % 2 == 0:  # what is 0 stays so, as it does in a sum that is rounded
            factors = torch.randn(rows + columns, generator=generator, device="cpu").mul_(size).to(g).add_(1)
            g.view(rows, columns).mul_(factors[:rows, None]).mul_(factors[rows:])
        return step(problem, n, g, second if g is first else first, product)

    g = descend(disturbed, problem.activation.apply_(first.copy_(problem.b)), range(depth))
    out = unpermute(problem, g, out=second if g is first else first)
    return [out, kept] if levels else [out]
