"""Layers of infinite depth: ours and the others that can take its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pprgnn.training.option import option
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


@dataclass(frozen=True)
class Equilibrium:
    """Settings of all equilibria."""

    acceleration: Literal["anderson", "none"] = option(
        "anderson", "to the same equilibrium in fewer steps, by mixtures of earlier states; none: plain steps"
    )


@dataclass(frozen=True)
class IGNN(Equilibrium):
    """Settings of IGNN."""

    kappa: float = option(0.95, "how much a step may keep of a difference", above=0, most=0.999)
    scaling: Literal["normalized", "radius"] = option(
        "normalized",
        "radius: the plain adjacency matrix, W within kappa over its spectral radius, as published on PPI",
    )
    solver: Literal["core", "direct"] = option(
        "core",
        "core: on our fused kernels; direct: as the published code computes, in plain steps, to compare speed",
    )


@dataclass(frozen=True)
class EIGNN(Equilibrium):
    """Settings of EIGNN."""

    gamma: float = option(0.8, "how much of a message survives a step", above=0, most=0.999)


@dataclass(frozen=True)
class MGNNI(EIGNN):
    """Settings of MGNNI."""

    scales: int = option(2, "hops per step: equilibria for 1, 2, ... up to so many", least=1)


@dataclass(frozen=True)
class AnyConv:
    """Settings of networks of any convolution."""

    conv: Literal["gcn", "gat", "gatv2", "gin", "sage", "graph", "transformer"] = option(
        "gcn", "which convolution of PyG"
    )
    heads: int = option(4, "heads of gat, gatv2 and transformer; they share the width", least=1)


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
    System(
        name="ignn",
        title="IGNN",
        paper="Implicit Graph Neural Networks",
        year=2020,
        link="https://arxiv.org/abs/2009.06211",
        summary="The equilibrium of one layer; projecting the weights keeps it unique.",
        kind="infinite",
        build="pprgnn.baselines.ignn:IGNNConv",
        reads=(*AROUND, "activation", "weight_init"),
        own=IGNN,
        settings={"model.max_depth": 300},
    ),
    System(
        name="eignn",
        title="EIGNN",
        paper="EIGNN: Efficient Infinite-Depth Graph Neural Networks",
        year=2021,
        link="https://arxiv.org/abs/2202.10720",
        summary="The equilibrium of a linear layer whose weights contract by construction.",
        kind="infinite",
        build="pprgnn.baselines.ignn:EIGNNConv",
        reads=AROUND,
        own=EIGNN,
    ),
    System(
        name="mgnni",
        title="MGNNI",
        paper="MGNNI: Multiscale Graph Neural Networks with Implicit Layers",
        year=2022,
        link="https://arxiv.org/abs/2210.08353",
        summary="Equilibria that hop one, two, ... steps at a time, mixed by attention for each node.",
        kind="infinite",
        build="pprgnn.baselines.ignn:MGNNIConv",
        reads=AROUND,
        own=MGNNI,
    ),
    System(
        name="infinite",
        title="Infinite depth",
        paper="Transforming PageRank into an Infinite-Depth Graph Neural Network",
        year=2022,
        link="https://arxiv.org/abs/2207.00684",
        summary="Our recursion around a convolution of your choice: attention, perceptrons and more.",
        build="pprgnn.nn:InfiniteConvNet",
        reads=(
            *("hidden", "layers", "dropout", "input_dropout", "pooling"),
            *("eps", "learn_eps", "activation", "depth", "max_depth", "grad_terms"),
        ),
        own=AnyConv,
    ),
    System(
        name="stack",
        title="Stack",
        paper="Semi-Supervised Classification with Graph Convolutional Networks",
        year=2017,
        link="https://arxiv.org/abs/1609.02907",
        summary="A few convolutions of your choice, one after the other: the finite counterpart of `infinite`.",
        build="pprgnn.nn:ConvStack",
        reads=("hidden", "layers", "dropout", "input_dropout", "pooling"),
        own=AnyConv,
        settings={"model.layers": 2},
    ),
)
