"""GPR-GNN: personalised PageRank of a perceptron's outputs, with learned weights of the hops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.nn import MLP

from pprgnn.baselines.task_network import TaskNetwork
from pprgnn.nn.dropout import dropout
from pprgnn.nn.network import check_features
from pprgnn.nn.through_adjacency import as_adjacency


class GPRGNNNet(TaskNetwork):
    r"""Chien et al.'s network, with dropout before each layer and before the hops.

    .. math::
        \mathbf{Z} = \sum_{k=0}^{K} \gamma_k \mathbf{\tilde{A}}^k \mathrm{MLP}(\mathbf{X})

    The :math:`\gamma_k` are learned, from those of personalised PageRank on: :math:`\alpha (1 - \alpha)^k`, and
    :math:`(1 - \alpha)^K` for the last. Their weight decay is ``training.recursion_weight_decay``, 0 in the paper.
    :math:`\mathbf{Z}` holds the logits of nodes; for graphs, pooling and a head follow.

    Args:
        hops: :math:`K`.
        alpha: Of the PageRank that the weights start from.
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
        hops: int = 10,
        alpha: float = 0.1,
    ) -> None:
        super().__init__(task, hidden, num_classes, pooling=pooling, dropout=dropout)
        self.in_channels, self.dropout = in_channels, dropout
        self.hops, self.alpha = hops, alpha
        out = hidden if self.for_graphs else num_classes
        self.mlp = MLP([in_channels, *[hidden] * (layers - 1), out], dropout=dropout, norm=None)
        self.gamma = torch.nn.Parameter(torch.empty(hops + 1))
        self._start()

    def reset_parameters(self) -> None:
        """Draw all parameters anew; the weights of the hops are PageRank's again."""
        super().reset_parameters()
        self._start()

    def _start(self) -> None:
        powers = (1 - self.alpha) ** torch.arange(self.hops + 1, dtype=torch.float64)
        powers[:-1] *= self.alpha
        with torch.no_grad():
            self.gamma.copy_(powers)

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """The perceptron and all hops."""
        x = check_features(x, self.in_channels, sparse=True)
        adj = as_adjacency(edge_index, edge_weight, x.size(0), x.dtype, normalize="sym", add_self_loops=True)
        start = dropout(self.mlp(dropout(x, self.dropout, self.training)), self.dropout, self.training)
        state: Tensor = self.gamma[-1] * start
        for weight in self.gamma[:-1].flip(0):  # Horner's rule: one product per hop, and no powers to keep
            state = adj @ state + weight * start
        return state

    @property
    def adjacency_options(self) -> dict[str, Any] | None:
        """With self-loops, symmetrically normalised."""
        return {"normalize": "sym", "add_self_loops": True}

    @property
    def encode_is_deterministic(self) -> bool:
        """Without dropout."""
        return self.dropout == 0

    def slow_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The weights of the hops."""
        yield self.gamma
