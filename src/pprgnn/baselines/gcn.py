"""GCN: the average of the neighbours, a linear map and ReLU, a few times; DropEdge and PairNorm on top of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv, PairNorm
from torch_geometric.utils import dropout_edge

from pprgnn.baselines.baseline import Task, TaskNetwork
from pprgnn.core.adjacency import Adjacency
from pprgnn.errors import DataError
from pprgnn.nn.features import dropout
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
        task: Task = "node",
        *,
        hidden: int = 16,
        layers: int = 2,
        dropout: float = 0.5,
        pooling: str = "sum",
        norm: str = "none",
        residual: bool = False,
    ) -> None:
        super().__init__(in_channels, num_classes, task, hidden, dropout=dropout, pooling=pooling)
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

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        """All layers."""
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

    @property
    def encode_is_deterministic(self) -> bool:
        """Without dropout and a normalisation that behaves differently in training."""
        return self.dropout == 0 and not self.normalizes

    def slow_parameters(self) -> Iterator[torch.nn.Parameter]:
        """All but those of the first layer."""
        yield from self.convs[1:].parameters()
        yield from self.skips[1:].parameters()
        yield from self.head.parameters()


class DropEdgeNet(GCNNet):
    """A GCN that is trained on a random part of the edges, drawn and normalised anew for every pass.

    Each direction of an edge is dropped on its own, self-loops stay. Evaluation uses all edges.

    Args:
        drop_rate: The probability of an edge to be dropped.
    """

    plain_edges = True

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
        drop_rate: float = 0.5,
    ) -> None:
        super().__init__(
            in_channels, num_classes, task, hidden=hidden, layers=layers, dropout=dropout, pooling=pooling
        )
        if not 0 <= drop_rate < 1:
            raise ValueError(f"drop_rate must be at least 0 and below 1, but came as {drop_rate}.")
        self.drop_rate = drop_rate

    def adjacency(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Adjacency:
        """Of all edges, or in training of those that are left."""
        if not self.training or self.drop_rate == 0:
            return as_adjacency(edge_index, edge_weight, x.size(0), x.dtype, normalize="sym", add_self_loops=True)
        if isinstance(edge_index, Adjacency):
            raise DataError("DropEdge normalises what is left: it needs a plain edge_index, but got an Adjacency.")
        edge_index, kept = dropout_edge(edge_index, self.drop_rate)
        if edge_weight is not None:
            edge_weight = edge_weight[kept]
        return Adjacency.from_edge_index(  # not reordered: that takes longer than the products of one step
            edge_index, edge_weight, x.size(0), normalize="sym", add_self_loops=True, reorder=False, dtype=x.dtype
        )

    @property
    def encode_is_deterministic(self) -> bool:
        """Without dropout of any kind."""
        return self.dropout == 0 and self.drop_rate == 0


class PairNormNet(GCNNet):
    r"""A GCN with PairNorm between each layer and its ReLU, so that states cannot become alike.

    .. math::
        \mathbf{x}^\prime_i = s \frac{\mathbf{x}_i - \bar{\mathbf{x}}}{\sqrt{\frac{1}{n} \sum_j \Vert \mathbf{x}_j
        - \bar{\mathbf{x}} \Vert^2}}

    The mean is that of all nodes of a pass, so graphs that share a pass would change each other: it is for nodes.

    Args:
        scale: :math:`s`; the sum of the squared distances of all pairs is :math:`2 n^2 s^2`.
        individually: Scale each row to the length :math:`s` instead: PN-SI, which the paper uses with GCN.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["node"] = "node",
        *,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.6,
        scale: float = 1.0,
        individually: bool = True,
    ) -> None:
        if task != "node":
            raise ValueError(
                f"PairNorm is for node tasks, because it mixes the graphs of a pass; task is {task!r}."
            )
        super().__init__(in_channels, num_classes, hidden=hidden, layers=layers, dropout=dropout)
        self.norms = torch.nn.ModuleList(PairNorm(scale, individually) for _ in range(self.hidden_layers))
