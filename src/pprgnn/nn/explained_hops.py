"""How far PyG's explainers look: they count a hop per layer, but an infinite one reads all that leads to it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain.algorithm import ExplainerAlgorithm
from torch_geometric.nn.conv import MessagePassing

_one_hop_per_layer = ExplainerAlgorithm._get_hard_masks
_num_hops = ExplainerAlgorithm._num_hops


def hard_masks(
    model: torch.nn.Module, node_index: int | Tensor | None, edge_index: Tensor, num_nodes: int
) -> tuple[Tensor | None, Tensor | None]:
    """The nodes and edges that may have an influence on some nodes; PyG's own answer without infinite layers."""
    layers: list[Any] = [part for part in model.modules() if hasattr(part, "hops_within")]
    if node_index is None or not layers:
        masks: tuple[Tensor | None, Tensor | None] = _one_hop_per_layer(model, node_index, edge_index, num_nodes)
        return masks
    hops = _num_hops(model) + sum(layer.hops_within(num_nodes) - _num_hops(layer) for layer in layers)
    flows = {part.flow for part in model.modules() if isinstance(part, MessagePassing)}
    ways = [edge_index if flow == "source_to_target" else edge_index.flip(0) for flow in flows]
    source, target = torch.cat(ways, dim=1)
    seen = torch.zeros(num_nodes, dtype=torch.bool, device=edge_index.device)
    seen[node_index] = True
    for _ in range(hops):
        before = int(seen.sum())
        seen[source[seen[target]]] = True
        if int(seen.sum()) == before:
            break
    return seen, seen[edge_index[0]] & seen[edge_index[1]]


# PyG has no way to tell it: every explainer asks this function, and none asks the layers.
ExplainerAlgorithm._get_hard_masks = staticmethod(hard_masks)
