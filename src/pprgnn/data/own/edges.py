"""Edges named by ids of any type into `edge_index`: nodes numbered, duplicates merged, both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from pprgnn.data.errors import DataError
from pprgnn.data.own.table import Table
from pprgnn.data.own.text_file import NUMBER

if TYPE_CHECKING:
    from pprgnn.data.own.tables import Columns

Index = NDArray[np.int64]
Weights = NDArray[Any]


def edges_of(
    edges: Table, nodes: Table | None, columns: Columns, notes: list[str]
) -> tuple[Tensor, Tensor | None, pa.Array]:
    """`edge_index`, weights, and the id of each node: in the order of the node table, or else sorted."""
    ends = [str(columns.source), str(columns.destination)]
    if nodes is None:
        if len(edges) == 0:
            raise DataError(f"{edges.origin} has no edges and there is no node table, so there is no graph.")
        ids, source, destination = _number(*_ids((edges, ends)))
    else:
        if len(nodes) == 0:
            raise DataError(f"{nodes.origin} has no rows; expected one for each node.")
        *starts_and_ends, column = _ids((edges, ends), (nodes, [str(columns.id)]))
        ids = column.combine_chunks()
        _refuse_duplicates(nodes, ids)
        source, destination = (_look_up(end, ids) for end in starts_and_ends)
        unknown = np.flatnonzero((source < 0) | (destination < 0))
        if len(unknown):
            row = int(unknown[0])
            node = starts_and_ends[0 if source[row] < 0 else 1][row].as_py()
            raise DataError(
                f"{edges.where(row)} names the node {node!r}, which is in no row of {nodes.origin} "
                f"({len(unknown):,} of {len(edges):,} edges do so); add these nodes, or drop these edges."
            )
    weight = _weights(edges, columns.weight) if columns.weight else None
    return *merge_edges(source, destination, weight, len(ids), columns.directed, notes), ids


# -------------------------------------------------------------------------------------------------------- ids
def _ids(*places: tuple[Table, Sequence[str]]) -> list[pa.ChunkedArray]:
    """These columns of these tables, all as whole numbers, or else all as the text that was written."""
    numbers = [_whole_numbers(table, names) for table, names in places]
    columns = [column for found in numbers for column in found]
    if not all(numbers):
        columns = [each for table, names in places for each in table.texts(names, na_is_missing=False)]
    named = [(table, name) for table, names in places for name in names]
    for (table, name), column in zip(named, columns, strict=True):
        if column.null_count:
            row = _first(pc.is_null(column))
            raise DataError(
                f"{table.where(row)}, column {name!r} must hold a node id, but is empty; fill it or drop the row."
            )
    return columns


def _whole_numbers(table: Table, names: Sequence[str]) -> list[pa.ChunkedArray]:
    """The columns as int64; none if one holds anything else, such as 007, which is not 7."""
    columns = [table.column(name) for name in names]
    types = {column.type for column in columns if len(column)}
    if not all(pa.types.is_integer(kind) or (pa.types.is_floating(kind) and table.file is None) for kind in types):
        return []
    try:
        numbers = [column.cast(pa.int64()) for column in columns]
    except pa.ArrowInvalid:  # 1.5, or beyond 64 bits
        return []
    if table.file is not None:
        for number, written in zip(numbers, table.texts(names, na_is_missing=False), strict=True):
            if not pc.all(pc.equal(number.cast(pa.string()), written), skip_nulls=False, min_count=0).as_py():
                return []
    return numbers


def _number(source: pa.ChunkedArray, destination: pa.ChunkedArray) -> tuple[pa.Array, Index, Index]:
    """Every id that occurs, sorted, and the positions of the edges' ends among them."""
    if pa.types.is_integer(source.type):
        ends = np.concatenate([np.asarray(source), np.asarray(destination)])
        low, high = int(ends.min()), int(ends.max())
        if _is_dense(low, high, len(ends)):
            occurs = np.zeros(high - low + 1, dtype=bool)
            ends -= low
            occurs[ends] = True
            ids = np.flatnonzero(occurs)
            position = (np.cumsum(occurs) - 1)[ends]
            return pa.array(ids + low), position[: len(source)], position[len(source) :]
    encoded = pc.dictionary_encode(pa.chunked_array([*source.chunks, *destination.chunks]))
    distinct = encoded.chunk(0).dictionary  # all chunks share it
    order = np.asarray(pc.sort_indices(distinct)).astype(np.int64)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    position = rank[np.concatenate([np.asarray(chunk.indices) for chunk in encoded.chunks])]
    return distinct.take(pa.array(order)), position[: len(source)], position[len(source) :]


def _is_dense(low: int, high: int, count: int) -> bool:
    """Whether a table from `low` to `high` is not much larger than what is looked up in it."""
    return high - low <= 8 * count + 1024


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


