"""Which feature moved a score: integrated gradients from zeros to the input (Sundararajan, Taly and Yan, 2017).

Feature f of node j gets ``x_jf ∫₀¹ ∂score(αx)/∂x_jf dα``, and all together add up to ``score(x) - score(0)``. The
way from 0 to 1 is cut into pieces, each of which counts with the gradient in its middle. What a piece must add up
to is known: the score at its end less the score at its start. Where most is missing, the piece is halved.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from pprgnn.data.sparse_features import to_dense
from pprgnn.training.attribution import decided, gradients_to, row_logits, row_score
from pprgnn.training.batches import Batch
from pprgnn.training.errors import TrainingError
from pprgnn.training.model import Model

FEWEST, MOST = 4, 32  # pieces
ENOUGH = 0.005  # of the difference may be missing, over all pieces and without signs
PATIENCE = 20.0  # seconds after which what there is has to do, on large graphs
ROUNDING = 1e-5  # of a score, in single precision


@dataclass(frozen=True)
class Integrated:
    """What every feature adds to a score.

    Attributes:
        logits: Of the row that was asked about.
        target: The class or label.
        score: Its score, as in :class:`pprgnn.training.explain.Decision`.
        baseline: The score when all features of all nodes are 0.
        features: What each feature adds, over all nodes; float64, on the CPU.
        own: The part of it that comes from the node itself; of a graph, all of it.
        gradients: How many were computed.
    """

    logits: Tensor
    target: int
    score: float
    baseline: float
    features: Tensor
    own: Tensor
    gradients: int

    @property
    def difference(self) -> float:
        """What is explained."""
        return self.score - self.baseline

    @property
    def residual(self) -> float:
        """What the features leave of it: 0 if the integral is exact."""
        return self.difference - float(self.features.sum())


@dataclass(frozen=True)
class _Piece:
    """From ``start`` to ``end`` of the way."""

    start: float
    end: float
    scores: tuple[float, float, float]  # at its start, in its middle, at its end
    features: Tensor
    own: Tensor

    @property
    def missing(self) -> float:
        """What its features leave of what it must add up to."""
        return abs(self.scores[2] - self.scores[0] - float(self.features.sum()))


@dataclass(frozen=True)
class _Way:
    """From zeros to the input, and the score on it."""

    model: Model
    batch: Batch
    x: Tensor
    row: int
    target: int

    def score(self, point: Tensor) -> Tensor:
        logits = row_logits(self.model.network, self.batch, self.row, point)
        return row_score(logits, self.target, self.model.facts.multi_label)

    def score_at(self, place: float) -> float:
        with torch.no_grad():
            found = float(self.score(place * self.x))
        if not math.isfinite(found):
            raise TrainingError(
                "The score of this model is not finite when features are smaller, so it cannot be divided among "
                "them; train it with a larger model.eps, or without a norm."
            )
        return found

    def piece(self, start: float, end: float, before: float, after: float) -> _Piece:
        middle = (start + end) / 2
        with torch.enable_grad():
            point = (middle * self.x).requires_grad_(True)
            score = self.score(point)
            (gradient,) = torch.autograd.grad(score, point, materialize_grads=True)
        gradient = gradient.mul_(self.x).mul_(end - start)
        features = gradient.sum(0, dtype=torch.float64).cpu()
        own = features if self.batch.graph is not None else gradient[self.row].double().cpu()
        return _Piece(start, end, (before, float(score.detach()), after), features, own)

    def halves(self, piece: _Piece) -> tuple[_Piece, _Piece]:
        middle, (before, between, after) = (piece.start + piece.end) / 2, piece.scores
        return self.piece(piece.start, middle, before, between), self.piece(middle, piece.end, between, after)


def integrate(model: Model, batch: Batch, state: Tensor, row: int, target: int | None) -> Integrated:
    """Divide the score of a row among the features; inside :func:`settled`, which gave ``state``.

    Args:
        model: A model that reads features.
        batch: One graph.
        state: Of all nodes.
        row: The node; 0 on graph tasks.
        target: Which class or label; ``None``: the most probable one.
    """
    assert batch.x is not None
    logits = decided(model.network, batch, state, row)
    target = int(logits.argmax()) if target is None else target
    way, started = _Way(model, batch, to_dense(batch.x).detach(), row, target), time.perf_counter()
    with gradients_to(model.network, []):
        baseline, score = way.score_at(0.0), way.score_at(1.0)
        enough = ENOUGH * abs(score - baseline) + ROUNDING * (abs(score) + abs(baseline))
        pieces = [way.piece(0.0, 1.0, baseline, score)]
        while len(pieces) < MOST:
            missing = [each.missing for each in pieces]
            if len(pieces) >= FEWEST and (sum(missing) <= enough or time.perf_counter() - started > PATIENCE):
                break
            pieces += way.halves(pieces.pop(missing.index(max(missing))))
    features, own = (torch.stack([getattr(each, name) for each in pieces]).sum(0) for name in ("features", "own"))
    return Integrated(logits.cpu(), target, score, baseline, features, own, 2 * len(pieces) - 1)
