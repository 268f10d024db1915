"""GDC: a GCN on another graph, whose edges lead to the nodes that diffusion reaches best."""

from __future__ import annotations

from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import GDC

from pprgnn.baselines.gcn import GCNNet
from pprgnn.core.adjacency import Adjacency
from pprgnn.errors import DataError

MOST_NODES = 20_000  # the dense matrices then take 8 GB, and the inverse some minutes

# What has become of the graphs in use, by the options; an entry disappears together with its graph.
_rewired: WeakKeyDictionary[Adjacency, dict[tuple[float, int], Adjacency]] = WeakKeyDictionary()


class GDCNet(GCNNet):
    r"""A GCN on the graph of personalised PageRank: its largest entries per node, with weights that sum to 1.

    .. math::
        \mathbf{S} = \alpha \left(\mathbf{I} - (1 - \alpha) \mathbf{\tilde{A}}\right)^{-1}

    :math:`\mathbf{S}` is computed once per graph, and dense while it is computed: not for large graphs.

    Args:
        alpha: How likely a walk of PageRank returns to its start.
        keep: How many entries are kept per node.
    """

    normalize, self_loops = None, False  # diffusion does both

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["node"] = "node",
        *,
        hidden: int = 16,
        layers: int = 2,
        dropout: float = 0.5,
        alpha: float = 0.05,
        keep: int = 128,
    ) -> None:
        if task != "node":
            raise ValueError(
                f"GDC is for node tasks, because it takes long for every new graph; task is {task!r}."
            )
        super().__init__(in_channels, num_classes, hidden=hidden, layers=layers, dropout=dropout)
        self.options = (alpha, keep)

    def adjacency(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Adjacency:
        """Of the new graph."""
        adj = super().adjacency(x, edge_index, edge_weight)
        kept = _rewired.setdefault(adj, {})
        if self.options not in kept:
            kept[self.options] = self._rewire(adj)
        return kept[self.options]

    @torch.no_grad()
    def _rewire(self, adj: Adjacency) -> Adjacency:
        n = adj.num_nodes
        if n > MOST_NODES:
            raise DataError(
                f"GDC needs a dense matrix of all pairs of nodes for a while, which is too much for {n} nodes (at "
                f"most {MOST_NODES}); choose a system that diffuses as it goes, such as APPNP or GPR-GNN."
            )
        if n == 1:  # PyG takes its matrix for a number
            return Adjacency.from_edge_index(
                torch.zeros(2, 1).to(adj.col), None, 1, normalize=None, dtype=adj.dtype
            )
        row, col = (index if adj.order is None else adj.order[index] for index in (adj.row, adj.col))
        alpha, keep = self.options
        diffusion = GDC(
            diffusion_kwargs={"method": "ppr", "alpha": alpha},
            sparsification_kwargs={"method": "topk", "k": keep, "dim": 0},
        )
        new = diffusion(Data(edge_index=torch.stack([col, row]), edge_attr=adj.value, num_nodes=n))
        return Adjacency.from_edge_index(new.edge_index, new.edge_attr, n, normalize=None, dtype=adj.dtype)
