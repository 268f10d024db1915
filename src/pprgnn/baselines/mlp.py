"""A perceptron: what can be learned without the graph."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor
from torch_geometric.nn import MLP

from pprgnn.baselines.task_network import TaskNetwork
from pprgnn.nn.dropout import TorchDropout
from pprgnn.nn.network import check_features


class MLPNet(TaskNetwork):
    """Linear layers with ReLU, and dropout before each; for graphs, pooling and a head follow.

    No message passes, so edges and their weights change nothing; all layers belong to the head, which is given the
    labelled rows only.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["node", "graph"] = "node",
        *,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        pooling: str = "sum",
    ) -> None:
        super().__init__(task, hidden, num_classes, pooling=pooling, dropout=dropout)
        self.in_channels = in_channels
        out = hidden if self.for_graphs else num_classes
        self.input_dropout = TorchDropout(dropout)
        self.mlp = MLP(
            [in_channels, *[hidden] * (layers - 1), out],
            dropout=dropout,
            norm=None,
            plain_last=not self.for_graphs,
        )

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """The features themselves."""
        return check_features(x, self.in_channels, sparse=True)

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """All layers, row by row; then pooling and the head for graphs."""
        return super().decode(self.mlp(self.input_dropout(state)), batch, num_graphs)

    @property
    def encode_is_deterministic(self) -> bool:
        """Always: nothing happens there."""
        return True
