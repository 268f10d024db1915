"""A number that tells graphs apart, also in another process."""

from __future__ import annotations

import torch
from torch import Tensor

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprint(crow: Tensor, col: Tensor, value: Tensor) -> int:
    """Mix every index and every bit of the values of a CSR matrix; the same matrix always gives the same number.

    Sums of integers wrap around but do not round: the order in which they are added does not matter.
    """
    bits = value.detach().view(BITS[value.element_size()])
    entries = _mixed(col.long() * 0x1E3779B97F4A7C15 + bits.long() * 0x3F58476D1CE4E5B9)
    ends = _mixed(crow.long() * 0x14D049BB133111EB)
    return int(entries * 31 + ends)


def _mixed(x: Tensor) -> Tensor:
    x = x + torch.arange(len(x), device=x.device) * 0x2545F4914F6CDD1D  # the place of an entry matters
    x = (x ^ (x >> 29)) * 0x369DEA0F31A53F85
    return (x ^ (x >> 32)).sum()
