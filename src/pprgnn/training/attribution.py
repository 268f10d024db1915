"""Which node moved a score: gradient × input, through the adjoint of every infinite-depth layer.

The score is a logit, with one class out of several less the mean of the other logits: what speaks for all classes
alike decides nothing. A network of linear maps and ReLU is homogeneous in its inputs and biases together, so that
gradient × input of both adds up to the score exactly. What is left over then is 0, unless terms were left out;
other activations and norms leave something of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.buffers import release_buffers
from pprgnn.core.depth import Fixed
from pprgnn.data.sparse_features import is_sparse, take_rows
from pprgnn.nn.infinite_layer import InfiniteLayer
from pprgnn.nn.layers import infinite_layers
from pprgnn.nn.network import Network
from pprgnn.training.batches import Batch
from pprgnn.training.environment import available_memory
from pprgnn.training.errors import TrainingError
from pprgnn.training.guard import largest_norm, smallest_eps
from pprgnn.training.model import Model, layer_facts

UNKNOWN_MEMORY = 4 << 30  # bytes that we count on where the system does not tell
SPARE = 4  # states that a solve needs beside those it keeps


@dataclass(frozen=True)
class LayerReach:
    """How deep a layer went, and how much of its gradient was used.

    Attributes:
        layer: Its name in the network.
        depth: How many hops its state reaches.
        status: What is known about its error, a word of :class:`pprgnn.Status`.
        truncation_bound, measured_error: of its state, as in :class:`pprgnn.Solution`.
        terms: Terms of its gradient; all of them are ``depth + 1``.
        left_out: What the terms left out can add to the gradient of B, at most, as a multiple of the norm of the
            gradient that came in; 0 with all terms, ``None`` when no finite bound is known.
    """

    layer: str
    depth: int
    status: str
    truncation_bound: float | None
    measured_error: float | None
    terms: int
    left_out: float | None


@dataclass(frozen=True)
class Attribution:
    """A score, and what it is made of."""

    logits: Tensor
    target: int
    score: float
    nodes: Tensor  # the contribution of each node's input; float64, on the CPU
    biases: float
    layers: list[LayerReach]


def attribute(model: Model, batch: Batch, row: int, target: int | None, memory: int | None) -> Attribution:
    """Explain one row of logits.

    Args:
        model: The model; it is left as it was.
        batch: One graph.
        row: The node; 0 on graph tasks.
        target: Which class or label; ``None``: the most probable one.
        memory: Bytes that the states may take; ``None``: half of what is available.
    """
    network = model.network
    with settled(model, batch, memory) as (state, layers):
        logits = decided(network, batch, state, row)
        target = int(logits.argmax()) if target is None else target
        biases = [each for name, each in network.named_parameters() if name.rpartition(".")[2] == "bias"]
        x = inputs_of(network, batch)
        with gradients_to(network, [x, *biases]), torch.enable_grad():
            score = row_score(row_logits(network, batch, row, x), target, model.facts.multi_label)
            gradients = torch.autograd.grad(score, [x, *biases], materialize_grads=True)
    inputs, *others = [
        gradient.mul_(value.detach()) for gradient, value in zip(gradients, [x, *biases], strict=True)
    ]
    return Attribution(
        logits.cpu(),
        target,
        float(score.detach()),
        inputs.sum(1, dtype=torch.float64).cpu(),
        sum((float(each.sum(dtype=torch.float64)) for each in others), 0.0),
        layers,
    )


@contextmanager
def settled(model: Model, batch: Batch, memory: int | None) -> Iterator[tuple[Tensor, list[LayerReach]]]:
    """Within it, the layers go as deep as this graph needs, and gradients have all terms that fit into memory.

    Gives the state of all nodes, and how deep each layer went.
    """
    network = model.network
    with model.precise():
        with torch.no_grad():
            state = network.encode(batch.x, batch.edges, batch.edge_weight)
        facts = list(layer_facts(network))
        reached = [(layer, facts[i]["depth"]) for i, (_, layer) in enumerate(infinite_layers(network))]
        cut = [(layer, depth) for layer, depth in reached if layer.has_terms]
        terms, checkpoint = plan_terms(cut, len(state), memory_budget(memory, model.device))
        with _at_depths(reached, terms, checkpoint):
            yield state, _layers(facts, reached, terms, batch.edges)


@torch.no_grad()
def decided(network: Network, batch: Batch, state: Tensor, row: int) -> Tensor:
    """The logits of one row, which are finite."""
    logits = _decode(network, batch, state, row)
    if not bool(torch.isfinite(logits).all()):
        raise TrainingError(
            "The logits of this model are not finite here, so there is nothing to explain; train it with a "
            "smaller training.lr or a larger model.eps."
        )
    return logits


def row_logits(network: Network, batch: Batch, row: int, x: Tensor | None) -> Tensor:
    """One row of logits; ``x`` stands for the features."""
    state = network.encode(None if batch.x is None else x, batch.edges, batch.edge_weight)
    return _decode(network, batch, state, row)


def _decode(network: Network, batch: Batch, state: Tensor, row: int) -> Tensor:
    if batch.graph is None:
        return network.decode(take_rows(state, slice(row, row + 1)))[0]
    return network.decode(state, batch.graph, batch.num_graphs)[row]


def row_score(logits: Tensor, target: int, multi_label: bool) -> Tensor:
    """The logit of the target; with one class out of several, less the mean of the others."""
    wanted = logits[target]
    if multi_label or len(logits) == 1:
        return wanted
    return wanted - (logits.sum() - wanted) / (len(logits) - 1)


def inputs_of(network: Network, batch: Batch) -> Tensor:
    """Learned rows, or a dense copy of the features, to which gradients can flow."""
    if batch.x is None:
        return learned_rows(network)
    return batch.x.to_dense() if is_sparse(batch.x) else batch.x.detach().clone()


def learned_rows(network: Network) -> Tensor:
    """What a network without features has learned for each node."""
    rows: Any = network.embedding
    weight: Tensor = rows.weight
    return weight


# ------------------------------------------------------------------------------------------- the network meanwhile
@contextmanager
def _at_depths(
    reached: Sequence[tuple[InfiniteLayer, int]], terms: int | None, checkpoint: bool
) -> Iterator[None]:
    """Within it, the layers go exactly so deep, and their gradients have so many terms."""
    names = ("depth_rule", "grad_terms", "checkpoint", "last_solution")
    before = [{name: getattr(layer, name) for name in names} for layer, _ in reached]
    try:
        for layer, depth in reached:
            layer.depth_rule, layer.grad_terms, layer.checkpoint = Fixed(depth), terms, checkpoint
        yield
    finally:
        for (layer, _), old in zip(reached, before, strict=True):
            for name, value in old.items():
                setattr(layer, name, value)
        release_buffers()  # as many states as there were terms


@contextmanager
def gradients_to(network: Network, wanted: Sequence[Tensor]) -> Iterator[None]:
    """Within it, gradients flow to these tensors and to no other parameter."""
    before = [(each, each.requires_grad) for each in network.parameters()]
    try:
        for each, _ in before:
            each.requires_grad_(False)
        for tensor in wanted:
            tensor.requires_grad_(True)
        yield
    finally:
        for each, old in before:
            each.requires_grad_(old)


# ---------------------------------------------------------------------------------------------- memory and terms
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


def _layers(
    facts: Sequence[dict[str, Any]], reached: Sequence[tuple[InfiniteLayer, int]], terms: int | None, edges: Any
) -> list[LayerReach]:
    known = ("layer", "depth", "status", "truncation_bound", "measured_error")
    layers = []
    for each, (layer, depth) in zip(facts, reached, strict=True):
        used = depth + 1 if terms is None or not layer.has_terms else min(terms, depth + 1)
        left_out = _left_out(layer, edges, used, depth) if used <= depth else 0.0
        layers.append(LayerReach(**{key: each[key] for key in known}, terms=used, left_out=left_out))
    return layers


def _left_out(layer: InfiniteLayer, edges: Any, terms: int, depth: int) -> float | None:
    """Σ over the levels left out of L ∏ c, relative to the gradient that comes in (section 3 of the method)."""
    if not isinstance(edges, Adjacency):
        return None
    lipschitz = layer.activation.lipschitz
    rate = lipschitz * edges.norm_bound * largest_norm(layer) * (1 + 1e-5)  # rounding of the norm
    eps, product, total = smallest_eps(layer.eps), lipschitz, 0.0
    for n in range(depth + 1):
        total += product if n >= terms else 0.0
        product *= rate / (1 + n * eps)
    return total if math.isfinite(total) else None
