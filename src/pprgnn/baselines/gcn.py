"""GCN, as its paper builds it."""

from __future__ import annotations

from typing import Literal

from torch_geometric.nn import GCN

from pprgnn.nn.pyg_net import PyGNet


class GCNNet(PyGNet):
    """PyG's ``GCN``; for graphs, pooling and a head follow."""

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["node", "graph"] = "node",
        *,
        hidden: int = 16,
        layers: int = 2,
        dropout: float = 0.5,
        pooling: str = "sum",
    ) -> None:
        out = num_classes if task == "node" else hidden
        model = GCN(in_channels, hidden, layers, out, dropout=dropout)
        super().__init__(model, task, num_classes, pooling=pooling, dropout=dropout)
