"""How well each class is found: precision, recall, F1, and what is taken for what."""

from __future__ import annotations

import torch
from torch import Tensor

from pprgnn.report.measured.budget import Allowance
from pprgnn.report.measured.results import ClassScores
from pprgnn.report.measured.trained_run import TrainedRun
from pprgnn.training.metrics import top_labels


def classes(trained: TrainedRun, allowance: Allowance) -> ClassScores:
    """Of the part that is scored."""
    facts, logits, y = trained.model.facts, trained.logits, trained.y
    names = list(facts.class_names)
    confusion = None
    if facts.multi_label:
        true = y > 0
        oracle = trained.metric.startswith("oracle")
        marks = top_labels(logits, true.sum(1)) if oracle else trained.model.decide(logits)
        counts = [(each.sum(0)).tolist() for each in (true & marks, true, marks)]
    else:
        table = _table(logits, y, len(names))
        counts = [each.tolist() for each in (table.diagonal(), table.sum(1), table.sum(0))]
        confusion = table.tolist()
    rows = list(zip(*counts, strict=True))  # hits, labelled so, predicted so
    return ClassScores(
        part=trained.part,
        names=names,
        precision=[_ratio(hits, predicted) for hits, _, predicted in rows],
        recall=[_ratio(hits, labelled) for hits, labelled, _ in rows],
        f1=[_ratio(2 * hits, labelled + predicted) for hits, labelled, predicted in rows],
        support=[labelled for _, labelled, _ in rows],
        confusion=confusion,
    )


def _table(logits: Tensor, y: Tensor, size: int) -> Tensor:
    """Counts by true and predicted class; one column of logits is that of the second of two classes."""
    predicted = logits.argmax(1) if logits.size(1) > 1 else (logits[:, 0] > 0).long()
    return torch.bincount(y * size + predicted, minlength=size * size).view(size, size)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
