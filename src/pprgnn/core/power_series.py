"""Where φ changes nothing and W = w·I, the recursion is a power series: one set of hops serves every ε and w."""

from __future__ import annotations

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.decay import decay


def hops_of(b: Tensor, adj: Adjacency, rows: Tensor, count: int) -> Tensor:
    """B, ÃB, …, Ã^count B at these rows of the caller's order; shape (rows, count + 1, channels)."""
    here = rows if adj.rank is None else adj.rank[rows].long()
    hop = adj.permute(b).clone()
    other = torch.empty_like(hop)
    found = b.new_empty(len(rows), count + 1, b.size(1))
    for number in range(count + 1):
        found[:, number] = hop[here]
        if number < count:
            adj.product(hop, out=other)
            hop, other = other, hop
    return found


def sum_of_hops(hops: Tensor, strength: Tensor, eps: Tensor) -> Tensor:
    """G⁽⁰⁾ = Σ_k (∏_{n<k} βₙ) wᵏ Ãᵏ B at the rows of ``hops``, as deep as these go, with gradients for w and ε."""
    n = torch.arange(hops.size(1) - 1, device=hops.device)
    steps = strength * decay(n, eps)  # w βₙ
    factors = torch.cat([steps.new_ones(1), steps.cumprod(0)])
    return torch.einsum("rkc,k->rc", hops, factors)
