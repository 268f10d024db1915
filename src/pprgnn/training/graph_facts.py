"""What takes a pass over a whole graph to know, found once and kept beside the prepared file."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.neighbourhood import RowGrowth
from pprgnn.core.order import LARGE_GRAPH
from pprgnn.data.atomic_io import read_tensors, write_tensors
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.sparse_features import row_norms, split_rows
from pprgnn.data.store import ADJACENCY
from pprgnn.errors import DataError
from pprgnn.training.build import EDGES, digest, features

ROWS_AT_ONCE = 1 << 16


def largest_row(x: Tensor, growth: RowGrowth, adj: Adjacency, normalized: bool = False) -> float:
    """The smallest χ with ‖x_j‖ <= χ s_j; NaN if there is one."""
    sizes, largest = adj.leave(growth.sizes(adj)), 0.0
    for rows, size in zip(split_rows(x, ROWS_AT_ONCE), torch.split(sizes, ROWS_AT_ONCE), strict=True):
        lengths = row_norms(rows, 2).to(size.device)
        if normalized:
            lengths = lengths / row_norms(rows, 1).clamp(min=1e-12)
        largest = max(float((lengths / size).max()), largest, key=lambda each: (each != each, each))
    return largest * (1 + 1e-5)


class GraphFacts:
    """What takes a pass over the graph, beside the prepared file: later calls read it in no time."""

    def __init__(self, dataset: GraphDataset, kind: str) -> None:
        self.dataset, self.new = dataset, False
        changed = dataset._indices is not None or dataset.transform is not None
        path = None if changed or dataset.num_nodes < LARGE_GRAPH else dataset.path
        self.path = None if path is None else path.with_name(f"{path.stem}.{kind}.rows{ADJACENCY}")
        self.facts: dict[str, str] = {"prepared": str(dataset.stamp)}
        if self.path is not None:
            with contextlib.suppress(DataError):  # damaged, or not there
                _, facts = read_tensors(self.path)
                self.facts = facts if self.facts.items() <= facts.items() else self.facts

    def edges(self) -> str:
        """The digest of the edges."""
        return self._fact("edges", lambda: digest(self.dataset, EDGES))

    def growth(self, adj: Adjacency) -> RowGrowth:
        """By how much Ã can enlarge rows."""

        def found() -> str:
            growth = RowGrowth.of(adj)
            return f"{growth.power} {growth.rate!r} {int(growth.signed)} {growth.rounding!r}"

        power, rate, signed, rounding = self._fact("growth", found).split()
        return RowGrowth(float(power), float(rate), signed == "1", float(rounding))

    def feature_size(self, kind: str, x: Tensor | None, growth: RowGrowth, adj: Adjacency) -> float:
        """The largest row of the features beside its size."""

        def found() -> str:
            source = self.dataset._all("x") if x is None else x
            size = largest_row(source, growth, adj, normalized=kind == "normalized")
            if not size < math.inf:
                features(self.dataset, kind)  # says which
            return repr(size)

        return float(self._fact(f"features {kind}", found))

    def _fact(self, name: str, find: Callable[[], str]) -> str:
        if name not in self.facts:
            self.facts[name], self.new = find(), True
        return self.facts[name]

    def keep(self) -> None:
        """Write what was found."""
        if self.path is not None and self.new:
            with contextlib.suppress(OSError):  # a read-only folder: found anew each time
                write_tensors(self.path, {}, self.facts)
