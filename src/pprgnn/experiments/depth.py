"""Accuracy against depth: what happens to each system when it gets deeper, on Cora's published split."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pprgnn.experiments.cell import Cell
from pprgnn.experiments.experiment import IMPROVED, OURS, Experiment, Extent, of_fold, recipe, rival

DEPTHS = (2, 4, 8, 16, 32, 64)
INFINITE = "∞"
STACKED = ("gcn", "gcnii", "jknet", "dropedge", "pairnorm")  # as many layers as the depth
CORA = {"name": "Cora", "protocol": "honest", "features": "normalized"}
EPOCHS = {"training.epochs": 200, "training.patience": 0}


def grid(extent: Extent) -> Iterator[Cell]:
    """Ours first; then every rival, shallow and deep."""
    for system in (OURS, "ignn", "appnp", *STACKED):
        infinite: tuple[int | str, ...] = (INFINITE,) if system in (OURS, "ignn") else ()
        for depth in (*infinite, *DEPTHS):
            variant, config = _settings(system, depth)
            for seed in extent.seed_range(3):
                yield Cell("depth", of_fold(config, 0, seed), variant, at={"depth": depth})
    yield from _exact_pagerank(extent)


def _settings(system: str, depth: int | str) -> tuple[str, Any]:
    if system in (OURS, "ignn"):
        config = recipe("cora", CORA) if system == OURS else rival("ignn", CORA, IGNN)
        config = config if depth == INFINITE else config.with_values({"depth": depth})
        return IMPROVED if system == OURS else "", config
    config = rival(system, CORA, {}).with_values(EPOCHS)
    key = "own.hops" if system == "appnp" else "model.layers"
    return "", config.with_values({key: depth})


IGNN: dict[str, Any] = {
    "model.hidden": 64,
    "model.input_dropout": 0.8,
    "model.dropout": 0.5,
    "training.epochs": 200,
    "training.patience": 0,
}


def _exact_pagerank(extent: Extent) -> Iterator[Cell]:
    """APPNP of infinite depth is PPNP."""
    config = rival("ppnp", CORA, {}).with_values(EPOCHS)
    for seed in extent.seed_range(3):
        yield Cell("depth", of_fold(config, 0, seed), at={"depth": INFINITE})


DEPTH = Experiment(
    "depth",
    "Accuracy against depth (Cora)",
    "Test accuracy in percent on the published split, mean ± standard deviation over seeds; validation chooses "
    "the epoch. Depth is the number of layers, for APPNP of power iterations (∞: PPNP, the exact solution), for "
    "IGNN and ours of hops (∞: until the solve has converged). 200 epochs each; settings other than the depth "
    "are those of each system's recipe for Cora.",
    grid,
)
