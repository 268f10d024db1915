"""Real messages along normalised edges, for tracing and explanations: the layers multiply by a matrix instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.explain.algorithm import ExplainerAlgorithm
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.utils import is_torch_sparse_tensor

if TYPE_CHECKING:
    from pprgnn.nn.ppr_conv import PPRConv

MESSAGE_HOOKS = [
    f"_{what}_forward{when}_hooks"
    for what in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("", "_pre")
]


# --------------------------------------------------------------------------------------------------------- edges
def normalized_edges(
    layer: PPRConv, edge_index: Tensor, edge_weight: Tensor | None, x: Tensor
) -> tuple[Tensor, Tensor]:
    """Normalised edges that add up to the entries of :class:`pprgnn.Adjacency`; ``x`` has a row per node.

    Plain tensor operations that do not depend on the numbers, so that they can be traced.
    """
    num_nodes, weight = x.size(-2), _weights(edge_index, edge_weight, x)
    if layer.add_self_loops:  # one for every node, of weight 0 where there is one already: their number is known
        nodes = torch.arange(num_nodes, device=edge_index.device)
        looping = (edge_index[0] == edge_index[1]).to(x.dtype)
        loops = x.new_zeros(num_nodes).index_add(0, edge_index[0], looping)
        edge_index = torch.cat([edge_index, torch.stack([nodes, nodes])], dim=1)
        weight = torch.cat([weight, (loops == 0).to(x.dtype)])
    return edge_index, _normalized(layer, edge_index, weight, num_nodes)


def explained_edges(
    layer: PPRConv, edge_index: Tensor, edge_weight: Tensor | None, x: Tensor
) -> tuple[Tensor, Tensor]:
    """The same in the order that explainers expect: the given ones, then a self-loop for every node.

    They add up to the entries of :class:`pprgnn.Adjacency`, also where a node has several self-loops.
    """
    num_nodes, weight = x.size(-2), _weights(edge_index, edge_weight, x)
    looping = edge_index[0] == edge_index[1]
    count = torch.bincount(edge_index[0, looping], minlength=num_nodes)
    # Where nothing is to be added a mask has the order of the given edges.
    if layer.add_self_loops and not bool((count == 1).all()):
        loops = weight.new_zeros(num_nodes).index_add(0, edge_index[0, looping], weight[looping])
        nodes = torch.arange(num_nodes, device=edge_index.device, dtype=edge_index.dtype)
        edge_index = torch.cat([edge_index[:, ~looping], torch.stack([nodes, nodes])], dim=1)
        weight = torch.cat([weight[~looping], torch.where(count == 0, 1.0, loops)])
    return edge_index, _normalized(layer, edge_index, weight, num_nodes)


def _weights(edge_index: Tensor, edge_weight: Tensor | None, x: Tensor) -> Tensor:
    return x.new_ones(edge_index.size(1)) if edge_weight is None else edge_weight.reshape(-1).to(x.dtype)


def _normalized(layer: PPRConv, edge_index: Tensor, weight: Tensor, num_nodes: int) -> Tensor:
    if layer.normalization is None:
        return weight
    source, target = edge_index if layer.flow == "source_to_target" else edge_index.flip(0)
    degree = weight.new_zeros(num_nodes).index_add(0, target, weight)
    degree = torch.where(degree < 0, torch.nan, degree)  # whoever builds the matrix refuses such weights
    connected = degree != 0
    safe = torch.where(connected, degree, 1.0)  # no division by zero, neither here nor in the gradient
    if layer.normalization == "row":
        return weight * torch.where(connected, 1.0 / safe, 0.0)[target]
    scale = torch.where(connected, safe.rsqrt(), 0.0)
    return weight * scale[target] * scale[source]


def recursion_by_messages(layer: PPRConv, b: Tensor, send: Callable[[Tensor], Tensor], depth: int) -> Tensor:
    """The output of a layer in plain operations, from its features after Ω; ``send`` multiplies by Ã."""
    b = layer._input_term(send(b) if layer.smooth_input else b)
    weight, eps = layer.recurrent_weight(), torch.as_tensor(layer.eps, dtype=b.dtype, device=b.device)

    def step(g: Tensor) -> Tensor:
        for _ in range(layer.hops):
            g = send(g)
        return g @ weight

    return layer.unrolled(step, b, eps, depth)


# ---------------------------------------------------------------------------------------------------- explainers
# They count a hop per layer, but an infinite one reads all that leads to it.
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


def has_message_hooks(conv: torch.nn.Module) -> bool:
    """Whether somebody wants to see the messages of this layer; a product with a matrix sends none."""
    return any(getattr(conv, name, None) for name in MESSAGE_HOOKS)


def forward_by_messages(layer: PPRConv, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
    """The recursion through ``propagate()``, as deep as the layer is on this input, with all of its gradient.

    PyG's explainers put masks on messages and hooks look at them, so they need real ones.
    """
    if not isinstance(edge_index, Tensor) or is_torch_sparse_tensor(edge_index):
        raise ValueError(
            "Explanations and hooks on messages need an edge_index of shape (2, num_edges), not a sparse "
            "adjacency."
        )
    if any(getattr(layer, name) for name in MESSAGE_HOOKS if "message_and" in name or "edge_update" in name):
        raise ValueError(
            f"'{type(layer).__name__}' has messages and an aggregation, one after the other; register hooks on "
            f"these, such as register_message_forward_hook."
        )
    with torch.no_grad(), layer._measuring():
        layer._plain_forward(x, edge_index, edge_weight)
    assert layer.last_solution is not None
    edges = explained_edges(layer, edge_index, edge_weight, x)
    return recursion_by_messages(layer, layer.lin(x), lambda g: layer.send(g, *edges), layer.last_solution.depth)
