"""JK-Net: a GCN whose head sees the states of all layers."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv, JumpingKnowledge

from pprgnn.baselines.baseline import Task, TaskNetwork
from pprgnn.core.adjacency import Adjacency
from pprgnn.nn.features import dropout
from pprgnn.nn.through_adjacency import through_adjacency


class JKNet(TaskNetwork):
    r"""Xu et al.'s jumping knowledge over layers of GCN, with dropout before each of them.

    .. math::
        \mathbf{H}^{(\ell)} = \mathrm{ReLU}(\mathbf{\tilde{A}} \mathbf{H}^{(\ell - 1)} \mathbf{W}^{(\ell)} +
        \mathbf{b}^{(\ell)}), \qquad \mathbf{H} = \mathrm{JK}(\mathbf{H}^{(1)}, \ldots, \mathbf{H}^{(L)})

    A linear layer gives the logits of nodes; for graphs, pooling and a head follow.

    Args:
        mode: ``"cat"``: the states of all layers side by side; ``"max"``: the largest of each channel; ``"lstm"``:
            a weighted sum, with attention from an LSTM over the layers.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Task = "node",
        *,
        hidden: int = 64,
        layers: int = 4,
        dropout: float = 0.5,
        pooling: str = "sum",
        mode: Literal["cat", "max", "lstm"] = "cat",
    ) -> None:
        if mode not in ("cat", "max", "lstm"):
            raise ValueError(f"mode must be 'cat', 'max' or 'lstm', but came as {mode!r}.")
        width = layers * hidden if mode == "cat" else hidden
        super().__init__(in_channels, num_classes, task, width, dropout=dropout, pooling=pooling, node_layers=1)
        self.convs = torch.nn.ModuleList(
            through_adjacency(GCNConv(size, hidden, normalize=False))
            for size in (in_channels, *[hidden] * (layers - 1))
        )
        self.jump = JumpingKnowledge(mode, hidden, layers)

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        """All layers of GCN, and what jumps out of them."""
        states: list[Tensor] = []
        for conv in self.convs:
            x = conv(dropout(x, self.dropout, self.training), adj).relu()
            states.append(x)
        jumped: Tensor = self.jump(states)
        return jumped
