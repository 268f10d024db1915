"""The error of a depth, measured against a deeper pass: how the rule ``Measured`` finds its depth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from pprgnn.core.backend.buffers import acquire, release
from pprgnn.core.backend.passes import in_inner_order, permuted, run_pass, step
from pprgnn.core.problem import Recursion
from pprgnn.core.solution import Depth, Status, unit_roundoff


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
