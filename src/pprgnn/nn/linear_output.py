"""The output of :class:`pprgnn.nn.PPRConv`: with or without φ at the root, times a factor; its errors likewise."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.adjoint import as_adjoint
from pprgnn.core.checks import as_eps
from pprgnn.core.depth import Fixed
from pprgnn.core.last_step import LastStep, mean_scale, of_first_hop, one_less, scaled
from pprgnn.core.solution import Solution, Status, unit_roundoff
from pprgnn.core.solve import solve
from pprgnn.nn.through_adjacency import SolvingAdjacency

if TYPE_CHECKING:
    from pprgnn.nn.ppr_conv import PPRConv

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


def solve_output(layer: PPRConv, b: Tensor, weight: Tensor, adj: Adjacency) -> Solution:
    """The output, with the depth and the errors of the whole."""
    scale = 1.0 if layer.output_scale is None else float(layer.output_scale.abs().max())
    if not layer.output_activation:
        return _without_activation(layer, b, weight, adj, scale)
    found = layer.solve_product(b, weight, adj)
    if layer.output_scale is None:
        return found
    out = layer.scaled(found.state)
    rounding = 2 * unit_roundoff(b) * adj.norm(out.detach()) / (adj.norm(b.detach()) or 1.0)
    return scaled(found, out, scale, rounding)


def _without_activation(layer: PPRConv, b: Tensor, weight: Tensor, adj: Adjacency, scale: float) -> Solution:
    if isinstance(adj, SolvingAdjacency):
        raise ValueError(
            f"Answers for a few nodes are proved for layers whose output has passed the activation, but this "
            f"'{type(layer).__name__}' has output_activation=False; use output_activation=True, or all nodes."
        )
    rule, terms = layer.depth_rule, layer.grad_terms
    if rule == Fixed(0):
        return Solution(layer.scaled(b), 0, Status.FIXED)
    last = LastStep.of(weight, adj, scale)
    first_weight, first_eps = of_first_hop(weight, as_eps(layer.eps, b, weight.size(0)))
    with torch.no_grad() if terms == 1 else nullcontext():  # the one term is that of the last step
        found = solve(
            b,
            first_weight,
            adj,
            eps=first_eps,
            depth=one_less(rule),
            tol=last.tolerance(layer.tol),
            max_depth=max(layer.max_depth - 1, 1),
            activation=layer.activation,
            adjoint=as_adjoint(None, None if terms is None else max(terms - 1, 1), layer.checkpoint),
        )
    out = torch.addmm(b, adj @ found.state, weight)  # Z⁽⁰⁾ = Ã G⁽¹⁾ W + B
    return last.after(found, b, adj, layer.scaled(out))
