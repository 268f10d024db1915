"""What truncation and rounding leave, measured by further passes; rounding is bounded where that is good enough.

The rule ``Measured`` finds its depth here, and every solution what is known about its error.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

import torch
from torch import Tensor

from pprgnn.core.backend.buffers import acquire, release
from pprgnn.core.backend.passes import in_inner_order, permuted, run_pass, step, unpermute
from pprgnn.core.bounds import StepBounds
from pprgnn.core.problem import Recursion, finite
from pprgnn.core.recursion import descend
from pprgnn.core.solution import ConvergenceWarning, Depth, Solution, Status, failure, unit_roundoff

ROUNDINGS = 64  # of the state: what an accurate pass may come to
STRONG = 16.0  # times what rounding does
# In pairs of opposite signs: of two branches that rounding decides between, each falls on another one.
PAIRS = ((0, STRONG), (0, -STRONG), (1, STRONG), (1, -STRONG))
BRANCH = 0.02  # of the state: what differs more is on another branch
CLAIMS = (Status.CERTIFIED, Status.MEASURED, Status.COMPARED)
_looks = ContextVar("_looks", default=True)
_whole: ContextVar[tuple[Callable[[], str], float, int] | None] = ContextVar("whole", default=None)


def influences(problem: Recursion) -> Iterator[float]:
    """max |E⁽ˡ⁾| for l = 1, 2, ... with E⁽⁰⁾ = B and E⁽ˡ⁺¹⁾ = φ(α_{l+1} Ã E⁽ˡ⁾ W) (Eq. 10)."""
    problem = permuted(problem.detach())
    fade, influence = problem.without_input(), problem.b
    scratch = [torch.empty_like(problem.b) for _ in range(3)]
    for hop in itertools.count():
        influence = step(fade, hop + 1, influence, scratch[hop % 2], scratch[2])
        yield problem.space.max_abs(influence)


def prove(comparison: Comparison, proved: float, tol: float, deepest: int) -> Depth:
    """Compare with ``deepest``, certified to ``proved``: what is measured is then also proved."""
    comparison.set_reference(deepest)
    k = _smallest(comparison.error, tol - proved, comparison.levels, deepest, max(4, deepest // 4))
    if not math.isfinite(comparison.error(k)):
        return Depth(deepest, Status.NOT_FINITE, products=comparison.products)
    if k == deepest:  # nothing was measured: a pass is not compared with itself
        return Depth(k, Status.CERTIFIED, proved, products=comparison.products)
    seen, products = comparison.state_errors[k], comparison.products
    return Depth(k, Status.MEASURED, seen + proved, seen, products=products, reference=deepest)


def compare(comparison: Comparison, tol: float, max_depth: int) -> Depth:
    """No proof within max_depth: a shallower pass *and* the last but one must agree with the deepest.

    The last but one, because in a cycle (the states of depth k and k + 2 alike, those between not) depths far
    apart may agree by chance, but neighbours never do. The deepest is where the linear influence has faded:
    two shallow passes may agree because both miss a channel that grows slowly.
    """
    levels = comparison.levels
    if max_depth <= levels:
        return Depth(levels, Status.CAPPED)
    sketch = comparison.given.guess(tol, max_depth)
    beyond = sketch is not None and sketch.beyond(max_depth, unit_roundoff(comparison.given.b))
    k = max(levels, 8 if sketch is None else sketch.depth // 2)
    while True:
        reference = min(2 * k + 1, max_depth)
        k = min(k, reference - 1)
        comparison.set_reference(reference)
        seen = max(comparison.error(k), comparison.error(reference - 1))
        if not math.isfinite(seen):
            return Depth(reference, Status.NOT_FINITE, products=comparison.products)
        if seen <= tol and not beyond:
            k, status = _smallest(comparison.error, tol, levels, k, k // 2), Status.COMPARED
            seen = comparison.state_errors[k]
            break
        if reference == max_depth:
            k, status = max_depth, Status.CAPPED
            break
        k = reference
    products = comparison.products
    return Depth(k, status, measured_error=seen, products=products, reference=reference, sketch=sketch)


class Comparison:
    """Error of shallow passes against one deep pass, the worse of G⁽⁰⁾'s and G⁽ˡᵉᵛᵉˡˢ⁾'s."""

    def __init__(self, problem: Recursion, levels: int) -> None:
        self.given, self.levels = problem, levels
        self._order = in_inner_order(problem)
        self.problem = self._order.__enter__()
        self.buffers = [acquire(problem.b) for _ in range(3 if levels > 1 else 2)]
        self.references = [acquire(problem.b) for _ in sorted({0, levels})]
        self.scale = problem.space.norm(problem.b) or 1.0
        self.products = 0
        self.reference_depth = 0
        self.curve: dict[int, float] = {}  # the worse of both
        self.state_errors: dict[int, float] = {}  # of G⁽⁰⁾ alone

    def __enter__(self) -> Comparison:
        return self

    def __exit__(self, *_: object) -> None:
        self._order.__exit__(None, None, None)
        release(*self.references, *self.buffers)

    def _run(self, depth: int) -> list[Tensor]:
        self.products += depth
        return run_pass(self.problem, depth, self.levels, self.buffers, ends=True)

    def set_reference(self, depth: int) -> None:
        """From here on, compare with a pass of this depth."""
        for reference, state in zip(self.references, self._run(depth), strict=True):
            reference.copy_(state)
        self.reference_depth, self.curve, self.state_errors = depth, {}, {}

    def error(self, depth: int) -> float:
        """Of a pass of this depth, relative to ‖B‖."""
        if depth not in self.curve:
            states = self.references if depth == self.reference_depth else self._run(depth)
            pairs = zip(states, self.references, strict=True)
            # Into the buffer: the passes are done with it. Infinite minus infinite gives NaN, as it should.
            norm, room = self.problem.space.norm, self.buffers[0]
            errors = [norm(torch.sub(state, reference, out=room)) for state, reference in pairs]
            self.curve[depth] = math.nan if any(map(math.isnan, errors)) else max(errors) / self.scale
            self.state_errors[depth] = errors[0] / self.scale
        return self.curve[depth]


def _smallest(error: Callable[[int], float], tol: float, shallowest: int, deepest: int, guess: int) -> int:
    """A depth with error <= tol, at most an eighth above the smallest one that bisection sees."""
    low, high = shallowest - 1, min(max(guess, shallowest), deepest)
    while high < deepest and not error(high) <= tol:
        low, high = high, min(2 * high + 1, deepest)
    step = max(1, high // 8)  # a good guess is confirmed by one shallower pass
    while high - step > low and error(high - step) <= tol:
        high, step = high - step, 2 * step
    low = max(low, high - step)
    while high - low > max(1, high // 8):
        middle = (low + high) // 2
        if error(middle) <= tol:
            high = middle
        else:
            low = middle
    return high


# ------------------------------------------------------------------------------------------------------- rounding
@contextmanager
def rounding_ignored() -> Iterator[None]:
    """Within it nobody asks what rounding does, which takes several passes: for scores that are only compared."""
    token = _looks.set(False)
    try:
        yield
    finally:
        _looks.reset(token)


@contextmanager
def part_of(facts: Callable[[], str], tol: float, max_depth: int) -> Iterator[None]:
    """Within it a solve is a part of another one, of which warnings speak."""
    token = _whole.set((facts, tol, max_depth))
    try:
        yield
    finally:
        _whole.reset(token)


def described(problem: Recursion, state: Tensor, found: Depth, tol: float, max_depth: int) -> Solution:
    """The solution with all that is known about it; warns when it is not what was asked for."""
    status = found.status if problem.space.all_true(finite(state.detach())) else Status.NOT_FINITE
    solution = with_rounding(problem, state, found, status, tol)
    if not solution.converged:
        facts, tol, max_depth = _whole.get() or (problem.facts, tol, max_depth)
        warnings.warn(failure(solution, facts(), tol, max_depth), ConvergenceWarning, stacklevel=4)
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
            found = replace(found, products=found.products + products)
            status = status if harmless else Status.ROUNDING
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
    """What rounding adds to a state, whether it may, and the products that took.

    It may add the tolerance, or a few roundings of the state itself: one that is much larger than B cannot even be
    stored to ``tol`` of ‖B‖.
    """
    growth = problem.space.norm(state) / (problem.space.norm(problem.b) or 1.0)
    allowed, error, products = max(tol, ROUNDINGS * unit_roundoff(state) * growth), 0.0, 0
    for seed, times in disturbances:
        error, products = max(error, _estimate(problem, state, depth, seed, times)), products + depth
        if not error <= allowed:
            return error, False, products
    return error, True, products


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
