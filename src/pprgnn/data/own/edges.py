"""Edges named by ids of any type into `edge_index`: nodes numbered, duplicates merged, both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from pprgnn.data.errors import DataError
from pprgnn.data.own.features import NUMBER
from pprgnn.data.own.table import Table

if TYPE_CHECKING:
    from pprgnn.data.own.tables import Columns

Index = NDArray[np.int64]
Weights = NDArray[np.float32]


def edges_of(
    edges: Table, nodes: Table | None, columns: Columns, notes: list[str]
) -> tuple[Tensor, Tensor | None, pa.Array]:
    """`edge_index`, weights, and the id of each node: in the order of the node table, or else sorted."""
    assert columns.source is not None
    assert columns.destination is not None
    edges, nodes = _same_id_type(edges, nodes, columns)
    ends = [_ids(edges, columns.source), _ids(edges, columns.destination)]
    if nodes is None:
        ids = _all_ids(ends)
        if len(ids) == 0:
            raise DataError(f"{edges.origin} has no edges and there is no node table, so there is no graph.")
    else:
        assert columns.id is not None
        ids = _ids(nodes, columns.id).combine_chunks()
        if len(ids) == 0:
            raise DataError(f"{nodes.origin} has no rows; expected one for each node.")
        _refuse_duplicates(nodes, ids)
    source, destination = (_positions(edges, end, ids, nodes) for end in ends)
    weight = None if columns.weight is None else _weights(edges, columns.weight)
    return *merge_edges(source, destination, weight, len(ids), columns.directed, notes), ids


def _same_id_type(edges: Table, nodes: Table | None, columns: Columns) -> tuple[Table, Table | None]:
    """All ids as whole numbers, or else all as the text that was written."""
    places: list[tuple[Table, list[str]]] = [(edges, [str(columns.source), str(columns.destination)])]
    if nodes is not None:
        places.append((nodes, [str(columns.id)]))
    types = [table.column(name).type for table, names in places for name in names if len(table)]
    if all(pa.types.is_integer(kind) for kind in types):
        return edges, nodes
    texts = [table.with_text(names) for table, names in places]
    return texts[0], texts[1] if len(texts) > 1 else None


def _ids(table: Table, name: str) -> pa.ChunkedArray:
    column = table.column(name)
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(pc.is_null(column)))[0])
        raise DataError(
            f"{table.where(row)}, column {name!r} must hold a node id, but is empty; fill it or drop the row."
        )
    if len(column) == 0 or not pa.types.is_integer(column.type):
        return column.cast(pa.string())
    return column.cast(pa.int64())


def _all_ids(ends: list[pa.ChunkedArray]) -> pa.Array:
    """Every id that occurs, sorted."""
    kind = ends[0].type
    distinct = [pc.unique(end) for end in ends]
    ids = pc.unique(pa.chunked_array(distinct, type=kind))
    return ids.take(pc.sort_indices(ids))


def _refuse_duplicates(nodes: Table, ids: pa.Array) -> None:
    if pc.count_distinct(ids).as_py() == len(ids):
        return
    seen: dict[Any, int] = {}
    for row, node in enumerate(ids.to_pylist()):
        if node in seen:
            raise DataError(
                f"{nodes.where(row)} has the node id {node!r}, which {nodes.where(seen[node])} already has; "
                f"keep one row per node."
            )
        seen[node] = row


def _positions(edges: Table, end: pa.ChunkedArray, ids: pa.Array, nodes: Table | None) -> Index:
    """The number of the node of each edge end."""
    if len(end) == 0:
        return np.empty(0, dtype=np.int64)
    if pa.types.is_integer(ids.type):
        found = _look_up(np.asarray(end), np.asarray(ids))
    else:
        found = np.asarray(pc.fill_null(pc.index_in(end, value_set=ids), -1)).astype(np.int64)
    if nodes is not None and found.min() < 0:
        unknown = np.flatnonzero(found < 0)
        row = int(unknown[0])
        raise DataError(
            f"{edges.where(row)} names the node {end[row].as_py()!r}, which is in no row of {nodes.origin} "
            f"({len(unknown):,} edges name such nodes); add these nodes, or drop these edges."
        )
    return found


def _look_up(wanted: Index, ids: Index) -> Index:
    low, high = int(ids.min()), int(ids.max())
    if high - low > 8 * (len(ids) + len(wanted)) + 1024:  # ids too far apart for a table: search instead
        order = np.argsort(ids)
        at = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
        return np.where(ids[order[at]] == wanted, order[at], -1)
    table = np.full(high - low + 1, -1, dtype=np.int64)
    table[ids - low] = np.arange(len(ids))
    if wanted.min() >= low and wanted.max() <= high:
        return np.asarray(table[wanted - low])
    inside = (wanted >= low) & (wanted <= high)
    return np.where(inside, table[np.where(inside, wanted - low, 0)], -1)


def _weights(edges: Table, name: str) -> Weights:
    column = edges.column(name)
    numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if not numeric and len(column):
        text = column.cast(pa.string())
        number = pc.fill_null(pc.match_substring_regex(text, NUMBER), False)
        row = int(np.flatnonzero(~np.asarray(number))[0])
        raise DataError(
            f"{edges.where(row)}, column {name!r} must hold the weight of the edge, a number, but holds "
            f"{text[row].as_py()!r}; correct it or name another weight column."
        )
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(pc.is_null(column)))[0])
        raise DataError(f"{edges.where(row)}, column {name!r} must hold the edge's weight, but is empty; fill it.")
    weight: Weights = np.asarray(column.cast(pa.float64())).astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(weight) | (weight < 0))
    if len(bad):
        row = int(bad[0])
        raise DataError(
            f"{edges.where(row)}, column {name!r} must be a finite number >= 0, but is {column[row]}; correct it."
        )
    return weight


def merge_edges(
    source: Index, destination: Index, weight: Weights | None, num_nodes: int, directed: bool, notes: list[str]
) -> tuple[Tensor, Tensor | None]:
    """Sorted by (source, destination), each edge once; both directions of an undirected one.

    An edge that is listed twice counts once; its weights are added up. An undirected edge may be listed in one
    direction or in both: in both with equal weights it is the same edge.
    """
    given = len(source)
    if not directed and weight is None:
        pairs = _sorted_once(np.minimum(source, destination) * num_nodes + np.maximum(source, destination))
        distinct = len(pairs)
        low, high = np.divmod(pairs, num_nodes)
        apart = low != high  # a self-loop has one direction
        key = np.sort(np.concatenate([pairs, (high * num_nodes + low)[apart]]))
    elif weight is None:
        key = _sorted_once(source * num_nodes + destination)
        distinct = len(key)
    else:
        key, weight = _sum_by_key(source * num_nodes + destination, weight)
        distinct = len(key)
        if not directed:
            key, weight, distinct = _mirror(key, weight, num_nodes, notes)
    if distinct < given:
        notes.append(f"{given - distinct:,} of {given:,} edges are listed more than once and were merged")
    edge_index = torch.from_numpy(np.stack(np.divmod(key, num_nodes)))
    return edge_index, None if weight is None else torch.from_numpy(weight)


def _starts(key: Index) -> NDArray[np.bool_]:
    """Where a new value begins in sorted values."""
    first = np.ones(len(key), dtype=bool)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    return first


def _sorted_once(key: Index) -> Index:
    key.sort()
    return key[_starts(key)]


def _sum_by_key(key: Index, weight: Weights) -> tuple[Index, Weights]:
    order = np.argsort(key, kind="stable")
    key, weight = key[order], weight[order]
    starts = np.flatnonzero(_starts(key))
    return key[starts], np.add.reduceat(weight, starts) if len(starts) else weight


def _mirror(key: Index, weight: Weights, num_nodes: int, notes: list[str]) -> tuple[Index, Weights, int]:
    """Both directions of each edge, and the number of undirected edges."""
    if len(key) == 0:
        return key, weight, 0
    low, high = np.divmod(key, num_nodes)
    reverse = high * num_nodes + low
    at = np.minimum(np.searchsorted(key, reverse), len(key) - 1)
    both = (key[at] == reverse) & (low != high)
    if (weight[at][both] != weight[both]).any():
        notes.append("edges listed in both directions with different weights: the two weights were added up")
        weight = np.where(both, weight + weight[at], weight)
    alone = ~both & (low != high)
    key = np.concatenate([key, reverse[alone]])
    order = np.argsort(key)
    return key[order], np.concatenate([weight, weight[alone]])[order], len(low) - int(both.sum()) // 2
