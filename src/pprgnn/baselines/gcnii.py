"""GCNII: a GCN whose every layer also sees the first one, and stays close to the identity the deeper it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.nn import GCN2Conv

from pprgnn.baselines.task_network import TaskNetwork
from pprgnn.nn.dropout import dropout
from pprgnn.nn.network import check_features
from pprgnn.nn.through_adjacency import as_adjacency, through_adjacency


class GCNIINet(TaskNetwork):
    r"""Chen et al.'s deep network, with dropout before each layer; for graphs, pooling and a head follow.

    .. math::
        \mathbf{H}^{(\ell)} = \mathrm{ReLU}\left(\left((1 - \alpha) \mathbf{\tilde{A}} \mathbf{H}^{(\ell - 1)} +
        \alpha \mathbf{H}^{(0)}\right)\left((1 - \beta_\ell) \mathbf{I} + \beta_\ell \mathbf{W}^{(\ell)}\right)
        \right), \qquad \beta_\ell = \log(\theta / \ell + 1)

    with a linear layer and ReLU for :math:`\mathbf{H}^{(0)}` and a linear layer at the end. The weight decay of
    all :math:`\mathbf{W}^{(\ell)}` is ``training.recursion_weight_decay``.

    Args:
        residual: Add :math:`\mathbf{H}^{(\ell - 1)}` to each layer before ReLU, as the authors do on PPI.
        alpha: How much of the first state is in every layer.
        theta: How far the layers are from the identity.
        shared_weights: One weight matrix for both terms; otherwise one for each, the paper's GCNII*.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["node", "graph"] = "node",
        *,
        hidden: int = 64,
        layers: int = 64,
        dropout: float = 0.6,
        pooling: str = "sum",
        residual: bool = False,
        alpha: float = 0.1,
        theta: float = 0.5,
        shared_weights: bool = True,
    ) -> None:
        node_head = torch.nn.Sequential(torch.nn.Dropout(dropout), torch.nn.Linear(hidden, num_classes))
        super().__init__(task, hidden, num_classes, pooling=pooling, dropout=dropout, node_head=node_head)
        self.in_channels, self.dropout, self.residual = in_channels, dropout, residual
        self.first = torch.nn.Linear(in_channels, hidden)
        self.convs = torch.nn.ModuleList(
            through_adjacency(GCN2Conv(hidden, alpha, theta, number, shared_weights, normalize=False))
            for number in range(1, layers + 1)
        )

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """All layers but the last linear one."""
        x = check_features(x, self.in_channels, sparse=True)
        adj = as_adjacency(edge_index, edge_weight, x.size(0), x.dtype, normalize="sym", add_self_loops=True)
        first: Tensor = self.first(dropout(x, self.dropout, self.training)).relu()
        state = first
        for conv in self.convs:
            state = dropout(state, self.dropout, self.training)
            new = conv(state, first, adj)
            state = (new + state if self.residual else new).relu()
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
        """The weights of the convolutions."""
        return self.convs.parameters()
