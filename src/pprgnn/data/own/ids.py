"""Node ids of any type: which rows name the same node, which none, and the number of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pprgnn.data.errors import DataError
from pprgnn.data.own.table import Table

Index = NDArray[np.int64]


def with_ids(table: Table, names: Sequence[str], notes: list[str]) -> Table:
    """Only the rows in which these ids are filled."""
    if not any(table.column(name).null_count for name in names):
        return table
    empty = np.zeros(len(table), dtype=bool)
    for column in table.texts(names, na_is_missing=False):
        empty |= np.asarray(pc.is_null(column))
    if not empty.any():
        return table
    notes.append(f"{int(empty.sum()):,} of {len(table):,} rows of {table.origin} have no node id and were dropped")
    return table.take(np.flatnonzero(~empty))


def each_once(nodes: Table, ids: pa.Array, which: str, notes: list[str]) -> tuple[Table, pa.Array]:
    """One row for each id."""
    if pc.count_distinct(ids).as_py() == len(ids):
        return nodes, ids
    if which == "error":
        _refuse_duplicates(nodes, ids)
    number = np.asarray(ids.dictionary_encode().indices)
    if which == "first":
        rows = np.unique(number, return_index=True)[1]
    else:
        rows = len(number) - 1 - np.unique(number[::-1], return_index=True)[1]
    rows.sort()
    notes.append(
        f"{len(ids) - len(rows):,} of {len(ids):,} rows of {nodes.origin} repeat a node id: the {which} row counts"
    )
    return nodes.take(rows), ids.take(pa.array(rows))


def with_unknown(
    edges: Table,
    strange: Sequence[tuple[pa.ChunkedArray, NDArray[np.bool_]]],
    nodes: Table,
    ids: pa.Array,
    otherwise: str,
    notes: list[str],
) -> tuple[Table, pa.Array]:
    """The nodes, with more of them if those that only edges name are to be added; ``strange`` marks them."""
    (start, start_unknown), (end, end_unknown) = strange
    unknown = start_unknown | end_unknown
    told = f"{int(unknown.sum()):,} of {len(edges):,} edges"
    if otherwise == "error":
        row = int(np.flatnonzero(unknown)[0])
        node = (start if start_unknown[row] else end)[row].as_py()
        raise DataError(
            f"{edges.where(row)} names the node {node!r}, which is in no row of {nodes.origin} ({told} do so); "
            f"--unknown-nodes add adds these nodes, --unknown-nodes drop drops these edges."
        )
    if otherwise == "drop":
        notes.append(f"{told} name nodes that are in no row of {nodes.origin} and were dropped")
        return nodes, ids
    chunks = [chunk for each, mask in strange for chunk in each.filter(pa.array(mask)).cast(ids.type).chunks]
    new = pc.unique(pa.chunked_array(chunks, ids.type))
    notes.append(
        f"{told} name {len(new):,} nodes that are in no row of {nodes.origin}: they were added without values"
    )
    rows = np.concatenate([np.arange(len(nodes)), np.full(len(new), -1)])
    return nodes.take(rows), pa.concat_arrays([ids, new])


def id_columns(*places: tuple[Table, Sequence[str]]) -> list[pa.ChunkedArray]:
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
                f"{table.where(row)}, column {name!r} must hold a node id, but is empty; fill it or drop the row "
                f"(--empty-ids drop)."
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


def number_ids(source: pa.ChunkedArray, destination: pa.ChunkedArray) -> tuple[pa.Array, Index, Index]:
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
    seen: dict[Any, int] = {}
    for row, node in enumerate(ids.to_pylist()):
        if node in seen:
            raise DataError(
                f"{nodes.where(row)} has the node id {node!r}, which {nodes.where(seen[node])} already has; "
                f"keep one row per node, or say which counts (--duplicates first or last)."
            )
        seen[node] = row


def look_up(wanted: pa.ChunkedArray, ids: pa.Array) -> Index:
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


def _first(mask: pa.ChunkedArray) -> int:
    return int(np.flatnonzero(np.asarray(mask))[0])
