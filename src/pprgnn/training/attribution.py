"""What moved a score, through the adjoint of every infinite-depth layer.

Which node: gradient × input.

The score is a logit, with one class out of several less the mean of the other logits: what speaks for all classes
alike decides nothing. A network of linear maps and ReLU is homogeneous in its inputs and biases together, so that
gradient × input of both adds up to the score exactly. What is left over then is 0, unless terms were left out;
other activations and norms leave something of their own.

Which feature: integrated gradients from zeros to the input (Sundararajan, Taly and Yan, 2017). Feature f of node j
gets ``x_jf ∫₀¹ ∂score(αx)/∂x_jf dα``, and all together add up to ``score(x) - score(0)``. The way from 0 to 1 is
cut into pieces, each of which counts with the gradient in its middle. What a piece must add up to is known: the
score at its end less the score at its start. Where most is missing, the piece is halved.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.buffers import release_buffers
from pprgnn.core.bounds import StepBounds
from pprgnn.core.depth import Fixed
from pprgnn.data.sparse_features import is_sparse, take_rows, to_dense
from pprgnn.nn.infinite_layer import InfiniteLayer, infinite_layers
from pprgnn.nn.network import Network
from pprgnn.training.batches import Batch
from pprgnn.training.errors import TrainingError
from pprgnn.training.memory import memory_budget, plan_terms
from pprgnn.training.model import Model, largest_norm, layer_facts, restored, smallest_eps

FEWEST, MOST = 4, 32  # pieces of an integral
ENOUGH = 0.005  # of the difference may be missing, over all pieces and without signs
PATIENCE = 20.0  # seconds after which what there is has to do, on large graphs
ROUNDING = 1e-5  # of a score, in single precision


@dataclass(frozen=True)
class LayerReach:
    """How deep a layer went, and how much of its gradient was used."""

    layer: str  # its name in the network
    depth: int  # how many hops its state reaches
    status: str  # what is known about its error, a word of :class:`pprgnn.Status`
    truncation_bound: float | None  # of its state, as in :class:`pprgnn.Solution`, as is the next one
    measured_error: float | None
    terms: int  # of its gradient; all of them are ``depth + 1``
    # What the terms left out can add to the gradient of B, at most, as a multiple of the norm of the gradient that
    # came in; 0 with all terms, ``None`` when no finite bound is known.
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
    """Explain one row of logits: a node of the one graph in a batch, 0 on graph tasks; the model stays as it was.

    ``target`` is a class or label, by default the most probable one; ``memory`` as in :func:`explain_node`.
    """
    network = model.network
    with settled(model, batch, memory) as (state, layers):
        logits = decided(network, batch, state, row)
        target = int(logits.argmax()) if target is None else target
        biases = [each for name, each in network.named_parameters() if name.rpartition(".")[2] == "bias"]
        x = inputs_of(network, batch)
        with gradients_to(network, [x, *biases]), torch.enable_grad():
            score = target_score(row_logits(network, batch, row, x), target, model.facts.multi_label)
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
        layers, facts = [layer for _, layer in infinite_layers(network)], layer_facts(network)
        found = list(zip(layers, facts, strict=True))
        reached = [(layer, each["depth"]) for layer, each in found]
        cut = [(layer, depth) for layer, depth in reached if layer.has_terms]
        terms, checkpoint = plan_terms(cut, len(state), memory_budget(memory, model.device))
        with _at_depths(reached, terms, checkpoint):
            yield state, [_reach(each, layer, terms, batch.edges) for layer, each in found]


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


def target_score(logits: Tensor, target: int, multi_label: bool) -> Tensor:
    """The logit of a class, out of several less the mean of the others."""
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


# ------------------------------------------------------------------------------------------------------- features
@dataclass(frozen=True)
class Integrated:
    """What every feature adds to a score."""

    logits: Tensor  # of the row that was asked about
    target: int  # the class or label
    score: float  # of the target, as in `Decision`
    baseline: float  # the score when all features of all nodes are 0
    features: Tensor  # what each feature adds, over all nodes; float64, on the CPU
    own: Tensor  # the part of it that comes from the node itself; of a graph, all of it
    gradients: int  # how many were computed

    @property
    def difference(self) -> float:
        """What is explained."""
        return self.score - self.baseline

    @property
    def residual(self) -> float:
        """What the features leave of it: 0 if the integral is exact."""
        return self.difference - float(self.features.sum())


class _Piece(NamedTuple):
    """From ``start`` to ``end`` of the way, with the gradient in its middle."""

    start: float
    end: float
    features: Tensor
    own: Tensor
    missing: float  # what the features leave of the difference that they must add up to


def integrate(model: Model, batch: Batch, state: Tensor, row: int, target: int | None) -> Integrated:
    """Divide the score of a row among the features; in :func:`settled`, with its state."""
    assert batch.x is not None
    network, x, started = model.network, to_dense(batch.x).detach(), time.perf_counter()
    logits = decided(network, batch, state, row)
    wanted = int(logits.argmax()) if target is None else target
    scores: dict[float, float] = {}  # by place on the way

    def score(place: float, point: Tensor) -> Tensor:
        found = target_score(row_logits(network, batch, row, point), wanted, model.facts.multi_label)
        scores[place] = float(found.detach())
        return found

    def piece(start: float, end: float) -> _Piece:
        middle = (start + end) / 2
        with torch.enable_grad():
            point = (middle * x).requires_grad_(True)
            (gradient,) = torch.autograd.grad(score(middle, point), point, materialize_grads=True)
        gradient = gradient.mul_(x).mul_(end - start)
        features = gradient.sum(0, dtype=torch.float64).cpu()
        own = features if batch.graph is not None else gradient[row].double().cpu()
        return _Piece(start, end, features, own, abs(scores[end] - scores[start] - float(features.sum())))

    with gradients_to(network, []):
        with torch.no_grad():
            baseline, whole = (float(score(place, place * x)) for place in (0.0, 1.0))
        if not math.isfinite(baseline) or not math.isfinite(whole):
            raise TrainingError(
                "The score of this model is not finite when features are smaller, so it cannot be divided among "
                "them; train it with a larger model.eps, or without a norm."
            )
        enough = ENOUGH * abs(whole - baseline) + ROUNDING * (abs(whole) + abs(baseline))
        pieces = [piece(0.0, 1.0)]
        while len(pieces) < MOST:
            missing = sum(each.missing for each in pieces)
            if len(pieces) >= FEWEST and (missing <= enough or time.perf_counter() - started > PATIENCE):
                break
            worst = pieces.pop(max(range(len(pieces)), key=lambda i: pieces[i].missing))
            middle = (worst.start + worst.end) / 2
            pieces += [piece(worst.start, middle), piece(middle, worst.end)]
    features, own = (
        torch.stack(parts).sum(0) for parts in zip(*((p.features, p.own) for p in pieces), strict=True)
    )
    return Integrated(logits.cpu(), wanted, whole, baseline, features, own, 2 * len(pieces) - 1)


# ------------------------------------------------------------------------------------------- the network meanwhile
@contextmanager
def _at_depths(
    reached: Sequence[tuple[InfiniteLayer, int]], terms: int | None, checkpoint: bool
) -> Iterator[None]:
    """Within it, the layers go exactly so deep, and their gradients have so many terms."""
    names = ("depth_rule", "grad_terms", "checkpoint", "last_solution")
    try:
        with restored([layer for layer, _ in reached], *names):
            for layer, depth in reached:
                layer.depth_rule, layer.grad_terms, layer.checkpoint = Fixed(depth), terms, checkpoint
            yield
    finally:
        release_buffers()  # as many states as there were terms


@contextmanager
def gradients_to(network: Network, wanted: Sequence[Tensor]) -> Iterator[None]:
    """Within it, gradients flow to these tensors and to no other parameter."""
    with restored(network.parameters(), "requires_grad"):
        for each in network.parameters():
            each.requires_grad_(False)
        for tensor in wanted:
            tensor.requires_grad_(True)
        yield


def _reach(facts: dict[str, Any], layer: InfiniteLayer, terms: int | None, edges: Any) -> LayerReach:
    known = ("layer", "depth", "status", "truncation_bound", "measured_error")
    depth, missing = facts["depth"], 0.0
    used = depth + 1 if terms is None or not layer.has_terms else min(terms, depth + 1)
    if used <= depth:
        norms = edges.norm_bound * largest_norm(layer) * (1 + 1e-5) if isinstance(edges, Adjacency) else math.inf
        lipschitz = layer.activation.lipschitz
        missing = left_out(StepBounds(lipschitz * norms, smallest_eps(layer.eps), lipschitz), used, depth)
    bound = missing if math.isfinite(missing) else None
    return LayerReach(**{key: facts[key] for key in known}, terms=used, left_out=bound)


def left_out(bounds: StepBounds, terms: int, depth: int) -> float:
    """What the terms left out can add to the gradient of B at most, relative to the one that arrives.

    Σ over the levels left out of L ∏ c (section 3 of the method).
    """
    total, product = 0.0, bounds.lipschitz
    for n in range(depth + 1):
        total += product if n >= terms else 0.0
        product *= bounds.step(n)
    return total
