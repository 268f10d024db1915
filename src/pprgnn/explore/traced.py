"""Gradient × input: what the input of every node, and what the biases, add to a score."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pprgnn.nn.network import Network
from pprgnn.training.attribution import row_score
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
    score = row_score(logits, target, model.facts.multi_label)
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
