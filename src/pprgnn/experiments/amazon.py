"""The figure Amazon: communities of a large graph without features, from few labels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from pprgnn.experiments.cell import Cell
from pprgnn.experiments.conditions import Conditions, Tuned
from pprgnn.experiments.experiment import OURS, PLAIN, Experiment, Extent, available, recipe, repeated

FRACTIONS = (0.05, 0.06, 0.07, 0.08, 0.09)
DEPTHS = (1, 2, 4, 10, 20)
LABELS, ROWS = "labels as input", "learned rows"  # variants, by what a system reads
FEATURES = {LABELS: "labels", ROWS: "embedding"}
EPOCHS = {LABELS: 20, ROWS: 60}  # one that reads labels has five steps
RIVALS = ("gcn", "appnp", "ignn", "sse", "structure2vec")
SPREADS = "label-propagation"
SEEDS = 3
# PAPER: the number of labels of each node is known when it is scored.
METRIC = {"paper": "oracle micro-F1", "honest": "micro-F1"}
PERSONALISED: dict[str, Any] = {
    "model.eps": 0.06,
    "model.activation": "identity",
    "model.weight_init": "identity",
}
# In a hundred steps, a network that starts from 50 probabilities of a half learns how rare they are, little else.
# Ours on labels starts as label propagation.
AT_PRIOR = {"training.start_at_prior": True}
# What arrives from few labels, or from rows that start close to 0, is small, and GCN has nothing that scales it.
# Sums over up to 343 neighbours, four times, are huge.
SCALED = {"gcn": {"model.norm": "layer"}, "structure2vec": {"model.own.aggregate": "mean"}}
# Few steps have to be large, so each tries three sizes. Dropout did not help GCN.
STEPS = {"training.lr": [0.01, 0.03, 0.1], "model.dropout": 0.0}
OF_RIVALS: dict[str, dict[str, Any]] = {system: AT_PRIOR | STEPS | SCALED.get(system, {}) for system in RIVALS}
OWN: dict[str, dict[str, dict[str, Any]]] = {
    LABELS: {
        **OF_RIVALS,
        OURS: {
            "model.architecture": "labels",
            "model.eps": 0.05,
            "model.learn_eps": "yes",
            "model.weight_init": 1.5,
            "model.depth": "certificate",
            "training.recursion_lr": 0.1,
        },
        # The same network around the equilibrium, in the place of our recursion.
        "ignn": {
            **STEPS,
            "model.architecture": "labels",
            "model.weight_init": "identity",
            "training.recursion_lr": 0.1,
        },
    },
    ROWS: {
        **OF_RIVALS,
        OURS: {"model.architecture": "node", **AT_PRIOR, **PERSONALISED, "training.recursion_lr": 0.01},
        "ignn": {
            **OF_RIVALS["ignn"],
            "model.architecture": "node",
            **{key: PERSONALISED[key] for key in ("model.activation", "model.weight_init")},
            "training.recursion_lr": 0.01,
        },
    },
}


def conditions(reads: str) -> Conditions:
    """The same for all that read labels, and for all that learn rows."""
    return Conditions(
        "amazon",
        equal={
            "data.features": FEATURES[reads],
            "model.hidden": 64,
            "training.epochs": EPOCHS[reads],
            "training.tol": 1e-2,
            "training.eval_tol": 1e-3,
            "training.schedule": "cosine",
            "training.weight_decay": 0.0,
            "training.recursion_weight_decay": "same",
            "training.patience": 0,
            "training.eval_every": 5,
        },
        choices={"training.lr": [0.003, 0.01, 0.03], "model.dropout": [0.0, 0.5]},
        own=OWN[reads],
        trials=3,
        protocols={name: {"training.metric": metric} for name, metric in METRIC.items()},
    )


def grid(extent: Extent) -> Iterator[Cell]:
    """The ends of the axis first, so that a figure is there early; then what depth is worth."""
    (name,) = available("com-Amazon", "com-DBLP", known=extent.known)[:1]
    for fraction in sorted(FRACTIONS, key=lambda each: -abs(each - 0.07)):
        data = _data(name, fraction)
        place: dict[str, Any] = {"at": {"fraction": fraction}, "keep_curve": True}
        spread = Conditions("amazon", {}, protocols=conditions(LABELS).protocols)
        yield from spread.cells(extent, SPREADS, data, **place)
        tuned = Tuned(_data(name, FRACTIONS[0]), {"fraction": FRACTIONS[0]})
        for reads, system in product((LABELS, ROWS), (OURS, *RIVALS)):
            seeds, one = extent.seed_range(SEEDS), extent.seed_range(1)
            yield from conditions(reads).cells(
                extent, system, data, seeds=seeds, paper_seeds=one, tuned=tuned, variant=reads, **place
            )
        if fraction == FRACTIONS[0]:
            yield from _depths(extent, data)
        for protocol in extent.protocols:
            settings = data | {"protocol": protocol, "features": "embedding"}
            plain = recipe("paper-dblp-0.05", settings, {"training.metric": METRIC[protocol]})
            yield from repeated("amazon", plain, [0], [0], variant=PLAIN, **place)


def _data(name: str, fraction: float) -> dict[str, Any]:
    return {"name": name, "split": {"fraction": fraction}}


def _depths(extent: Extent, data: dict[str, Any]) -> Iterator[Cell]:
    """Ours on labels, as deep as told."""
    for depth in DEPTHS:
        shared = conditions(LABELS)
        own = {OURS: {**OWN[LABELS][OURS], "model.depth": depth, "training.lr": 0.01, "model.dropout": 0.0}}
        fixed = Conditions("amazon", shared.equal, own=own, trials=1, protocols=shared.protocols)
        at = {"fraction": FRACTIONS[0], "depth": depth}
        yield from fixed.cells(extent, OURS, data, seeds=extent.seed_range(1), variant=LABELS, at=at)


AMAZON = Experiment(
    "amazon",
    "Co-purchases (Amazon)",
    "Micro- and macro-F1 in percent against the share of labels that train. com-DBLP is a **stand-in** for "
    "com-Amazon, which is not to be had: the same form and processing, 317,080 authors and their 50 largest "
    "communities. Nodes have no features. *Labels as input*: a system reads the labels of training nodes, but "
    "never that of a node which is scored in the same step. *Learned rows*: it learns a row for each node, as in "
    "the paper. **Equal conditions**: width 64, the same schedule, 60 epochs, or 20 of five steps each with "
    "labels as input; the learning rate (of ours dropout, too) was chosen among three candidates, on "
    "validation, at 5 % of the labels (`results/amazon-trials.jsonl`). All start from how frequent each class is, "
    "ours and IGNN on labels as label propagation; GCN has normalised states, and structure2vec takes means (as "
    "published, GCN learned next to nothing in so few steps). The labels that are hidden together are drawn anew "
    "in each epoch, for ours once: its state is a sum of hops, which are computed once and have their whole "
    "gradient. **Honest**: validation nodes choose the epoch and the threshold; three seeds. *Oracle*: of the "
    "same epoch, when the number of labels of each test node is known. **Paper's protocol, optimistic**: the test "
    "nodes choose the epoch, and the number of labels is known; one seed.",
    grid,
    compared=True,
)
