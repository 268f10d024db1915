"""Several decay rates in one layer: which channel has which."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


def as_rates(eps: float | Sequence[float] | Tensor, channels: int | None) -> tuple[float, ...]:
    """Check one rate, or several to be shared out among ``channels``, and return them as numbers."""
    values: Any = eps.tolist() if hasattr(eps, "tolist") else eps  # tensors and NumPy arrays
    several = isinstance(values, Iterable) and not isinstance(values, str)
    rates = tuple(float(rate) for rate in values) if several else (float(values),)
    if not rates:
        raise ValueError("eps must be a rate or several, but came as an empty list; try eps=0.25.")
    single = torch.tensor(rates, dtype=torch.float32, device="cpu").tolist()
    if not all(0.0 < rate < math.inf for rate in single):  # also refuses NaN
        raise ValueError(
            f"eps must be positive and finite, but came as {eps} (in float32 {single}); the smaller eps, the "
            f"farther messages travel (try 0.05 to 1)."
        )
    if channels is None and len(rates) > 1:
        raise ValueError("Several rates are shared out among channels; give channels=... to say how many.")
    if channels is not None and len(rates) > channels:
        raise ValueError(
            f"eps must not have more rates than there are channels to share out, but has {len(rates)} for "
            f"{channels} channels; give fewer rates or more channels."
        )
    return rates


def per_channel(rates: Tensor, channels: int) -> Tensor:
    """One rate per channel, shape (channels,): neighbouring channels share one, all about equally often."""
    group = torch.arange(channels, device=rates.device) * len(rates) // channels
    return rates[group]
