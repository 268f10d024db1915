"""What each part of our layer does: one setting changed at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pprgnn.experiments.cell import Cell
from pprgnn.experiments.experiment import Experiment, Extent, recipe, repeated

BASES = ("chains", "cora", "mutag")
SEEDS = 3
CHANGES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "eps = 0.05": {"model.eps": 0.05, "model.learn_eps": "no"},
    "eps = 0.25": {"model.eps": 0.25, "model.learn_eps": "no"},
    "eps = 1": {"model.eps": 1.0, "model.learn_eps": "no"},
    "eps learned": {"model.learn_eps": "yes"},
    "eps learned per channel": {"model.learn_eps": "channel"},
    "eps 1, 0.25 and 0.05 side by side": {"model.eps": [1.0, 0.25, 0.05], "model.learn_eps": "no"},
    "grad_terms = 1": {"model.grad_terms": 1},
    "grad_terms = 2": {"model.grad_terms": 2},
    "grad_terms = 5": {"model.grad_terms": 5},
    "grad_terms = 10": {"model.grad_terms": 10},
    "grad_terms = all": {"model.grad_terms": 0},
    "depth by measurement": {"model.depth": "measured"},
    "depth by certificate": {"model.depth": "certificate"},
    "depth by influence (the paper's)": {"model.depth": "influence"},
    "depth 2": {"model.depth": 2},
    "depth 10": {"model.depth": 10},
    "self-loops": {"model.self_loops": True},
    "no self-loops": {"model.self_loops": False},
}

KINDS = {
    "model.eps": "decay rate",
    "model.learn_eps": "decay rate",
    "model.grad_terms": "terms of the gradient",
    "model.depth": "rule of depth",
    "model.self_loops": "self-loops",
}


def grid(extent: Extent) -> Iterator[Cell]:
    """One change after the other, on each of the bases."""
    for base in BASES:
        for variant, changes in CHANGES.items():
            config = recipe(base, {"protocol": "honest"}, changes)
            folds, seeds = (10, 1) if base == "mutag" else (1, SEEDS)
            yield from repeated(
                "ablations", config, extent.fold_range(folds), extent.seed_range(seeds), variant=variant
            )


ABLATIONS = Experiment(
    "ablations",
    "Ablations of our layer",
    "Test accuracy in percent when one setting of the recipe is changed and the others stay: chains of 100 nodes "
    "and Cora (mean ± standard deviation over seeds), MUTAG (over ten folds, honest). A value that is the "
    "recipe's own is the same model as *as it is*.",
    grid,
)
