"""Networks that look farther than a GCN does: deeper, or with the help of PageRank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pprgnn.training.option import option
from pprgnn.training.systems.system import System


@dataclass(frozen=True)
class GCNII:
    """What only GCNII has."""

    alpha: float = option(0.1, "how much of the first state is in every layer", least=0, most=1)
    theta: float = option(0.5, "how far the layers are from the identity (the paper's lambda)", least=0)
    shared_weights: bool = option(True, "one weight matrix for both terms of a layer; no: GCNII*")


@dataclass(frozen=True)
class JKNet:
    """What only JK-Net has."""

    mode: Literal["cat", "max", "lstm"] = option("cat", "how the states of all layers are brought together")


@dataclass(frozen=True)
class DropEdge:
    """What only DropEdge has."""

    drop_rate: float = option(0.5, "which part of the edges a training step leaves out", least=0, most=0.99)


@dataclass(frozen=True)
class PairNorm:
    """What only PairNorm has."""

    scale: float = option(1.0, "how far states are kept apart", above=0)
    individually: bool = option(True, "scale each node by itself (PN-SI), not all together (PN)")


@dataclass(frozen=True)
class GDC:
    """What only GDC has."""

    alpha: float = option(0.05, "how likely a walk of PageRank returns to its start", above=0, most=1)
    keep: int = option(128, "edges of the new graph per node", least=1)


@dataclass(frozen=True)
class GPRGNN:
    """What only GPR-GNN has."""

    hops: int = option(10, "how far messages go", least=0)
    alpha: float = option(0.1, "of the PageRank that the weights of the hops start from", above=0, most=1)


@dataclass(frozen=True)
class APPNP:
    """What only APPNP has."""

    hops: int = option(10, "steps of the power iteration", least=0)
    alpha: float = option(0.1, "how likely a walk of PageRank returns to its start", least=0, most=1)
    drop_entries: bool = option(False, "in training, every step drops entries of the matrix at the rate dropout")


@dataclass(frozen=True)
class PPNP:
    """What only PPNP has."""

    alpha: float = option(0.1, "how likely a walk of PageRank returns to its start", above=0, most=1)
    solve_tol: float = option(1e-6, "error allowed in a solve, relative to its right-hand side", above=0)


SYSTEMS: tuple[System, ...] = (
    System(
        name="gcnii",
        title="GCNII",
        paper="Simple and Deep Graph Convolutional Networks",
        year=2020,
        link="https://arxiv.org/abs/2007.02133",
        summary="A GCN of many layers, each of which also sees the first state and stays close to the identity.",
        build="pprgnn.baselines.deep:GCNIINet",
        reads=("hidden", "layers", "dropout", "pooling", "residual"),
        own=GCNII,
        settings={"model.layers": 64, "model.dropout": 0.6, "training.recursion_weight_decay": 0.01},
    ),
    System(
        name="jknet",
        title="JK-Net",
        paper="Representation Learning on Graphs with Jumping Knowledge Networks",
        year=2018,
        link="https://arxiv.org/abs/1806.03536",
        summary="A GCN whose head sees the states of all layers.",
        build="pprgnn.baselines.deep:JKNet",
        own=JKNet,
        settings={"model.layers": 4},
    ),
    System(
        name="dropedge",
        title="DropEdge",
        paper="DropEdge: Towards Deep Graph Convolutional Networks on Node Classification",
        year=2020,
        link="https://arxiv.org/abs/1907.10903",
        summary="A GCN that sees another part of the edges in every training step.",
        build="pprgnn.baselines.deep:DropEdgeNet",
        own=DropEdge,
        settings={"model.layers": 4, "training.recursion_weight_decay": 0.0},
    ),
    System(
        name="pairnorm",
        title="PairNorm",
        paper="PairNorm: Tackling Oversmoothing in GNNs",
        year=2020,
        link="https://arxiv.org/abs/1909.12223",
        summary="A GCN whose states are kept apart by a normalisation after each layer.",
        build="pprgnn.baselines.deep:PairNormNet",
        tasks=("node",),
        reads=("hidden", "layers", "dropout"),
        own=PairNorm,
        settings={"model.layers": 2, "model.dropout": 0.6},
    ),
    System(
        name="gdc",
        title="GDC",
        paper="Diffusion Improves Graph Learning",
        year=2019,
        link="https://arxiv.org/abs/1911.05485",
        summary="A GCN on another graph, whose edges are the largest entries of personalised PageRank.",
        build="pprgnn.baselines.deep:GDCNet",
        tasks=("node",),
        reads=("hidden", "layers", "dropout"),
        own=GDC,
        settings={"model.layers": 2, "training.recursion_weight_decay": 0.0},
    ),
    System(
        name="gpr-gnn",
        title="GPR-GNN",
        paper="Adaptive Universal Generalized PageRank Graph Neural Network",
        year=2021,
        link="https://arxiv.org/abs/2006.07988",
        summary="A perceptron, then a sum over hops with learned weights that start as personalised PageRank.",
        build="pprgnn.baselines.appnp:GPRGNNNet",
        own=GPRGNN,
        settings={"model.layers": 2, "training.recursion_weight_decay": 0.0},
    ),
    System(
        name="appnp",
        title="APPNP",
        paper="Predict then Propagate: Graph Neural Networks meet Personalized PageRank",
        year=2019,
        link="https://arxiv.org/abs/1810.05997",
        summary="A perceptron on each node, then ten steps of personalised PageRank over its predictions.",
        build="pprgnn.baselines.appnp:APPNPNet",
        own=APPNP,
        settings={"model.layers": 2, "training.weight_decay": 5e-3, "training.recursion_weight_decay": 0.0},
    ),
    System(
        name="ppnp",
        title="PPNP",
        paper="Predict then Propagate: Graph Neural Networks meet Personalized PageRank",
        year=2019,
        link="https://arxiv.org/abs/1810.05997",
        summary="A perceptron on each node, then exact personalised PageRank over its predictions.",
        build="pprgnn.baselines.appnp:PPNPNet",
        own=PPNP,
        settings={"model.layers": 2, "training.weight_decay": 5e-3, "training.recursion_weight_decay": 0.0},
    ),
)
