"""What is known about nodes and graphs without the network: their names, their true classes, their part."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate

import torch
from torch import Tensor

from pprgnn.data.dataset import GraphDataset, find_node
from pprgnn.errors import DataError
from pprgnn.training.errors import TrainingError
from pprgnn.training.explain import true_classes
from pprgnn.training.reach import Readers
from pprgnn.wording import counted

GRAPHS_KEPT = 4
END = "\n"


class NotThereError(DataError):
    """A run, a graph, a node or a page that does not exist."""


class Names:
    """A list of names; all of them in one text, which is searched at the speed of memory.

    The exact name is found first, then those that start with a text, then those that contain it.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def __getitem__(self, number: int) -> str:
        return self._names[number]

    def __len__(self) -> int:
        return len(self._names)

    @cached_property
    def _folded(self) -> tuple[str, list[int]]:
        """The text, and where each name begins in it."""
        plain = [" ".join(name.casefold().split()) for name in self._names]
        starts = list(accumulate((len(name) + 1 for name in plain), initial=1))
        return END + END.join(plain) + END, starts

    def search(self, wanted: str, limit: int) -> list[int]:
        """At most so many numbers of names."""
        wanted = " ".join(wanted.casefold().split())
        found: dict[int, None] = {}
        for pattern in (END + wanted + END, END + wanted, wanted):
            for number in self._matches(pattern):
                if len(found) == limit:
                    return list(found)
                found[number] = None
        return list(found)

    def _matches(self, pattern: str) -> Iterator[int]:
        (text, starts), ahead = self._folded, int(pattern.startswith(END))
        place = text.find(pattern, 1 - ahead)
        while place >= 0:
            number = bisect_right(starts, place + ahead) - 1
            if number == len(self._names):  # behind the last name, where only the empty text is found
                return
            yield number
            place = text.find(pattern, starts[number + 1] - ahead)


class DatasetView:
    """A data set as the explorer asks for it.

    A row is a node on node tasks and a graph on graph tasks; rows are counted through all graphs.
    """

    def __init__(self, dataset: GraphDataset) -> None:
        self.dataset, self.facts = dataset, dataset.facts
        self.by_node = dataset.facts.task == "node"
        self.sizes = torch.tensor(dataset.graph_sizes)
        self.starts = self.sizes.cumsum(0) - self.sizes
        self.labels: Tensor | None = dataset.labels() if "y" in dataset._data else None
        self.labelled = None if self.labels is None else dataset.labelled()
        self.graph = lru_cache(GRAPHS_KEPT)(dataset.__getitem__)
        self.names = lru_cache(GRAPHS_KEPT)(self._names)
        self.readers = lru_cache(GRAPHS_KEPT)(
            lambda graph: Readers(self.graph(graph).edge_index, int(self.sizes[graph]))
        )

    def _names(self, graph: int) -> Names:
        """Of the nodes of a graph, or on graph tasks of all graphs."""
        if not self.by_node:
            return Names([str(number) for number in range(len(self.dataset))])
        return self.node_names(graph)

    def node_names(self, graph: int) -> Names:
        """What the source calls the nodes of a graph."""
        start, size = int(self.starts[graph]), int(self.sizes[graph])
        named: Sequence[str] | None = self.dataset.node_names
        if named is not None:
            return Names([str(each) for each in named[start : start + size]])
        numbers = self.graph(graph).get("node_id")
        return Names(list(map(str, range(size) if numbers is None else numbers.tolist())))

    # -------------------------------------------------------------------------------------------------- questions
    def check_graph(self, graph: int) -> None:
        """Raise unless there is such a graph."""
        if not 0 <= graph < len(self.dataset):
            many = counted(len(self.dataset), "graph")
            raise NotThereError(f"{self.facts.name} has {many}, numbered from 0, but graph {graph} was asked for.")

    def find(self, graph: int, node: int | None, name: str | None) -> int | None:
        """The node that was asked for; ``None`` on graph tasks."""
        self.check_graph(graph)
        if not self.by_node:
            if node is not None or name is not None:
                raise TrainingError("This model labels whole graphs: ask for a graph, and leave out the node.")
            return None
        if node is None and name is None:
            raise TrainingError("This model labels nodes: say which, with node=NUMBER or name=NAME.")
        if name is not None:
            try:
                return find_node(self.dataset, name, graph)
            except DataError as error:
                raise NotThereError(str(error)) from error
        size = int(self.sizes[graph])
        assert node is not None
        if not 0 <= node < size:
            where = f" (graph {graph})" if len(self.dataset) > 1 else ""
            closest = f"the closest are 0 to {size - 1}" if size else "it is empty"
            raise NotThereError(f"{self.facts.name}{where} has no node '{node}'; {closest}.")
        return node

    def row(self, graph: int, node: int | None) -> int:
        """Counted through all graphs."""
        return graph if node is None else int(self.starts[graph]) + node

    def rows(self, graph: int) -> slice:
        """All rows of a graph."""
        start = self.row(graph, 0 if self.by_node else None)
        return slice(start, start + (int(self.sizes[graph]) if self.by_node else 1))

    def place(self, row: int) -> tuple[int, int | None]:
        """The graph and the node of a row."""
        if not self.by_node:
            return row, None
        graph = int(torch.searchsorted(self.starts, row, right=True)) - 1
        while not int(self.sizes[graph]):  # an empty graph starts where the one before does
            graph -= 1
        return graph, row - int(self.starts[graph])

    def name(self, graph: int, node: int | None) -> str:
        """What the source calls it."""
        return str(graph) if node is None else self.names(graph)[node]

    def truth(self, row: int) -> list[str] | None:
        """The classes of a row; ``None``: not known."""
        return true_classes(self.labels, self.labelled, row, self.facts.class_names)
