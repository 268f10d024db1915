"""One class for everything one can train on: graphs in PyG's collated form, and the facts that go with them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.utils import cumsum

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.entries import Normalization
from pprgnn.data.catalog import Metric, Task
from pprgnn.data.sparse_features import DENSE_VIEW, compact, is_sparse, take_rows, to_dense
from pprgnn.errors import DataError
from pprgnn.wording import noun

if TYPE_CHECKING:
    from pprgnn.data.split import Split

MOST_COMPARED = 20_000  # names that a misspelled one is compared with


@dataclass(frozen=True)
class Facts:
    """What the tensors do not say; kept as JSON beside them."""

    name: str
    task: Task
    multi_label: bool
    metric: Metric
    class_names: tuple[str, ...]
    directed: bool = False
    note: str = ""
    # How a table became numbers (`own.tables.Schema`), so that new rows are treated the same way.
    schema: Mapping[str, Any] | None = None
    guessed: tuple[str, ...] = ()
    qualifier: str = ""  # see `Card`
    # How each column of the tables was read: table, column, how, a remark.
    columns: tuple[tuple[str, str, str, str], ...] = ()

    @property
    def title(self) -> str:
        """The name as users see it."""
        return f"{self.name} ({self.qualifier})" if self.qualifier else self.name

    def to_json(self) -> str:
        """All of it, as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Facts:
        """The inverse of :meth:`to_json`."""
        values = json.loads(text)
        values["columns"] = map(tuple, values.get("columns", ()))
        return cls(**values | {name: tuple(values[name]) for name in ("class_names", "guessed", "columns")})


