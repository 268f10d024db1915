"""GCNII: a GCN whose every layer also sees the first one, and stays close to the identity the deeper it is."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch_geometric.nn import GCN2Conv

from pprgnn.baselines.baseline import Task, TaskNetwork
from pprgnn.core.adjacency import Adjacency
from pprgnn.nn.features import dropout
from pprgnn.nn.through_adjacency import through_adjacency


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
        task: Task = "node",
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
        super().__init__(in_channels, num_classes, task, hidden, dropout=dropout, pooling=pooling, node_layers=1)
        self.residual = residual
        self.first = torch.nn.Linear(in_channels, hidden)
        self.convs = torch.nn.ModuleList(
            through_adjacency(GCN2Conv(hidden, alpha, theta, number, shared_weights, normalize=False))
            for number in range(1, layers + 1)
        )

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        """All layers but the last linear one."""
        first: Tensor = self.first(dropout(x, self.dropout, self.training)).relu()
        state = first
        for conv in self.convs:
            state = dropout(state, self.dropout, self.training)
            new = conv(state, first, adj)
            state = (new + state if self.residual else new).relu()
        return state

    def slow_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The weights of the convolutions."""
        return self.convs.parameters()
