"""How deep is deep enough: four rules, each a value.

Errors are relative, ‖G⁽⁰;ᵏ⁾ - G⁽⁰;∞⁾‖ / ‖B‖ in the Frobenius norm: depth must not depend on the units of B.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from pprgnn.core.activation import Activation
from pprgnn.core.bounds import StepBounds
from pprgnn.core.buffers import give, take
from pprgnn.core.solution import Depth, Sketch, Status, unit_roundoff


class Problem(Protocol):
    """A recursion whose depth is to be chosen: :class:`pprgnn.core.recursion.Problem` or one of any steps."""

    @property
    def b(self) -> Tensor:
        """The term B of every step."""

    @property
    def eps(self) -> Tensor:
        """The decay rate, shape () or (channels,)."""

    @property
    def activation(self) -> Activation:
        """φ."""

    @property
    def gauge(self) -> Tensor:
        """All numbers that say what a step does, beside the graph: W."""

    @property
    def graph(self) -> tuple[int, int, int]:
        """Numbers of nodes and edges and a fingerprint: whether it is the graph of before."""

    def detach(self) -> Any:
        """The same numbers without their autograd history."""

    def entered(self) -> Any:
        """The same problem in the inner node order."""

    def left(self, entered: Any) -> None:
        """Give back what :meth:`entered` took."""

    def leave(self, x: Tensor, out: Tensor) -> Tensor:
        """A state in the caller's node order; in ``out`` if that is another one."""

    def bounds(self) -> StepBounds:
        """What is known about its steps."""

    def guess(self, tol: float, max_depth: int) -> Sketch | None:
        """A depth to begin with, found without a pass, or ``None``."""

    def norm(self, x: Tensor) -> float:
        """‖x‖_F of a state, of all of its rows."""

    def largest(self, x: Tensor) -> float:
        """The largest entry of a state, without sign."""

    def of_all_rows(self, norm: float, largest: float) -> tuple[float, float]:
        """A norm and a largest entry, from those of the rows that are here."""

    def agreed(self, value: float) -> float:
        """A number on which all agree who solve this together: depths must not differ between them."""

    def without_input(self) -> Any:
        """The same steps without B."""

    def step(self, n: int, g: Tensor, out: Tensor, product: Tensor) -> Tensor:
        """G⁽ⁿ⁾ into ``out``, from g = G⁽ⁿ⁺¹⁾; ``product`` is scratch."""

    def descend(
        self, depth: int, keep: int, buffers: list[Tensor], leave: bool = False, ends: bool = False
    ) -> list[Tensor]:
        """G⁽⁰⁾ ... G⁽ᵏᵉᵉᵖ⁾ of a pass of this depth, or the ``ends`` of these, in the first buffers."""


class DepthRule(Protocol):
    """Chooses the depth k of a problem, such that not only G⁽⁰⁾ but all of G⁽⁰⁾ ... G⁽ˡᵉᵛᵉˡˢ⁾ are converged.

    An N-term gradient needs ``levels`` = N. PAPER: runs N levels deeper than G⁽⁰⁾ needs; but G⁽ᴺ⁾ needs fewer
    levels below it than G⁽⁰⁾ does, since βₙ falls, so checking both ends is enough and saves most of the N.
    """

    def choose(self, problem: Problem, tol: float, max_depth: int, levels: int) -> Depth:
        """Return k and what is known about the error."""
        ...


Result = TypeVar("Result")
Ends = Callable[[], list[Tensor]]  # G⁽⁰⁾ in the caller's node order, and G⁽ˡᵉᵛᵉˡˢ⁾ where there are levels
Run = Callable[[int], tuple[Result, Ends]]  # a pass of some depth


def run_at_depth(
    rule: DepthRule, problem: Problem, tol: float, max_depth: int, levels: int, run: Run[Result], training: bool
) -> tuple[Depth, Result]:
    """Run a pass as deep as the rule says; a rule that re-uses depths also looks at what came out.

    Args:
        rule: a depth rule.
        problem: the recursion, without autograd history.
        tol: the error allowed.
        max_depth: the cap.
        levels: so many states beside G⁽⁰⁾ must be converged.
        run: a pass of some depth.
        training: whether this is one of many steps, whose depths may be re-used, and not an answer.
    """
    watch = getattr(rule, "run", None)
    if watch is not None:
        found, result = watch(problem, tol, max_depth, levels, run, training)
        return found, result
    found = rule.choose(problem, tol, max_depth, levels)
    return found, run(found.k)[0]


@dataclass(frozen=True)
class Fixed:
    """The finite model: exactly k hops."""

    k: int

    def __post_init__(self) -> None:
        if self.k < 0:
            raise ValueError(f"A depth must be >= 0, but came as {self.k}.")

    def choose(self, problem: Problem, tol: float, max_depth: int, levels: int) -> Depth:
        """Return k itself."""
        return Depth(self.k, Status.FIXED)


@dataclass(frozen=True)
class Certificate:
    """The smallest k whose error is *proved* to be below ``tol``: needs ‖W‖₂ and no sparse product.

    Pessimistic when ‖W‖₂ is large and ε small; :class:`Measured` is then far shallower.
    """

    def choose(self, problem: Problem, tol: float, max_depth: int, levels: int) -> Depth:
        """Return the smallest certified depth, or the cap."""
        bounds = problem.bounds()
        k = bounds.depth(tol, max_depth, levels)
        if k is None:
            k = max(max_depth, levels)
            return Depth(k, Status.CAPPED, truncation_bound=bounds.error(k))
        return Depth(k, Status.CERTIFIED, truncation_bound=bounds.error(k))


