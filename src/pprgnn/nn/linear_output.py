"""The output of :class:`pprgnn.nn.PPRConv`: with or without φ at the root, times a factor; its errors likewise.

Without it, Z⁽⁰⁾ = Ã G⁽¹⁾ W + B, the argument of the last φ, may be negative. G⁽¹⁾ is the root of a recursion of
the same kind: βₙ₊₁ = β₁ / (1 + n ε β₁), so it is that of β₁W and ε β₁. Whatever solves, bounds and differentiates
a recursion does so up to G⁽¹⁾, and one linear step is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.adjoint import as_adjoint
from pprgnn.core.decay import decay
from pprgnn.core.depth import DepthRule, Fixed
from pprgnn.core.measure import part_of
from pprgnn.core.problem import Problem, as_eps
from pprgnn.core.recursion import unrolled
from pprgnn.core.solution import ERRORS, Solution, Status, frobenius_norm, unit_roundoff
from pprgnn.core.solve import solve
from pprgnn.nn.infinite_layer import InfiniteLayer, per_channel
from pprgnn.nn.layer_checks import check_output_scale
from pprgnn.nn.through_adjacency import SolvingAdjacency

AS_SAVED = (
    "output_activation=True, output_scale=1 and the weight_scale it had (1 by default)",
    "output_scale='mean' (the default)",
)

# The layer as published, of which the networks of the paper, the recipes and all committed results are made.
AS_PUBLISHED: dict[str, Any] = {
    "output_activation": True,
    "output_scale": 1.0,
    "weight_scale": 1.0,
}


COEFFICIENTS = 2.0  # rounding in β₁W and εβ₁: six operations more than the ten or more that a step has anyway
ROUNDED = 1 + 1e-5  # norms are rounded, too


# ------------------------------------------------------------------------------------------------- the last step
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
    errors = {name: getattr(solution, name) for name in ERRORS}
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


def start_of_scale(output_scale: float | str, rates: tuple[float, ...], channels: int | None) -> Tensor | None:
    """The factor of all channels, or of each where there are several rates; ``None``: 1."""
    if output_scale != "mean":
        return None if output_scale == 1 else torch.tensor(float(output_scale))
    each = torch.tensor([mean_scale(rate) for rate in rates])
    return per_channel(each, channels) if channels and len(rates) > 1 else each.reshape(())


# ----------------------------------------------------------------------------------------------------- the layer
class OutputForm(InfiniteLayer):
    """The part of :class:`PPRConv` that makes an output of the recursion; arguments as there."""

    output_activation = True  # of layers that were pickled before there was a choice
    output_scale: Tensor | None  # of each channel, or of all

    def set_output(self, output_activation: bool, output_scale: float | Literal["mean"]) -> None:
        """With or without φ at the root, times a factor."""
        check_output_scale(output_scale)
        self.output_activation = output_activation
        self._scale_start = output_scale
        # In the state_dict: layers as published have none, so that neither kind is taken for the other.
        self.register_buffer("output_scale", start_of_scale(output_scale, self.rates, self._rate_channels))

    def reset_parameters(self) -> None:
        """Start anew, the factor included: a layer may come from the meta device."""
        super().reset_parameters()
        if self.output_scale is not None:
            start = start_of_scale(self._scale_start, self.rates, self._rate_channels)
            assert start is not None
            self.output_scale.copy_(start)

    def solve_output(self, b: Tensor, weight: Tensor, adj: Adjacency) -> Solution:
        """The output, with the depth and the errors of the whole."""
        scale = 1.0 if self.output_scale is None else float(self.output_scale.abs().max())
        if not self.output_activation:
            return self._without_activation(b, weight, adj, scale)
        found = self.solve_product(b, weight, adj)
        if self.output_scale is None:
            return found
        out = self.scaled(found.state)
        rounding = 2 * unit_roundoff(b) * adj.norm(out.detach()) / (adj.norm(b.detach()) or 1.0)
        return scaled(found, out, scale, rounding)

    def _without_activation(self, b: Tensor, weight: Tensor, adj: Adjacency, scale: float) -> Solution:
        if isinstance(adj, SolvingAdjacency):
            raise ValueError(
                f"Answers for a few nodes are proved for layers whose output has passed the activation, but this "
                f"'{type(self).__name__}' has output_activation=False; use output_activation=True, or all nodes."
            )
        rule, terms = self.depth_rule, self.grad_terms
        if rule == Fixed(0):
            return Solution(self.scaled(b), 0, Status.FIXED)
        last = LastStep.of(weight, adj, scale)
        eps = as_eps(self.eps, b, weight.size(0))
        first_weight, first_eps = of_first_hop(weight, eps)
        whole = Problem(b, weight, eps, adj, self.activation).detach()
        # With one term, that is the last step's.
        gradients = torch.no_grad() if terms == 1 else nullcontext()
        with gradients, part_of(whole.facts, self.tol, self.max_depth):
            found = solve(
                b,
                first_weight,
                adj,
                eps=first_eps,
                depth=one_less(rule),
                tol=last.tolerance(self.tol),
                max_depth=max(self.max_depth - 1, 1),
                activation=self.activation,
                adjoint=as_adjoint(None, None if terms is None else max(terms - 1, 1), self.checkpoint),
            )
        out = torch.addmm(b, adj @ found.state, weight)  # Z⁽⁰⁾ = Ã G⁽¹⁾ W + B
        return last.after(found, b, adj, self.scaled(out))

    def scaled(self, state: Tensor) -> Tensor:
        """Times :obj:`output_scale`."""
        return state if self.output_scale is None else state * self.output_scale

    def unrolled(self, function: Callable[[Tensor], Tensor], b: Tensor, eps: Tensor, depth: int) -> Tensor:
        """The output as plain operations, where a step is φ(βₙ function(G) + B)."""
        if self.output_activation:
            return self.scaled(unrolled(function, b, eps, self.activation, range(depth)))
        if depth == 0:
            return self.scaled(b)
        return self.scaled(function(unrolled(function, b, eps, self.activation, range(1, depth))) + b)  # Z⁽⁰⁾

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._buffers.setdefault("output_scale", None)  # pickled before there was a choice

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        there = f"{prefix}output_scale" in state_dict
        if f"{prefix}weight" in state_dict and there != (self.output_scale is not None):
            kinds = ("without output_scale, as of a layer as published", "with output_scale")
            raise ValueError(
                f"The state_dict is one {kinds[there]}, but this '{type(self).__name__}' is one "
                f"{kinds[not there]}; build it with {AS_SAVED[there]} to load it."
            )
        super()._load_from_state_dict(state_dict, prefix, *args)
