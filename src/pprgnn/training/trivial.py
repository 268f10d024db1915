"""What predictors that look at nothing score: the level that a network has to beat, from labels alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pprgnn.data.dataset import GraphDataset
from pprgnn.training.metrics import scores

TRIVIAL = {
    "majority": "always the most frequent class of the training part",
    "all positive": "every label for every row",
    "prior": "for every row the most frequent labels of the training part, as many as have the best micro-F1 there",
}


def trivial_levels(
    dataset: GraphDataset, masks: Mapping[str, Tensor], metrics: Sequence[str], part: str = "test"
) -> dict[str, dict[str, float]]:
    """Scores on a part by the names of :data:`TRIVIAL` that go with the task; the training part is all they know.

    With an oracle, who tells how many labels a row has, the prior gives it so many of the most frequent ones, and
    "all positive" has no score.

    Args:
        dataset: The labels.
        masks: For each part, which labels it holds.
        metrics: What is measured.
        part: Where it is measured.
    """
    y, several = dataset.labels(), dataset.facts.multi_label
    train, wanted = y[masks["train"].cpu()], y[masks[part].cpu()]
    if not len(wanted):
        return {}
    if several:
        rows = {"all positive": torch.ones(y.size(1)), "prior": _prior(train)}
    else:
        rows = {"majority": torch.bincount(train, minlength=dataset.num_classes).double()}
    result = {}
    for name, row in rows.items():
        named = [each for each in metrics if name != "all positive" or not each.startswith("oracle")]
        result[name] = scores(row.expand(len(wanted), -1), wanted, multi_label=several, metrics=named)
    return result


def _prior(y: Tensor) -> Tensor:
    """A row of logits, higher the more frequent a label is, and above 0 where that has the best micro-F1 here."""
    counts, order = (y > 0).sum(0).sort(descending=True, stable=True)
    places = torch.arange(len(counts))
    f1 = 2 * counts.cumsum(0).double() / (len(y) * (places + 1) + counts.sum()).clamp(min=1)
    row = torch.empty(len(counts))
    row[order] = f1.argmax() + 0.5 - places
    return row