class GraphDataset(InMemoryDataset):  # type: ignore[misc]
    """Graphs with a task: a PyG data set (indexing, `DataLoader`, `num_features`, ...) that knows its own facts.

    Every graph has `edge_index` (2 × E, both directions of an undirected edge, each once, no duplicates), `x` or
    no `x`, and `y` or, before anything is labelled, no `y`. On a node task `y` is one class per node (``-1``: not
    labelled) or, with several labels per node, a float matrix of zeros and ones; there `labelled` tells rows that
    are not labelled from rows of zeros. An `x` of a single graph that is wide and mostly zero is kept in CSR
    (:mod:`pprgnn.data.sparse_features`); in `dataset[0]` it is dense unless that is too large.

    Optional per-node tensors: `labelled` (bool), `train_mask`, `val_mask`, `test_mask` (one column per published
    split), `part` (0, 1, 2: train, val, test; -1: none), `node_id` (the number the source uses), `gene`,
    `distance`. Optional per-edge: `edge_weight`, `edge_attr`.
    """

    _path: Path | None
    _opened: list[tuple[Tensor, int]]

    def __init__(self, data: Data, slices: dict[str, Tensor] | None, facts: Facts) -> None:
        super().__init__(root=None)
        self._data, self.slices, self.facts = data, slices, facts
        self.node_names: Sequence[str] | None = None  # ids as the source writes them, when they are not numbers
        self.path = None
        self.stamp = ""  # the digest of the contents of this file
        self.home: Path | None = None  # the data root that the raw files came from

    @classmethod
    def from_graphs(cls, graphs: Sequence[Data], facts: Facts) -> GraphDataset:
        """Collate a list of graphs that have the same attributes."""
        if not graphs:
            raise DataError(f"{facts.name} must have at least one graph, but has none.")
        for data in graphs:
            data.num_nodes = data.num_nodes  # not left to be inferred: nodes may have neither edges nor features
        if len(graphs) == 1:
            if graphs[0].x is not None:
                graphs[0].x = compact(graphs[0].x)
            return cls(graphs[0], None, facts)
        data, slices = cls.collate(list(graphs))
        return cls(data, slices, facts)

    @classmethod
    def from_parts(
        cls,
        facts: Facts,
        sizes: Tensor,
        edge_index: Tensor,
        *,
        per_node: Mapping[str, Tensor],
        per_graph: Mapping[str, Tensor],
        per_edge: Mapping[str, Tensor] | None = None,
    ) -> GraphDataset:
        """Graphs of these sizes, from edges in one numbering of all nodes, ordered by graph."""
        start = cumsum(sizes)
        graph = torch.repeat_interleave(torch.arange(len(sizes)), sizes)[edge_index[0]]
        edges = cumsum(torch.bincount(graph, minlength=len(sizes)))
        data, slices = Data(edge_index=edge_index - start[graph]), {"edge_index": edges}
        kinds = (per_node, start), (per_edge or {}, edges), (per_graph, torch.arange(len(sizes) + 1))
        for tensors, slices_of_kind in kinds:
            for name, tensor in tensors.items():
                data[name], slices[name] = tensor, slices_of_kind.clone()  # safetensors refuses shared memory
        data.num_nodes = int(start[-1])
        data._store._num_nodes = sizes.tolist()
        return cls(data, slices, facts)

    # ------------------------------------------------------------------------------------------------- facts
    @property
    def path(self) -> Path | None:
        """The prepared file behind the tensors; ``None`` from the moment that edges or features are changed."""
        now, then = self._versions(), self._opened
        if [(id(each), count) for each, count in now] != [(id(each), count) for each, count in then]:
            self._path = None
        return self._path

    @path.setter
    def path(self, path: Path | None) -> None:
        self._path, self._opened = path, self._versions()

    def _versions(self) -> list[tuple[Tensor, int]]:
        """Edges and features, and how often each was written to, as far as torch counts: not through ``.data``."""
        tensors = (self._data.get(name) for name in ("edge_index", "edge_weight", "x"))
        return [(each, -1 if each.is_inference() else each._version) for each in tensors if each is not None]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_path": self.path, "_opened": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.path = self._path  # copied tensors count from the start

    @property
    def num_classes(self) -> int:
        """Number of classes, also of those that no label here names."""
        return len(self.facts.class_names)

    @property
    def num_nodes(self) -> int:
        """Nodes of all graphs together."""
        return sum(self.graph_sizes)

    @property
    def num_edges(self) -> int:
        """Edges of all graphs together: an undirected edge counts once, and so does one from a node to itself."""
        graphs = [self._data] if self._indices is None else list(self)
        ends: list[Tensor] = [graph.edge_index for graph in graphs]
        stored = sum(each.size(1) for each in ends)
        if self.facts.directed:
            return stored
        return (stored + sum(int((each[0] == each[1]).sum()) for each in ends)) // 2

    @property
    def graph_sizes(self) -> list[int]:
        """Number of nodes of each graph of this (sub)set."""
        if self.slices is None:
            return [int(self._data.num_nodes)]
        return [int(self._data._num_nodes[i]) for i in self.indices()]

    def get(self, idx: int) -> Data:
        """One graph as PyG has it: with dense features, unless they would take more than 256 MB."""
        data = super().get(idx)
        if "x" in data and is_sparse(data.x) and data.x.numel() <= DENSE_VIEW:
            data.x = data.x.to_dense()
        return data

    def labels(self) -> Tensor:
        """The labels of all graphs, one after another: per node on a node task, per graph on a graph task."""
        return self._all("y")

    def labelled(self) -> Tensor:
        """Which of :meth:`labels` are known."""
        if "labelled" in self._data:
            return self._all("labelled")
        y = self.labels()
        return y >= 0 if y.dim() == 1 else torch.ones(len(y), dtype=torch.bool)

    def _all(self, name: str) -> Tensor:
        if name not in self._data:
            what = "labels" if name == "y" else name
            raise DataError(f"{self.facts.name} has no {what}, which are needed here.")
        if self._indices is None:
            whole: Tensor = self._data[name]
            return whole
        parts: list[Tensor] = [data[name] for data in self]
        if len(parts) == 1:
            return parts[0]
        return torch.cat([to_dense(each) for each in (take_rows(self._data[name], slice(0)), *parts)])

    @classmethod
    def collate(cls, graphs: list[Data]) -> tuple[Data, dict[str, Tensor] | None]:
        """As PyG does it; of several graphs it can collate dense features alone."""
        if len(graphs) > 1:
            sparse = [graph.x is not None and is_sparse(graph.x) for graph in graphs]
            pairs = zip(graphs, sparse, strict=True)
            graphs = [copy(graph).update({"x": to_dense(graph.x)}) if wide else graph for graph, wide in pairs]
        data, slices = super().collate(graphs)
        return data, slices

    def rename(self, name: str) -> GraphDataset:
        """The same graphs under another name."""
        renamed = copy(self)
        renamed.facts = replace(self.facts, name=name)
        return renamed

    def copy(self, idx: Any = None) -> GraphDataset:
        """A deep copy, or one of the graphs that ``idx`` chooses; no file is behind it."""
        copied: GraphDataset = super().copy(idx)
        copied.path = None
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphDataset:
        x = self._data.x
        if x is not None and is_sparse(x):
            memo[id(x)] = x.clone()  # torch cannot copy these deeply
        copied = type(self).__new__(type(self))
        copied.__setstate__(deepcopy(self.__getstate__(), memo))
        return copied

    # ------------------------------------------------------------------------------------------------- views
    def adjacency(
        self, index: int = 0, *, normalize: Normalization = "sym", add_self_loops: bool = False
    ) -> Adjacency:
        """Ã of one graph, ready to solve on; of a large prepared graph it is kept on disk, too."""
        from pprgnn.data.store import kept_adjacency

        return kept_adjacency(self, index, normalize=normalize, add_self_loops=add_self_loops)

    def splits(self, protocol: str = "honest", seed: int = 0, **options: Any) -> list[Split]:
        """The splits under a protocol, ``"honest"`` or ``"paper"``; see `pprgnn.data.sampling`."""
        from pprgnn.data.sampling import make_splits

        return make_splits(self, protocol, seed, **options)

    def __repr__(self) -> str:
        graphs = f"{len(self)} graphs, " if len(self) > 1 else ""
        kind = "multi-label, " if self.facts.multi_label else ""
        return (
            f"GraphDataset({self.facts.title}: {graphs}{self.num_nodes} {noun(self.num_nodes, 'node')}, "
            f"{self.num_features} {noun(self.num_features, 'feature')}, "
            f"{kind}{self.num_classes} {noun(self.num_classes, 'class', 'classes')} per {self.facts.task})"
        )


