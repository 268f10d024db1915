"""A node order that keeps neighbours close in memory.

The sparse product reads one row of the state per edge. When neighbours lie near each other those reads hit the
cache: on com-DBLP at 128 channels the product takes less than half the time.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

# Below this many nodes a state of usual width fits the last-level cache and the order hardly matters.
LARGE_GRAPH = 50_000


def cache_friendly_order(
    row: Tensor, col: Tensor, num_nodes: int, reorder: bool | Literal["auto"]
) -> Tensor | None:
    """Nodes in reverse Cuthill-McKee order, or ``None`` when the given order is kept."""
    if reorder == "auto":
        reorder = num_nodes >= LARGE_GRAPH and row.device.type == "cpu"
    if not reorder:
        return None
    # The only use of SciPy in the core, once per graph and never on a GPU unless asked for.
    import numpy as np
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    r, c = row.cpu().numpy().astype(np.int32), col.cpu().numpy().astype(np.int32)
    ones = np.ones(len(r), dtype=np.int8)
    pattern = csr_array((ones, (r, c)), shape=(num_nodes, num_nodes))
    pattern = (pattern + pattern.T).tocsr()
    order = reverse_cuthill_mckee(pattern, symmetric_mode=True)
    return torch.from_numpy(order.astype(np.int64)).to(row.device)
