"""The output of :class:`pprgnn.nn.PPRConv`: with or without φ at the root, times a factor; its errors likewise."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.adjoint import as_adjoint
from pprgnn.core.depth import Fixed
from pprgnn.core.last_step import LastStep, mean_scale, of_first_hop, one_less, scaled, unrolled_linear
from pprgnn.core.measure import part_of
from pprgnn.core.problem import Problem, as_eps
from pprgnn.core.recursion import unrolled
from pprgnn.core.solution import Solution, Status, unit_roundoff
from pprgnn.core.solve import solve
from pprgnn.nn.infinite_layer import InfiniteLayer
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


def start_of_scale(output_scale: float | str, rates: tuple[float, ...], channels: int) -> Tensor | None:
    """The factor of all channels, or of each where there are several rates; ``None``: 1."""
    if output_scale != "mean":
        return None if output_scale == 1 else torch.tensor(float(output_scale))
    each = torch.tensor([mean_scale(rate) for rate in rates])
    return each[torch.arange(channels) * len(rates) // channels] if len(rates) > 1 else each.reshape(())


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
        self.register_buffer("output_scale", start_of_scale(output_scale, self.rates, self._rate_channels or 1))

    def reset_parameters(self) -> None:
        """Start anew, the factor included: a layer may come from the meta device."""
        super().reset_parameters()
        if self.output_scale is not None:
            start = start_of_scale(self._scale_start, self.rates, self._rate_channels or 1)
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
        return self.scaled(unrolled_linear(function, b, eps, self.activation, depth))

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
