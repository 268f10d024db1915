"""A number that tells graphs apart, also in another process."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprint(crow: Tensor, col: Tensor, value: Tensor) -> int:
    """Mix every index and every bit of the values of a CSR matrix; the same matrix always gives the same number.

    Sums of integers wrap around but do not round: the order in which they are added does not matter.
    """
    bits = value.detach().view(BITS[value.element_size()])
    entries = col.to(torch.int64, copy=True).mul_(0x1E3779B97F4A7C15).add_(bits, alpha=0x3F58476D1CE4E5B9)
    ends = crow.to(torch.int64, copy=True).mul_(0x14D049BB133111EB)
    return int(_mixed(entries) * 31 + _mixed(ends))


def _mixed(x: Tensor) -> Tensor:
    """The sum of the scrambled entries; overwrites ``x``, because fresh memory costs more than the arithmetic."""
    scratch = torch.arange(len(x), device=x.device)
    x.add_(scratch, alpha=0x2545F4914F6CDD1D)  # the place of an entry matters
    for shift in (29, 32):
        torch.bitwise_right_shift(x, shift, out=scratch)
        x.bitwise_xor_(scratch).mul_(0x369DEA0F31A53F85)
    return x.sum()


def fingerprint_of(tensors: Iterable[Tensor]) -> int:
    """A number that is the same for the same numbers in the same order."""
    mixed = [int(_mixed(_bits(each).to(torch.int64, copy=True))) for each in tensors]
    return sum(number * (31 + place) for place, number in enumerate(mixed))


def _bits(tensor: Tensor) -> Tensor:
    flat = tensor.detach().reshape(-1)
    return flat.contiguous().view(BITS[flat.element_size()]) if flat.is_floating_point() else flat
