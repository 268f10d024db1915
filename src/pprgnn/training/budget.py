"""Whether a run fits into memory, and how: estimated before anything large is made."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pprgnn.data.dataset import GraphDataset
from pprgnn.data.sparse_features import is_sparse, tensors_of
from pprgnn.distributed.team import Team
from pprgnn.nn.layers import ppr_layers
from pprgnn.training.build import Shape, build_network
from pprgnn.training.config import Config
from pprgnn.training.memory import Estimate, available_memory, choose_checkpointing, estimate_memory, size_text


@dataclass(frozen=True)
class MemoryPlan:
    """Whether states are computed again instead of kept, and what that should need."""

    checkpoint: bool
    needs: Estimate
    available: int | None

    def describe(self) -> str:
        """One line."""
        how = ", states are computed again" if self.checkpoint else ""
        room = "" if self.available is None else f" of {size_text(self.available)}"
        return f"about {size_text(self.needs.total)}{room}{how}"


def plan_memory(
    config: Config,
    dataset: GraphDataset,
    x: Tensor | None,
    shape: Shape,
    device: torch.device,
    team: Team | None = None,
) -> MemoryPlan:
    """How a run fits into memory; refuses what cannot fit at all."""
    team = team or Team.alone()
    kept, repeated = (estimate(config, dataset, x, shape, repeat, team.size) for repeat in (False, True))
    available, wanted = available_memory(device), config.training.memory
    if config.training.states:
        available = None  # the disk has what memory has not
    if available is not None and device.type == "cpu":
        available //= team.local_size
    choose_checkpointing(
        repeated if wanted == "checkpoint" else kept, kept if wanted == "keep" else repeated, available
    )
    checkpoint = wanted == "checkpoint" or choose_checkpointing(kept, repeated, available)
    checkpoint = not team.all_true(not checkpoint)  # passes are made together
    return MemoryPlan(checkpoint, repeated if checkpoint else kept, available)


def estimate(
    config: Config, dataset: GraphDataset, x: Tensor | None, shape: Shape, checkpoint: bool, processes: int = 1
) -> Estimate:
    """Peak memory of training with this config, of each process if there are several."""
    with torch.device("meta"):  # shapes without numbers
        network = build_network(config.model, shape)
    parameters = sum(p.numel() for p in network.parameters())
    layers = [(layer.in_channels or layer.out_channels, layer.out_channels) for _, layer in ppr_layers(network)]
    sizes = sorted(dataset.graph_sizes, reverse=True)
    graphs = config.training.batch_size or (1 if shape.task == "node" else 128)
    nodes = sum(sizes[:graphs])
    # Of a batch's edges we know no more than its share of the nodes, twice over to be safe.
    all_edges = dataset._data.edge_index.size(1)
    edges = min(all_edges, 2 * all_edges * nodes // max(sum(sizes), 1)) + nodes * config.model.self_loops
    nodes, edges = -(-nodes // processes), -(-edges // processes)
    if not layers:  # layers of PyG: a message per edge and a state or two per layer
        width = config.model.hidden
        wide = width if x is not None and is_sparse(x) else shape.in_channels  # no layer keeps a dense copy then
        layers = [(wide, width)] * max(config.model.layers, 2)
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
        held=0 if x is None else sum(each.nbytes for each in (tensors_of(x).values() if is_sparse(x) else [x])),
        copies_between=extras,
        smooth_input=any(layer.smooth_input for _, layer in ppr_layers(network)),
    )
