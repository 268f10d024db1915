"""Chains of growing length: the class is written on the first node, and all nodes must tell it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pprgnn.experiments.cell import Cell
from pprgnn.experiments.experiment import IMPROVED, OURS, Experiment, Extent, of_fold, recipe, rival

LENGTHS = (10, 20, 50, 100, 200, 500)
RIVALS = ("gcn", "gat", "gin", "appnp", "gcnii", "jknet", "ignn", "eignn", "mgnni", "gind", "sse", "mlp")
SHARED: dict[str, Any] = {
    "model.hidden": 16,
    "model.dropout": 0.0,
    "model.input_dropout": 0.0,
    "training.epochs": 60,
    "training.lr": 0.02,
    "training.weight_decay": 0.0,
    "training.recursion_weight_decay": "same",
    "training.recursion_lr": 1.0,
    "training.clip": 1.0,
    "training.batch_size": 1000,
}
OWN: dict[str, dict[str, Any]] = {
    "gat": {"own.attention_dropout": 0.0},
    "gcnii": {"model.layers": 64},
    "jknet": {"model.layers": 8},
}

LONG = {"training.epochs": 200, "model.max_depth": 2000}  # far nodes are learned later, and need a deeper solve


def grid(extent: Extent) -> Iterator[Cell]:
    """Length 100 first, since that is where finite depth has failed."""
    for length in sorted(LENGTHS, key=lambda each: (each != 100, each)):
        for system in (OURS, *RIVALS):
            for variant, config in _settings(system, length):
                for seed in extent.seed_range(3):
                    yield Cell("chains", of_fold(config, 0, seed), variant, at={"length": length})


def _settings(system: str, length: int) -> Iterator[tuple[str, Any]]:
    data = {"name": "chains", "options": {"length": length}, "protocol": "honest"}
    if system == OURS:
        yield IMPROVED, recipe("chains", data, LONG if length > 100 else {})
        return
    yield "", rival(system, data, SHARED).with_values(OWN.get(system, {}))


CHAINS = Experiment(
    "chains",
    "Chains: how far a model sees",
    "Test accuracy in percent, mean ± standard deviation over seeds. A chain's class is written on its first node "
    "only; all of its nodes must tell it. Two classes, so chance is 50.",
    grid,
)
