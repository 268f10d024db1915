"""What a solve may be given, checked once: a sentence for each thing that can be wrong."""

from __future__ import annotations

import math
import operator

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.depth import DepthRule, Fixed, Measured
from pprgnn.core.solution import NotFiniteError


def check_inputs(
    b: Tensor, weight: Tensor, adj: Adjacency, tol: float, max_depth: int, grad_terms: int | None = None
) -> None:
    """Raise unless shapes, types and numbers are such that there is something to solve."""
    if not isinstance(adj, Adjacency):
        raise TypeError(
            f"adj must be a pprgnn.Adjacency, but came as {type(adj).__name__}; build it with "
            f"Adjacency.from_edge_index(edge_index, num_nodes=...)."
        )
    if b.dim() != 2 or b.size(0) != adj.num_nodes:
        raise ValueError(
            f"b must have one row per node, shape ({adj.num_nodes}, channels), but has shape {tuple(b.shape)}."
        )
    channels = b.size(1)
    if weight.shape != (channels, channels):
        raise ValueError(
            f"weight must have shape ({channels}, {channels}) to match b, but has shape {tuple(weight.shape)}."
        )
    if not b.is_floating_point():
        raise ValueError(f"b must hold floating-point numbers, but has dtype {b.dtype}; use b.float().")
    check_precision(b)
    adj.check_like(b, "b")
    adj.check_like(weight, "weight")
    for name, tensor in (("b", b), ("weight", weight)):
        good = finite(tensor.detach())
        if not adj.all_true(good) and good:
            raise NotFiniteError(f"{name} must be finite, but is not in another process, which tells where.")
        if not good:
            place = tuple((~torch.isfinite(tensor)).nonzero()[0].tolist())
            raise NotFiniteError(
                f"{name} must be finite, but {name}[{place[0]}, {place[1]}] is {float(tensor[place].detach())}; "
                f"look for NaN in the features or an exploding loss before this layer."
            )
    check_limits(tol, max_depth, grad_terms)


def check_precision(b: Tensor) -> None:
    """Raise for types and devices in which neither norms nor sparse products exist."""
    if b.device.type == "meta":
        raise ValueError(
            "A recursion needs numbers, because its depth depends on them, but b is on the meta device; use a "
            "real device, or Module.to_empty() before the first call."
        )
    if b.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"A recursion needs float32 or float64, but b has dtype {b.dtype}; keep this layer in full precision "
            f"(torch.autocast does so by itself)."
        )


def check_limits(tol: float, max_depth: int, grad_terms: int | None) -> None:
    """Raise unless these numbers make sense."""
    if not tol > 0:
        raise ValueError(f"tol must be > 0, but came as {tol}.")
    if max_depth < 1:
        raise ValueError(f"max_depth must be >= 1, but came as {max_depth}.")
    check_terms(grad_terms)


def check_terms(grad_terms: int | None) -> None:
    """Raise unless a gradient can have so many terms."""
    if grad_terms is not None and grad_terms < 1:
        raise ValueError(f"grad_terms must be >= 1 or None for all terms, but came as {grad_terms}.")


def finite(x: Tensor) -> bool:
    """Whether all entries are; their sum tells in one pass, unless it overflows itself."""
    return math.isfinite(float(x.sum())) or bool(torch.isfinite(x).all())


def as_eps(eps: float | Tensor, like: Tensor, channels: int) -> Tensor:
    """Check ``eps`` and return it as a tensor of shape () or (channels,) on the device of ``like``."""
    if not isinstance(eps, Tensor):
        eps = torch.tensor(float(eps), dtype=like.dtype, device=like.device)  # where it may overflow
    tensor = eps.to(dtype=like.dtype, device=like.device)
    if tensor.numel() == 1:
        tensor = tensor.reshape(())
    elif tensor.shape != (channels,):
        raise ValueError(
            f"eps must be one number or one per channel, shape ({channels},), but has shape {tuple(tensor.shape)}."
        )
    _check_range(float(tensor.detach().min()), float(tensor.detach().max()))
    return tensor


def _check_range(smallest: float, largest: float) -> None:
    if not (smallest > 0.0 and largest < float("inf")):  # also refuses NaN
        raise ValueError(
            f"eps must be positive and finite, but its range is [{smallest}, {largest}]; "
            f"the smaller eps, the farther messages travel (try 0.05 to 1)."
        )


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
