"""The normalised edges one by one, as explanations need them: the layer itself multiplies by a matrix instead."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, scatter

from pprgnn.core.entries import Normalization


def normalized_edges(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    x: Tensor,
    *,
    normalize: Normalization,
    add_self_loops: bool,
    flow: str,
) -> tuple[Tensor, Tensor]:
    """Normalised edges in the order the explainers expect: the given ones, then the self-loops."""
    n = x.size(0)
    if normalize == "sym":
        edges, weight = gcn_norm(edge_index, edge_weight, n, False, add_self_loops, flow, x.dtype)
        return edges, weight
    if edge_weight is None:
        edge_weight = x.new_ones(edge_index.size(1))
    if add_self_loops:
        edge_index, edge_weight = add_remaining_self_loops(edge_index, edge_weight, 1.0, n)
    if normalize == "row":
        target = edge_index[1 if flow == "source_to_target" else 0]
        degree = scatter(edge_weight, target, dim_size=n, reduce="sum")
        edge_weight = edge_weight / degree.masked_fill(degree == 0, 1.0)[target]
    return edge_index, edge_weight
