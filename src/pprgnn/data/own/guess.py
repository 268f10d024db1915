"""Which columns are what, guessed by their names; every guess is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pprgnn.data.errors import DataError
from pprgnn.data.own.labels import read_parts
from pprgnn.data.own.schema import Columns
from pprgnn.data.own.table import Table, read_table

# What people call these columns, best first, in lower case without blanks, dashes and underscores.
SOURCE_NAMES = ("source", "src", "from", "fromnodeid", "sourceid", "u", "node1", "id1", "head", "citing")
DESTINATION_NAMES = ("target", "destination", "dst", "to", "tonodeid", "targetid", "v", "node2", "id2", "tail")
WEIGHT_NAMES = ("weight", "edgeweight", "w", "strength")
ID_NAMES = ("id", "nodeid", "node", "name", "key", "uid")
LABEL_NAMES = ("label", "class", "target", "y", "labels", "category")
SPLIT_NAMES = ("split", "part", "subset", "set", "fold")


def without_false_header(
    table: Table, nodes: Table | None, header: bool | None, columns: Columns, notes: list[str]
) -> Table:
    """A first line of two node ids is an edge, not a header: losing it would go unnoticed."""
    if header is not None or table.path is None or not table.header or len(table.names) < 2:
        return table
    first, second = table.names[:2]
    known = columns.source in table.names or (_named(table, SOURCE_NAMES) and _named(table, DESTINATION_NAMES))
    values = [table.columns.column(0), table.columns.column(1)]
    if nodes is not None:
        values.append(nodes.columns.column(0))
    if not known and all(any(_occurs(name, column) for column in values) for name in (first, second)):
        notes.append(f"{table.origin} has no header line: its first line, {first} and {second}, names nodes")
        return read_table(table.path, header=False, encoding=columns.encoding, decimal=columns.style.point)
    return table


def _occurs(name: str, column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_string(column.type) and pc.any(pc.equal(column, name)).as_py())


def guess_edge_columns(table: Table, columns: Columns, notes: list[str]) -> Columns:
    """The ends and the weight of an edge."""
    if len(table.names) < 2:
        raise DataError(
            f"{table.origin} must have two columns of node ids, but has {len(table.names)} "
            f"({', '.join(table.names)}); separate them by commas or tabs."
        )
    source = columns.source or _named(table, SOURCE_NAMES, columns.destination)
    destination = columns.destination or _named(table, DESTINATION_NAMES, source)
    free = [name for name in table.names if name not in (source, destination)]
    source = source or free.pop(0)
    destination = destination or free.pop(0)
    if source == destination:
        raise DataError(
            f"An edge must have two ends, but both are in column {source!r} of {table.origin}; name two."
        )
    if columns.source is None or columns.destination is None:
        notes.append(f"edges run from column {source!r} to column {destination!r}")
    weight = columns.weight
    if weight is None:
        weight = _named(table, WEIGHT_NAMES, source, destination)
        if weight is not None:
            notes.append(f"edge weights are in column {weight!r}")
    return replace(columns, source=source, destination=destination, weight=weight or None)


def guess_node_columns(table: Table, columns: Columns, notes: list[str]) -> Columns:
    """The id, the label and the split of a node."""
    node_id = columns.id
    if node_id is None:
        node_id = _named(table, ID_NAMES, *(columns.label or ()), columns.split) or table.names[0]
        notes.append(f"node ids are in column {node_id!r}")
    elsewhere = (node_id, *columns.ignore, *(columns.features or ()))
    label = columns.label
    if label is None:
        found = _named(table, LABEL_NAMES, *elsewhere, columns.split)
        label = (found,) if found else ()
        notes.append(f"the label is in column {found!r}" if found else "there is no label column")
    split = columns.split
    if split is None:
        split = _named(table, SPLIT_NAMES, *elsewhere, *label)
        if split is not None and not _looks_like_split(table, split):
            split = None
        if split is not None:
            notes.append(f"the split is in column {split!r}")
    return replace(columns, id=node_id, label=label, split=split or None)


def _named(table: Table, known: Sequence[str], *besides: str | None) -> str | None:
    """The column with the best of these names."""
    plain = {
        name.lower().translate({ord(mark): None for mark in " -_"}): name
        for name in reversed(table.names)
        if name not in besides
    }
    return next((plain[name] for name in known if name in plain), None)


def _looks_like_split(table: Table, name: str) -> bool:
    try:
        return bool((read_parts(table, name) >= 0).any())
    except DataError:
        return False
