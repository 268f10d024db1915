"""Edges named by ids of any type into `edge_index`: nodes numbered, weights read, duplicates merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from pprgnn.data.own.features import learn_written, read_texts
from pprgnn.data.own.reading import Reading, Style
from pprgnn.data.own.table import Table
from pprgnn.data.own.text_file import trimmed
from pprgnn.data.raw_files import distinct, is_dense, number_ids, starts
from pprgnn.errors import DataError

if TYPE_CHECKING:
    from pprgnn.data.own.tables import Columns

Index = NDArray[np.int64]
Weights = NDArray[Any]


def edges_of(
    edges: Table, nodes: Table | None, columns: Columns, reading: Reading | None, notes: list[str]
) -> tuple[Tensor, Tensor | None, pa.Array, Table | None]:
    """`edge_index`, weights, the id of each node (as in the node table, or else sorted), and the node table."""
    ends = [str(columns.source), str(columns.destination)]
    if columns.empty_ids == "drop":
        edges = _with_ids(edges, ends, notes)
        nodes = None if nodes is None else _with_ids(nodes, [str(columns.id)], notes)
    if nodes is None:
        if len(edges) == 0:
            raise DataError(f"{edges.origin} has no edges and there is no node table, so there is no graph.")
        kept = np.ones(len(edges), dtype=bool)
        ids, source, destination = _number_ends(*_id_columns((edges, ends)))
    else:
        if len(nodes) == 0:
            raise DataError(f"{nodes.origin} has no rows; expected one for each node.")
        start, end, column = _id_columns((edges, ends), (nodes, [str(columns.id)]))
        nodes, ids = _each_once(nodes, column.combine_chunks(), columns.duplicates, notes)
        source, destination = _look_up(start, ids), _look_up(end, ids)
        kept = (source >= 0) & (destination >= 0)
        if not kept.all():
            strange = [(start, source < 0), (end, destination < 0)]
            nodes, ids = _with_unknown(edges, strange, nodes, ids, columns.unknown_nodes, notes)
            source, destination = _look_up(start, ids), _look_up(end, ids)
            kept = (source >= 0) & (destination >= 0)
            source, destination = source[kept], destination[kept]
    if not len(source) and columns.empty_edges == "error":
        raise DataError(
            f"{edges.origin} has no edges{' that join known nodes' if len(edges) else ''}; add some, or ask for a "
            f"graph without edges (--empty-edges allow)."
        )
    weight = _weights(edges, columns.weight, reading)[kept] if columns.weight else None
    return *merge_edges(source, destination, weight, len(ids), columns.directed, notes), ids, nodes


# ------------------------------------------------------------------------------------------------------ ids
def _with_ids(table: Table, names: Sequence[str], notes: list[str]) -> Table:
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


def _each_once(nodes: Table, ids: pa.Array, which: str, notes: list[str]) -> tuple[Table, pa.Array]:
    """One row for each id."""
    if pc.count_distinct(ids).as_py() == len(ids):
        return nodes, ids
    number = np.asarray(ids.dictionary_encode().indices)  # of each row's id, in the order in which they appear
    earliest = np.unique(number, return_index=True)[1]
    if which == "error":
        row = int(np.argmax(earliest[number] < np.arange(len(number))))
        raise DataError(
            f"{nodes.where(row)} has the node id {ids[row].as_py()!r}, which {nodes.where(earliest[number[row]])} "
            f"already has; keep one row per node, or say which counts (--duplicates first or last)."
        )
    latest = len(number) - 1 - np.unique(number[::-1], return_index=True)[1]
    rows = np.sort(earliest if which == "first" else latest)
    notes.append(
        f"{len(ids) - len(rows):,} of {len(ids):,} rows of {nodes.origin} repeat a node id: the {which} row counts"
    )
    return nodes.take(rows), ids.take(pa.array(rows))


def _with_unknown(
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


def _id_columns(*places: tuple[Table, Sequence[str]]) -> list[pa.ChunkedArray]:
    """These columns of these tables, all as whole numbers, or else all as the text that was written."""
    numbers = [_whole_numbers(table, names) for table, names in places]
    columns = [column for found in numbers for column in found]
    if not all(numbers):
        columns = [each for table, names in places for each in table.texts(names, na_is_missing=False)]
    named = [(table, name) for table, names in places for name in names]
    for (table, name), column in zip(named, columns, strict=True):
        problem = "must hold a node id, but is empty; fill it or drop the row (--empty-ids drop)"
        table.refuse(pc.is_null(column), name, lambda _: problem)  # noqa: B023
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


def _number_ends(source: pa.ChunkedArray, destination: pa.ChunkedArray) -> tuple[pa.Array, Index, Index]:
    """Every id that occurs, sorted, and the positions of the edges' ends among them."""
    if pa.types.is_integer(source.type):
        known, position = number_ids(np.concatenate([np.asarray(source), np.asarray(destination)]))
        ids = pa.array(known)
    else:
        encoded = pc.dictionary_encode(pa.chunked_array([*source.chunks, *destination.chunks]))
        words = encoded.chunk(0).dictionary  # all chunks share it
        order = np.asarray(pc.sort_indices(words)).astype(np.int64)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        position = rank[np.concatenate([np.asarray(chunk.indices) for chunk in encoded.chunks])]
        ids = words.take(pa.array(order))
    return ids, position[: len(source)], position[len(source) :]


