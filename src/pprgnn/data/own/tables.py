"""A user's own graph from an edge table and a node table: guess the columns, number the nodes, encode the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.own.edges import edges_of, learn_weight
from pprgnn.data.own.features import Feature, learn_feature
from pprgnn.data.own.labels import Label, class_remarks, learn_label, read_parts
from pprgnn.data.own.reading import Reading, Style, as_tuples
from pprgnn.data.own.table import Table, read_table
from pprgnn.errors import DataError

Source: TypeAlias = "Path | str | pa.Table | Table"
Row: TypeAlias = "tuple[str, str, str, str]"  # table, column, how it is read, a remark
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
        weight = None if values.get("weight") is None else Reading(**as_tuples(values["weight"]))
        return cls(Columns(**as_tuples(values["columns"])), features, label, weight)


def from_tables(
    edges: Source,
    nodes: Source | None = None,
    *,
    name: str | None = None,
    columns: Columns | None = None,
    header: bool | None = None,
    schema: Schema | Mapping[str, Any] | None = None,
    **named: Any,
) -> GraphDataset:
    """A graph from an edge table and an optional node table (CSV, TSV, Parquet, Excel, or Arrow tables).

    Args:
        edges: One row per edge: two node ids, and perhaps a weight. Undirected unless ``directed=True``.
        nodes: One row per node: its id, features, perhaps a label (empty: to be predicted) and a split.
        name: What to call the graph; the name of the edge file by default.
        columns: Which column is what, and how tables are read. Its fields can be given directly:
            ``from_tables(e, n, label="topic", decimal=",")``.
        header: Whether text files start with a header line; ``None`` looks.
        schema: Treat the tables exactly as those of this earlier graph (``dataset.facts.schema``).
        named: The fields of ``columns``.

    How each column was read is in ``dataset.facts.columns``, every guess in ``dataset.facts.guessed``.
    """
    known = None if schema is None else schema if isinstance(schema, Schema) else Schema.from_dict(schema)
    given = _as_fields(named)
    if known is not None and (columns is not None or any(key in LEARNED for key in given)):
        raise DataError(f"A schema already says what the columns are; leave out {', '.join(given) or 'columns'}.")
    columns = replace(columns or (known.columns if known else Columns()), **given)
    notes: list[str] = []
    edge_table = _table(edges, "the edge table", header, columns, columns.source, notes)
    for key in OF_NODES:
        if nodes is None and given.get(key):
            option = "--" + {"label": "target"}.get(key, key).replace("_", "-")
            raise DataError(f"{option} is about the node table, but there is none; add --nodes FILE, or drop it.")
    node_table = None if nodes is None else _table(nodes, "the node table", header, columns, columns.id, notes)
    edge_table = _without_false_header(edge_table, node_table, header, columns, notes)
    if known is None:
        columns = _guess_edge_columns(edge_table, columns, notes)
        columns = columns if node_table is None else _guess_node_columns(node_table, columns, notes)
    elif (node_table is None) != (columns.id is None):
        had, came = ("a", "none") if node_table is None else ("no", "one")
        raise DataError(f"The earlier graph had {had} node table, but {came} came; pass the same tables as then.")

    rows: list[Row] = []
    if known is None:
        weight_reading = _describe_edges(edge_table, columns, rows)
    else:
        known = known.with_style(Style(*(given.get(key) for key in ("decimal", "thousands", "date"))))
        weight_reading = known.weight
    edge_index, weight, ids, node_table = edges_of(edge_table, node_table, columns, weight_reading, notes)
    weights = {} if weight is None else {"edge_weight": weight}
    data = Data(edge_index=edge_index, num_nodes=len(ids), **weights)
    later = known is not None
    known = replace(known or _learn(node_table, columns, rows, notes), columns=columns, weight=weight_reading)
    if node_table is not None:
        _encode_nodes(data, node_table, known)
        if later:
            notes += [told for feature in known.features if (told := feature.unseen(node_table))]
        elif known.label is not None:
            notes += class_remarks(known.label, data.y.numpy())
    label = known.label
    facts = Facts(
        name=name or (Path(edges).name.split(".")[0] if isinstance(edges, str | Path) else "") or "graph",
        task="node",
        multi_label=label is not None and label.multi,
        metric="micro-F1" if label is not None and label.multi else "accuracy",
        class_names=() if label is None else label.classes,
        directed=columns.directed,
        schema=known.to_dict(),
        guessed=tuple(notes),
        columns=tuple(rows),
    )
    dataset = GraphDataset.from_graphs([data], facts)
    if pa.types.is_integer(ids.type):
        dataset._data.node_id = torch.from_numpy(np.array(ids))
    else:
        dataset.node_names = ids.to_pylist()
    return dataset


def _as_fields(named: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name as the fields of `Columns`, or an error for one that it does not have."""
    for key in named:
        if key not in Columns.__dataclass_fields__:
            options = ", ".join(Columns.__dataclass_fields__)
            raise DataError(f"There is no option {key!r}; the options are {options}.")
    several = {key: [value] if isinstance(value, str) else value for key, value in named.items() if key in LISTS}
    return dict(named) | {k: None if names is None else tuple(filter(None, names)) for k, names in several.items()}


