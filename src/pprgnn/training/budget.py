"""Whether a run fits into memory, and how: estimated before anything large is made."""

from __future__ import annotations

import torch
from torch import Tensor

from pprgnn.data.dataset import GraphDataset
from pprgnn.nn.layers import ppr_layers
from pprgnn.training.build import Shape, build_network
from pprgnn.training.config import Config
from pprgnn.training.memory import Estimate, available_memory, choose_checkpointing, estimate_memory


def must_checkpoint(
    config: Config, dataset: GraphDataset, x: Tensor | None, shape: Shape, device: torch.device
) -> bool:
    """Whether states must be computed again instead of kept; refuses what cannot fit at all."""
    wanted = config.training.memory
    keep, checkpoint = (estimate(config, dataset, x, shape, repeat) for repeat in (False, True))
    available = available_memory(device)
    if wanted == "checkpoint":
        return choose_checkpointing(checkpoint, checkpoint, available) or True
    if wanted == "keep":
        return choose_checkpointing(keep, keep, available)
    return choose_checkpointing(keep, checkpoint, available)


def estimate(config: Config, dataset: GraphDataset, x: Tensor | None, shape: Shape, checkpoint: bool) -> Estimate:
    """Peak memory of training with this config."""
    with torch.device("meta"):  # shapes without numbers
        network = build_network(config.model, shape)
    parameters = sum(p.numel() for p in network.parameters())
    layers = [(layer.in_channels or layer.out_channels, layer.out_channels) for _, layer in ppr_layers(network)]
    sizes = sorted(dataset.graph_sizes, reverse=True)
    size = config.training.batch_size or (1 if shape.task == "node" else 128)
    nodes = sum(sizes[:size])
    # Of a batch's edges we know no more than its share of the nodes, twice over to be safe.
    all_edges = dataset._data.edge_index.size(1)
    edges = min(all_edges, 2 * all_edges * nodes // max(sum(sizes), 1)) + nodes * config.model.self_loops
    if not layers:  # layers of PyG: a message per edge and a state or two per layer
        width = config.model.hidden
        layers = [(shape.in_channels, width)] * max(config.model.layers, 2)
    extras = int(config.model.dropout > 0) + int(config.model.norm != "none") + int(config.model.residual)
    return estimate_memory(
        parameters=parameters,
        layers=layers,
        num_nodes=nodes,
        num_edges=edges,
        grad_terms=config.model.grad_terms or None,
        checkpoint=checkpoint,
        num_classes=shape.num_classes if shape.task == "node" else 0,
        symmetric=not dataset.facts.directed,
        held=0 if x is None else x.numel() * x.element_size(),
        copies_between=extras,
    )
