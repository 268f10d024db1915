"""DropEdge: a GCN that sees another part of the edges in every step."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor
from torch_geometric.utils import dropout_edge

from pprgnn.baselines.gcn import GCNNet
from pprgnn.core.adjacency import Adjacency
from pprgnn.errors import DataError


class DropEdgeNet(GCNNet):
    """A GCN that is trained on a random part of the edges, drawn and normalised anew for every pass.

    Each direction of an edge is dropped on its own, self-loops stay. Evaluation uses all edges.

    Args:
        drop_rate: The probability of an edge to be dropped.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["node", "graph"] = "node",
        *,
        hidden: int = 64,
        layers: int = 4,
        dropout: float = 0.5,
        pooling: str = "sum",
        drop_rate: float = 0.5,
    ) -> None:
        super().__init__(
            in_channels, num_classes, task, hidden=hidden, layers=layers, dropout=dropout, pooling=pooling
        )
        if not 0 <= drop_rate < 1:
            raise ValueError(f"drop_rate must be at least 0 and below 1, but came as {drop_rate}.")
        self.drop_rate = drop_rate

    def adjacency(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Adjacency:
        """Of all edges, or in training of those that are left."""
        if not self.training or self.drop_rate == 0:
            return super().adjacency(x, edge_index, edge_weight)
        if isinstance(edge_index, Adjacency):
            raise DataError("DropEdge normalises what is left: it needs a plain edge_index, but got an Adjacency.")
        edge_index, kept = dropout_edge(edge_index, self.drop_rate)
        if edge_weight is not None:
            edge_weight = edge_weight[kept]
        return Adjacency.from_edge_index(  # not reordered: that takes longer than the products of one step
            edge_index, edge_weight, x.size(0), normalize="sym", add_self_loops=True, reorder=False, dtype=x.dtype
        )

    @property
    def adjacency_options(self) -> dict[str, Any] | None:
        """``None``: it wants a plain ``edge_index``."""
        return None

    @property
    def encode_is_deterministic(self) -> bool:
        """Without dropout of any kind."""
        return self.dropout == 0 and self.drop_rate == 0
