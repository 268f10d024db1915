"""Does our recursion help other convolutions? Each as the usual stack, and infinitely deep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from pprgnn.experiments.cell import Cell
from pprgnn.experiments.experiment import Experiment, Extent, of_fold
from pprgnn.training.config import Config

DATA: dict[str, dict[str, Any]] = {"Cora": {"features": "normalized"}, "wisconsin": {}, "MUTAG": {}}
SPLITS = {"Cora": [(0, seed) for seed in range(3)]}  # folds and seeds
FIVE_FOLDS = [(fold, 0) for fold in range(5)]  # of the others
CONVS = ("gcn", "gat", "gin", "sage")
AXES: dict[str, tuple[str, tuple[float, ...]]] = {  # of a system, what is varied
    "stack": ("layers", (1, 2, 4, 8)),
    "infinite": ("eps", (1.0,)),
}
SHARED: dict[str, Any] = {
    "model.hidden": 64,
    "model.dropout": 0.5,
    "model.input_dropout": 0.5,
    "training.epochs": 200,
    "training.lr": 0.01,
    "training.weight_decay": 5e-4,
    "training.patience": 50,
}


def grid(extent: Extent) -> Iterator[Cell]:
    """Split after split, so that an unfinished grid compares like with like."""
    places = [(system, {axis: at}) for system, (axis, values) in reversed(AXES.items()) for at in values]
    folds, seeds = extent.fold_range(len(FIVE_FOLDS)), extent.seed_range(len(SPLITS["Cora"]))
    for turn in range(len(FIVE_FOLDS)):
        for name, data in DATA.items():
            for fold, seed in SPLITS.get(name, FIVE_FOLDS)[turn : turn + 1]:
                if fold in folds and seed in seeds:
                    for conv, (system, at) in product(CONVS, places):
                        config = _settings(system, conv, {"name": name, "protocol": "honest", **data}, at)
                        yield Cell("convolutions", of_fold(config, fold, seed), conv, at=at)


def _settings(system: str, conv: str, data: Mapping[str, Any], at: Mapping[str, Any]) -> Config:
    own = {f"data.{key}": value for key, value in data.items()} | {f"model.{key}": at[key] for key in at}
    return Config.for_system(system).with_values(SHARED | own | {"own.conv": conv})


CONVOLUTIONS = Experiment(
    "convolutions",
    "Any convolution, finite and infinite",
    "Test accuracy in percent, mean ± standard deviation: Cora on the published split, three seeds; wisconsin "
    "(neighbours unlike) on five of the ten published splits; MUTAG (graphs) on five of ten folds. A stack has 1, "
    "2, 4 or 8 layers, as validation chooses; "
    "`InfiniteDepth` has eps = 1 and nothing to choose. Validation also chooses the epoch, the test part nothing. "
    "Width, dropout, learning rate, weight decay and epochs are the same for all, and none was tuned for one of "
    "them.",
    grid,
)
