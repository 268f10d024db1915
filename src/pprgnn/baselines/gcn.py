"""GCN: the average of the neighbours, a linear map and ReLU, a few times."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from pprgnn.baselines.task_network import TaskNetwork
from pprgnn.core.adjacency import Adjacency
from pprgnn.nn.dropout import dropout
from pprgnn.nn.network import check_features
from pprgnn.nn.stacked import norm_layer
from pprgnn.nn.through_adjacency import as_adjacency, through_adjacency


class GCNNet(TaskNetwork):
    r"""Kipf and Welling's network, with dropout before each layer; for graphs, pooling and a head follow.

    .. math::
        \mathbf{X}^{(\ell + 1)} = \mathrm{ReLU}(\mathbf{\tilde{A}} \mathbf{X}^{(\ell)} \mathbf{W}^{(\ell)} +
        \mathbf{b}^{(\ell)})

    The last layer of a node task has no ReLU: it gives the logits. ``norm`` (``"batch"``, ``"layer"``) comes
    before each ReLU, and with ``residual`` a linear map of a layer's input is added to its output; Kipf and
    Welling have neither. Weight decay is for the first layer; that of all others is
    ``training.recursion_weight_decay``, 0 in the paper.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["node", "graph"] = "node",
        *,
        hidden: int = 16,
        layers: int = 2,
        dropout: float = 0.5,
        pooling: str = "sum",
        norm: str = "none",
        residual: bool = False,
    ) -> None:
        super().__init__(task, hidden, num_classes, pooling=pooling, dropout=dropout)
        self.in_channels, self.dropout = in_channels, dropout
        sizes = [in_channels, *[hidden] * (layers - 1), hidden if self.for_graphs else num_classes]
        self.convs = torch.nn.ModuleList(
            through_adjacency(GCNConv(size, following, normalize=False)) for size, following in pairwise(sizes)
        )
        self.skips = torch.nn.ModuleList(
            torch.nn.Linear(size, following, bias=False)
            for size, following in (pairwise(sizes) if residual else ())
        )
        self.normalizes = norm != "none"
        self.norms = torch.nn.ModuleList(
            norm_layer(norm if self.normalizes else None, size) for size in sizes[1 : 1 + self.hidden_layers]
        )

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """All layers."""
        x = check_features(x, self.in_channels, sparse=True)
        adj = self.adjacency(x, edge_index, edge_weight)
        for number, conv in enumerate(self.convs, 1):
            x = dropout(x, self.dropout, self.training)
            x = conv(x, adj) + self.skips[number - 1](x) if self.skips else conv(x, adj)
            if number <= self.hidden_layers:
                x = self.norms[number - 1](x).relu()
        return x

    @property
    def hidden_layers(self) -> int:
        """All, or of a node task all but the last one, which gives the logits."""
        return len(self.convs) - (not self.for_graphs)

    def adjacency(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Adjacency:
        """What the layers multiply by."""
        return as_adjacency(edge_index, edge_weight, x.size(0), x.dtype, normalize="sym", add_self_loops=True)

    @property
    def adjacency_options(self) -> dict[str, Any] | None:
        """With self-loops, symmetrically normalised."""
        return {"normalize": "sym", "add_self_loops": True}

    @property
    def encode_is_deterministic(self) -> bool:
        """Without dropout and a normalisation that behaves differently in training."""
        return self.dropout == 0 and not self.normalizes

    def slow_parameters(self) -> Iterator[torch.nn.Parameter]:
        """All but those of the first layer."""
        yield from self.convs[1:].parameters()
        yield from self.skips[1:].parameters()
        yield from self.head.parameters()
