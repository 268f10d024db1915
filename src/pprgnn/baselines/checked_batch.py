"""The graph of each node, for networks with a head of their own."""

from __future__ import annotations

from torch import Tensor

from pprgnn.data.errors import DataError


def check_batch(batch: Tensor | None, state: Tensor) -> Tensor:
    """Return ``batch`` if it has the number of a graph for each row of ``state``, or say what is wrong."""
    if batch is None:
        raise DataError(
            "A network for graphs needs batch, the number of the graph of every node; for a single graph pass "
            "torch.zeros(num_nodes, dtype=torch.long)."
        )
    if batch.shape != state.shape[:1]:
        raise DataError(
            f"batch must hold one number for each of the {state.size(0)} nodes, but has shape "
            f"{tuple(batch.shape)}."
        )
    return batch
