"""What is scored: the final scores of a model, to the final tolerance, and what looking at nothing would score."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.split import Split
from pprgnn.distributed.team import Team
from pprgnn.training.batches import Batches
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.metrics import (
    ORACLE_MICRO_F1,
    ROC_AUC,
    Meter,
    best_threshold,
    default_metrics,
    predicted_classes,
    scores,
)
from pprgnn.training.model import Model
from pprgnn.training.optimization import Objective, pooled_loss
from pprgnn.training.thresholds import Rule

RARE = 0.15  # of two classes, one with a smaller share of the training part makes accuracy say little
TRIVIAL = {
    "majority": "always the most frequent class of the training part",
    "all positive": "every label, always",
    "prior": "always the most frequent labels of the training part, as many as have the best micro-F1 there",
}


def evaluate(
    model: Model,
    batches: Batches,
    masks: Mapping[str, Tensor],
    metrics: Sequence[str],
    team: Team | None = None,
    rule: Rule | None = None,
) -> tuple[dict[str, dict[str, float]], list[dict[str, Any]], dict[str, dict[str, int]]]:
    """Scores of every part to the final tolerance, and what is known about each layer's depth.

    Last, of every part, how many rows are predicted to have which class.
    With a ``rule``, the model's threshold is chosen first, on the part ``val``.
    """
    logits, layers = model.evaluate_unseen(batches)
    if batches.y is None:
        raise TrainingError(f"{batches.dataset.facts.name} has no labels to compare with; predict instead.")
    rows = batches.label_rows()
    y, chosen = batches.y[rows], {part: mask[rows] for part, mask in masks.items()}
    if rule is not None:
        model.threshold = best_threshold(logits[chosen["val"]], y[chosen["val"]], rule, team)
    parts = ((part, logits[mask], y[mask]) for part, mask in chosen.items())
    found, predicted = score_parts(model, parts, metrics, team)
    return found, layers, predicted


def score_parts(
    model: Model, parts: Iterable[tuple[str, Tensor, Tensor]], metrics: Sequence[str], team: Team | None = None
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]]]:
    """Of logits and labels of each part that has rows: scores, and how many are predicted to have which class."""
    objective, team = Objective(model.facts.multi_label), team or Team.alone()
    found, predicted = dict[str, dict[str, float]](), dict[str, dict[str, int]]()
    for part, logits, y in parts:
        if not team.all_true(not len(y)):
            _, loss, count = pooled_loss(objective, logits, y, team)
            meter = Meter(multi_label=model.facts.multi_label, metrics=metrics, team=team)
            meter.add(logits, y, loss, count)
            found[part] = meter.scores(model.threshold)
            predicted[part] = predicted_classes(logits, y, model.facts, team, model.threshold)
    return found, predicted


def ensemble_scores(
    models: Sequence[Model], dataset: GraphDataset, masks: Mapping[str, Tensor]
) -> dict[str, dict[str, float]]:
    """Scores of every part by the mean probability of several models; by the rule of the first, its threshold."""
    first = models[0]
    found = [(model, model.evaluate_unseen(model.batches(dataset))[0]) for model in models]
    mean = torch.stack([model.probabilities(logits) for model, logits in found]).mean(0)
    logits = torch.logit(mean, eps=1e-7) if first.facts.multi_label else mean.clamp(min=1e-30).log()
    y, several = dataset.labels().to(logits.device), first.facts.multi_label
    parts = {part: mask.to(logits.device) for part, mask in masks.items() if bool(mask.any())}
    threshold = first.threshold
    if threshold.rule != "half":
        rule = Rule(threshold.rule, threshold.reason)
        threshold = best_threshold(logits[parts["val"]], y[parts["val"]], rule)
    options: dict[str, Any] = {"multi_label": several, "metrics": final_metrics(first.config, first.facts)}
    return {part: scores(logits[mask], y[mask], threshold=threshold, **options) for part, mask in parts.items()}


# ---------------------------------------------------------------------------------------------- what is measured
def main_metrics(config: Config, facts: Facts) -> tuple[str, ...]:
    """What is measured, what counts first."""
    wanted = config.training.metric
    usual = default_metrics(facts, oracle=wanted.startswith("oracle"))
    return usual if wanted == "auto" else tuple(dict.fromkeys((wanted, *usual)))


def final_metrics(config: Config, facts: Facts) -> tuple[str, ...]:
    """What the final scores tell: with several labels also what an oracle would make of the logits."""
    more = (ORACLE_MICRO_F1,) if facts.multi_label else ()
    return tuple(dict.fromkeys((*main_metrics(config, facts), *more)))


def rare_class(dataset: GraphDataset, split: Split) -> tuple[str, float] | None:
    """Of two classes, the one that few of the training part have, and its share; ``None``: there is none such.

    Nor is there one when a part has rows of one class alone: then the area under the ROC curve is not defined.
    """
    if dataset.facts.multi_label or len(dataset.facts.class_names) != 2:
        return None
    y, masks = dataset.labels(), split.masks(dataset)
    counts = {part: torch.bincount(y[mask], minlength=2) for part, mask in masks.items() if bool(mask.any())}
    if "train" not in counts or any(int(each.min()) == 0 for each in counts.values()):
        return None
    rarer = int(counts["train"].argmin())
    share = float(counts["train"][rarer] / counts["train"].sum())
    return (dataset.facts.class_names[rarer], share) if share < RARE else None


def settle_metric(config: Config, dataset: GraphDataset, splits: Sequence[Split]) -> Config:
    """What ``metric = "auto"`` means for these labels: ROC AUC where one of two classes is rare in all splits."""
    facts = dataset.facts
    if config.training.metric != "auto" or facts.multi_label or len(facts.class_names) != 2:
        return config
    rare = all(rare_class(dataset, split) is not None for split in splits)
    if not rare and len(splits) == 1:
        return config
    return config.with_values({"training.metric": ROC_AUC if rare else facts.metric})  # the same for all splits


# --------------------------------------------------------------------------------------------- looking at nothing
def prior_logits(y: Tensor, num_classes: int) -> tuple[float, ...]:
    """What to say about every row if only the labels of the training part are known: a logit for each class.

    They fall with the frequency of a class. With several labels, those that together have the best micro-F1 on the
    training part are above 0.
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


def trivial_levels(
    prior: Sequence[float], y: Tensor, multi_label: bool, metrics: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Scores of those in :data:`TRIVIAL` that go with the task: the level that a network has to beat.

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


def choose_device(name: str) -> torch.device:
    """``auto`` is the first GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise TrainingError(f"training.device = {name!r} cannot be used here ({error}); try 'cpu'.") from error
    return device
