"""Gradient × input: what the input of every node, and what the biases, add to a score.

One forward pass through the whole graph is kept, and every question goes back through it. Where that would take
too long there are other ways: :mod:`pprgnn.explore.linear` and :mod:`pprgnn.explore.local`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pprgnn.nn.network import Network
from pprgnn.training.attribution import inputs_of, target_score
from pprgnn.training.batches import Batch
from pprgnn.training.model import Model


@dataclass(frozen=True)
class Traced:
    """A score and what it is made of.

    Attributes:
        score: as in :class:`pprgnn.training.explain.Decision`.
        nodes: what the input of each node adds; float64, on the CPU.
        biases: what the biases add.
        left_out: a sentence on what was not followed; empty: nothing was.
        partial: whether other nodes could have been followed, too, which takes longer.
    """

    score: float
    nodes: Tensor
    biases: float
    left_out: str = ""
    partial: bool = False


def gradients(model: Model, logits: Tensor, target: int, x: Tensor) -> tuple[float, Tensor, float]:
    """Score, its gradient at ``x``, and the contribution of the biases; what autograd has kept stays."""
    score = target_score(logits, target, model.facts.multi_label)
    biases = followed_biases(model.network)
    gradient, *others = torch.autograd.grad(score, [x, *biases], retain_graph=True, materialize_grads=True)
    parts = [
        float((one * other.detach()).sum(dtype=torch.float64)) for one, other in zip(others, biases, strict=True)
    ]
    total = sum(parts, 0.0)
    return float(score.detach()), gradient, total


def trace(model: Model, logits: Tensor, target: int, x: Tensor) -> tuple[float, Tensor, float]:
    """Score, contribution of every row of ``x``, and that of the biases."""
    score, gradient, biases = gradients(model, logits, target, x)
    return score, gradient.mul_(x.detach()).sum(1).double().cpu(), biases


def follow_biases(network: Network) -> None:
    """From here on gradients flow to the biases and to no other parameter."""
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(_is_bias(name))


def followed_biases(network: Network) -> list[Tensor]:
    """Those parameters."""
    return [each for name, each in network.named_parameters() if _is_bias(name)]


def _is_bias(name: str) -> bool:
    return name.rpartition(".")[2] == "bias"


class WholeGraph:
    """Exact, for every network with a gradient; the first question makes the pass.

    Args:
        model: At its final depths.
        batch: The graph.
        left_out: What the gradients of its layers leave out, as a sentence.
    """

    def __init__(self, model: Model, batch: Batch, left_out: str = "") -> None:
        self.model, self.batch, self.left_out = model, batch, left_out
        self._kept: tuple[Tensor, Tensor] | None = None

    def trace(self, row: int, target: int, all_nodes: bool) -> Traced:
        """Where the score of a class comes from; always from all nodes."""
        network, batch = self.model.network, self.batch
        with torch.enable_grad():
            if self._kept is None:
                x = inputs_of(network, batch).requires_grad_(True)
                given = None if batch.x is None else x
                self._kept = x, network.encode(given, batch.edges, batch.edge_weight)
            x, state = self._kept
            if batch.graph is None:
                logits = network.decode(state[row : row + 1])[0]
            else:
                logits = network.decode(state, batch.graph, batch.num_graphs)[row]
            return Traced(*trace(self.model, logits, target, x), self.left_out)
