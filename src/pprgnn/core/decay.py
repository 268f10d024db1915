"""The decay βₙ = 1/(1 + nε) that makes infinite depth converge for every weight matrix."""

from __future__ import annotations

from torch import Tensor


def decay(n: int | Tensor, eps: Tensor) -> Tensor:
    """βₙ = 1/(1 + nε): how much of a message survives the n-th hop; same shape as ``eps``."""
    return 1.0 / (1.0 + n * eps)


def decay_gradient(n: int, eps: Tensor) -> Tensor:
    """dβₙ/dε = -n βₙ²."""
    return -n * decay(n, eps) ** 2
