"""Settings that nobody has chosen and that follow from the data: from how many labels of nodes there are.

A recipe, and whatever somebody sets, stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from pprgnn.data.dataset import GraphDataset
from pprgnn.data.sparse_features import is_sparse
from pprgnn.data.split import Split
from pprgnn.training.config import Config
from pprgnn.training.evaluation import settle_metric
from pprgnn.wording import counted

FEW = 50  # labels for each class, on average, and fewer
MANY_COLUMNS = 100  # and more

# All found by validation, as `python -m benchmarks.node_defaults` measures it.
# Few labels and many columns: labels do not tell which columns matter.
FEW_LABELS: Mapping[str, Mapping[str, Any]] = {
    # W starts as the identity and hardly moves, as in the recipe cora; what is read is averaged over neighbours.
    "pprgnn": {
        "model.eps": 0.1,
        "model.smooth_input": True,
        "model.weight_init": "identity",
        "model.input_dropout": 0.8,
        "training.weight_decay": 0.1,
        "training.recursion_lr": 0.01,
        "training.recursion_weight_decay": 0.0,
    },
}
# As in the recipe cora: where rows are small, as those that sum to 1, that much weight decay leaves nothing.
FEW_LABELS_SMALL_ROWS: Mapping[str, Mapping[str, Any]] = {
    "pprgnn": {**FEW_LABELS["pprgnn"], "model.eps": 0.25, "training.weight_decay": 2e-3}
}
# Many labels and few columns: the dropout and weight decay of the papers are for the opposite, and without a skip
# connection a node's own columns are lost among those of its neighbours.
_SKIPPING = {
    "model.norm": "layer",
    "model.residual": True,
    "model.dropout": 0.2,
    "training.weight_decay": 0.0,
}
MANY_LABELS: Mapping[str, Mapping[str, Any]] = {
    "gcn": _SKIPPING,
    "gat": {**_SKIPPING, "model.own.attention_dropout": 0.2},
}


def settle(config: Config, dataset: GraphDataset, splits: Sequence[Split]) -> Config:
    """The settings with all that follows from these data; nothing is left open."""
    config = settle_metric(config, dataset, splits)
    if config.given is None:
        return config
    usual = usual_for(config, dataset, splits[0])
    chosen = {key: value for key, value in usual.items() if key not in config.given}
    return config.with_values(chosen).marked(None, tuple(chosen))


def usual_for(config: Config, dataset: GraphDataset, split: Split) -> Mapping[str, Any]:
    """What the number of labels suggests for a system; nothing unless they are of nodes that have features."""
    shown = config.data.features in ("auto", "given", "normalized") and "x" in dataset._data
    if dataset.facts.task != "node" or not shown or config.model.architecture != "auto":
        return {}
    few, wide = labels_per_class(dataset, split) <= FEW, dataset._data.x.size(1) >= MANY_COLUMNS
    table = {(True, True): FEW_LABELS, (False, False): MANY_LABELS}.get((few, wide), {})
    if table is FEW_LABELS and (config.data.features == "normalized" or _typical_square(dataset._data.x) < 1):
        table = FEW_LABELS_SMALL_ROWS
    return table.get(config.model.system, {})


def _typical_square(x: Tensor) -> float:
    """The mean over nodes of the squared length of their features."""
    values = x.values() if is_sparse(x) else x
    return float(values.double().square().sum()) / max(len(x), 1)


def labels_per_class(dataset: GraphDataset, split: Split) -> float:
    """How many of the training part there are for each class, on average."""
    train = split.masks(dataset)["train"]
    labels = int((dataset.labels()[train] > 0).sum()) if dataset.facts.multi_label else int(train.sum())
    return labels / max(dataset.num_classes, 1)


def describe_settled(config: Config, dataset: GraphDataset, split: Split) -> str:
    """In one line, what the number of labels has chosen; empty: nothing."""
    if not config.settled:
        return ""
    labels = labels_per_class(dataset, split)
    count = "few" if labels <= FEW else "many"
    values = ", ".join(f"{key.rpartition('.')[2]} = {config.value(key)}" for key in config.settled)
    return f"for {count} labels ({counted(round(labels), 'node')} a class): {values}"
