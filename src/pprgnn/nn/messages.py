"""Real messages along normalised edges, for tracing and explanations: the layers multiply by a matrix instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.explain.algorithm import ExplainerAlgorithm
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.utils import is_torch_sparse_tensor

from pprgnn.core.entries import Normalization

if TYPE_CHECKING:
    from pprgnn.nn.ppr_conv import PPRConv

MESSAGE_HOOKS = [
    f"_{what}_forward{when}_hooks"
    for what in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("", "_pre")
]


# --------------------------------------------------------------------------------------------------------- edges
def normalized_edges(
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


def explained_edges(
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
    return normalized_edges(edge_index, weight, like, normalize, False, flow)


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
    edge_index, edge_weight = explained_edges(
        edge_index,
        edge_weight,
        x,
        normalize=layer.normalization,
        add_self_loops=layer.add_self_loops,
        flow=layer.flow,
    )
    b = layer.lin(x)
    if layer.smooth_input:
        b = layer.send(b, edge_index, edge_weight)
    b = layer._input_term(b)
    weight, eps = layer.recurrent_weight(), torch.as_tensor(layer.eps, dtype=b.dtype, device=b.device)

    def step(g: Tensor) -> Tensor:
        for _ in range(layer.hops):
            g = layer.send(g, edge_index, edge_weight)
        return g @ weight

    return layer.unrolled(step, b, eps, layer.last_solution.depth)
