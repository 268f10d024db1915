"""The decay βₙ = 1/(1 + nε) that makes infinite depth converge for every weight matrix."""

from __future__ import annotations

import torch
from torch import Tensor


def decay(n: int, eps: Tensor) -> Tensor:
    """βₙ = 1/(1 + nε): how much of a message survives the n-th hop; same shape as ``eps``."""
    return 1.0 / (1.0 + n * eps)


def decay_gradient(n: int, eps: Tensor) -> Tensor:
    """dβₙ/dε = -n βₙ²."""
    return -n * decay(n, eps) ** 2


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
