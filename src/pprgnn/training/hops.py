"""How many hops away every node is: breadth first, along the way that messages take."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pprgnn.core.csr import sort_entries


def hops_to(edge_index: Tensor, num_nodes: int, node: int) -> Tensor:
    """The length of the shortest path from every node to ``node``; -1 where there is none."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    source, target = edge_index.cpu()
    crow, col, _ = sort_entries(target, source, num_nodes)  # row i: the nodes that i reads
    ones = np.ones(len(col))
    graph = csr_array((ones, col.numpy(), crow.numpy()), shape=(num_nodes, num_nodes))
    order, before = breadth_first_order(graph, node, directed=True, return_predecessors=True)
    place = np.empty(num_nodes, dtype=np.int64)
    place[order] = np.arange(len(order))
    # Nodes come in the order in which they were found, so the places of those that found them never fall, and
    # each hop is one range of places.
    found_by = place[before[order[1:]]]
    distance = np.full(num_nodes, -1, dtype=np.int64)
    start, end, hop = 0, 1, 0
    while start < end:
        distance[order[start:end]] = hop
        start, end, hop = end, 1 + int(np.searchsorted(found_by, end)), hop + 1
    return torch.from_numpy(distance)
