"""What labels alone tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pprgnn.training.option import option
from pprgnn.training.systems.system import System


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
