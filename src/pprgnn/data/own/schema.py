"""Which columns are what, named or guessed, and how they become numbers: all that a later table needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pprgnn.data.own.features import Feature
from pprgnn.data.own.labels import Label, read_parts
from pprgnn.data.own.reading import Reading, Style, as_tuples
from pprgnn.data.own.table import Table, read_table
from pprgnn.errors import DataError

LISTS = ("label", "features", "ignore", "categorical")  # fields of `Columns` below
LEARNED = (*LISTS, "label_separator")  # what a schema has settled
OF_NODES = ("id", "split", *LEARNED, "unknown_nodes", "duplicates")  # what needs a node table
CHOICES = {  # fields of `Columns`, the default first
    "unknown_nodes": ("error", "drop", "add"),
    "duplicates": ("error", "first", "last"),
    "empty_ids": ("error", "drop"),
    "empty_edges": ("error", "allow"),
}
# What people call these columns, best first, in lower case without blanks, dashes and underscores.
SOURCE_NAMES = ("source", "src", "from", "fromnodeid", "sourceid", "u", "node1", "id1", "head", "citing")
DESTINATION_NAMES = ("target", "destination", "dst", "to", "tonodeid", "targetid", "v", "node2", "id2", "tail")
WEIGHT_NAMES = ("weight", "edgeweight", "w", "strength")
ID_NAMES = ("id", "nodeid", "node", "name", "key", "uid")
LABEL_NAMES = ("label", "class", "target", "y", "labels", "category")
SPLIT_NAMES = ("split", "part", "subset", "set", "fold")


@dataclass(frozen=True)
class Columns:
    """Which column is what and how tables are read; ``None`` is guessed (and the guess is told)."""

    source: str | None = None
    destination: str | None = None
    weight: str | None = None  # "": there is none
    id: str | None = None
    label: tuple[str, ...] | None = None  # (): there is none
    split: str | None = None  # "": there is none
    features: tuple[str, ...] | None = None  # None: every other column
    ignore: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    label_separator: str | None = None  # "": never a list
    directed: bool = False
    encoding: str | None = None  # of text files; None: UTF-8
    decimal: str | None = None  # "." or ","
    thousands: str | None = None  # ",", ".", " " or "'"
    date: str | None = None  # "dmy", "mdy" or "ymd"
    unknown_nodes: str = "error"  # edges to nodes without a row: "drop" them, or "add" the nodes
    duplicates: str = "error"  # rows with the same node id: the "first" or the "last" counts
    empty_ids: str = "error"  # rows without a node id: "drop" them
    empty_edges: str = "error"  # "allow" a graph without edges

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise DataError(
                    f"The option {name} must be one of {', '.join(known)}, but is {getattr(self, name)!r}."
                )
        _ = self.style  # refuses what it does not know

    @property
    def style(self) -> Style:
        """How values are written, as far as that was said."""
        return Style(self.decimal, self.thousands, self.date)


@dataclass(frozen=True)
class Schema:
    """How tables become a graph, completely: what prediction needs to treat new tables the same way."""

    columns: Columns
    features: tuple[Feature, ...]
    label: Label | None
    weight: Reading | None = None  # how the weights of edges are written, if they came as text

    def with_style(self, style: Style) -> Schema:
        """The same, with values that are written as the user says now."""
        if style == Style():
            return self
        features = tuple(feature.with_style(style) for feature in self.features)
        return replace(self, features=features, weight=(self.weight or Reading()).with_style(style))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        features = [feature.to_dict() for feature in self.features]
        plain = asdict(self) | {"features": features}
        return dict(json.loads(json.dumps(plain)))  # the same before and after it was written to a file

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Schema:
        """The inverse of :meth:`to_dict`."""
        features = tuple(Feature.from_dict(feature) for feature in values["features"])
        label = None if values["label"] is None else Label(**as_tuples(values["label"]))
        weight = None if values.get("weight") is None else Reading.from_dict(values["weight"])
        return cls(Columns(**as_tuples(values["columns"])), features, label, weight)


def as_fields(named: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name as the fields of `Columns`, or an error for one that it does not have."""
    for key in named:
        if key not in Columns.__dataclass_fields__:
            options = ", ".join(Columns.__dataclass_fields__)
            raise DataError(f"There is no option {key!r}; the options are {options}.")
    several = {key: [value] if isinstance(value, str) else value for key, value in named.items() if key in LISTS}
    return dict(named) | {k: None if names is None else tuple(filter(None, names)) for k, names in several.items()}


# ------------------------------------------------------------ guesses by name
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
