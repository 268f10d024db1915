"""DGCNN, as its paper builds it."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor
from torch.nn import Conv1d, Dropout, Flatten, Linear, MaxPool1d, ReLU
from torch_geometric.nn import GCNConv, SortAggregation

from pprgnn.baselines.baseline import Baseline
from pprgnn.core.adjacency import Adjacency
from pprgnn.nn.network import check_batch
from pprgnn.nn.through_adjacency import through_adjacency

LEAST_NODES = 10  # with fewer, nothing is left for the second convolution
ROUNDING = 1e-4


class DGCNNet(Baseline):
    r"""Sorts the nodes of a graph by their states and reads the first ``k`` of them like a sequence.

    .. math:: H_{l+1} = \tanh(D^{-1}(A + I) H_l W_l)

    All :math:`H_l` side by side are a node's row; the last layer has one channel, by which nodes are sorted in
    descending order, and the channels before it break ties. Two convolutions along the nodes and a dense layer
    follow. Graphs with fewer than ``k`` nodes are filled up with rows of zeros.

    Args:
        typical_nodes: How many nodes three fifths of the graphs have at least; 30 if not known.
        k: How many nodes are kept; 0: ``typical_nodes``, but not fewer than 10.
    """

    normalize = "row"  # averages over the neighbours and the node itself
    sparse_input = False

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["graph"] = "graph",
        *,
        hidden: int = 32,
        layers: int = 4,
        dropout: float = 0.5,
        typical_nodes: int | None = None,
        k: int = 0,
    ) -> None:
        super().__init__()
        if task != "graph":
            raise ValueError(f"DGCNN labels graphs, so task must be 'graph', but came as {task!r}.")
        k = k or max(LEAST_NODES, typical_nodes or 30)
        if k < LEAST_NODES:
            raise ValueError(f"DGCNN must keep k >= {LEAST_NODES} nodes of a graph, but k came as {k}.")
        self.in_channels = in_channels
        widths = [in_channels, *[hidden] * (layers - 1), 1]
        self.convs = torch.nn.ModuleList(
            through_adjacency(GCNConv(*ends, normalize=False, add_self_loops=False)) for ends in pairwise(widths)
        )
        self.row = sum(widths[1:])
        self.sort = SortAggregation(k)
        self.head = torch.nn.Sequential(
            Conv1d(1, 16, self.row, self.row),  # a linear map of each node
            ReLU(),
            MaxPool1d(2),
            Conv1d(16, 32, 5),
            ReLU(),
            Flatten(),
            Linear(32 * (k // 2 - 4), 128),
            ReLU(),
            Dropout(dropout),
            Linear(128, num_classes),
        )

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        """The states of all layers, side by side."""
        states = [x]
        for conv in self.convs:
            states.append(conv(states[-1], adj).tanh_())
        return torch.cat(states[1:], dim=1)

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """The sorted nodes of each graph through the convolutions."""
        batch = check_batch(batch, state)
        kept = self.sort(self._ranked(state), batch, dim_size=num_graphs)
        logits: Tensor = self.head(kept.view(-1, 1, self.sort.k, self.row + 1)[..., :-1].flatten(2))
        return logits

    def _ranked(self, state: Tensor) -> Tensor:
        """With a last column for PyG, which sorts by that alone and would leave ties as nodes are numbered.

        States that are equal but for rounding count as ties, so that the order of a sum does not decide.
        """
        state_or_tie = torch.cat([state, (state / ROUNDING).round()], dim=1).detach()
        rank = torch.unique(state_or_tie.flip(1), dim=0, return_inverse=True)[1]
        return torch.cat([state, rank.unsqueeze(1).to(state.dtype)], dim=1)

    @property
    def encode_is_deterministic(self) -> bool:
        """``True``: only the head has dropout."""
        return True
