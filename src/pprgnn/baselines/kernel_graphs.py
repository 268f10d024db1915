"""Labelled graphs as graph kernels read them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from pprgnn.core.csr import ranges
from pprgnn.errors import DataError


@dataclass(frozen=True)
class KernelGraphs:
    """Graphs, one after another.

    Attributes:
        sizes: The number of nodes of each graph.
        adjacency: 1 where an edge ends (row) and starts (column); block-diagonal.
        labels: The label of each node, a row of bytes.
    """

    sizes: NDArray[np.int64]
    adjacency: Any  # csr_array
    labels: NDArray[np.uint8]

    # ------------------------------------------------------------------------------------------------ as tensors
    @classmethod
    def from_rows(
        cls, rows: Tensor, label_columns: int, batch: Tensor | None, num_graphs: int | None
    ) -> KernelGraphs:
        """From the sparse rows of :func:`sparse_rows`; ``batch`` is the graph of each node, in ascending order."""
        if batch is None or batch.shape != rows.shape[:1]:
            raise DataError(
                f"A graph kernel needs batch, the number of the graph of each of the {rows.size(0)} nodes; for a "
                f"single graph pass torch.zeros(num_nodes, dtype=torch.long)."
            )
        if bool((batch.diff() < 0).any()):
            raise DataError("The nodes of a graph must follow one another for a graph kernel: sort batch.")
        sizes = np.bincount(batch.cpu().numpy(), minlength=num_graphs or 0)
        if not sizes.all():
            raise DataError(f"A graph kernel compares graphs with nodes, but graph {sizes.argmin()} has none.")
        node, column = rows.coalesce().indices().cpu().numpy()
        is_label = column < label_columns
        edges = np.stack([node[~is_label], column[~is_label] - label_columns])
        adjacency = _adjacency(edges, len(batch))
        if label_columns:
            marks = np.zeros((len(batch), label_columns), dtype=bool)
            marks[node[is_label], column[is_label]] = True
            labels = np.packbits(marks, axis=1)
        else:
            labels = np.diff(adjacency.indptr).astype("<i8")[:, None].view(np.uint8)
        return cls(sizes, adjacency, labels)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> KernelGraphs:
        """The inverse of :meth:`to_tensors`."""
        sizes, edges, labels = (tensors[name].cpu().numpy() for name in ("sizes", "edges", "labels"))
        return cls(sizes, _adjacency(edges, int(sizes.sum())), labels)

    def to_tensors(self) -> dict[str, Tensor]:
        """All of it: sizes, edges, labels."""
        edges = np.stack(self.adjacency.nonzero()).astype(np.int64)
        return {
            name: torch.from_numpy(each)
            for name, each in zip(NAMES, (self.sizes, edges, self.labels), strict=True)
        }

    # ---------------------------------------------------------------------------------------------------- parts
    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[tuple[Any, NDArray[np.uint8]]]:
        """Of each graph, its adjacency matrix and the labels of its nodes."""
        for start, end in zip(self.starts, self.starts + self.sizes, strict=True):
            yield self.adjacency[start:end, start:end], self.labels[start:end]

    @property
    def starts(self) -> NDArray[np.int64]:
        """The first node of each graph."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def owner(self) -> NDArray[np.int64]:
        """The graph of each node."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def sums(self, per_node: NDArray[Any]) -> NDArray[np.float64]:
        """The sum over the nodes of each graph."""
        return np.bincount(self.owner, weights=per_node, minlength=len(self)).astype(np.float64, copy=False)

    def take(self, which: NDArray[np.int64]) -> KernelGraphs:
        """Some of the graphs."""
        sizes = self.sizes[which]
        nodes = ranges(torch.from_numpy(self.starts[which]), torch.from_numpy(sizes)).numpy()
        return KernelGraphs(sizes, self.adjacency[nodes][:, nodes], self.labels[nodes])

    def digest(self) -> str:
        """A short text that tells these graphs from others."""
        found = hashlib.blake2b(digest_size=16)
        for each in (self.sizes, self.adjacency.indptr, self.adjacency.indices, self.labels):
            found.update(np.ascontiguousarray(each).data)
        return found.hexdigest()


NAMES = ("sizes", "edges", "labels")


def _adjacency(edges: NDArray[np.int64], nodes: int) -> Any:
    return csr_array((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(nodes, nodes))


def sparse_rows(marks: Tensor, edge_index: Tensor) -> Tensor:
    """One sparse row per node: where its ``marks`` are, then the nodes whose edges end there."""
    nodes, width = marks.shape
    entries = torch.cat([marks.nonzero().t(), edge_index.flip(0) + edge_index.new_tensor([[0], [width]])], dim=1)
    ones = torch.ones(entries.size(1), device=entries.device)
    return torch.sparse_coo_tensor(entries, ones, (nodes, width + nodes), check_invariants=True).coalesce()
