"""The recursion without φ at its root: Z⁽⁰⁾ = Ã G⁽¹⁾ W + B, the argument of the last φ, may be negative.

G⁽¹⁾ is the root of a recursion of the same kind: βₙ₊₁ = β₁ / (1 + n ε β₁), so it is that of β₁W and ε β₁. Whatever
solves, bounds and differentiates a recursion does so up to G⁽¹⁾, and one linear step is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pprgnn.core.activation import Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.decay import decay
from pprgnn.core.depth import DepthRule, Fixed
from pprgnn.core.recursion import unrolled
from pprgnn.core.solution import Solution, frobenius_norm, unit_roundoff

COEFFICIENTS = 2.0  # rounding in β₁W and εβ₁: six operations more than the ten or more that a step has anyway
ROUNDED = 1 + 1e-5  # norms are rounded, too


def of_first_hop(weight: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
    """W and ε of the recursion whose root is G⁽¹⁾."""
    first = decay(1, eps)  # β₁
    return weight * first, eps * first


def of_root(weight: Tensor, eps: Tensor) -> Tensor:
    """W itself, from what :func:`of_first_hop` made of it."""
    return weight / (1 - eps)


def one_less(rule: DepthRule) -> DepthRule:
    """The rule for G⁽¹⁾, which a hop less leads to."""
    return Fixed(rule.k - 1) if isinstance(rule, Fixed) else rule


def unrolled_linear(
    function: Callable[[Tensor], Tensor], b: Tensor, eps: Tensor, activation: Activation, depth: int
) -> Tensor:
    """Z⁽⁰⁾ as plain operations, as :func:`pprgnn.core.recursion.unrolled` has G⁽⁰⁾."""
    if depth == 0:
        return b
    return function(unrolled(function, b, eps, activation, range(1, depth))) + b


@dataclass(frozen=True)
class LastStep:
    """What the linear step and a factor behind it do to errors, at most; relative to ‖B‖, as everywhere.

    Args:
        rate: of ‖ÃGW‖ / ‖G‖, also for the absolute values of Ã and W.
        sum_length: how many rounded operations make up an entry, at most.
        scale: the factor, its absolute value.
    """

    rate: float
    sum_length: int
    scale: float = 1.0

    @classmethod
    def of(cls, weight: Tensor, adj: Adjacency, scale: float = 1.0) -> LastStep:
        """Without a singular value: ‖W‖₂ is at most ‖W‖_F and √(‖W‖₁ ‖W‖_∞), which is 1 for the identity."""
        weight = weight.detach()
        sums = [float(weight.abs().sum(dim).max()) for dim in (0, 1)]
        norm = min(frobenius_norm(weight), math.sqrt(sums[0]) * math.sqrt(sums[1])) * ROUNDED
        return cls(adj.norm_bound * adj.broadcast(norm), adj.longest_row + weight.size(0) + 10, scale)

    def tolerance(self, tol: float) -> float:
        """What G⁽¹⁾ may be off for the output to be off by ``tol``, at most ``tol`` itself."""
        return max(tol / max(1.0, self.rate * self.scale), 1e-300)

    def after(self, solution: Solution, b: Tensor, adj: Adjacency, output: Tensor) -> Solution:
        """The solution for the output, from the one for G⁽¹⁾."""
        bound = solution.rounding_bound
        if bound is not None:
            bound = self._rounding(bound, solution.state.detach(), b.detach(), adj)
        depth, products = solution.depth + 1, solution.products + 1
        found = replace(solution, state=output, depth=depth, products=products, rounding_bound=None)
        return replace(scaled(found, output, self.rate * self.scale), rounding_bound=bound)

    def _rounding(self, before: float, state: Tensor, b: Tensor, adj: Adjacency) -> float | None:
        """As :func:`pprgnn.core.measure.rounding_bound`, for this one step."""
        length = self.sum_length * unit_roundoff(b)
        if length >= 0.5 or not self.rate < math.inf:
            return None
        size, finfo = adj.norm(b) or 1.0, torch.finfo(b.dtype)
        smallest = finfo.smallest_normal * finfo.eps * math.sqrt(b.numel())
        underflow = adj.broadcast(self.sum_length * (1 + self.rate) * smallest / size)
        fresh = length / (1 - length) * (self.rate * adj.norm(state) / size + 2)
        return self.scale * (self.rate * COEFFICIENTS * before + fresh + underflow)


def scaled(solution: Solution, state: Tensor, factor: float, rounding: float = 0.0) -> Solution:
    """The solution for ``state``, whose errors are at most ``factor`` times as large, ``rounding`` apart."""
    names = ("truncation_bound", "measured_error", "estimated_error", "rounding_bound", "rounding_error")
    errors = {name: getattr(solution, name) for name in names}
    known: dict[str, Any] = {name: None if error is None else factor * error for name, error in errors.items()}
    if known["rounding_bound"] is not None:
        known["rounding_bound"] += rounding
    return replace(solution, state=state, **known)


def mean_scale(eps: float) -> float:
    """1 / (1 + β₀ + β₀β₁ + ...): what makes the hops of W = I, with their weights β₀ ... βₗ₋₁, a weighted mean."""
    total, weight, n = 1.0, 1.0, 0
    while weight > 1e-9 * total and n < 10**6:
        weight /= 1 + n * eps
        total, n = total + weight, n + 1
    return 1 / total
