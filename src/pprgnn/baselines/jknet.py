"""JK-Net: a GCN whose head sees the states of all layers."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv, JumpingKnowledge

from pprgnn.baselines.task_network import TaskNetwork
from pprgnn.nn.dropout import dropout
from pprgnn.nn.network import check_features
from pprgnn.nn.through_adjacency import as_adjacency, through_adjacency


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
        task: Literal["node", "graph"] = "node",
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
        node_head = torch.nn.Sequential(torch.nn.Dropout(dropout), torch.nn.Linear(width, num_classes))
        super().__init__(task, width, num_classes, pooling=pooling, dropout=dropout, node_head=node_head)
        self.in_channels, self.dropout = in_channels, dropout
        self.convs = torch.nn.ModuleList(
            through_adjacency(GCNConv(size, hidden, normalize=False))
            for size in (in_channels, *[hidden] * (layers - 1))
        )
        self.jump = JumpingKnowledge(mode, hidden, layers)

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """All layers of GCN, and what jumps out of them."""
        x = check_features(x, self.in_channels, sparse=True)
        adj = as_adjacency(edge_index, edge_weight, x.size(0), x.dtype, normalize="sym", add_self_loops=True)
        states: list[Tensor] = []
        for conv in self.convs:
            x = conv(dropout(x, self.dropout, self.training), adj).relu()
            states.append(x)
        jumped: Tensor = self.jump(states)
        return jumped

    @property
    def adjacency_options(self) -> dict[str, Any] | None:
        """With self-loops, symmetrically normalised."""
        return {"normalize": "sym", "add_self_loops": True}

    @property
    def encode_is_deterministic(self) -> bool:
        """Without dropout."""
        return self.dropout == 0