def _look_up(wanted: pa.ChunkedArray, ids: pa.Array) -> Index:
    """Positions, -1 for ids that are not there."""
    if len(wanted) == 0:
        return np.empty(0, dtype=np.int64)
    if pa.types.is_integer(ids.type):
        numbers, known = np.asarray(wanted), np.asarray(ids)
        low, high = int(known.min()), int(known.max())
        if is_dense(low, high, len(known) + len(numbers)):
            table = np.full(high - low + 2, -1, dtype=np.int64)
            table[known - low] = np.arange(len(known))
            inside = (numbers >= low) & (numbers <= high)
            return np.asarray(table[np.where(inside, numbers - low, -1)])  # the last entry stays -1
    return np.asarray(pc.fill_null(pc.index_in(wanted, value_set=ids), -1)).astype(np.int64)


# --------------------------------------------------------------------------------------------------- weights
def learn_weight(edges: Table, name: str, style: Style) -> tuple[Reading | None, str]:
    """How the weights are written, if that is not plain, and what is uncertain about it."""
    reading, doubt = learn_written(edges, name, style)
    return (None, "") if reading is None or reading.date else (replace(reading, stray=()), doubt)


def _weights(edges: Table, name: str, reading: Reading | None) -> Weights:
    text = read_texts(edges, name, reading)
    other = "name another weight column ('' for none)"
    weight: Weights
    if text is not None:
        weight, there, _ = (reading or Reading()).read(text)
        wrong, what = ~there & np.asarray(pc.is_valid(trimmed(text))), "must hold the weight of the edge, a number"
        edges.refuse(wrong, name, lambda row: f"{what}, but holds {text[row].as_py()!r}; correct it, or {other}")
    else:
        column = edges.converted(
            name, lambda each: each.cast(pa.float64(), safe=False), "weights, which are numbers", other
        )
        weight, there = np.asarray(column), np.asarray(pc.is_valid(column))
    edges.refuse(~there, name, lambda _: "must hold the edge's weight, but is empty; fill it")
    wrong = ~(np.abs(weight) <= np.finfo(np.float32).max) | (weight < 0)
    edges.refuse(wrong, name, lambda row: f"must be a finite number >= 0, but is {weight[row]}; correct it")
    return weight


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
        key, weight = (distinct(key), None) if weight is None else _sum_by_key(key, weight)
        different = len(key)
    else:
        pair = np.minimum(source, destination) * num_nodes + np.maximum(source, destination)
        if weight is None:
            pair = distinct(pair)
        else:
            pair, weight = _sum_by_pair(pair, source > destination, weight, notes)
        different = len(pair)
        key, weight = _both_directions(pair, weight, num_nodes)
    if different < given:
        notes.append(f"{given - different:,} of {given:,} edges are listed more than once and were merged")
    edge_index = np.empty((2, len(key)), dtype=np.int64)
    np.divmod(key, num_nodes, out=(edge_index[0], edge_index[1]))
    return torch.from_numpy(edge_index), None if weight is None else torch.from_numpy(weight.astype(np.float32))


def _sum_by_key(key: Index, weight: Weights) -> tuple[Index, Weights]:
    order = np.argsort(key, kind="stable")
    key = key[order]
    places = np.flatnonzero(starts(key))
    return key[places], np.add.reduceat(weight[order], places, dtype=np.float64) if len(places) else weight


def _sum_by_pair(
    pair: Index, backward: NDArray[np.bool_], weight: Weights, notes: list[str]
) -> tuple[Index, Weights]:
    """The weight of each pair of nodes that is joined in one direction or in both."""
    key, weight = _sum_by_key(2 * pair + backward, weight)
    pair = key // 2
    first = starts(pair)
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
