"""Edges named by ids of any type into `edge_index`: weights read, duplicates merged, both directions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from pprgnn.data.errors import DataError
from pprgnn.data.own.features import learn_written, read_texts
from pprgnn.data.own.ids import Index, each_once, id_columns, look_up, number_ids, with_ids, with_unknown
from pprgnn.data.own.reading import Reading, Style
from pprgnn.data.own.table import Table
from pprgnn.data.own.text_file import trimmed

if TYPE_CHECKING:
    from pprgnn.data.own.schema import Columns

Weights = NDArray[Any]


def edges_of(
    edges: Table, nodes: Table | None, columns: Columns, reading: Reading | None, notes: list[str]
) -> tuple[Tensor, Tensor | None, pa.Array, Table | None]:
    """`edge_index`, weights, the id of each node (as in the node table, or else sorted), and the node table."""
    ends = [str(columns.source), str(columns.destination)]
    if columns.empty_ids == "drop":
        edges = with_ids(edges, ends, notes)
        nodes = None if nodes is None else with_ids(nodes, [str(columns.id)], notes)
    if nodes is None:
        if len(edges) == 0:
            raise DataError(f"{edges.origin} has no edges and there is no node table, so there is no graph.")
        kept = np.ones(len(edges), dtype=bool)
        ids, source, destination = number_ids(*id_columns((edges, ends)))
    else:
        if len(nodes) == 0:
            raise DataError(f"{nodes.origin} has no rows; expected one for each node.")
        start, end, column = id_columns((edges, ends), (nodes, [str(columns.id)]))
        nodes, ids = each_once(nodes, column.combine_chunks(), columns.duplicates, notes)
        source, destination = look_up(start, ids), look_up(end, ids)
        kept = (source >= 0) & (destination >= 0)
        if not kept.all():
            strange = [(start, source < 0), (end, destination < 0)]
            nodes, ids = with_unknown(edges, strange, nodes, ids, columns.unknown_nodes, notes)
            source, destination = look_up(start, ids), look_up(end, ids)
            kept = (source >= 0) & (destination >= 0)
            source, destination = source[kept], destination[kept]
    if not len(source) and columns.empty_edges == "error":
        raise DataError(
            f"{edges.origin} has no edges{' that join known nodes' if len(edges) else ''}; add some, or ask for a "
            f"graph without edges (--empty-edges allow)."
        )
    weight = _weights(edges, columns.weight, reading) if columns.weight else None
    if weight is not None and not kept.all():
        weight = weight[kept]
    return *merge_edges(source, destination, weight, len(ids), columns.directed, notes), ids, nodes


# --------------------------------------------------------------------------------------------------- weights
def learn_weight(edges: Table, name: str, style: Style) -> tuple[Reading | None, str]:
    """How the weights are written, if that is not plain, and what is uncertain about it."""
    reading, doubt = learn_written(edges, name, style)
    return (None, "") if reading is None or reading.date else (replace(reading, stray=()), doubt)


def _weights(edges: Table, name: str, reading: Reading | None) -> Weights:
    column, text = edges.column(name), read_texts(edges, name, reading)
    weight: Weights
    if text is not None:
        weight, there, _ = (reading or Reading()).read(text)
        wrong = np.flatnonzero(~there & np.asarray(pc.is_valid(trimmed(text))))
        if len(wrong):
            row = int(wrong[0])
            raise DataError(
                f"{edges.where(row)}, column {name!r} must hold the weight of the edge, a number, but holds "
                f"{text[row].as_py()!r}; correct it, or name another weight column ('' for none)."
            )
    else:
        there = np.asarray(pc.is_valid(column))
        try:
            weight = np.asarray(column.cast(pa.float64(), safe=False))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise DataError(
                f"{edges.origin}, column {name!r} must hold weights, which are numbers, but holds {column.type}; "
                f"name another weight column ('' for none)."
            ) from None
    if not there.all():
        row = int(np.flatnonzero(~there)[0])
        raise DataError(f"{edges.where(row)}, column {name!r} must hold the edge's weight, but is empty; fill it.")
    bad = np.flatnonzero(~(np.abs(weight) <= np.finfo(np.float32).max) | (weight < 0))
    if len(bad):
        row = int(bad[0])
        raise DataError(
            f"{edges.where(row)}, column {name!r} must be a finite number >= 0, but is {weight[row]}; correct it."
        )
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
