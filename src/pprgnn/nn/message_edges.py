"""The normalised edges one by one, as explanations need them: the layer itself multiplies by a matrix instead."""

from __future__ import annotations

import torch
from torch import Tensor

from pprgnn.core.entries import Normalization
from pprgnn.nn import traced_edges


def normalized_edges(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    x: Tensor,
    *,
    normalize: Normalization,
    add_self_loops: bool,
    flow: str,
) -> tuple[Tensor, Tensor]:
    """Normalised edges in the order the explainers expect: the given ones, then the self-loops.

    They add up to the entries of :class:`pprgnn.Adjacency`, also where a node has several self-loops.
    """
    like = x if x.dim() == 2 else x[0]  # a row per node
    weight = like.new_ones(edge_index.size(1)) if edge_weight is None else edge_weight.view(-1).to(x.dtype)
    if add_self_loops:
        edge_index, weight = _with_loops(edge_index, weight, like.size(0))
    return traced_edges.normalized(edge_index, weight, like, normalize, False, flow)


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
