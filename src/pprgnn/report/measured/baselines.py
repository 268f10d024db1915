"""Scores to compare with: without any training on the same split, and what the paper reports."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.nn import LabelPropagation
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from pprgnn.experiments import paper
from pprgnn.report.measured.budget import Allowance
from pprgnn.report.measured.results import Baseline
from pprgnn.report.measured.trained_run import TrainedRun
from pprgnn.training.evaluation import TRIVIAL, prior_logits, trivial_levels
from pprgnn.training.metrics import ACCURACY, MICRO_F1, scores
from pprgnn.training.run import DATA
from pprgnn.training.systems import find_system

STEPS, ALPHA = 50, 0.9  # of label propagation
MOST_MESSAGES = 1 << 26  # numbers that it may send in a step


def baselines(trained: TrainedRun, allowance: Allowance) -> list[Baseline]:
    """Those that can be had here; what cannot be compared is left out."""
    return [*_measured(trained), *published(trained)]


# ---------------------------------------------------------------------------------------------- here and now
def _measured(trained: TrainedRun) -> Iterator[Baseline]:
    y, masks = trained.dataset.labels(), {part: mask.cpu() for part, mask in trained.masks.items()}
    facts, wanted, metric = trained.model.facts, y[masks[trained.part]], trained.metric
    prior = prior_logits(y[masks["train"]], len(facts.class_names))
    for name, levels in trivial_levels(prior, wanted, facts.multi_label, [metric]).items():
        if math.isfinite(value := levels.get(metric, math.nan)):
            yield Baseline(name, value, None, TRIVIAL[name], measured=True)
    if facts.task == "node" and not facts.multi_label and len(trained.dataset) == 1:
        logits = spread_labels(trained, y, masks["train"])
        if logits is None:
            return
        value = scores(logits[masks[trained.part]], wanted, multi_label=False, metrics=[metric])[metric]
        if math.isfinite(value):
            told = f"training labels spread {STEPS} times over the edges (α = {ALPHA:g}); no features, no weights"
            yield Baseline("label propagation", value, None, told, measured=True)


def spread_labels(trained: TrainedRun, y: Tensor, train: Tensor) -> Tensor | None:
    """By label propagation, a row of scores for each node; ``None``: it would take too long."""
    data, num_classes = trained.dataset[0], len(trained.model.facts.class_names)
    if data.edge_index.size(1) * num_classes > MOST_MESSAGES:
        return None
    weight = data.get("edge_weight")
    weight = None if weight is None else weight.abs().to(torch.get_default_dtype())
    edges, weight = gcn_norm(data.edge_index, weight, len(y), add_self_loops=False)
    known = one_hot(y.clamp(min=0), num_classes).to(torch.get_default_dtype())
    spread: Tensor = LabelPropagation(STEPS, ALPHA)(known, edges, train, weight)
    return spread


# ------------------------------------------------------------------------------------------------- published
def published(trained: TrainedRun) -> Iterator[Baseline]:
    """What the paper, and others on the same splits, report for this data set."""
    if (trained.run.folder / DATA).is_file():  # somebody's own graph, whatever it is called
        return
    name, protocol = trained.dataset.facts.name, trained.split.protocol
    if trained.metric == MICRO_F1 and name == "PPI":
        for system, value in _ours_first(paper.PPI):
            yield _paper_value(system, value, "the paper's table for PPI")
    if trained.metric != ACCURACY:
        return
    table = {system: values[name] for system, values in paper.GRAPHS.items() if name in values}
    for system, value in _ours_first(table):
        source = "the paper's table for graphs: mean over ten folds of the epoch that is best on the test part"
        yield _paper_value(system, value, source if protocol == "paper" else f"{source}, another protocol")
    if protocol == "honest" and name in paper.HONEST_GRAPHS:
        system, (mean, spread) = paper.HONEST_GRAPHS[name]
        title, source = f"{system}, Errica et al. 2020", "mean over the ten published nested folds"
        yield Baseline(title, mean / 100, None if spread is None else spread / 100, source, measured=False)


def _ours_first(table: dict[str, paper.Value]) -> list[tuple[str, paper.Value]]:
    return sorted(table.items(), key=lambda item: (item[0] != "pprgnn", -item[1][0]))


def _paper_value(system: str, value: paper.Value, source: str) -> Baseline:
    mean, spread = value
    title = f"{find_system(system).title} in the paper"
    return Baseline(title, mean / 100, None if spread is None else spread / 100, source, measured=False)
