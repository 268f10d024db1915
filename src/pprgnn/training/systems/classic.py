"""The networks that everybody compares with."""

from __future__ import annotations

from pprgnn.training.systems.system import System

SYSTEMS: tuple[System, ...] = (
    System(
        name="gcn",
        title="GCN",
        paper="Semi-Supervised Classification with Graph Convolutional Networks",
        year=2017,
        link="https://arxiv.org/abs/1609.02907",
        summary="Each layer averages the neighbours' states, with a linear map and ReLU.",
        kind="network",
        build="pprgnn.baselines.gcn:GCNNet",
        settings={"model.layers": 2},
    ),
)
