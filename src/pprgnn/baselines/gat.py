"""GAT: neighbours count as much as attention says."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import GATConv

from pprgnn.baselines.baseline import Task, TaskNetwork
from pprgnn.core.adjacency import Adjacency
from pprgnn.errors import DataError
from pprgnn.nn.features import dropout
from pprgnn.nn.stacked import norm_layer


class GATNet(TaskNetwork):
    r"""Veličković et al.'s network, with dropout before each layer; for graphs, pooling and a head follow.

    .. math::
        \mathbf{x}^\prime_i = \mathrm{ELU}\left(\sum_{j \in \mathcal{N}(i) \cup \{i\}} \alpha_{ij} \mathbf{W}
        \mathbf{x}_j\right), \qquad \alpha_{ij} = \mathrm{softmax}_j\left(\mathrm{LeakyReLU}(\mathbf{a}^\top
        [\mathbf{W} \mathbf{x}_i \,\Vert\, \mathbf{W} \mathbf{x}_j])\right)

    for each head; heads are put side by side. The last layer of a node task averages them instead, without ELU: it
    gives the logits. Note that ``hidden`` is the width of one head.

    With ``skip``, as the authors have it on PPI, a linear map of the input of each hidden layer but the first is
    added to its output, before ELU. ``residual`` does so around every layer, and ``norm`` (``"batch"``,
    ``"layer"``) comes before each ELU; the authors have neither.

    Args:
        heads: Heads of the hidden layers.
        output_heads: Heads of the last layer of a node task.
        attention_dropout: Dropout of the attention.
        skip: Skip connections around the hidden layers that lie between others.
    """

    plain_edges = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Task = "node",
        *,
        hidden: int = 8,
        layers: int = 2,
        dropout: float = 0.6,
        pooling: str = "sum",
        heads: int = 8,
        output_heads: int = 1,
        attention_dropout: float = 0.6,
        skip: bool = False,
        norm: str = "none",
        residual: bool = False,
    ) -> None:
        width = heads * hidden
        super().__init__(in_channels, num_classes, task, width, dropout=dropout, pooling=pooling)
        self.attention_dropout = attention_dropout
        inner = layers if self.for_graphs else layers - 1
        sizes = [in_channels, *[width] * inner]
        self.convs = torch.nn.ModuleList(
            GATConv(size, hidden, heads, dropout=attention_dropout, residual=residual or (skip and number > 0))
            for number, size in enumerate(sizes[:inner])
        )
        if not self.for_graphs:
            options = {"concat": False, "dropout": attention_dropout, "residual": residual}
            self.convs.append(GATConv(sizes[-1], num_classes, output_heads, **options))
        self.normalizes = norm != "none"
        self.norms = torch.nn.ModuleList(
            norm_layer(norm if self.normalizes else None, width) for _ in range(inner)
        )

    def adjacency(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Any:
        """The edges themselves."""
        if isinstance(edge_index, Adjacency):
            raise DataError("GAT weighs edges itself: it needs a plain edge_index, but got a pprgnn.Adjacency.")
        if edge_weight is not None:
            raise DataError(
                "GAT cannot use edge weights, but the graph has some; leave them out or choose a system that can, "
                "such as GCN."
            )
        return edge_index

    def propagate(self, x: Tensor, adj: Any) -> Tensor:
        """All layers."""
        for number, conv in enumerate(self.convs, 1):
            x = conv(dropout(x, self.dropout, self.training), adj)
            if number < len(self.convs) or self.for_graphs:
                x = F.elu(self.norms[number - 1](x))
        return x

    @property
    def encode_is_deterministic(self) -> bool:
        """Without dropout and a normalisation that behaves differently in training."""
        return self.dropout == 0 and self.attention_dropout == 0 and not self.normalizes
