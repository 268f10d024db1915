"""All that is measured on a run, in order; here: scores by class, scores to compare with, features that decide."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.nn import LabelPropagation
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from pprgnn.core.solution import ConvergenceWarning
from pprgnn.experiments import paper
from pprgnn.report.measured.recursions import convergence, cost, decay, truncation
from pprgnn.report.measured.results import Baseline, ClassScores, FeatureShares, Measurements, Missing, fingerprint
from pprgnn.report.measured.states import reach, smoothing
from pprgnn.report.measured.trained_run import Allowance, TrainedRun
from pprgnn.training.attribution import FEWEST
from pprgnn.training.environment import environment
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import TRIVIAL, prior_logits, trivial_levels
from pprgnn.training.explain import check_system
from pprgnn.training.explain_features import SAMPLE, check_features_read, drawn_rows, overall_features
from pprgnn.training.listener import Announce, silent
from pprgnn.training.metrics import ACCURACY, MICRO_F1, scores, top_labels
from pprgnn.training.run import DATA, Run
from pprgnn.training.systems import find_system
from pprgnn.wording import counted

STEPS, ALPHA = 50, 0.9  # of label propagation
MOST_MESSAGES = 1 << 26  # numbers that it may send in a step
LISTED = 20
PASSES = 6 * FEWEST  # that the features of a decision take at least: gradients, each as long as three passes
MARGIN = 1.2  # over what a part expects to take
FROM_LABELS = "baselines"  # needs no network


# ------------------------------------------------------------------------------------------------- scores by class
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


# ------------------------------------------------------------------------------------------ scores to compare with
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


# -------------------------------------------------------------------------------------------- features that decide
def features(trained: TrainedRun, allowance: Allowance) -> FeatureShares | Missing:
    """The shares of the most important ones."""
    each, started = PASSES * trained.pass_seconds, time.perf_counter()

    def go_on(done: int) -> bool:
        return allowance.allows(1.5 * (time.perf_counter() - started) / done)

    try:
        check_system(trained.model)
        check_features_read(trained.model)
        if not allowance.allows(each):
            return allowance.too_long("Which features decide", each)
        rows = drawn_rows(trained.batches, trained.masks[trained.part], SAMPLE)
        found = overall_features(trained.model, trained.batches, rows, go_on)
    except TrainingError as error:
        return Missing(str(error))
    shown = [each for each in found.features[:LISTED] if each.importance > 0]
    if not shown:
        return Missing("No feature adds anything to the decisions that were looked at; biases decide.")
    return FeatureShares(
        [each.name for each in shown],
        [each.share for each in shown],
        len(found.features),
        trained.model.facts.task,
        found.samples,
        found.residual,
    )


# ------------------------------------------------------------------------------------------------------- all of it
Part = Callable[[TrainedRun, Allowance], Any]
# What each part is called, and its share of the time that is left when its turn comes, beside those after it.
PARTS: tuple[tuple[str, Part, str, float], ...] = (
    ("classes", classes, "scores by class", 0.0),
    ("baselines", baselines, "scores to compare with", 0.0),
    ("decay", decay, "decay", 0.0),
    ("convergence", convergence, "error against depth", 3.0),
    ("reach", reach, "reach of decisions", 3.0),
    ("truncation", truncation, "gradients of few terms", 2.0),
    ("smoothing", smoothing, "over-smoothing", 2.0),
    ("features", features, "features that decide", 2.0),
    ("cost", cost, "time and memory", 2.0),
)


def measure(run: Run, seconds: float = 30.0, announce: Announce = silent) -> Measurements:
    """Measure a run that has a model.

    Args:
        run: The run; nothing in its folder is changed.
        seconds: About how long it may take. What does not fit says so, and how to have it.
        announce: Is told what comes next, a phrase each.
    """
    started = time.perf_counter()
    announce("model and data")
    found: dict[str, Any] = {}
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore", ConvergenceWarning)  # what is known of each solve is among the results
        trained = TrainedRun(run)
        for number, (name, part, phrase, weight) in enumerate(PARTS):
            announce(phrase)
            if trained.trouble is not None and name != FROM_LABELS:
                found[name] = trained.trouble
                continue
            left = max(started + seconds - time.perf_counter(), 0.0)
            share = weight / sum(each[3] for each in PARTS[number:])
            one = part(trained, Allowance(left * share, seconds, run.folder))
            if isinstance(one, Missing) and one.seconds is not None and MARGIN * one.seconds <= left:
                # On a large graph, a few parts are better than a share of the time for each and none of them.
                one = part(trained, Allowance(MARGIN * one.seconds, seconds, run.folder))
            found[name] = one
    facts = environment()
    return Measurements(
        fingerprint=fingerprint(run.model_path),
        seconds=time.perf_counter() - started,
        allowed=seconds,
        commit=facts["commit"],
        date=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        machine=f"{facts['cpu'] or 'unknown processor'}, {counted(torch.get_num_threads(), 'thread')}",
        **found,
    )
