"""Keeps the adjacencies of the graphs in use, so that layers and steps on one graph build it once.

A graph is recognised by its tensors: the very same objects, not modified since. An entry disappears together with
its ``edge_index``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency

CAPACITY = 8  # a handful of graphs: train, validation and test loops side by side


@dataclass(frozen=True)
class _Entry:
    edge_index: weakref.ref[Tensor]
    edge_weight: weakref.ref[Tensor] | None
    versions: tuple[int, ...]
    options: tuple[Any, ...]
    adj: Adjacency


_entries: list[_Entry] = []


def cached_adjacency(
    edge_index: Tensor, edge_weight: Tensor | None, options: tuple[Any, ...], build: Callable[[], Adjacency]
) -> Adjacency:
    """Return the adjacency of this graph with these options; ``build`` makes it when it is not known."""
    tensors = [edge_index] if edge_weight is None else [edge_index, edge_weight]
    if any(t.requires_grad or t.is_inference() for t in tensors) or torch.compiler.is_compiling():
        return build()  # learned weights change with every step; inference tensors cannot tell that they changed
    versions = tuple(t._version for t in tensors)
    _entries[:] = [entry for entry in _entries if entry.edge_index() is not None]
    for entry in _entries:
        same_weight = edge_weight is (None if entry.edge_weight is None else entry.edge_weight())
        same_graph = entry.edge_index() is edge_index and same_weight
        if same_graph and entry.versions == versions and entry.options == options:
            return entry.adj
    adj = build()
    weight_ref = None if edge_weight is None else weakref.ref(edge_weight)
    _entries.insert(0, _Entry(weakref.ref(edge_index), weight_ref, versions, options, adj))
    del _entries[CAPACITY:]
    return adj
