"""One graph under one model: its logits at every depth, and which inputs they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.buffers import release_buffers
from pprgnn.explore.linear import LinearGraph, is_linear
from pprgnn.explore.local import LocalGraph
from pprgnn.explore.traced import Traced, WholeGraph
from pprgnn.local.neighbourhood import NotWorthwhile
from pprgnn.nn.ppr_conv import PPRConv
from pprgnn.training.listener import Announce
from pprgnn.training.model import at_depths, head
from pprgnn.training.reach import stages

if TYPE_CHECKING:
    from pprgnn.explore.run_view import RunView

AT_ONCE = 3e7  # numbers that a way back may compute: a quarter of a second, about
MOST_LEVELS = 1 << 30  # bytes


class GraphView:
    """Answers for the rows of one graph.

    Args:
        view: The run; its model is at its final depths, with gradients for biases alone.
        graph: Which graph.
        say: Is told what is being prepared.
    """

    def __init__(self, view: RunView, graph: int, say: Announce) -> None:
        self.model, self.layers, self.terms, self.depths = view.model, view.settled, view.terms, view.depths
        self.batch = view.batches.batch(torch.tensor([graph], device=view.model.device))
        self.logits = view.logits[view.known.rows(graph)]
        self._way = self._way_back(say)
        before = () if isinstance(self._way, LinearGraph) else self.depths[:-1]
        self._formed = [self._at(depth, say) for depth in before]
        release_buffers()

    # ----------------------------------------------------------------------------------------------------- depths
    def _at(self, depth: int, say: Announce) -> Tensor:
        """Logits of all rows at a depth, or the states they are made of where these are smaller."""
        say(f"Preparing depth {depth} of {self.depths[-1]} ...")
        network, batch = self.model.network, self.batch
        with at_depths((layer, min(depth, deepest)) for layer, deepest in self.layers), torch.no_grad():
            state = network.encode(batch.x, batch.edges, batch.edge_weight)
            by_rows = batch.graph is None and state.size(1) < self.logits.size(1)
            return state if by_rows else head(network, batch, state).cpu()

    def formed(self, row: int) -> Tensor:
        """The logits of a row at each depth, the last of them included."""
        last = self.logits[row : row + 1]
        if isinstance(self._way, LinearGraph):
            return torch.cat([self._way.formed(row, self.depths[:-1]), last])
        rows = [kept[row : row + 1] for kept in self._formed]
        with torch.no_grad():
            parts = [
                each if each.size(1) == last.size(1) else self.model.network.decode(each).cpu() for each in rows
            ]
        return torch.cat([*parts, last])

    # ------------------------------------------------------------------------------------------------ attribution
    def trace(self, row: int, target: int, all_nodes: bool = False) -> Traced:
        """Where the score of a class comes from: gradient × input.

        On large graphs only some nodes are followed, unless all are asked for.
        """
        return self._way.trace(row, target, all_nodes)

    def _way_back(self, say: Announce) -> WholeGraph | LinearGraph | LocalGraph:
        """Through the whole graph if that is quick, otherwise by the quickest way that the network allows."""
        batch, convs = self.batch, cast("Sequence[tuple[PPRConv, int]]", self.layers)
        each_row = sum((layer.out_channels or 0) * (depth + 1) for layer, depth in convs) or 1
        num_nodes = len(self.logits)
        if batch.graph is not None or num_nodes * each_row <= AT_ONCE or not self._treats_rows_alone():
            return WholeGraph(self.model, batch, self._cut())
        if is_linear(self.model.network) and (convs[0][1] + 2) * num_nodes * 4 <= MOST_LEVELS:
            return LinearGraph(self.model, batch, *convs[0])
        say("Keeping the states of all levels ...")
        return LocalGraph(self.model, batch, convs, self.terms, max(int(AT_ONCE / each_row), 1))

    def _treats_rows_alone(self) -> bool:
        """Whether all but the recursions is done row by row, so that some can be followed alone."""
        try:
            found = stages(self.model.network)
        except NotWorthwhile:
            return False
        return isinstance(self.batch.edges, Adjacency) and all(
            stage.conv.activation.from_output for stage in found
        )

    def _cut(self) -> str:
        cut = [depth for layer, depth in self.layers if layer.has_terms and depth >= (self.terms or depth + 1)]
        if not cut:
            return ""
        return (
            f"Memory allows {self.terms} of {max(cut) + 1} terms of the gradient, so influence over longer ways "
            f"is missing."
        )
