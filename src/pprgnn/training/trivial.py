"""What predictors that look at nothing score: the level that a network has to beat, from labels alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pprgnn.training.metrics import scores

TRIVIAL = {
    "majority": "always the most frequent class of the training part",
    "all positive": "every label, always",
    "prior": "always the most frequent labels of the training part, as many as have the best micro-F1 there",
}
Levels = dict[str, dict[str, float]]


def cautions(summary: Mapping[str, Any]) -> list[str]:
    """What is wrong with a model whose scores are there: it says always the same, or does no better than that."""
    told, metric = [], summary["metric"]
    part, scores = list(summary["scores"].items())[-1]
    classes = [name for name, count in (summary.get("predicted") or {}).items() if count]
    if len(classes) == 1 and not summary.get("threshold"):
        told.append(
            f"Everything in the {part} part is predicted to be {classes[0]!r}; try class_weights=balanced, more "
            f"epochs or another lr."
        )
    levels = {name: values.get(metric, -math.inf) for name, values in (summary.get("trivial") or {}).items()}
    best = max(levels, key=lambda name: levels[name], default="")
    beaten = bool(best) and scores[metric] < levels[best]
    if beaten or (best and not told and scores[metric] == levels[best]):  # one class for all says it already
        told.append(
            f"The {part} {metric} ({scores[metric]:.1%}) is {'below' if beaten else 'not above'} the "
            f"{levels[best]:.1%} of looking at nothing ({best}); train longer, try another lr, or look for "
            f"mistakes in features and labels."
        )
    return told


def prior_logits(y: Tensor, num_classes: int) -> tuple[float, ...]:
    """What to say about every row if only the labels of the training part are known: a logit for each class.

    They fall with the frequency of a class. With several labels, those that together have the best micro-F1 on the
    training part are above 0.

    Args:
        y: The labels of the training part: (rows,) classes, or (rows, classes) of zeros and ones.
        num_classes: How many there are.
    """
    several = y.dim() == 2
    counts, order = ((y > 0).sum(0) if several else torch.bincount(y, minlength=num_classes)).sort(
        descending=True, stable=True
    )
    places = torch.arange(len(counts))
    f1 = 2 * counts.cumsum(0).double() / (len(y) * (places + 1) + counts.sum()).clamp(min=1)
    logits = torch.empty(len(counts))
    logits[order] = (f1.argmax() if several else 0) + 0.5 - places
    return tuple(logits.tolist())


def trivial_levels(prior: Sequence[float], y: Tensor, multi_label: bool, metrics: Sequence[str]) -> Levels:
    """Scores of those in :data:`TRIVIAL` that go with the task.

    Where an oracle tells how many labels a row has, the prior gives it so many of the most frequent ones, and "all
    positive" has no score.

    Args:
        prior: What :func:`prior_logits` made of the training part; empty: it is not known.
        y: The labels that are scored.
        multi_label: Whether a row may have any number of classes.
        metrics: What is measured.
    """
    if not len(y):
        return {}
    rows = {"all positive": torch.ones(y.size(1))} if multi_label else {}
    if prior:
        rows["prior" if multi_label else "majority"] = torch.tensor(prior)
    result = {}
    for name, row in rows.items():
        named = [each for each in metrics if name != "all positive" or not each.startswith("oracle")]
        result[name] = scores(row.expand(len(y), -1), y.cpu(), multi_label=multi_label, metrics=named)
    return result
