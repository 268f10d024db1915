"""The way back through the whole graph: one forward pass is kept, and every question goes back through it."""

from __future__ import annotations

import torch
from torch import Tensor

from pprgnn.explore.traced import Traced, trace
from pprgnn.training.attribution import inputs_of
from pprgnn.training.batches import Batch
from pprgnn.training.model import Model


class WholeGraph:
    """Exact, for every network with a gradient; the first question makes the pass.

    Args:
        model: At its final depths.
        batch: The graph.
        left_out: What the gradients of its layers leave out, as a sentence.
    """

    def __init__(self, model: Model, batch: Batch, left_out: str = "") -> None:
        self.model, self.batch, self.left_out = model, batch, left_out
        self._kept: tuple[Tensor, Tensor] | None = None

    def trace(self, row: int, target: int, all_nodes: bool) -> Traced:
        """Where the score of a class comes from; always from all nodes."""
        network, batch = self.model.network, self.batch
        with torch.enable_grad():
            if self._kept is None:
                x = inputs_of(network, batch).requires_grad_(True)
                given = None if batch.x is None else x
                self._kept = x, network.encode(given, batch.edges, batch.edge_weight)
            x, state = self._kept
            if batch.graph is None:
                logits = network.decode(state[row : row + 1])[0]
            else:
                logits = network.decode(state, batch.graph, batch.num_graphs)[row]
            return Traced(*trace(self.model, logits, target, x), self.left_out)
