"""A user's own graph from an edge table and a node table: guess the columns, number the nodes, encode the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.own.edges import edges_of, learn_weight
from pprgnn.data.own.features import learn_feature
from pprgnn.data.own.labels import class_remarks, learn_label, read_parts
from pprgnn.data.own.reading import Reading, Style
from pprgnn.data.own.schema import (
    LEARNED,
    OF_NODES,
    Columns,
    Schema,
    as_fields,
    guess_edge_columns,
    guess_node_columns,
    without_false_header,
)
from pprgnn.data.own.table import Table, read_table
from pprgnn.errors import DataError

Source: TypeAlias = "Path | str | pa.Table | Table"
Row: TypeAlias = "tuple[str, str, str, str]"  # table, column, how it is read, a remark


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
    given = as_fields(named)
    if known is not None and (columns is not None or any(key in LEARNED for key in given)):
        raise DataError(f"A schema already says what the columns are; leave out {', '.join(given) or 'columns'}.")
    columns = replace(columns or (known.columns if known else Columns()), **given)
    notes: list[str] = []
    edge_table = _table(edges, "the edge table", header, columns, columns.source, notes)
    if nodes is None:
        _refuse_node_options(given)
    node_table = None if nodes is None else _table(nodes, "the node table", header, columns, columns.id, notes)
    edge_table = without_false_header(edge_table, node_table, header, columns, notes)
    if known is None:
        columns = guess_edge_columns(edge_table, columns, notes)
        columns = columns if node_table is None else guess_node_columns(node_table, columns, notes)
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
    data = Data(edge_index=edge_index, num_nodes=len(ids))
    if weight is not None:
        data.edge_weight = weight
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


def _refuse_node_options(given: Mapping[str, Any]) -> None:
    for key in OF_NODES:
        if given.get(key):
            option = "--" + {"label": "target"}.get(key, key).replace("_", "-")
            raise DataError(f"{option} is about the node table, but there is none; add --nodes FILE, or drop it.")


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
        feature, remark = learn_feature(
            table,
            name,
            categorical=name in columns.categorical,
            asked_for=columns.features is not None,
            style=columns.style,
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
        if not set(schema.label.columns).isdisjoint(table.names):
            y, labelled = schema.label.encode(table)
        else:  # new rows without a label column: all are to be predicted
            shape = (len(table), len(schema.label.classes)) if schema.label.multi else (len(table),)
            y = np.zeros(shape, np.float32) if schema.label.multi else np.full(shape, -1)
            labelled = np.zeros(len(table), dtype=bool)
        data.y, data.labelled = torch.from_numpy(y), torch.from_numpy(labelled.copy())
    if schema.columns.split and schema.columns.split in table.names:
        data.part = torch.from_numpy(read_parts(table, schema.columns.split))
