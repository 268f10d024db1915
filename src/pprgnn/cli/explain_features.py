"""The features in what `pprgnn explain` says: of one decision, and in the mean over many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pprgnn.cli.commands import Explain
from pprgnn.cli.output import cut, show_hint, show_json, show_labelled, show_table
from pprgnn.data.dataset import GraphDataset
from pprgnn.training.explain import check_system
from pprgnn.training.explain_features import (
    FeatureExplanation,
    check_features_read,
    drawn_rows,
    overall_features,
)
from pprgnn.training.model import Model
from pprgnn.training.run import Run
from pprgnn.training.terminal import is_terminal
from pprgnn.wording import percent

PARTS = {"test": "test ", "val": "validation ", "train": "training "}


# ---------------------------------------------------------------------------------------------------- one decision
def feature_line(found: FeatureExplanation) -> str:
    """What the features add, and what the integral misses."""
    difference = found.score - found.baseline
    return (
        f"they add {difference:+.3g} to the score, which is {found.baseline:+.3g} with all features at 0; "
        f"{_missed(found.residual, difference)} of it is left unexplained ({found.gradients} gradients)"
    )


def _missed(residual: float, whole: float) -> str:
    return percent(abs(residual) / abs(whole)) if whole else f"{abs(residual):.1g}"


def show_features(found: FeatureExplanation, by_node: bool) -> None:
    """A table of those that mattered most."""
    rows: list[dict[str, Any]] = []
    for each in found.features:
        row = {
            "feature": cut(each.name),
            "value" if by_node else "mean": f"{each.value:.4g}",
            "adds": f"{each.contribution:+.3g}",
        }
        rows.append(row | ({"here": f"{each.own:+.3g}"} if by_node else {}))
    show_table("Features that mattered most", rows, ["here"])


# --------------------------------------------------------------------------------------------------------- overall
def explain_overall(
    model: Model,
    dataset: GraphDataset,
    run: Path | None,
    options: Explain,
    warned: Sequence[str],
) -> None:
    """Show which features decide in the mean over the test part of a run; without a run, over all of the data."""
    check_system(model)
    check_features_read(model)
    part, mask = _part(dataset, run)
    batches, available = model.batches(dataset), int(mask.sum())
    if is_terminal() and not options.as_json:
        show_hint(f"Explaining {min(options.sample, available)} decisions ...")
    found = overall_features(model, batches, drawn_rows(batches, mask, options.sample))
    if options.as_json:
        facts = {"part": part, "available": available, "data": dataset.facts.title, "warnings": warned}
        show_json(found.to_dict() | facts)
        return
    things = f"{PARTS.get(part, '')}{dataset.facts.task}s"
    lines = [
        ("features", f"{len(found.features):,} of {dataset.facts.title}"),
        ("mean over", f"{found.samples:,} of {available:,} {things}, for the class predicted for each"),
        ("unexplained", f"{percent(found.residual)} of what the features add ({found.gradients:,} gradients)"),
        *(("warning", text) for text in warned),
    ]
    show_labelled(lines, 13)
    show_table(
        "Features that matter most",
        [
            {"feature": cut(each.name), "share": percent(each.share).rjust(7), "adds": f"±{each.importance:.3g}"}
            for each in found.features[: options.top]
            if each.importance > 0
        ],
    )


def _part(dataset: GraphDataset, run: Path | None) -> tuple[str, Tensor]:
    """What to draw from: the test part if there is one; of new data, everything."""
    if run is None:
        size = dataset.num_nodes if dataset.facts.task == "node" else len(dataset)
        return "all", torch.ones(size, dtype=torch.bool)
    masks = Run.open(run).split.masks(dataset)
    return next((part, masks[part]) for part in PARTS if bool(masks[part].any()))
