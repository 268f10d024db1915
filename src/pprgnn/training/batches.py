"""A data set on its device, cut into batches of whole graphs. Every graph is normalised once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.blocks import cut_blocks, take_blocks
from pprgnn.core.csr import ranges
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.sparse_features import hide_columns, take_rows
from pprgnn.distributed.part import GraphPart

AT_ONCE = 8  # batches of graphs are gathered together: for small ones, the many small operations cost most


@dataclass(frozen=True)
class Batch:
    """What one pass through a network needs, and what it should come to."""

    x: Tensor | None
    edges: Adjacency | Tensor  # as the network wants it
    edge_weight: Tensor | None
    graph: Tensor | None  # graph tasks: the graph of each node
    num_graphs: int
    rows: Tensor | None  # node tasks: which nodes are scored; None: all
    y: Tensor  # of the scored nodes, or of the graphs

    def scored(self, state: Tensor) -> Tensor:
        """Of the state of a node task, the rows that count."""
        return state if self.rows is None else take_rows(state, self.rows)


class Batches:
    """Cuts the graphs of a data set into batches.

    ``adjacency_options`` say how the network wants Ã; ``None``: it wants a plain ``edge_index``. The last
    ``label_columns`` of the features ``x`` are labels, see :mod:`label_input`.
    """

    def __init__(
        self,
        dataset: GraphDataset,
        x: Tensor | None,
        adjacency_options: Mapping[str, Any] | None,
        device: torch.device,
        label_columns: int = 0,
    ) -> None:
        self.dataset = dataset.copy() if dataset._indices is not None else dataset
        self.task = dataset.facts.task
        self.device, self.label_columns = device, label_columns
        data, slices = self.dataset._data, self.dataset.slices
        self.sizes = torch.tensor(self.dataset.graph_sizes, device=device)
        self.starts = self.sizes.cumsum(0) - self.sizes
        self.x = None if x is None else x.to(device)
        self.y: Tensor | None = data.y.to(device) if "y" in data else None
        self.adj: Adjacency | None = None
        # Of several processes, each has a share of the graphs of a batch, or a part of the one graph there is.
        self.share = (0, 1)
        self.per_pass = 1  # graphs that are evaluated at once, by one process
        self.nodes: Tensor | None = None
        self._single: dict[int, tuple[Any, ...]] = {}
        edge_index, weight, dtype = data.edge_index, data.get("edge_weight"), torch.get_default_dtype()
        cuts = torch.tensor([0, edge_index.size(1)]) if slices is None else slices["edge_index"]
        if adjacency_options is None:
            self.edge_index = edge_index.to(device)
            self.edge_weight = None if weight is None else weight.to(device, dtype)
            self.edge_starts, self.edge_counts = cuts[:-1].to(device), cuts.diff().to(device)
            return
        if len(self.dataset) == 1:
            adj = self.dataset.adjacency(0, **adjacency_options)
        else:  # all graphs, with nodes counted through
            through = edge_index + torch.repeat_interleave(self.starts.cpu(), cuts.diff())
            count = int(self.sizes.sum())
            adj = Adjacency.from_edge_index(through, weight, count, reorder=False, **adjacency_options)
        self.adj = adj.to(dtype).to(device)  # in the precision of networks, whatever the weights came in

    def all_graphs(self) -> Tensor:
        """The numbers of all graphs."""
        return torch.arange(len(self.sizes), device=self.device)

    def take_part(self, part: GraphPart) -> None:
        """From here on, only the nodes of this part of the one graph there is."""
        nodes = self.nodes = part.nodes
        self.adj, self.x = part, None if self.x is None else take_rows(self.x, nodes)
        self.y = None if self.y is None else self.y[nodes]
        self.sizes, self.starts = torch.tensor([[len(nodes)], [0]], device=self.device)
        self._single.clear()

    def own_labels(self, of_all: Tensor) -> Tensor:
        """Of one value per label, those of the nodes that are here."""
        of_all = of_all.to(self.device)
        return of_all if self.nodes is None else of_all[self.nodes]

    @property
    def at_once(self) -> int:
        """How many graphs are evaluated at once, by all processes together."""
        return self.per_pass * self.share[1]

    def label_rows(self) -> Tensor | slice:
        """Which labels belong to the rows of an evaluation of all graphs."""
        rank, processes = self.share
        if processes == 1:
            return slice(None)
        graphs = torch.cat([ids[rank::processes] for ids in torch.split(self.all_graphs(), self.at_once)])
        return graphs if self.task == "graph" else ranges(self.starts[graphs], self.sizes[graphs])

    def parts(self, mask: Tensor) -> Tensor:
        """The graphs with at least one label under this mask (one bool per label)."""
        if self.nodes is not None:
            return self.all_graphs()  # other parts may have the labels
        mask = mask.to(self.device)
        if self.task == "graph":
            return mask.nonzero().flatten()
        counts = torch.zeros(len(self.sizes), dtype=torch.long, device=self.device)
        owner = torch.repeat_interleave(self.all_graphs(), self.sizes)
        return counts.index_add_(0, owner, mask.long()).nonzero().flatten()

    def cut(
        self,
        graphs: Tensor,
        size: int,
        mask: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
        hide: bool = False,
    ) -> Iterator[Batch]:
        """Batches of ``size`` graphs, shuffled if there is a generator; scored where ``mask`` says so.

        With ``hide``, no label of a scored node is among the features. Of several processes, each gets its share
        of every batch, which may be none of its graphs.
        """
        if generator is not None:
            graphs = graphs[torch.randperm(len(graphs), generator=generator).to(self.device)]
        rank, processes = self.share
        if self.task == "graph" and processes == 1:
            for ids in torch.split(graphs, AT_ONCE * size):
                yield from self._divided(ids, size)
            return
        for ids in torch.split(graphs, size):
            yield self.batch(ids[rank::processes], mask, hide=hide)

    def _divided(self, ids: Tensor, size: int) -> Iterator[Batch]:
        """The same batches as one by one, cut out of a single one: they share its memory."""
        if len(ids) <= size:
            yield self.batch(ids)
            return
        whole = self.batch(ids)
        assert whole.graph is not None
        bounds = [*range(0, len(ids), size), len(ids)]  # among the graphs
        cuts = _cuts(self.sizes[ids], bounds)
        for edges, (start, end), (first, last) in zip(
            self._divided_edges(whole, ids, bounds, cuts), pairwise(bounds), pairwise(cuts), strict=True
        ):
            x = None if whole.x is None else take_rows(whole.x, slice(first, last))
            owner, y = whole.graph[first:last] - start, whole.y[start:end]
            yield Batch(x, *edges, owner, end - start, None, y)

    def _divided_edges(
        self, whole: Batch, ids: Tensor, bounds: list[int], cuts: list[int]
    ) -> Iterator[tuple[Adjacency | Tensor, Tensor | None]]:
        if isinstance(whole.edges, Adjacency) and self.adj is not None:
            numbers = ids.tolist()
            for adj, (start, end) in zip(cut_blocks(whole.edges, cuts), pairwise(bounds), strict=True):
                # The graphs tell matrices apart as well as their entries do.
                adj.fingerprint = hash((self.adj.fingerprint, *numbers[start:end]))
                yield adj, None
            return
        assert isinstance(whole.edges, Tensor)
        for (start, end), first in zip(pairwise(_cuts(self.edge_counts[ids], bounds)), cuts, strict=False):
            weight = None if whole.edge_weight is None else whole.edge_weight[start:end]
            yield whole.edges[:, start:end] - first, weight

    def batch(self, ids: Tensor, mask: Tensor | None = None, *, hide: bool = False) -> Batch:
        """These graphs as one batch."""
        nodes, edges, weight, owner = self._graphs(ids)
        x = None if self.x is None else take_rows(self.x, nodes)
        if self.task == "graph":
            y = torch.empty(0) if self.y is None else self.y[ids]
            return Batch(x, edges, weight, owner, len(ids), None, y)
        rows = None if mask is None else mask[nodes].nonzero().flatten()
        if hide and x is not None:
            x = hide_columns(x, slice(None) if rows is None else rows, x.size(1) - self.label_columns)
        y = torch.empty(0) if self.y is None else self.y[nodes] if rows is None else self.y[nodes][rows]
        return Batch(x, edges, weight, None, len(ids), rows, y)

    def _graphs(self, ids: Tensor) -> tuple[Any, Any, Tensor | None, Tensor | None]:
        """Nodes (a slice or indices), edges, weights, graph of each node; those of single graphs are kept."""
        if len(ids) != 1 or self.task == "graph":
            starts, sizes = self.starts[ids], self.sizes[ids]
            owner = torch.repeat_interleave(torch.arange(len(ids), device=self.device), sizes)
            return ranges(starts, sizes), *self._edges(ids, starts, sizes), owner
        number = int(ids[0])
        if number not in self._single:
            start, size = int(self.starts[number]), int(self.sizes[number])
            edges = self._edges(ids, self.starts[ids], self.sizes[ids])
            self._single[number] = slice(start, start + size), *edges, None
        return self._single[number]

    def _edges(self, ids: Tensor, starts: Tensor, sizes: Tensor) -> tuple[Any, Tensor | None]:
        if self.adj is not None:
            return (self.adj if len(self.sizes) == 1 else take_blocks(self.adj, starts, sizes)), None
        if len(self.sizes) == 1:
            return self.edge_index, self.edge_weight
        chosen = ranges(self.edge_starts[ids], self.edge_counts[ids])
        shift = torch.repeat_interleave(sizes.cumsum(0) - sizes, self.edge_counts[ids])
        weight = None if self.edge_weight is None else self.edge_weight[chosen]
        return self.edge_index[:, chosen] + shift, weight


def _cuts(sizes: Tensor, bounds: list[int]) -> list[int]:
    """How much comes before each of these graphs."""
    ends = [0, *sizes.cumsum(0).tolist()]
    return [ends[bound] for bound in bounds]
