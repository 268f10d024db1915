"""The norm in which errors are measured."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def frobenius_norm(x: Tensor) -> float:
    """‖x‖_F, also where the squares of the entries would leave the range of their type."""
    norm = float(torch.linalg.vector_norm(x))
    if not 1e-15 < norm < 1e15 and x.numel():
        largest = float(x.abs().max())
        if 0 < largest < math.inf:
            return largest * float(torch.linalg.vector_norm(x / largest))
    return norm
