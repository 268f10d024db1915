"""The networks that everybody compares with."""

from __future__ import annotations

from dataclasses import dataclass

from pprgnn.training.option import option
from pprgnn.training.systems.system import System


@dataclass(frozen=True)
class GIN:
    """What only GIN has."""

    train_eps: bool = option(False, "learn how much a node counts beside its neighbours")


@dataclass(frozen=True)
class GAT:
    """What only GAT has."""

    heads: int = option(8, "heads of the hidden layers", least=1)
    output_heads: int = option(1, "heads of the last layer, which are averaged; on node tasks", least=1)
    attention_dropout: float = option(0.6, "dropout of the attention", least=0, most=0.95)
    skip: bool = option(
        False, "linear skip connections around the hidden layers but the first, as its authors have them on PPI"
    )


@dataclass(frozen=True)
class DGCNN:
    """What only DGCNN has."""

    k: int = option(0, "nodes kept of each graph, 10 or more; 0: three fifths of the graphs have as many", least=0)


@dataclass(frozen=True)
class StructureFree:
    """What only the baseline without structure has."""

    per_node: bool = option(
        True, "a layer on each node before the sum; no: sum the features first, as its authors do for molecules"
    )


SYSTEMS: tuple[System, ...] = (
    System(
        name="mlp",
        title="MLP",
        paper="Learning Representations by Back-Propagating Errors",
        year=1986,
        link="https://doi.org/10.1038/323533a0",
        summary="Linear layers on the features of each node; the edges change nothing.",
        build="pprgnn.baselines.classic:MLPNet",
        settings={"model.layers": 2},
    ),
    System(
        name="structure-free",
        title="Structure-free",
        paper="A Fair Comparison of Graph Neural Networks for Graph Classification",
        year=2020,
        link="https://arxiv.org/abs/1912.09893",
        summary="A graph as the multiset of its nodes, without edges: a layer, a sum and a perceptron.",
        build="pprgnn.baselines.classic:StructureFreeNet",
        tasks=("graph",),
        reads=("hidden", "dropout", "pooling"),
        own=StructureFree,
        settings={"model.dropout": 0.0},
        aliases=("deep-multisets",),
    ),
    System(
        name="gcn",
        title="GCN",
        paper="Semi-Supervised Classification with Graph Convolutional Networks",
        year=2017,
        link="https://arxiv.org/abs/1609.02907",
        summary="Each layer averages the neighbours' states, with a linear map and ReLU.",
        build="pprgnn.baselines.classic:GCNNet",
        reads=("hidden", "layers", "dropout", "pooling", "norm", "residual"),
        settings={"model.layers": 2, "training.recursion_weight_decay": 0.0},
    ),
    System(
        name="gat",
        title="GAT",
        paper="Graph Attention Networks",
        year=2018,
        link="https://arxiv.org/abs/1710.10903",
        summary="As GCN, but attention decides how much each neighbour counts; hidden is the width of one head.",
        build="pprgnn.baselines.classic:GATNet",
        edge_weights=False,
        reads=("hidden", "layers", "dropout", "pooling", "norm", "residual"),
        own=GAT,
        settings={"model.hidden": 8, "model.layers": 2, "model.dropout": 0.6, "training.lr": 0.005},
    ),
    System(
        name="gin",
        title="GIN",
        paper="How Powerful are Graph Neural Networks?",
        year=2019,
        link="https://arxiv.org/abs/1810.00826",
        summary="Sums over neighbours through perceptrons: as strong as the Weisfeiler-Leman test.",
        build="pprgnn.baselines.classic:GINNet",
        own=GIN,
        settings={"model.layers": 4, "training.weight_decay": 0.0},
    ),
    System(
        name="dgcnn",
        title="DGCNN",
        paper="An End-to-End Deep Learning Architecture for Graph Classification",
        year=2018,
        link="https://doi.org/10.1609/aaai.v32i1.11782",
        summary="A GCN by whose states the nodes are sorted; convolutions then read them like a sequence.",
        build="pprgnn.baselines.classic:DGCNNet",
        tasks=("graph",),
        reads=("hidden", "layers", "dropout"),
        own=DGCNN,
        settings={"model.hidden": 32, "model.layers": 4, "training.lr": 1e-4, "training.weight_decay": 0.0},
        facts=("typical_nodes",),
    ),
)
