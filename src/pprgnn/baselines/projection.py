"""Projection onto the ball of the 1-norm, for many vectors at once and exactly."""

from __future__ import annotations

import torch
from torch import Tensor


def project_columns(matrix: Tensor, radius: float) -> Tensor:
    """The nearest matrix (in the Frobenius norm) whose columns have absolute sums of at most ``radius``.

    A column outside the ball is shrunk towards 0 by its own threshold θ, which solves Σ max(|aᵢ| - θ, 0) = radius;
    sorting the column gives θ exactly.

    Example:
        >>> import torch
        >>> project_columns(torch.tensor([[3.0, 0.5], [1.0, 0.0]]), 1.0)
        tensor([[1.0000, 0.5000],
                [0.0000, 0.0000]])
    """
    if not radius > 0:
        raise ValueError(f"radius must be > 0, but came as {radius}.")
    size = matrix.abs()
    outside = size.sum(0) > radius  # (columns,)
    if not bool(outside.any()):
        return matrix
    descending = size[:, outside].sort(dim=0, descending=True).values
    count = torch.arange(1, matrix.size(0) + 1, dtype=matrix.dtype, device=matrix.device).unsqueeze(1)
    candidates = (descending.cumsum(0) - radius) / count  # θ if the `count` largest entries stay
    kept = (descending > candidates).sum(0)  # so many do
    theta = candidates.gather(0, (kept - 1).unsqueeze(0))  # (1, columns outside)
    shrunk = matrix.clone()
    shrunk[:, outside] = matrix[:, outside].sign() * (size[:, outside] - theta).clamp(min=0)
    return shrunk