def _table(
    source: Source, what: str, header: bool | None, columns: Columns, expected: str | None, notes: list[str]
) -> Table:
    if isinstance(source, Table):
        return source
    if isinstance(source, pa.Table):
        return Table(source, what)
    written: dict[str, Any] = {"encoding": columns.encoding, "decimal": columns.style.point}
    table = read_table(source, header=header, **written)
    if header is None and expected is not None and expected.startswith("column ") and expected not in table.names:
        table = read_table(source, header=False, **written)  # the earlier table had no header, nor has this one
    if header is None and not table.header:
        notes.append(f"{table.origin} has no header line")
    return table


# ------------------------------------------------------------------------------------------------ guesses by name
def _without_false_header(
    table: Table, nodes: Table | None, header: bool | None, columns: Columns, notes: list[str]
) -> Table:
    """A first line of two node ids is an edge, not a header: losing it would go unnoticed."""
    if header is not None or table.path is None or not table.header or len(table.names) < 2:
        return table
    first, second = table.names[:2]
    known = columns.source in table.names or (_named(table, SOURCE_NAMES) and _named(table, DESTINATION_NAMES))
    values = [*table.columns.columns[:2], *(nodes.columns.columns[:1] if nodes is not None else ())]
    texts = [column for column in values if pa.types.is_string(column.type)]
    occur = [any(pc.any(pc.equal(column, name)).as_py() for column in texts) for name in (first, second)]
    if not known and all(occur):
        notes.append(f"{table.origin} has no header line: its first line, {first} and {second}, names nodes")
        return read_table(table.path, header=False, encoding=columns.encoding, decimal=columns.style.point)
    return table


def _guess_edge_columns(table: Table, columns: Columns, notes: list[str]) -> Columns:
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


def _guess_node_columns(table: Table, columns: Columns, notes: list[str]) -> Columns:
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
        split = split if split is not None and _looks_like_split(table, split) else None
        if split is not None:
            notes.append(f"the split is in column {split!r}")
    return replace(columns, id=node_id, label=label, split=split or None)


def _named(table: Table, known: Sequence[str], *besides: str | None) -> str | None:
    """The column with the best of these names."""
    free = [name for name in reversed(table.names) if name not in besides]
    plain = {re.sub("[ _-]", "", name.lower()): name for name in free}
    return next((plain[name] for name in known if name in plain), None)


def _looks_like_split(table: Table, name: str) -> bool:
    try:
        return bool((read_parts(table, name) >= 0).any())
    except DataError:
        return False


# ---------------------------------------------------------------------------------------------------- encoding
def _describe_edges(table: Table, columns: Columns, rows: list[Row]) -> Reading | None:
    """How each column of the edge table is read; returns how the weights are written."""
    reading, doubt = learn_weight(table, columns.weight, columns.style) if columns.weight else (None, "")
    used = {columns.source: "start of the edge", columns.destination: "end of the edge"}
    if columns.weight:
        used[columns.weight] = "weight of the edge" + (f", {reading.described}" if reading else "")
    for name in table.names:
        remark = doubt if name == columns.weight else "" if name in used else "no attributes of edges are used"
        rows += [(table.origin, name, used.get(name, "not used"), remark)]
    return reading


def _learn(table: Table | None, columns: Columns, rows: list[Row], notes: list[str]) -> Schema:
    """How to encode the columns of the node table; each gets a row for people."""
    if table is None:
        return Schema(columns, (), None)
    taken = {columns.id, columns.split, *(columns.label or ()), *columns.ignore}
    wanted = columns.features
    if wanted is None:
        wanted = tuple(name for name in table.names if name not in taken)
    for name in (*wanted, *columns.ignore, *columns.categorical):
        table.column(name)  # refuses unknown names
        if name in wanted and name in taken:
            raise DataError(f"{table.origin}, column {name!r} must be a feature or something else, not both.")
    label = learn_label(table, columns.label, columns.label_separator) if columns.label else None
    read = {columns.id: ("node id", ""), columns.split: ("split", "")}
    read |= {} if label is None else dict.fromkeys(label.columns, (label.described, ""))
    read |= dict.fromkeys(columns.ignore, ("not used", "as asked for"))
    features = []
    for name in wanted:
        asked_for, categorical = columns.features is not None, name in columns.categorical
        feature, remark = learn_feature(
            table, name, categorical=categorical, asked_for=asked_for, style=columns.style
        )
        read[name] = ("not used" if feature is None else feature.described, remark or "")
        if feature is not None:
            features.append(feature)
    rows += [(table.origin, name, *read.get(name, ("not used", "not among the features"))) for name in table.names]
    if label is not None:
        notes += label.guesses(columns.label_separator)
    return Schema(columns, tuple(features), label)


def _encode_nodes(data: Data, table: Table, schema: Schema) -> None:
    widths = [len(feature.outputs) for feature in schema.features]
    if widths:
        x: NDArray[np.float32] = np.empty((len(table), sum(widths)), dtype=np.float32)
        for start, width, feature in zip(np.cumsum([0, *widths]), widths, schema.features, strict=False):
            x[:, start : start + width] = feature.encode(table)
        data.x = torch.from_numpy(x)
    if schema.label is not None:
        y, labelled = schema.label.encode(table)
        data.y, data.labelled = torch.from_numpy(y), torch.from_numpy(labelled.copy())
    if schema.columns.split and schema.columns.split in table.names:
        data.part = torch.from_numpy(read_parts(table, schema.columns.split))
