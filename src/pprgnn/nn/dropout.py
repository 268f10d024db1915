"""Dropout with cheap random numbers: on the CPU, torch's own take most of the time of a small network."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pprgnn.data.sparse_features import is_sparse, on_values

STEPS = 1 << 16  # a quarter of a random word decides about an entry


def dropout(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """As ``torch.nn.functional.dropout``, with the rate rounded to the next of 2^16 steps; the mean is exact.

    Of sparse features, stored entries are dropped: the others are zero either way.
    """
    if is_sparse(x):
        return on_values(lambda value: dropout(value, rate, training), x)
    if not training or rate == 0 or rate == 1 or x.device.type != "cpu":
        return F.dropout(x, rate, training)
    dropped = min(max(round(rate * STEPS), 1), STEPS - 1)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.long).random_(-(1 << 63), None)
    quarters = words.view(torch.int16)[: x.numel()].view(x.shape)
    kept = quarters.float().ge_(dropped - STEPS // 2)  # 1 and 0: comparing floats in place is the fastest way
    return x * kept.to(x.dtype).mul_(STEPS / (STEPS - dropped))


class TorchDropout(torch.nn.Dropout):
    """With torch's own random numbers; of sparse features, too."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop entries in training."""
        return on_values(super().forward, x)


class Dropout(torch.nn.Dropout):
    """:func:`dropout` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop entries in training."""
        return dropout(x, self.p, self.training)
