"""The TU collection of graph classification: PyG's layout, ``NAME/raw/NAME_A.txt`` and the files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.utils import coalesce, one_hot, remove_self_loops

from pprgnn.data.catalog import Card
from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.raw_files import (
    check_edges,
    check_length,
    check_within_graphs,
    finite_floats,
    graph_of_nodes,
    read_numbers,
)
from pprgnn.data.roots import bundled_folder
from pprgnn.errors import DataError

MOST_ENTRIES = 2**30  # of a one-hot matrix: 4 GiB


def read(card: Card, root: Path, *, node_attributes: bool = False) -> GraphDataset:
    """The graphs as PyG's `TUDataset` reads them; ``node_attributes`` go in front of the one-hot node labels."""
    files = _Files(card.name, root)
    indicator = files.path("graph_indicator")
    graph = graph_of_nodes(indicator, "line", read_numbers(indicator, 1, np.int64)[:, 0], first=1)
    classes, y = np.unique(_graph_labels(files, int(graph[-1]) + 1), return_inverse=True)
    edges = read_numbers(files.path("A"), 2, np.int64)
    check_edges(files.path("A"), "line", edges, len(graph), first=1)
    edges -= 1
    check_within_graphs(files.path("A"), "line", edges, graph)

    x = _one_hot(files, "node_labels", len(graph), "nodes")
    if node_attributes:
        attributes = _attributes(files, len(graph))
        x = attributes if x is None else torch.cat([attributes, x], dim=1)
    labels = _one_hot(files, "edge_labels", len(edges), "edges")
    edge_index, edge_attr = remove_self_loops(torch.from_numpy(edges).t(), labels)
    edge_index, edge_attr = coalesce(edge_index, edge_attr, len(graph))

    names = tuple(str(value) for value in classes)
    return GraphDataset.from_parts(
        Facts(card.name, card.task, card.multi_label, card.metric, names, note=card.note),
        torch.from_numpy(np.bincount(graph)),
        edge_index,
        per_node={} if x is None else {"x": x},
        per_edge={} if edge_attr is None else {"edge_attr": edge_attr},
        per_graph={"y": torch.from_numpy(y)},
    )


class _Files:
    """Where the files of a data set are: under the root, or else inside an installed package."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.folder = name, root / name / "raw"
        if not self.has("A"):
            self.folder = bundled_folder(name) or self.folder

    def path(self, kind: str) -> Path:
        return self.folder / f"{self.name}_{kind}.txt"

    def has(self, kind: str) -> bool:
        return self.path(kind).is_file()


def _graph_labels(files: _Files, graphs: int) -> NDArray[Any]:
    path = files.path("graph_labels")
    if not path.is_file() and files.has("graph_attributes"):
        raise DataError(
            f"{path} is missing: {files.name} has numbers to predict ({files.path('graph_attributes').name}) "
            f"instead of classes, which is not supported; choose a data set with classes."
        )
    labels = read_numbers(path, 1, np.int64)
    check_length(path, len(labels), graphs, "graphs")
    return labels[:, 0]


def _one_hot(files: _Files, kind: str, rows: int, per: str) -> Tensor | None:
    """One-hot labels, column after column, from the smallest value to the largest; None when there is no file."""
    path = files.path(kind)
    if not path.is_file():
        return None
    labels = read_numbers(path, None, np.int64)
    check_length(path, len(labels), rows, per)
    if rows * sum(int(column.max()) - int(column.min()) for column in labels.T) > MOST_ENTRIES:
        raise DataError(
            f"{path} must hold labels from a small range to be written one-hot, but they go from {labels.min()} "
            f"to {labels.max()}; number them from 0."
        )
    columns = [one_hot(torch.from_numpy(column - column.min())) for column in labels.T]
    return columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)  # cat would copy the one


def _attributes(files: _Files, nodes: int) -> Tensor:
    path = files.path("node_attributes")
    if not path.is_file():
        raise DataError(f"{path} is missing: {files.name} has no node attributes; load it without them.")
    attributes = read_numbers(path, None, np.float64)
    check_length(path, len(attributes), nodes, "nodes")
    return torch.from_numpy(finite_floats(str(path), attributes))
