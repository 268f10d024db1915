"""A node order that keeps neighbours close in memory.

The sparse product reads one row of the state per edge. When neighbours lie near each other those reads hit the
cache. Nodes are merged with their strongest neighbour, the merged graph again, and so on; the resulting tree is
then read from left to right, so that communities of every size become intervals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from pprgnn.core.backend.kernel import call, graph_library

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Below this many nodes a state of usual width fits the last-level cache and the order hardly matters.
LARGE_GRAPH = 50_000


def cache_friendly_order(crow: Tensor, col: Tensor, reorder: bool | Literal["auto"]) -> Tensor | None:
    """Nodes in an order that keeps communities together, or ``None`` when the given order is kept."""
    num_nodes = crow.numel() - 1
    if reorder == "auto":
        reorder = num_nodes >= LARGE_GRAPH and col.device.type == "cpu"
    if not reorder:
        return None
    library = graph_library(col, num_nodes, col.numel())
    if library is None:
        return torch.from_numpy(_community_order(crow.cpu().numpy(), col.cpu().numpy())).to(col.device)
    order = torch.empty(num_nodes, dtype=torch.int64, device="cpu")
    call(library.pprgnn_order, num_nodes, crow, col, order)
    return order


# What follows is in graph.cpp as well. Both give the same order, because there is nothing in it but whole numbers,
# single operations on float32, and ties broken by a hash. The only use of NumPy and SciPy in the core.
def _community_order(crow: NDArray[Any], col: NDArray[Any]) -> NDArray[np.int64]:
    import numpy as np
    from scipy.sparse import csr_array

    num_nodes = len(crow) - 1
    pattern = csr_array((np.ones(len(col), dtype=np.uint32), col, crow), shape=(num_nodes, num_nodes))
    graph = _contract(pattern + pattern.T, np.arange(num_nodes, dtype=col.dtype), num_nodes)
    volume = graph.sum(axis=1)
    merged_into: list[NDArray[Any]] = []
    while True:
        group, count = _merge(graph, volume, level=len(merged_into))
        if count == graph.shape[0]:
            break
        merged_into.append(group)
        graph = _contract(graph, group, count)
        volume = np.bincount(group, weights=volume)

    order = np.arange(graph.shape[0])
    for group in reversed(merged_into):  # open every group in its place
        order = np.argsort(np.argsort(order)[group], kind="stable")
    return order


def _contract(graph: Any, group: NDArray[Any], count: int) -> Any:
    """The graph of the groups: weights between two groups are added up, weights inside a group are dropped."""
    from scipy.sparse import coo_array

    entries = graph.tocoo()
    row, col = group[entries.row], group[entries.col]
    between = row != col
    return coo_array((entries.data[between], (row[between], col[between])), shape=(count, count)).tocsr()


def _merge(graph: Any, volume: NDArray[Any], level: int) -> tuple[NDArray[Any], int]:
    """A group for every node, and the number of groups."""
    import numpy as np

    nodes = np.arange(graph.shape[0], dtype=graph.indices.dtype)
    best = _strongest_neighbours(graph, volume)
    # Of two nodes that choose each other the larger one leads, and whoever else chose it joins as well. Elsewhere
    # half of the nodes stay, at random, and others may join them.
    leads = (best[best] == nodes) & ((volume > volume[best]) | ((volume == volume[best]) & (nodes <= best)))
    coin = _scramble(nodes.astype(np.uint32) + np.uint32(level * 0x9E3779B9 % 2**32)) % 2 == 1
    stays = leads | (coin & ~leads[best])
    joins = ~stays & stays[best]
    number = np.cumsum(~joins, dtype=nodes.dtype) - 1
    return np.where(joins, number[best], number), int((~joins).sum())


def _strongest_neighbours(graph: Any, volume: NDArray[Any]) -> NDArray[Any]:
    """For every node one neighbour, or itself if it has none."""
    import numpy as np

    best = np.arange(graph.shape[0], dtype=graph.indices.dtype)
    row, col = best.repeat(np.diff(graph.indptr)), graph.indices
    # A weak preference for small groups keeps the tree balanced. The hash breaks ties, the same way at both ends.
    pull = np.float32(1) / np.sqrt(np.sqrt(np.maximum(volume, 1).astype(np.float32)))
    strength = graph.data.astype(np.float32) * pull[col]
    key = strength.view(np.uint32).astype(np.uint64) << np.uint64(32) | _scramble((row ^ col).astype(np.uint32))
    connected = np.diff(graph.indptr) > 0
    if len(row):
        strongest = np.zeros(len(best), dtype=np.uint64)
        strongest[connected] = np.maximum.reduceat(key, graph.indptr[:-1][connected])
        hit = key == strongest[row]
        best[row[hit]] = col[hit]
    return best


def _scramble(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The last steps of MurmurHash3: a bijection."""
    import numpy as np

    x = (x ^ x >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    x = (x ^ x >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return x ^ x >> np.uint32(16)
