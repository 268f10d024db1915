"""What the systems here have in common at their end: logits of nodes, or pooling and a head for graphs."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from pprgnn.nn.network import GraphHead, Network


class TaskNetwork(Network):
    """A network for nodes or graphs.

    Args:
        task: ``"node"`` or ``"graph"``.
        channels: Width of the states, for graphs.
        num_classes: Number of outputs.
        pooling: From nodes to graphs.
        dropout: Of the head for graphs.
        node_head: From states to logits of nodes; ``None``: they are the logits.
    """

    def __init__(
        self,
        task: Literal["node", "graph"],
        channels: int,
        num_classes: int,
        *,
        pooling: str,
        dropout: float,
        node_head: torch.nn.Module | None = None,
    ) -> None:
        super().__init__()
        if task not in ("node", "graph"):
            raise ValueError(f"task must be 'node' or 'graph', but came as {task!r}.")
        self.for_graphs = task == "graph"
        self.head: torch.nn.Module
        if self.for_graphs:
            self.head = GraphHead(channels, num_classes, pooling=pooling, dropout=dropout)
        else:
            self.head = torch.nn.Identity() if node_head is None else node_head

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """Logits of nodes, row by row, or of graphs."""
        logits: Tensor = self.head(state, batch, num_graphs) if self.for_graphs else self.head(state)
        return logits
