"""The names of nodes as their source writes them, and back."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

import torch

from pprgnn.data.dataset import GraphDataset
from pprgnn.errors import DataError

MOST_COMPARED = 20_000  # names that a misspelled one is compared with


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
        close = [] if found is not None else _alike(name, names)
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
    if len(found):
        return int(found[0]), []
    nearest = torch.argsort((numbers - wanted).abs(), stable=True)[:3]
    return None, [str(each) for each in sorted(numbers[nearest].tolist())]


def _alike(name: str, names: Sequence[str]) -> list[str]:
    """Names that differ in case only, or in a few letters."""
    same = [each for each in names if each.casefold() == name.casefold()]
    if same:
        return same[:3]
    candidates: Sequence[str] = names
    if len(names) > MOST_COMPARED:  # comparing takes time: only those that start alike
        candidates = [each for each in names if each[:2].casefold() == name[:2].casefold()][:MOST_COMPARED]
    return difflib.get_close_matches(name, candidates, 3, cutoff=0.5)
