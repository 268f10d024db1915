"""Normalised edges one by one, for code that is traced and for explanations: the layers multiply by a matrix."""

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
    """Normalised edges that add up to the entries of :class:`pprgnn.Adjacency`; ``like`` has a row per node.

    Plain tensor operations that do not depend on the numbers, so that they can be traced.
    """
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


def explained(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    x: Tensor,
    *,
    normalize: Normalization,
    add_self_loops: bool,
    flow: str,
) -> tuple[Tensor, Tensor]:
    """Normalised edges in the order that explainers expect: the given ones, then the self-loops.

    They add up to the entries of :class:`pprgnn.Adjacency`, also where a node has several self-loops.
    """
    like = x if x.dim() == 2 else x[0]  # a row per node
    weight = like.new_ones(edge_index.size(1)) if edge_weight is None else edge_weight.view(-1).to(x.dtype)
    if add_self_loops:
        edge_index, weight = _with_loops(edge_index, weight, like.size(0))
    return normalized(edge_index, weight, like, normalize, False, flow)


def _with_loops(edge_index: Tensor, weight: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    looping = edge_index[0] == edge_index[1]
    nodes = edge_index[0, looping]
    count = torch.bincount(nodes, minlength=num_nodes)
    if bool((count == 1).all()):  # nothing to add: a mask has the order of the given edges then
        return edge_index, weight
    loops = weight.new_zeros(num_nodes).index_add(0, nodes, weight[looping])
    loops = torch.where(count == 0, 1.0, loops)
    every = torch.arange(num_nodes, device=edge_index.device, dtype=edge_index.dtype)
    edges = torch.cat([edge_index[:, ~looping], torch.stack([every, every])], dim=1)
    return edges, torch.cat([weight[~looping], loops])
