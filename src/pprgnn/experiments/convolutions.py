"""Does our recursion help other convolutions? Each as the usual stack, and infinitely deep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pprgnn.experiments.cell import Cell
from pprgnn.experiments.experiment import Experiment, Extent, of_fold
from pprgnn.training.config import Config

DATA: dict[str, dict[str, Any]] = {
    "Cora": {"features": "normalized"},
    "CiteSeer": {"features": "normalized"},
    "chameleon_filtered": {},
}
CONVS = ("gcn", "gat", "gin", "sage")
FINITE, INFINITE = "stack", "infinite"
LAYERS = (1, 2, 4, 8)
RATES = (1.0,)
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
    """Seed after seed, so that an unfinished grid compares like with like."""
    places = [(INFINITE, {"eps": rate}) for rate in RATES] + [(FINITE, {"layers": layers}) for layers in LAYERS]
    for seed in extent.seed_range(3):
        for name, data in DATA.items():
            for conv in CONVS:
                for system, at in places:
                    config = _settings(system, conv, {"name": name, "protocol": "honest", **data}, at)
                    yield Cell("convolutions", of_fold(config, 0, seed), conv, at=at)


def _settings(system: str, conv: str, data: Mapping[str, Any], at: Mapping[str, Any]) -> Config:
    own = {f"data.{key}": value for key, value in data.items()} | {f"model.{key}": at[key] for key in at}
    return Config.for_system(system).with_values(SHARED | own | {"own.conv": conv})


CONVOLUTIONS = Experiment(
    "convolutions",
    "Any convolution, finite and infinite",
    "Test accuracy in percent, mean ± standard deviation over seeds, on the published split (of "
    "chameleon_filtered the first). A stack has 1, 2, 4 or 8 layers, as validation chooses; "
    "`InfiniteDepth` has eps = 1 and nothing to choose. Validation also chooses the epoch, the test part nothing. "
    "Width, dropout, learning rate, weight decay and epochs are the same for all, and none was tuned for one of "
    "them.",
    grid,
)
