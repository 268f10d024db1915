"""What the systems here share: features and edges in, messages along them, and a head for nodes or graphs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import Dropout, Identity, Linear, ReLU, Sequential

from pprgnn.core.entries import Normalization
from pprgnn.nn.network import GraphHead, Network, check_features
from pprgnn.nn.through_adjacency import as_adjacency

Task: TypeAlias = Literal["node", "graph"]


class Baseline(Network):
    """A network that passes its messages in :meth:`propagate`.

    Attributes:
        in_channels: Features per node.
        normalize: How Ã is normalised.
        self_loops: Whether Ã has self-loops.
        plain_edges: Whether it wants the ``edge_index`` as it is, and no Ã.
        sparse_input: Whether features may stay sparse, because a linear layer is the first to read them.
    """

    in_channels: int
    normalize: Normalization = "sym"
    self_loops: bool = True
    plain_edges: bool = False
    sparse_input: bool = True

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """All message passing."""
        x = check_features(x, self.in_channels, sparse=self.sparse_input)
        return self.propagate(x, self.adjacency(x, edge_index, edge_weight))

    @abstractmethod
    def propagate(self, x: Tensor, adj: Any) -> Tensor:
        """From features to states, by what :meth:`adjacency` returns."""

    def adjacency(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Any:
        """What messages are multiplied by."""
        options = self.adjacency_options
        if options is None:
            return edge_index
        return as_adjacency(edge_index, edge_weight, x.size(0), x.dtype, **options)

    @property
    def adjacency_options(self) -> dict[str, Any] | None:
        """As the class says."""
        return None if self.plain_edges else {"normalize": self.normalize, "add_self_loops": self.self_loops}


class TaskNetwork(Baseline):
    """A baseline for nodes or graphs.

    Args:
        in_channels: Features per node.
        num_classes: Number of outputs.
        task: ``"node"`` or ``"graph"``.
        channels: Width of the states; where they are the logits of nodes, of those for graphs.
        dropout: Before each layer, and in the head.
        pooling: From nodes to graphs.
        node_layers: Linear layers from states to the logits of nodes; 0: the states are the logits.
    """

    dropout: float

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Task,
        channels: int,
        *,
        dropout: float,
        pooling: str = "sum",
        node_layers: int = 0,
    ) -> None:
        super().__init__()
        if task not in ("node", "graph"):
            raise ValueError(f"task must be 'node' or 'graph', but came as {task!r}.")
        self.in_channels, self.dropout, self.for_graphs = in_channels, dropout, task == "graph"
        self.head: torch.nn.Module = Identity()
        if node_layers:  # drawn for graphs, too, so that a seed gives them the same weights as ever
            inner = [layer for _ in range(1, node_layers) for layer in (Linear(channels, channels), ReLU())]
            self.head = Sequential(*inner, Dropout(dropout), Linear(channels, num_classes))
        if self.for_graphs:
            self.head = GraphHead(channels, num_classes, pooling=pooling, dropout=dropout)

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """Logits of nodes, row by row, or of graphs."""
        logits: Tensor = self.head(state, batch, num_graphs) if self.for_graphs else self.head(state)
        return logits

    @property
    def encode_is_deterministic(self) -> bool:
        """Without dropout."""
        return self.dropout == 0