def _look_up(wanted: pa.ChunkedArray, ids: pa.Array) -> Index:
    """Positions, -1 for ids that are not there."""
    if len(wanted) == 0:
        return np.empty(0, dtype=np.int64)
    if pa.types.is_integer(ids.type):
        numbers, known = np.asarray(wanted), np.asarray(ids)
        low, high = int(known.min()), int(known.max())
        if _is_dense(low, high, len(known) + len(numbers)):
            table = np.full(high - low + 2, -1, dtype=np.int64)
            table[known - low] = np.arange(len(known))
            inside = (numbers >= low) & (numbers <= high)
            return np.asarray(table[np.where(inside, numbers - low, -1)])  # the last entry stays -1
    return np.asarray(pc.fill_null(pc.index_in(wanted, value_set=ids), -1)).astype(np.int64)


# --------------------------------------------------------------------------------------------------- weights
def _weights(edges: Table, name: str) -> Weights:
    column = edges.numeric(name)
    if column.null_count:
        row = _first(pc.is_null(column))
        raise DataError(f"{edges.where(row)}, column {name!r} must hold the edge's weight, but is empty; fill it.")
    try:
        weight: Weights = np.asarray(column.cast(pa.float64(), safe=False))
    except pa.ArrowInvalid:
        row = _first(pc.invert(pc.match_substring_regex(column, NUMBER)))
        raise DataError(
            f"{edges.where(row)}, column {name!r} must hold the weight of the edge, a number, but holds "
            f"{column[row].as_py()!r}; correct it, or name another weight column ('' for none)."
        ) from None
    except pa.ArrowNotImplementedError:
        raise DataError(
            f"{edges.origin}, column {name!r} must hold weights, which are numbers, but holds {column.type}; "
            f"name another weight column ('' for none)."
        ) from None
    bad = np.flatnonzero(~(np.abs(weight) <= np.finfo(np.float32).max) | (weight < 0))
    if len(bad):
        row = int(bad[0])
        raise DataError(
            f"{edges.where(row)}, column {name!r} must be a finite number >= 0, but is {weight[row]}; correct it."
        )
    return weight


def _first(mask: pa.ChunkedArray) -> int:
    return int(np.flatnonzero(np.asarray(mask))[0])


# --------------------------------------------------------------------------------------------------- merging
def merge_edges(
    source: Index, destination: Index, weight: Weights | None, num_nodes: int, directed: bool, notes: list[str]
) -> tuple[Tensor, Tensor | None]:
    """Sorted by (source, destination), each edge once; both directions of an undirected one.

    An edge that is listed twice counts once; its weights are added up. An undirected edge may be listed in one
    direction or in both: in both it is the same edge if all such weights agree, or else the two are added up.
    """
    given = len(source)
    if directed:
        key = source * num_nodes + destination
        key, weight = (_sorted_once(key), None) if weight is None else _sum_by_key(key, weight)
        distinct = len(key)
    else:
        pair = np.minimum(source, destination) * num_nodes + np.maximum(source, destination)
        if weight is None:
            pair = _sorted_once(pair)
        else:
            pair, weight = _sum_by_pair(pair, source > destination, weight, notes)
        distinct = len(pair)
        key, weight = _both_directions(pair, weight, num_nodes)
    if distinct < given:
        notes.append(f"{given - distinct:,} of {given:,} edges are listed more than once and were merged")
    edge_index = np.empty((2, len(key)), dtype=np.int64)
    np.divmod(key, num_nodes, out=(edge_index[0], edge_index[1]))
    return torch.from_numpy(edge_index), None if weight is None else torch.from_numpy(weight.astype(np.float32))


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
    key = key[order]
    starts = np.flatnonzero(_starts(key))
    return key[starts], np.add.reduceat(weight[order], starts, dtype=np.float64) if len(starts) else weight


def _sum_by_pair(
    pair: Index, backward: NDArray[np.bool_], weight: Weights, notes: list[str]
) -> tuple[Index, Weights]:
    """The weight of each pair of nodes that is joined in one direction or in both."""
    key, weight = _sum_by_key(2 * pair + backward, weight)
    pair = key // 2
    first = _starts(pair)
    second = np.flatnonzero(~first)  # backward, directly after the same pair forward
    if not np.allclose(weight[second], weight[second - 1], rtol=1e-6, atol=0.0):
        notes.append("edges are listed in both directions with different weights: the two weights were added up")
        weight[second - 1] += weight[second]
    return pair[first], weight[first]


def _both_directions(pair: Index, weight: Weights | None, num_nodes: int) -> tuple[Index, Weights | None]:
    low, high = np.divmod(pair, num_nodes)
    apart = low != high  # a self-loop has one direction
    key = np.concatenate([pair, (high * num_nodes + low)[apart]])
    if weight is None:
        key.sort()
        return key, None
    order = np.argsort(key, kind="stable")
    return key[order], np.concatenate([weight, weight[apart]])[order]
