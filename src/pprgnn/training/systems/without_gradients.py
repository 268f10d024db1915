"""What is fitted without gradients: graph kernels with a support vector machine, and what labels alone tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pprgnn.training.option import option
from pprgnn.training.systems.system import System


@dataclass(frozen=True)
class GraphletOptions:
    """Settings of GK."""

    connected: bool = option(False, "count connected triples of nodes only")


@dataclass(frozen=True)
class RandomWalkOptions:
    """Settings of RW."""

    decay: float | tuple[float, ...] = option(
        (0.001, 0.01, 0.05, 0.1),
        "weight of each step of a walk; of several, cross-validation chooses one that suits the data",
        above=0,
    )
    steps: int = option(0, "most steps of a walk; 0: any number", least=0)
    max_hours: float = option(1.0, "refuse to compare all pairs of graphs if that would take longer", above=0)


@dataclass(frozen=True)
class WeisfeilerLehmanOptions:
    """Settings of WL."""

    iterations: int | tuple[float, ...] = option(
        (1, 2, 3, 4, 5), "rounds of colour refinement; of several, cross-validation chooses", least=1, most=50
    )


@dataclass(frozen=True)
class LabelPropagation:
    """What only label propagation has."""

    damping: float | tuple[float, ...] = option(
        (0.5, 0.8, 0.9, 0.95, 0.99),
        "what is left of a label after a step; of several, validation chooses",
        above=0,
        most=0.9999,
    )
    prior_weight: float | tuple[float, ...] = option(
        (0.01, 0.1, 1.0, 10.0), "how much the frequency of a class counts; of several, validation chooses", above=0
    )
    spread: Literal["both", "sym", "row"] = option(
        "both", "normalisation of the adjacency matrix; both: validation chooses"
    )
    steps: int = option(30, "how far labels go", least=1)


SYSTEMS: tuple[System, ...] = (
    System(
        name="gk",
        title="GK",
        paper="Efficient Graphlet Kernels for Large Graph Comparison",
        year=2009,
        link="https://proceedings.mlr.press/v5/shervashidze09a.html",
        summary="Compares how many triples of nodes have 0, 1, 2 and 3 edges; a support vector machine decides.",
        kind="kernel",
        build="pprgnn.baselines.kernels:GraphletNet",
        tasks=("graph",),
        edge_weights=False,
        reads=(),
        own=GraphletOptions,
        requires=("sklearn",),
    ),
    System(
        name="rw",
        title="RW",
        paper="On Graph Kernels: Hardness Results and Efficient Alternatives",
        year=2003,
        link="https://doi.org/10.1007/978-3-540-45167-9_11",
        summary="Counts the walks that two labelled graphs have in common; a support vector machine decides.",
        kind="kernel",
        build="pprgnn.baselines.kernels:RandomWalkNet",
        tasks=("graph",),
        edge_weights=False,
        reads=(),
        own=RandomWalkOptions,
        requires=("sklearn",),
    ),
    System(
        name="wl",
        title="WL",
        paper="Weisfeiler-Lehman Graph Kernels",
        year=2011,
        link="https://jmlr.org/papers/v12/shervashidze11a.html",
        summary="Compares which neighbourhoods nodes have, some hops deep; a support vector machine decides.",
        kind="kernel",
        build="pprgnn.baselines.kernels:WeisfeilerLehmanNet",
        tasks=("graph",),
        edge_weights=False,
        reads=(),
        own=WeisfeilerLehmanOptions,
        requires=("grakel", "sklearn"),
    ),
    System(
        name="label-propagation",
        title="Label propagation",
        paper="Learning with Local and Global Consistency",
        year=2003,
        link="https://papers.nips.cc/paper/2506-learning-with-local-and-global-consistency",
        summary="The labels of training nodes spread along the edges; features play no part.",
        kind="labels",
        build="pprgnn.baselines.label_propagation:LabelPropagationNet",
        tasks=("node",),
        new_graphs=False,
        whole_gradient=False,
        reads=(),
        own=LabelPropagation,
        aliases=("lp",),
    ),
)
