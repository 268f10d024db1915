"""What can be learned without the edges: from each node by itself, or from the nodes of a graph together."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.nn import MLP
from torch_geometric.nn.resolver import aggregation_resolver

from pprgnn.baselines.baseline import Baseline, Task, TaskNetwork
from pprgnn.nn.features import TorchDropout
from pprgnn.nn.network import check_batch


class MLPNet(TaskNetwork):
    """Linear layers with ReLU, and dropout before each; for graphs, pooling and a head follow.

    No message passes, so edges and their weights change nothing; all layers belong to the head, which is given the
    labelled rows only.
    """

    plain_edges = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Task = "node",
        *,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        pooling: str = "sum",
    ) -> None:
        super().__init__(in_channels, num_classes, task, hidden, dropout=dropout, pooling=pooling)
        out = hidden if self.for_graphs else num_classes
        self.input_dropout = TorchDropout(dropout)
        self.mlp = MLP(
            [in_channels, *[hidden] * (layers - 1), out],
            dropout=dropout,
            norm=None,
            plain_last=not self.for_graphs,
        )

    def propagate(self, x: Tensor, adj: Any) -> Tensor:
        """The features themselves."""
        return x

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """All layers, row by row; then pooling and the head for graphs."""
        return super().decode(self.mlp(self.input_dropout(state)), batch, num_graphs)

    @property
    def encode_is_deterministic(self) -> bool:
        """Always: nothing happens there."""
        return True


class StructureFreeNet(Baseline):
    """A graph as the multiset of its nodes.

    From `"A Fair Comparison of Graph Neural Networks for Graph Classification"
    <https://arxiv.org/abs/1912.09893>`_, whose baselines these are.

    With ``per_node``, a layer with ReLU on each node, the sum over the nodes, a layer with ReLU and a linear one:
    what they use on social networks and ENZYMES. Without, the sum of the features comes first, a histogram of the
    kinds of atoms where these are one-hot, and a layer with ReLU and a linear one follow: what they use on
    molecules. Edges and their weights change nothing.

    Args:
        in_channels: Features per node.
        num_classes: Number of outputs.
        task: ``"graph"``; for nodes, that is :class:`MLPNet`.
        hidden: Width of the layers.
        dropout: Before the last layer; the authors have none.
        pooling: Nodes to graph.
        per_node: Whether a layer comes before the sum.
    """

    plain_edges = True
    sparse_input = False

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["graph"] = "graph",
        *,
        hidden: int = 64,
        dropout: float = 0.0,
        pooling: str = "sum",
        per_node: bool = True,
    ) -> None:
        super().__init__()
        if task != "graph":
            raise ValueError(f"It labels graphs, so task must be 'graph', but is {task!r}; for nodes use MLP.")
        self.in_channels = in_channels
        self.node_layer: torch.nn.Module = torch.nn.Identity()
        if per_node:
            self.node_layer = torch.nn.Sequential(torch.nn.Linear(in_channels, hidden), torch.nn.ReLU())
        self.pooling = aggregation_resolver(pooling)
        self.head = torch.nn.Sequential(
            torch.nn.Linear(hidden if per_node else in_channels, hidden),
            torch.nn.ReLU(),
            torch.nn.Dropout(dropout),
            torch.nn.Linear(hidden, num_classes),
        )

    def propagate(self, x: Tensor, adj: Any) -> Tensor:
        """The features themselves."""
        return x

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """Everything else."""
        pooled = self.pooling(self.node_layer(state), check_batch(batch, state), dim_size=num_graphs)
        logits: Tensor = self.head(pooled)
        return logits

    @property
    def encode_is_deterministic(self) -> bool:
        """Always: nothing happens there."""
        return True
