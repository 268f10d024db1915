"""The table of timing: epochs and time until ours is better than IGNN ever gets on the validation part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pprgnn.experiments.available import available
from pprgnn.experiments.cell import Cell
from pprgnn.experiments.experiment import PLAIN, Experiment, Extent, of_fold, recipe

REFERENCE = "direct"  # IGNN as its published code computes
REFERENCE_EPOCHS = 2
CASES: dict[str, tuple[tuple[str, str], str, dict[str, Any]]] = {
    # what the paper calls it: the set or its stand-in, recipe, settings that keep it within minutes on a CPU
    "Amazon": (
        ("com-Amazon", "com-DBLP"),
        "paper-dblp-0.05",
        {"training.epochs": 40, "training.metric": "micro-F1"},
    ),
    "PPI": (("PPI", "PPI-GO"), "paper-ppi-go", {"training.epochs": 12, "model.hidden": 64}),
}


def grid(extent: Extent) -> Iterator[Cell]:
    """Ours, IGNN on our core, and IGNN as published, of which only the time of an epoch is measured."""
    for case, (names, base, changes) in CASES.items():
        for name in available(*names, known=extent.known):
            plain = recipe(base, {"name": name, "protocol": "honest"}, changes)
            ignn = plain.with_values({"model.system": "ignn"}).with_values(_shared(plain))
            direct = ignn.with_values({"own.solver": "direct", "training.epochs": REFERENCE_EPOCHS})
            for variant, config in ((PLAIN, plain), ("", ignn), (REFERENCE, direct)):
                for seed in extent.seed_range(1):
                    cell = of_fold(config, 0, seed)
                    yield Cell("timing", cell, variant, at={"case": case}, keep_curve=True, alone=True)


def _shared(plain: Any) -> dict[str, Any]:
    """The settings of our plain recipe that IGNN has, too: only the layer is another."""
    model = ("architecture", "hidden", "self_loops", "dropout")
    training = (
        "epochs",
        "lr",
        "weight_decay",
        "clip",
        "schedule",
        "plateau_factor",
        "plateau_patience",
        "patience",
    )
    more = ("batch_size", "metric")
    return {
        **{f"model.{name}": getattr(plain.model, name) for name in model},
        **{f"training.{name}": getattr(plain.training, name) for name in (*training, *more)},
    }


TIMING = Experiment(
    "timing",
    "Time until ours is better than IGNN",
    "The same network, settings and machine, two threads, nothing beside it; only the layer differs. *IGNN* "
    "computes its equilibrium on our core, *IGNN, direct* as its published code does (a dense state times a "
    "sparse matrix in coordinate form, until nothing changes). The direct one was run for two epochs to know its "
    "time per epoch; its scores would be about IGNN's, so the rest of its row is calculated. The share of the "
    "method is the ratio of the times of IGNN and ours on the same core, the share of the implementation that of "
    "the two IGNNs.",
    grid,
)
