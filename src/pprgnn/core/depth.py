"""How deep is deep enough: four rules, each a value.

Errors are relative, ‖G⁽⁰;ᵏ⁾ - G⁽⁰;∞⁾‖ / ‖B‖ in the Frobenius norm: depth must not depend on the units of B.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

from pprgnn.core.measure import Comparison, compare, described, influences, prove
from pprgnn.core.problem import Recursion
from pprgnn.core.solution import Depth, Solution, Status


class DepthRule(Protocol):
    """Chooses the depth k of a problem, such that not only G⁽⁰⁾ but all of G⁽⁰⁾ ... G⁽ˡᵉᵛᵉˡˢ⁾ are converged.

    An N-term gradient needs ``levels`` = N. PAPER: runs N levels deeper than G⁽⁰⁾ needs; but G⁽ᴺ⁾ needs fewer
    levels below it than G⁽⁰⁾ does, since βₙ falls, so checking both ends is enough and saves most of the N.
    """

    def choose(self, problem: Recursion, tol: float, max_depth: int, levels: int) -> Depth:
        """Return k and what is known about the error."""
        ...


Result = TypeVar("Result")
Ends = Callable[[], list[Tensor]]  # G⁽⁰⁾ in the caller's node order, and G⁽ˡᵉᵛᵉˡˢ⁾ where there are levels
Run = Callable[[int], tuple[Result, Ends]]  # a pass of some depth


def run_at_depth(
    rule: DepthRule, problem: Recursion, tol: float, max_depth: int, levels: int, run: Run[Result], training: bool
) -> tuple[Solution, Result]:
    """Run and describe a pass as deep as the rule says; a rule that re-uses depths also looks at what came out.

    ``training``: whether this is one of many steps, whose depths may be re-used, and not an answer.
    """
    watch = getattr(rule, "run", None)
    if watch is not None:
        found, result, state = watch(problem, tol, max_depth, levels, run, training)
    else:
        found = rule.choose(problem, tol, max_depth, levels)
        result, ends = run(found.k)
        state = ends()[0]
    return described(problem, state, found, tol, max_depth), result


@dataclass(frozen=True)
class Fixed:
    """The finite model: exactly k hops."""

    k: int

    def __post_init__(self) -> None:
        if self.k < 0:
            raise ValueError(f"A depth must be >= 0, but came as {self.k}.")

    def choose(self, problem: Recursion, tol: float, max_depth: int, levels: int) -> Depth:
        return Depth(self.k, Status.FIXED)


@dataclass(frozen=True)
class Certificate:
    """The smallest k whose error is *proved* to be below ``tol``: needs ‖W‖₂ and no sparse product.

    Pessimistic when ‖W‖₂ is large and ε small; :class:`Measured` is then far shallower.
    """

    def choose(self, problem: Recursion, tol: float, max_depth: int, levels: int) -> Depth:
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

    def choose(self, problem: Recursion, tol: float, max_depth: int, levels: int) -> Depth:
        """Return the farthest hop whose influence is at least ``tol`` of B's, plus ``levels``."""
        threshold = tol * problem.space.max_abs(problem.b)
        # PAPER: the text starts at α_{l+1}, Theorem 2 at α_l, the published code at α_0; α_{l+1} is right.
        for hop, influence in zip(range(max_depth + 1), influences(problem), strict=False):
            if not influence > threshold:  # NaN ends the search, too
                return Depth(hop + levels, Status.INFLUENCE, products=hop + 1)
        return Depth(max_depth + levels, Status.CAPPED, products=max_depth + 1)


@dataclass(frozen=True)
class Measured:
    """Compare with a deeper pass: tight, and a proof as soon as the deeper pass is certified. The default.

    The deeper pass runs at the certified depth K when that is at most ``max_depth``; the error at k is then at
    most ‖G⁽⁰;ᵏ⁾ - G⁽⁰;ᴷ⁾‖ + certificate(K). Otherwise ever deeper passes are compared until they agree.
    """

    def choose(self, problem: Recursion, tol: float, max_depth: int, levels: int) -> Depth:
        bounds = problem.bounds()
        cheap = bounds.depth(tol, 6, levels)
        if cheap is not None:  # a search would cost more than it can save
            return Depth(cheap, Status.CERTIFIED, truncation_bound=bounds.error(cheap))
        with Comparison(problem.detach(), levels) as comparison:
            deepest = bounds.depth(0.1 * tol, max_depth, levels)
            if deepest is None:
                return compare(comparison, tol, max_depth)
            return prove(comparison, bounds.error(deepest), tol, deepest)


def resolve_depth(depth: int | DepthRule | None) -> DepthRule:
    """An integer is a fixed depth, ``None`` the default rule."""
    if depth is None:
        return Measured()
    with suppress(TypeError):
        if not isinstance(depth, bool):
            return Fixed(operator.index(depth))  # type: ignore[arg-type]
    if isinstance(depth, int | type) or not hasattr(depth, "choose"):
        raise ValueError(
            f"depth must be None, an integer or a depth rule (Measured(), Certificate(), Influence(), Fixed(k)), "
            f"but came as {depth!r}."
        )
    return depth
