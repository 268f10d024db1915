"""Learned rows in the place of features, for any network that reads features."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pprgnn.nn.network import Network, check_nodes

SMALL = 1e-3  # beside the usual size of rows


def start_small(rows: Tensor) -> None:
    """Draw learned rows close to 0: until something is learned, what nodes tell their neighbours is noise."""
    bound = SMALL / math.sqrt(rows.size(1))
    torch.nn.init.uniform_(rows, -bound, bound)


class EmbeddedNet(Network):
    """A network whose features are learned: one row for each node of one graph."""

    def __init__(self, inner: Network, num_nodes: int, channels: int) -> None:
        super().__init__()
        self.inner = inner
        self.num_nodes: int = num_nodes
        self.embedding = torch.nn.Embedding(num_nodes, channels)
        self._start()

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        super().reset_parameters()
        self._start()

    def _start(self) -> None:
        start_small(self.embedding.weight)

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """The message passing of the network within, over the learned rows."""
        check_nodes(x, edge_index, self.num_nodes)
        return self.inner.encode(self.embedding.weight, edge_index, edge_weight)

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """The head of the network within."""
        return self.inner.decode(state, batch, num_graphs)

    @property
    def encode_is_deterministic(self) -> bool:
        """As the network within."""
        return self.inner.encode_is_deterministic

    @property
    def adjacency_options(self) -> dict[str, Any] | None:
        """As the network within wants it."""
        return self.inner.adjacency_options

    def slow_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Those of the network within."""
        return self.inner.slow_parameters()
