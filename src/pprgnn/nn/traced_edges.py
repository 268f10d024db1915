"""Edges and messages in plain tensor operations, for code that is traced: nothing here depends on the numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from pprgnn.core.entries import Normalization


def normalized(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    like: Tensor,
    normalize: Normalization,
    add_self_loops: bool,
    flow: str,
) -> tuple[Tensor, Tensor]:
    """Normalised edges that add up to the entries of :class:`pprgnn.Adjacency`; ``like`` has a row per node."""
    nodes = torch.arange(like.size(0), device=edge_index.device)
    weight = like.new_ones(edge_index.size(1)) if edge_weight is None else edge_weight.to(like.dtype)
    if weight.dim() == 2 and weight.size(1) == 1:
        weight = weight.squeeze(1)
    if add_self_loops:  # one for every node, of weight 0 where there is one already: the number of edges is known
        looping = (edge_index[0] == edge_index[1]).to(like.dtype)
        loops = like.new_zeros(like.size(0)).index_add(0, edge_index[0], looping)
        edge_index = torch.cat([edge_index, torch.stack([nodes, nodes])], dim=1)
        weight = torch.cat([weight, (loops == 0).to(like.dtype)])
    if normalize is None:
        return edge_index, weight
    source, target = edge_index if flow == "source_to_target" else edge_index.flip(0)
    degree = like.new_zeros(like.size(0)).index_add(0, target, weight)
    degree = torch.where(degree < 0, torch.nan, degree)  # whoever builds the matrix refuses such weights
    connected = degree != 0
    safe = torch.where(connected, degree, 1.0)  # no division by zero, neither here nor in the gradient
    if normalize == "row":
        return edge_index, weight * torch.where(connected, 1.0 / safe, 0.0)[target]
    scale = torch.where(connected, safe.rsqrt(), 0.0)
    return edge_index, weight * scale[target] * scale[source]


def propagated(x: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Ã x by messages along the edges."""
    return torch.zeros_like(x).index_add(-2, target, x.index_select(-2, source) * weight.unsqueeze(-1))


