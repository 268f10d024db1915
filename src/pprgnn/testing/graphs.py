"""The small random graphs that convolutions are checked on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor


@dataclass(frozen=True)
class Graph:
    """Node features, edges without duplicates, and a positive weight for each edge."""

    x: Tensor
    edge_index: Tensor
    edge_weight: Tensor

    @property
    def num_nodes(self) -> int:
        """How many nodes there are, with or without edges."""
        return self.x.size(-2)

    def reversed(self) -> Graph:
        """Every edge the other way round."""
        return replace(self, edge_index=self.edge_index.flip(0))

    def permuted(self, order: Tensor) -> Graph:
        """The same graph with node ``order[i]`` at place i, and its edges in another order, too."""
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel())
        edges = torch.randperm(self.edge_index.size(1))
        return Graph(self.x[order], place[self.edge_index][:, edges], self.edge_weight[edges])

    def to(self, target: torch.dtype | torch.device) -> Graph:
        """In another precision or on another device; ids stay integers."""
        edge_index = self.edge_index.to(target) if isinstance(target, torch.device) else self.edge_index
        return Graph(self.x.to(target), edge_index, self.edge_weight.to(target))

    def clone(self) -> Graph:
        """Equal tensors that share nothing."""
        return Graph(self.x.clone(), self.edge_index.clone(), self.edge_weight.clone())

    def sparse(self, weighted: bool) -> dict[str, Tensor]:
        """The edges as sparse matrices by layout: transposed, as in PyG, and with values 1 unless weighted."""
        weight = self.edge_weight if weighted else torch.ones_like(self.edge_weight)
        makers = {"COO": to_torch_coo_tensor, "CSR": to_torch_csr_tensor, "CSC": to_torch_csc_tensor}
        size = (self.num_nodes, self.num_nodes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch calls two of the layouts beta
            return {name: make(self.edge_index.flip(0), weight, size=size) for name, make in makers.items()}


def draw_graph(channels: int, num_nodes: int = 7, *, symmetric: bool = False, self_loop: bool = False) -> Graph:
    """Draw a strongly connected weighted graph in double precision; ``self_loop`` gives one to node 0."""
    matrix = (torch.rand(num_nodes, num_nodes) < 0.25).double()
    ring = torch.arange(num_nodes)
    matrix[ring, ring.roll(1)] = 1
    matrix *= 0.5 + torch.rand_like(matrix)
    if symmetric:
        matrix = matrix + matrix.t()
    matrix.fill_diagonal_(0)
    if self_loop:
        matrix[0, 0] = 2.5
    edge_index = matrix.nonzero().t().contiguous()
    x = torch.randn(num_nodes, channels, dtype=torch.float64)
    return Graph(x, edge_index, matrix[edge_index[0], edge_index[1]])


def draw_pair(channels: int) -> tuple[Graph, Graph]:
    """One directed graph and one symmetric graph."""
    return draw_graph(channels), draw_graph(channels, symmetric=True)


def side_by_side(*graphs: Graph) -> Graph:
    """Join graphs to one without edges between them, as PyG's loaders do."""
    batch = Batch.from_data_list([Data(g.x, g.edge_index, edge_weight=g.edge_weight) for g in graphs])
    return Graph(batch.x, batch.edge_index, batch.edge_weight)


def without_edges(graph: Graph) -> Graph:
    """Keep the nodes alone."""
    return replace(graph, edge_index=graph.edge_index[:, :0], edge_weight=graph.edge_weight[:0])
