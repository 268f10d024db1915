"""Networks whose states repeat one operator with shared weights: a few rounds of it, or until nothing changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pprgnn.training.option import option
from pprgnn.training.systems.system import System


@dataclass(frozen=True)
class Structure2VecSettings:
    """Of structure2vec."""

    rounds: int = option(4, "rounds of mean field, with shared weights", least=1)
    aggregate: Literal["sum", "mean"] = option(
        "sum", "over the neighbours; sum: as published; mean: where degrees are large"
    )


@dataclass(frozen=True)
class SSESettings:
    """Of SSE."""

    aggregate: Literal["mean", "sum"] = option(
        "mean", "over the neighbours; mean: as its authors' code; sum: as its formula, which seldom converges"
    )
    updates: int = option(10, "updates of embeddings for each step of the weights", least=1)
    share: float = option(0.1, "part of the nodes in each update", above=0, most=1)
    step: float = option(0.5, "part of the new embedding in an update", above=0, most=1)
    contraction: float = option(
        0.9,
        "T moves embeddings together by this factor at least; 0: as published, it need not",
        least=0,
        most=0.999,
    )
    steady_tol: float = option(1e-4, "change that counts as steady in evaluation, relative to the size", above=0)
    max_sweeps: int = option(200, "most sweeps in evaluation; reaching it warns", least=1)


@dataclass(frozen=True)
class GINDSettings:
    """Of GIND."""

    steady_tol: float = option(1e-3, "error allowed in the equilibrium, relative to its size", above=0)
    max_steps: int = option(500, "most steps to the equilibrium; reaching it warns", least=1)
    acceleration: Literal["anderson", "none"] = option(
        "anderson", "to the same equilibrium in fewer steps, by mixtures of earlier states; none: plain steps"
    )


SYSTEMS: tuple[System, ...] = (
    System(
        name="structure2vec",
        title="structure2vec",
        paper="Discriminative Embeddings of Latent Variable Models for Structured Data",
        year=2016,
        link="https://arxiv.org/abs/1603.05629",
        summary="A few rounds of mean field: each adds up the neighbours' states, always with the same weights.",
        build="pprgnn.baselines.sse:Structure2VecNet",
        reads=("hidden", "dropout", "pooling"),
        own=Structure2VecSettings,
        settings={"training.epochs": 200},
    ),
    System(
        name="sse",
        title="SSE",
        paper="Learning Steady-States of Iterative Algorithms over Graphs",
        year=2018,
        link="https://proceedings.mlr.press/v80/dai18a.html",
        summary="A learned operator and its steady state, approached by updates of random nodes while learning.",
        build="pprgnn.baselines.sse:SSENet",
        reads=("hidden", "dropout", "pooling"),
        own=SSESettings,
        whole_gradient=False,  # it goes through one update only
        settings={"model.dropout": 0.8, "training.epochs": 200},
    ),
    System(
        name="gind",
        title="GIND",
        paper="Optimization-Induced Graph Implicit Nonlinear Diffusion",
        year=2022,
        link="https://arxiv.org/abs/2206.14418",
        summary="The equilibrium of a nonlinear diffusion along the edges, the minimum of a convex objective.",
        build="pprgnn.baselines.gind:GINDNet",
        reads=("hidden", "dropout", "input_dropout", "pooling", "self_loops"),
        own=GINDSettings,
        settings={
            "model.hidden": 128,
            "model.dropout": 0.8,
            "model.input_dropout": 0.8,
            "training.epochs": 200,
            "training.lr": 0.02,
            "training.recursion_lr": 0.001,
        },
    ),
)
