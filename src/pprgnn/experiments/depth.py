"""Accuracy against depth: what happens to each system when it gets deeper, on Cora's published split."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pprgnn.experiments.cell import Cell
from pprgnn.experiments.experiment import IMPROVED, OURS, Experiment, Extent, baseline, recipe, repeated
from pprgnn.training.config import Config

DEPTHS = (2, 4, 8, 16, 32, 64)
INFINITE = "∞"
STACKED = ("gcn", "gcnii", "jknet", "dropedge", "pairnorm")  # as many layers as the depth
CORA = {"name": "Cora", "protocol": "honest", "features": "normalized"}
EPOCHS = {"training.epochs": 200, "training.patience": 0}


IGNN: dict[str, Any] = {"model.hidden": 64, "model.input_dropout": 0.8, "model.dropout": 0.5, **EPOCHS}


def grid(extent: Extent) -> Iterator[Cell]:
    """Ours first; then every baseline, shallow and deep; then PPNP, which is APPNP of infinite depth."""
    for system in (OURS, "ignn", "appnp", *STACKED):
        infinite = (INFINITE,) if system in (OURS, "ignn") else ()
        for depth in (*infinite, *DEPTHS):
            variant = IMPROVED if system == OURS else ""
            yield from _cells(extent, _settings(system, depth), depth, variant)
    yield from _cells(extent, baseline("ppnp", CORA, {}).with_values(EPOCHS), INFINITE)


def _cells(extent: Extent, config: Config, depth: int | str, variant: str = "") -> Iterator[Cell]:
    return repeated("depth", config, [0], extent.seed_range(3), variant=variant, at={"depth": depth})


def _settings(system: str, depth: int | str) -> Config:
    if system in (OURS, "ignn"):
        config = recipe("cora", CORA) if system == OURS else baseline("ignn", CORA, IGNN)
        return config if depth == INFINITE else config.with_values({"depth": depth})
    key = "own.hops" if system == "appnp" else "model.layers"
    return baseline(system, CORA, {}).with_values({**EPOCHS, key: depth})


DEPTH = Experiment(
    "depth",
    "Accuracy against depth (Cora)",
    "Test accuracy in percent on the published split, mean ± standard deviation over seeds; validation chooses "
    "the epoch. Depth is the number of layers, for APPNP of power iterations (∞: PPNP, the exact solution), for "
    "IGNN and ours of hops (∞: until the solve has converged). 200 epochs each; settings other than the depth "
    "are those of each system's recipe for Cora.",
    grid,
)
