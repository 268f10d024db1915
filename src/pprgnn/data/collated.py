"""Edges by number: checked, made undirected, and cut into graphs as PyG collates them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import cumsum

from pprgnn.data.errors import DataError


def check_edges(path: Path, row: str, edges: NDArray[Any], nodes: int, *, first: int = 0) -> None:
    """Every edge (a row of two nodes) must join nodes that exist; the first node is number ``first``."""
    if edges.size == 0 or (edges.min() >= first and edges.max() < first + nodes):
        return
    bad = int(np.flatnonzero(((edges < first) | (edges >= first + nodes)).any(axis=1))[0])
    raise DataError(
        f"{path}, {row} {bad + 1} must join two of the nodes {first} to {first + nodes - 1}, but joins "
        f"{edges[bad, 0]} and {edges[bad, 1]}; the file is damaged or belongs to another data set."
    )


def graph_of_nodes(path: Path, row: str, graph: NDArray[Any], first: int) -> NDArray[Any]:
    """The graph of each node counted from 0, when the file counts from ``first``; they must follow each other."""
    steps = np.diff(graph, prepend=first)
    wrong = (steps != 0) & (steps != 1)
    wrong[0] = steps[0] != 0
    if wrong.any():
        bad = int(wrong.argmax())
        allowed = f"{graph[bad - 1]} or {graph[bad - 1] + 1}" if bad else f"{first}"
        raise DataError(
            f"{path}, {row} {bad + 1} must name graph {allowed}, but names {graph[bad]}: the nodes of a graph "
            f"must follow each other, and no graph may be empty; repair the file or fetch it again."
        )
    return graph - first


def check_within_graphs(path: Path, row: str, edges: NDArray[Any], graph: NDArray[Any]) -> None:
    """No edge may join two graphs; ``graph`` tells that of each node."""
    crossing = np.flatnonzero(graph[edges[:, 0]] != graph[edges[:, 1]])
    if len(crossing):
        bad = int(crossing[0])
        one, other = graph[edges[bad]] + 1
        raise DataError(
            f"{path}, {row} {bad + 1} must join two nodes of one graph, but joins graphs {one} and {other}; "
            f"the file is damaged or belongs to another data set."
        )


def distinct(keys: NDArray[Any]) -> NDArray[Any]:
    """Each number once, in increasing order; by sorting, which is several times faster than ``numpy.unique``."""
    keys = np.sort(keys)
    new = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return keys if new.all() else keys[new]


def undirected(source: NDArray[Any], target: NDArray[Any], nodes: int) -> Tensor:
    """Both directions of every edge, each once, in order of the rows and without self-loops (2 × E)."""
    if (source == target).any():
        proper = source != target
        source, target = source[proper], target[proper]
    keys = distinct(np.concatenate([source * nodes + target, target * nodes + source]))
    edge_index = np.empty((2, len(keys)), dtype=np.int64)
    np.divmod(keys, max(nodes, 1), out=(edge_index[0], edge_index[1]))
    return torch.from_numpy(edge_index)


def collated(
    sizes: Tensor,
    edge_index: Tensor,
    per_node: Mapping[str, Tensor],
    per_graph: Mapping[str, Tensor],
    per_edge: Mapping[str, Tensor] | None = None,
) -> tuple[Data, dict[str, Tensor]]:
    """Graphs of these sizes as PyG collates them, from edges in one numbering of all nodes, ordered by graph."""
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
    return data, slices
