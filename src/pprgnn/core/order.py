"""A node order that keeps neighbours close in memory.

The sparse product reads one row of the state per edge. When neighbours lie near each other those reads hit the
cache. Nodes are merged with their strongest neighbour, the merged graph again, and so on; the resulting tree is
then read from left to right, so that communities of every size become intervals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Below this many nodes a state of usual width fits the last-level cache and the order hardly matters.
LARGE_GRAPH = 50_000
COARSEST = 100


def cache_friendly_order(
    row: Tensor, col: Tensor, num_nodes: int, reorder: bool | Literal["auto"]
) -> Tensor | None:
    """Nodes in an order that keeps communities together, or ``None`` when the given order is kept."""
    if reorder == "auto":
        reorder = num_nodes >= LARGE_GRAPH and row.device.type == "cpu"
    if not reorder:
        return None
    # The only use of NumPy and SciPy in the core: once per graph, and never on a GPU unless asked for.
    import numpy as np
    from scipy.sparse import coo_array

    r, c = row.cpu().numpy().astype(np.int32), col.cpu().numpy().astype(np.int32)
    ones = np.ones(len(r), dtype=np.float32)
    pattern = coo_array((ones, (r, c)), shape=(num_nodes, num_nodes)).tocsr()
    return torch.from_numpy(_community_order((pattern + pattern.T).tocsr())).to(row.device)


def _community_order(graph: Any) -> NDArray[np.int64]:
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    rng = np.random.default_rng(0)
    size = np.ones(graph.shape[0], dtype=np.float32)
    merged_into = []
    while graph.shape[0] > COARSEST:
        row = np.repeat(np.arange(graph.shape[0], dtype=np.int32), np.diff(graph.indptr))
        group, count = _merge(graph, row, size, rng)
        if count > 0.95 * graph.shape[0]:  # what is left hardly has edges
            break
        merged_into.append(group)
        entries = (graph.data, (group[row], group[graph.indices]))
        graph = coo_array(entries, shape=(count, count)).tocsr()
        size = np.bincount(group, weights=size, minlength=count).astype(np.float32)

    position = np.empty(graph.shape[0], dtype=np.int64)
    position[reverse_cuthill_mckee(graph, symmetric_mode=True)] = np.arange(graph.shape[0])
    for group in reversed(merged_into):  # open every group in its place
        order = np.argsort(position[group], kind="stable")
        position = np.empty(len(group), dtype=np.int64)
        position[order] = np.arange(len(group))
    return np.argsort(position)


def _merge(
    graph: Any, row: NDArray[np.int32], size: NDArray[np.float32], rng: np.random.Generator
) -> tuple[NDArray[np.int32], int]:
    """A group for every node, and the number of groups: nodes join their strongest neighbour, if it stays."""
    import numpy as np

    nodes = np.arange(graph.shape[0], dtype=np.int32)
    # Weak preference for small groups keeps the tree balanced; the noise breaks ties.
    strength = graph.data * size[graph.indices] ** -0.5 * (1 + 1e-3 * rng.random(len(row), dtype=np.float32))
    strength[graph.indices == row] = 0
    occupied = np.diff(graph.indptr) > 0
    strongest = np.zeros(len(nodes), dtype=np.float32)
    strongest[occupied] = np.maximum.reduceat(strength, graph.indptr[:-1][occupied]) if len(row) else 0
    hit = np.flatnonzero((strength == strongest[row]) & (strength > 0))
    best = nodes.copy()
    best[row[hit]] = graph.indices[hit]
    mutual = best[best] == nodes
    stays = np.where(mutual, nodes <= best, rng.random(len(nodes)) < 0.5)
    group = np.where(~stays & stays[best], best, nodes)
    used = np.zeros(len(nodes), dtype=bool)
    used[group] = True
    return (np.cumsum(used, dtype=np.int32) - 1)[group], int(used.sum())