@dataclass(frozen=True)
class Influence:
    """The paper's rule (Eq. 10): follow E⁽ˡ⁺¹⁾ = φ(α Ã E⁽ˡ⁾ W) until it fades. An estimate, **not** a bound.

    It costs as much as the forward pass and fails where signs cancel: for W = -6·I it answers 0.
    """

    def choose(self, problem: Problem, tol: float, max_depth: int, levels: int) -> Depth:
        """Return the farthest hop whose influence is at least ``tol`` of B's, plus ``levels``."""
        problem = problem.detach().entered()
        threshold = tol * problem.largest(problem.b)
        fade = problem.without_input()
        influence, scratch = problem.b, [torch.empty_like(problem.b) for _ in range(3)]
        for hop in range(max_depth + 1):
            # PAPER: the text starts at α_{l+1}, Theorem 2 at α_l, the published code at α_0; α_{l+1} is right.
            influence = fade.step(hop + 1, influence, scratch[hop % 2], scratch[2])
            if not problem.largest(influence) > threshold:  # NaN ends the search, too
                return Depth(hop + levels, Status.INFLUENCE, products=hop + 1)
        return Depth(max_depth + levels, Status.CAPPED, products=max_depth + 1)


@dataclass(frozen=True)
class Measured:
    """Compare with a deeper pass: tight, and a proof as soon as the deeper pass is certified. The default.

    The deeper pass runs at the certified depth K when that is at most ``max_depth``; the error at k is then at
    most ‖G⁽⁰;ᵏ⁾ - G⁽⁰;ᴷ⁾‖ + certificate(K). Otherwise ever deeper passes are compared until they agree.
    """

    def choose(self, problem: Problem, tol: float, max_depth: int, levels: int) -> Depth:
        """Return the smallest depth found whose measured error is below ``tol``."""
        bounds = problem.bounds()
        cheap = bounds.depth(tol, 6, levels)
        if cheap is not None:  # a search would cost more than it can save
            return Depth(cheap, Status.CERTIFIED, truncation_bound=bounds.error(cheap))
        with _Comparison(problem.detach(), levels) as comparison:
            deepest = bounds.depth(0.1 * tol, max_depth, levels)
            if deepest is None:
                return self._compare(comparison, tol, max_depth)
            return self._prove(comparison, bounds.error(deepest), tol, deepest)

    def _prove(self, comparison: _Comparison, proved: float, tol: float, deepest: int) -> Depth:
        """Compare with ``deepest``, certified to ``proved``: what is measured is then also proved."""
        comparison.set_reference(deepest)
        k = _smallest(comparison.error, tol - proved, comparison.levels, deepest, max(4, deepest // 4))
        if not math.isfinite(comparison.error(k)):
            return Depth(deepest, Status.NOT_FINITE, products=comparison.products)
        if k == deepest:  # nothing was measured: a pass is not compared with itself
            return Depth(k, Status.CERTIFIED, proved, products=comparison.products)
        seen, products = comparison.state_errors[k], comparison.products
        return Depth(k, Status.MEASURED, seen + proved, seen, products=products, reference=deepest)

    def _compare(self, comparison: _Comparison, tol: float, max_depth: int) -> Depth:
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


class _Comparison:
    """Error of shallow passes against one deep pass, the worse of G⁽⁰⁾'s and G⁽ˡᵉᵛᵉˡˢ⁾'s."""

    def __init__(self, problem: Problem, levels: int) -> None:
        self.given, self.problem = problem, problem.entered()
        self.levels = levels
        self.buffers = [take(problem.b) for _ in range(3 if levels > 1 else 2)]
        self.references = [take(problem.b) for _ in sorted({0, levels})]
        self.scale = problem.norm(problem.b) or 1.0
        self.products = 0
        self.reference_depth = 0
        self.curve: dict[int, float] = {}  # the worse of both
        self.state_errors: dict[int, float] = {}  # of G⁽⁰⁾ alone

    def __enter__(self) -> _Comparison:
        return self

    def __exit__(self, *_: object) -> None:
        self.given.left(self.problem)
        give(*self.references, *self.buffers)

    def _run(self, depth: int) -> list[Tensor]:
        self.products += depth
        ends: list[Tensor] = self.problem.descend(depth, self.levels, self.buffers, leave=False, ends=True)
        return ends

    def set_reference(self, depth: int) -> None:
        for reference, state in zip(self.references, self._run(depth), strict=True):
            reference.copy_(state)
        self.reference_depth, self.curve, self.state_errors = depth, {}, {}

    def error(self, depth: int) -> float:
        if depth not in self.curve:
            states = self.references if depth == self.reference_depth else self._run(depth)
            pairs = zip(states, self.references, strict=True)
            # Into the buffer: the passes are done with it. Infinite minus infinite gives NaN, as it should.
            norm, room = self.problem.norm, self.buffers[0]
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


def resolve_depth(depth: int | DepthRule | None) -> DepthRule:
    """An integer is a fixed depth, ``None`` the default rule."""
    if depth is None:
        return Measured()
    try:
        number = None if isinstance(depth, bool) else operator.index(depth)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is not None:
        return Fixed(number)
    if isinstance(depth, int | type) or not hasattr(depth, "choose"):
        raise ValueError(
            f"depth must be None, an integer or a depth rule (Measured(), Certificate(), Influence(), Fixed(k)), "
            f"but came as {depth!r}."
        )
    return depth
