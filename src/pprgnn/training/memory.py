"""Whether a run fits into memory, and how: estimated before anything large is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pprgnn.core.backend.passes import FEW_TERMS
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.sparse_features import is_sparse, tensors_of
from pprgnn.distributed.team import Team
from pprgnn.nn.infinite_layer import InfiniteLayer
from pprgnn.nn.network import ppr_layers
from pprgnn.training.build import Shape, build_network
from pprgnn.training.config import Config
from pprgnn.training.environment import MIB, available_memory, size_text
from pprgnn.training.errors import TrainingError

# The C library maps tensors from this size on one by one. Smaller ones share a heap, where states that come and go
# leave holes: measured, 1.3 to 1.8 times the memory that is in use.
MAPPED = 32 * MIB
HOLES = 1.6

BYTES = 4  # of a number, in single precision
COPIES = 5  # of parameters: the gradient, two of Adam and the best ones so far, beside themselves
DEPTH = 30  # that a layer is expected to reach, where it keeps all states
UNKNOWN_MEMORY = 4 << 30  # bytes that we count on where the system does not tell
SPARE = 4  # states that a solve needs beside those it keeps


@dataclass(frozen=True)
class Estimate:
    """Bytes that training needs at its peak, and what for."""

    total: int
    parts: Mapping[str, int]

    def describe(self) -> str:
        """One line, the largest part first; parts below a hundredth are left out."""
        largest = sorted(self.parts.items(), key=lambda part: -part[1])
        shown = ", ".join(f"{size_text(n)} {name}" for name, n in largest if n * 100 >= max(self.total, 1))
        return f"about {size_text(self.total)} ({shown})" if shown else f"about {size_text(self.total)}"


def estimate_memory(
    *,
    parameters: int,  # how many numbers are learned
    layers: Sequence[tuple[int, int]],  # width of input and output of each layer, in their order
    num_nodes: int,  # in the largest step
    num_edges: int,  # stored entries in the largest step: both directions, and self-loops
    grad_terms: int | None,  # terms of the gradient; None: all
    checkpoint: bool,  # whether states are computed again in the backward pass
    num_classes: int,  # outputs per node; 0 on graph tasks, where they are few
    symmetric: bool = True,  # whether the matrix is its own transpose; otherwise both are there
    held: int = 0,  # bytes of the data set, as far as they are not loaded yet
    copies_between: int = 0,  # as large as the input of each later layer: of dropout, norm, residual connection
    smooth_input: bool = False,  # whether layers average their input over the neighbours first
) -> Estimate:
    """What training a stack of infinite-depth layers needs at its peak, without Python and its libraries.

    For a gradient of N terms, a layer holds N + 1 states (with checkpointing 3) from its forward to its backward
    pass, see `core/adjoint.py`, and some more while it works, which `core/backend/buffers.py` keeps for the next
    one.
    """
    terms = DEPTH if grad_terms is None else grad_terms
    repeats = checkpoint and terms > 1  # one state is kept either way
    column = num_nodes * BYTES
    kept = sum(_allocated(3 if repeats else terms + 1, column * width) for _, width in layers)
    between = sum(_allocated(copies_between, column * width) for width, _ in layers[1:])
    # Each width has buffers of its own. Two more states for the input term, or for gradients on their way, and two
    # to smooth it.
    widths = {width for _, width in layers}
    room = 3 if not repeats else 4 if terms <= FEW_TERMS else terms + 3
    working = sum(_allocated(room, column * width) for width in widths)
    working += _allocated(4 if smooth_input else 2, column * max(widths, default=0))
    matrix = num_edges * (4 + BYTES) + 4 * (num_nodes + 1)
    parts = {
        "for states that the gradient needs": kept + between,
        "to work in": working,
        "for outputs": _allocated(3, column * num_classes),
        "for the graph": matrix * (1 if symmetric else 2) + 16 * num_nodes,  # with the order of its nodes
        "for parameters": parameters * BYTES * COPIES,
        "for the data": held,
    }
    return Estimate(sum(parts.values()), parts)


def _allocated(count: int, size: int) -> int:
    """Bytes of so many tensors of a size, with the holes between them."""
    return int(count * size * (HOLES if size < MAPPED else 1))


def choose_checkpointing(keep: Estimate, checkpoint: Estimate, available: int | None) -> bool:
    """Whether to compute states again instead of keeping them: only if memory asks for it.

    Raises :class:`TrainingError` if neither fits. ``None``, memory that is not known, is taken to be enough.
    """
    if available is None or keep.total <= available:
        return False
    if checkpoint.total <= available:
        return True
    least = min(keep, checkpoint, key=lambda estimate: estimate.total)
    even = " even with checkpointing" if least is checkpoint and checkpoint is not keep else ""
    raise TrainingError(
        f"Training needs {least.describe()}{even}, but {size_text(available)} are available; use a smaller hidden "
        f"width, fewer layers, fewer grad_terms or smaller batches, or a machine with more memory."
    )


# ---------------------------------------------------------------------------------------------------------- a run
@dataclass(frozen=True)
class MemoryPlan:
    """Whether states are computed again instead of kept, and what that should need."""

    checkpoint: bool
    needs: Estimate
    available: int | None

    def describe(self) -> str:
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
    choices = {"keep": (kept, kept), "checkpoint": (repeated, repeated)}.get(wanted, (kept, repeated))
    checkpoint = choose_checkpointing(*choices, available) or wanted == "checkpoint"
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


# ------------------------------------------------------------------------------------- all terms of a gradient
def memory_budget(memory: int | None, device: torch.device) -> int:
    """Bytes that states may take."""
    if memory is not None:
        return memory
    available = available_memory(device)
    return (UNKNOWN_MEMORY if available is None else available) // 2


def plan_terms(
    reached: Sequence[tuple[InfiniteLayer, int]], num_nodes: int, budget: int
) -> tuple[int | None, bool]:
    """All terms if they fit, if need be with states computed twice; otherwise as many terms as fit."""
    everything = max((depth for _, depth in reached), default=0) + 1
    for terms in range(everything, 1, -1):
        for checkpoint in (False, True):
            if _needed(reached, num_nodes, terms, checkpoint) <= budget:
                return (None if terms == everything else terms), checkpoint
    return (None if everything == 1 else 1), False


def _needed(reached: Sequence[tuple[InfiniteLayer, int]], num_nodes: int, terms: int, checkpoint: bool) -> int:
    """Bytes of all states that are there at the same time."""
    kept, largest = 0, dict[int, int]()
    for layer, depth in reached:
        size = num_nodes * layer.out_channels * layer.weights()[0].element_size()
        states = (min(terms, depth) + SPARE) * size
        if checkpoint:  # layers of one width use the same buffers, one after the other
            kept += SPARE * size
            largest[size] = max(largest.get(size, 0), states)
        else:
            kept += states
    return kept + sum(largest.values())