# ------------------------------------------------------------------------------------------------ names of nodes
def node_name(dataset: GraphDataset, node: int, graph: int = 0) -> str:
    """What the source calls a node of a graph; its number, if it has no name."""
    names = _text_names(dataset, graph)
    if names is not None:
        return str(names[node])
    numbers = dataset[graph].get("node_id")
    return str(node if numbers is None else int(numbers[node]))


def find_node(dataset: GraphDataset, name: str, graph: int = 0) -> int:
    """The number of a node of a graph, from what the source calls it."""
    if not 0 <= graph < len(dataset):
        raise DataError(
            f"{dataset.facts.name} has {len(dataset):,} graphs, numbered from 0, but graph {graph} was asked for."
        )
    names = _text_names(dataset, graph)
    if names is not None:
        found = next((i for i, each in enumerate(names) if each == name), None)
        close = [] if found is not None else _close_names(name, names)
    else:
        found, close = _find_number(dataset[graph], name)
    if found is None:
        hint = f"the closest are {', '.join(close)}" if close else "give it as the source names it"
        where = f" (graph {graph})" if len(dataset) > 1 else ""
        raise DataError(f"{dataset.facts.name}{where} has no node {name!r}; {hint}.")
    return found


def _text_names(dataset: GraphDataset, graph: int) -> Sequence[str] | None:
    names = dataset.node_names
    if names is None or len(dataset) == 1:
        return names
    sizes = dataset.graph_sizes
    start = sum(sizes[:graph])
    return names[start : start + sizes[graph]]


def _find_number(data: Any, name: str) -> tuple[int | None, list[str]]:
    """Among the numbers of the source, or else by counting from 0; and the closest numbers."""
    numbers = data.get("node_id")
    if not re.fullmatch(r"[-+]?\d{1,18}", name):
        first = range(min(3, data.num_nodes)) if numbers is None else numbers[:3].tolist()
        return None, [str(each) for each in first]
    wanted, size = int(name), int(data.num_nodes)
    if numbers is None:
        return (wanted if 0 <= wanted < size else None), [f"0 to {size - 1}"] if size else []
    found = (numbers == wanted).nonzero().flatten()
    nearest = torch.argsort((numbers - wanted).abs(), stable=True)[:3]
    return (int(found[0]) if len(found) else None), [str(each) for each in sorted(numbers[nearest].tolist())]


def _close_names(name: str, names: Sequence[str]) -> list[str]:
    """Names that differ in case only, or in a few letters."""
    same = [each for each in names if each.casefold() == name.casefold()]
    if len(names) > MOST_COMPARED:  # comparing takes time: only those that start alike
        names = [each for each in names if each[:2].casefold() == name[:2].casefold()][:MOST_COMPARED]
    return same[:3] or difflib.get_close_matches(name, names, 3, cutoff=0.5)
