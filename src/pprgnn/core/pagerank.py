"""Plain and personalised PageRank (Eq. 1 and 2 of the paper) on an :class:`Adjacency`."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.kernel import multiply
from pprgnn.core.solution import ConvergenceWarning


def pagerank(
    adj: Adjacency,
    personalization: Tensor | None = None,
    *,
    teleport: float = 0.15,
    tol: float = 1e-8,
    max_iterations: int = 1000,
) -> Tensor:
    """PageRank scores r = (1 - teleport) P r + teleport · u, one per node (or one column per column of u).

    P moves a walker along the out-edges of its node, in proportion to their weights; at a node without out-edges
    the walker jumps to u. Equal to ``networkx.pagerank(graph, alpha=1 - teleport)``.

    Args:
        adj: the graph, built with ``normalize=None``.
        personalization: u, non-negative, shape (num_nodes,) or (num_nodes, k); scaled to sum 1 per column.
            Default: uniform.
        teleport: the chance to jump in each step. 0 gives Eq. 1, the dominant eigenvector, which exists uniquely
            only on strongly connected, aperiodic graphs.
        tol: stop when a step changes the scores by less than this (sum of absolute changes per column), or by no
            more than rounding does.
        max_iterations: the cap; reaching it warns.

    Example:
        >>> import torch, pprgnn
        >>> star = pprgnn.Adjacency.from_edge_index(torch.tensor([[1, 2, 3], [0, 0, 0]]), normalize=None)
        >>> pprgnn.pagerank(star)
        tensor([0.5420, 0.1527, 0.1527, 0.1527])
    """
    if adj.normalize is not None:
        raise ValueError(
            f"pagerank needs the plain weights, but the adjacency has normalize={adj.normalize!r}; "
            f"build it with normalize=None."
        )
    if not 0.0 <= teleport <= 1.0:
        raise ValueError(f"teleport must be in [0, 1], but came as {teleport}.")
    if max_iterations < 1:
        raise ValueError(f"max_iterations must be >= 1, but came as {max_iterations}.")
    if not tol >= 0:  # also refuses NaN
        raise ValueError(f"tol must be >= 0, but came as {tol}.")
    value = adj.value.detach()
    if bool((value < 0).any()):
        raise ValueError("pagerank needs non-negative edge weights, but some are negative.")
    u = _distribution(adj, personalization)
    columns = adj.permute(u.reshape(adj.num_nodes, -1))

    out_weight = torch.zeros(adj.num_nodes, dtype=adj.dtype, device=adj.device).index_add_(0, adj.col, value)
    dangling = out_weight == 0
    per_unit = torch.where(dangling, 0.0, 1.0 / torch.where(dangling, 1.0, out_weight)).unsqueeze(1)
    r, spread, product = columns.clone(), torch.empty_like(columns), torch.empty_like(columns)
    reachable = max(tol, 4 * torch.finfo(adj.dtype).eps)
    for _ in range(max_iterations):
        multiply(adj.matrix, torch.mul(r, per_unit, out=spread), out=product)
        lost = r[dangling].sum(0)  # what stands at nodes without out-edges jumps to u
        following = (1 - teleport) * (product + lost * columns) + teleport * columns
        change = float((following - r).abs().sum(0).max())
        r = following
        if change < reachable:
            break
    else:
        warnings.warn(
            f"PageRank changed by {change:.1e} in its last step, more than tol = {tol:g}; raise max_iterations "
            f"(now {max_iterations}) or teleport (now {teleport:g}).",
            ConvergenceWarning,
            stacklevel=2,
        )
    return adj.unpermute(r).reshape(u.shape)


def _distribution(adj: Adjacency, personalization: Tensor | None) -> Tensor:
    n = adj.num_nodes
    if personalization is None:
        return torch.full((n,), 1.0 / n, dtype=adj.dtype, device=adj.device)
    u = personalization.to(dtype=adj.dtype, device=adj.device)
    if u.dim() not in (1, 2) or u.size(0) != n:
        raise ValueError(f"personalization must have shape ({n},) or ({n}, k), but has shape {tuple(u.shape)}.")
    total = u.sum(0, keepdim=True)
    if not bool(torch.isfinite(total).all()) or bool((u < 0).any()) or bool((total <= 0).any()):
        raise ValueError("personalization must be finite, non-negative and not all zero in any column.")
    return u / total
