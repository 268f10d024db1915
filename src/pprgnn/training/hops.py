"""How many hops away every node is: breadth first, along the way that messages take."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pprgnn.core.csr import sort_entries


class Readers:
    """Who reads whom, sorted once, for questions about many nodes.

    Attributes:
        crow, col: in CSR; row i has the nodes that i reads.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        from scipy.sparse import csr_array

        source, target = edge_index.cpu()
        self.crow, self.col, _ = sort_entries(target, source, num_nodes)
        ones = np.ones(len(self.col))
        self._graph = csr_array((ones, self.col.numpy(), self.crow.numpy()), shape=(num_nodes, num_nodes))

    def around(self, node: int) -> tuple[Tensor, Tensor]:
        """The length of the shortest path from every node to ``node``, -1: there is none; and its next stop."""
        from scipy.sparse.csgraph import breadth_first_order

        order, before = breadth_first_order(self._graph, node, directed=True, return_predecessors=True)
        num_nodes = len(before)
        place: NDArray[np.int64] = np.empty(num_nodes, dtype=np.int64)
        place[order] = np.arange(len(order))
        # Nodes come in the order in which they were found, so the places of those that found them never fall, and
        # each hop is one range of places.
        found_by = place[before[order[1:]]]
        distance: NDArray[np.int64] = np.full(num_nodes, -1, dtype=np.int64)
        start, end, hop = 0, 1, 0
        while start < end:
            distance[order[start:end]] = hop
            start, end, hop = end, 1 + int(np.searchsorted(found_by, end)), hop + 1
        return torch.from_numpy(distance), torch.from_numpy(before)


def hops_to(edge_index: Tensor, num_nodes: int, node: int) -> Tensor:
    """The length of the shortest path from every node to ``node``; -1 where there is none."""
    return Readers(edge_index, num_nodes).around(node)[0]
