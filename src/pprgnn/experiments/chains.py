"""Chains of growing length: the class is written on the first node, and all nodes must tell it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pprgnn.experiments.cell import Cell
from pprgnn.experiments.conditions import Conditions
from pprgnn.experiments.experiment import OURS, Experiment, Extent

LENGTHS = (10, 20, 50, 100, 200, 500)
RIVALS = ("gcn", "gat", "gin", "appnp", "gcnii", "jknet", "ignn", "eignn", "mgnni", "gind", "sse", "mlp")
STACKED: dict[str, Any] = {"model.layers": [2, 8, 32]}
KEPT = [0.9, 0.95, 0.99]  # of a message, from step to step


def conditions(length: int) -> Conditions:
    """The same for all; how far a system reaches is its own choice."""
    return Conditions(
        "chains",
        equal={
            "model.hidden": 16,
            "model.dropout": 0.0,
            "model.input_dropout": 0.0,
            "model.activation": "tanh",  # hands a class on at full strength, and cannot overflow
            "model.max_depth": 2000,
            "training.epochs": 100,
            "training.patience": 0,
            "training.weight_decay": 0.0,
            "training.recursion_weight_decay": "same",
            "training.recursion_lr": 1.0,
            "training.clip": 1.0,
            "training.batch_size": 1000,
        },
        choices={"training.lr": [0.005, 0.02, 0.05]},
        own={
            OURS: {
                "model.eps": [2.5 / length, 10 / length],
                "model.learn_eps": "yes",
                "model.weight_init": [1.0, 2.0],
                "model.bias": False,
                # So deep, a measured depth is measured anew in nearly every step; a certificate costs nothing.
                **({"model.depth": "certificate"} if length > 200 else {}),
            },
            "gcn": STACKED,
            "gat": {**STACKED, "own.attention_dropout": 0.0},
            "gin": STACKED,
            "jknet": STACKED,
            "gcnii": {"model.layers": [8, 64]},
            "appnp": {"own.hops": [10, 100], "own.alpha": [0.01, 0.1]},
            "ignn": {"own.kappa": KEPT},
            "eignn": {"own.gamma": KEPT},
            "mgnni": {"own.gamma": KEPT},
        },
        trials=4,
    )


def grid(extent: Extent) -> Iterator[Cell]:
    """Length 100 first, since that is where finite depth has failed."""
    for length in sorted(LENGTHS, key=lambda each: (each != 100, each)):
        data = {"name": "chains", "options": {"length": length}}
        for system in (OURS, *RIVALS):
            seeds = extent.seed_range(3)
            yield from conditions(length).cells(extent, system, data, seeds=seeds, at={"length": length})


CHAINS = Experiment(
    "chains",
    "Chains: how far a model sees",
    "Test accuracy in percent, mean ± standard deviation over three seeds. A chain's class is written on its "
    "first node only; all of its nodes must tell it. Two classes, so chance is 50. **Equal conditions**: width "
    "16, 100 epochs, tanh where a system has a choice, no dropout, gradients clipped; the learning rate and what "
    "decides how far a system reaches (layers, hops, ε, κ, γ) were chosen for each system and length among four "
    "candidates, on validation (`results/chains-trials.jsonl`).",
    grid,
    compared=True,
)
