"""Layers of infinite depth: ours and the others that can take its place."""

from __future__ import annotations

from pprgnn.training.systems.system import System

AROUND = (  # what the networks around an infinite-depth layer read
    "architecture",
    "hidden",
    "layers",
    "norm",
    "dropout",
    "input_dropout",
    "input_layer",
    "residual",
    "jk",
    "pooling",
    "self_loops",
    "normalize",
    "smooth_input",
    "bias",
    "depth",
    "max_depth",
)

SYSTEMS: tuple[System, ...] = (
    System(
        name="pprgnn",
        title="PPRGNN",
        paper="Transforming PageRank into an Infinite-Depth Graph Neural Network",
        year=2022,
        link="https://arxiv.org/abs/2207.00684",
        summary="Infinitely many layers, each weaker than the one before: converges for every weight matrix.",
        kind="infinite",
        build="pprgnn.nn:PPRConv",
        reads=(*AROUND, "eps", "learn_eps", "activation", "weight_init", "grad_terms"),
    ),
)
