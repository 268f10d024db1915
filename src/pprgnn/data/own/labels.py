"""The label column into classes: one per node, several per node, or none where it is to be predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pprgnn.data.errors import DataError
from pprgnn.data.own.table import Table

SEPARATORS = ("|", ";")
PARTS = {
    "train": 0, "training": 0,
    "val": 1, "valid": 1, "validation": 1, "dev": 1,
    "test": 2, "testing": 2,
    "": -1, "none": -1,
}  # fmt: skip


@dataclass(frozen=True)
class Label:
    """Which columns hold the label, how they are written, and the classes."""

    columns: tuple[str, ...]
    kind: Literal["single", "separated", "list", "columns"]  # the last three are multi-label
    classes: tuple[str, ...]
    separator: str = ""

    @property
    def multi(self) -> bool:
        """Whether a node may have several classes."""
        return self.kind != "single"

    def encode(self, table: Table) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Class numbers (rows,), -1 for none, or zeros and ones (rows, classes); and which rows are labelled."""
        if self.kind == "columns":
            return self._encode_columns(table)
        column = table.column(self.columns[0])
        labelled = np.asarray(pc.is_valid(column))
        classes = pa.array(self.classes, pa.string())
        if self.kind == "single":
            text = _text(column)
            found = pc.index_in(text, value_set=classes)
            self._refuse_unknown(table, text, found)
            return np.asarray(pc.fill_null(found, -1)).astype(np.int64), labelled
        lists = _lists(column, self.separator)
        flat, owner = pc.list_flatten(lists), np.asarray(pc.list_parent_indices(lists))
        found = pc.index_in(flat, value_set=classes)
        unknown = np.flatnonzero(np.asarray(pc.is_null(found)))
        if len(unknown):
            self._refuse(table, int(owner[unknown[0]]), flat[int(unknown[0])].as_py())
        y = np.zeros((len(column), len(self.classes)), dtype=np.float32)
        y[owner, np.asarray(found)] = 1.0
        return y, labelled

    def _encode_columns(self, table: Table) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        y = np.zeros((len(table), len(self.columns)), dtype=np.float32)
        labelled = np.zeros(len(table), dtype=bool)
        for i, name in enumerate(self.columns):
            y[:, i], known = _zero_or_one(table, name)
            partial = np.flatnonzero(labelled != known)
            if i and len(partial):
                raise DataError(
                    f"{table.where(int(partial[0]))} has some label columns filled and others empty; fill all "
                    f"({', '.join(self.columns)}) or none."
                )
            labelled = known
        return y, labelled

    def _refuse_unknown(self, table: Table, text: pa.ChunkedArray, found: pa.ChunkedArray) -> None:
        unknown = np.flatnonzero(np.asarray(pc.and_(pc.is_valid(text), pc.is_null(found))))
        if len(unknown):
            self._refuse(table, int(unknown[0]), text[int(unknown[0])].as_py())

    def _refuse(self, table: Table, row: int, value: str) -> None:
        raise DataError(
            f"{table.where(row)}, column {self.columns[0]!r} holds the class {value!r}, which is none of the "
            f"{len(self.classes)} known classes ({_some(self.classes)}); correct it or leave it empty."
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Label:
        """The inverse of :meth:`to_dict`."""
        tuples: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**tuples)


def learn_label(table: Table, columns: tuple[str, ...], separator: str | None) -> Label:
    """What classes there are; ``separator=None`` looks whether the text is a list."""
    if len(columns) > 1:
        for name in columns:
            _zero_or_one(table, name)
        return Label(columns, "columns", columns)
    name = columns[0]
    column = table.column(name)
    if column.null_count == len(column):
        raise DataError(f"{table.origin}, column {name!r} is empty, so nothing can be learned; label some rows.")
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return Label(columns, "list", _classes(pc.list_flatten(_lists(column, ""))))
    text = _text(column)
    if separator is None:
        separator = next((mark for mark in SEPARATORS if pc.any(pc.match_substring(text, mark)).as_py()), "")
    if separator:
        return Label(columns, "separated", _classes(pc.list_flatten(_lists(column, separator))), separator)
    classes = _classes(text)
    labelled = len(column) - column.null_count
    if pa.types.is_floating(column.type) and not all(value.endswith(".0") for value in classes):
        raise DataError(
            f"{table.origin}, column {name!r} holds decimal numbers, but a label names a class; "
            f"divide the numbers into ranges first."
        )
    if len(classes) > max(20, labelled / 2):
        raise DataError(
            f"{table.origin}, column {name!r} has {len(classes):,} different values in {labelled:,} labelled "
            f"rows, which look like names and not like classes; name another column."
        )
    return Label(columns, "single", classes)


def read_parts(table: Table, name: str) -> NDArray[np.int64]:
    """A split column: 0 for train, 1 for validation, 2 for test, -1 for none."""
    text = pc.utf8_lower(pc.utf8_trim_whitespace(pc.fill_null(_text(table.column(name)), "")))
    found = pc.index_in(text, value_set=pa.array(list(PARTS), pa.string()))
    unknown = np.flatnonzero(np.asarray(pc.is_null(found)))
    if len(unknown):
        row = int(unknown[0])
        raise DataError(
            f"{table.where(row)}, column {name!r} must say train, val, test or nothing, but says "
            f"{text[row].as_py()!r}; correct it or name another split column."
        )
    parts = np.array(list(PARTS.values()), dtype=np.int64)
    return np.asarray(parts[np.asarray(found)])


def _zero_or_one(table: Table, name: str) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    column = table.column(name)
    text = pc.utf8_lower(_text(column))
    found = pc.index_in(text, value_set=pa.array(["0", "1", "false", "true", "0.0", "1.0", "no", "yes"]))
    known = np.asarray(pc.is_valid(column))
    unknown = np.flatnonzero(np.asarray(pc.is_null(found)) & known)
    if len(unknown):
        row = int(unknown[0])
        raise DataError(
            f"{table.where(row)}, label column {name!r} must hold 0, 1 or nothing when there are several label "
            f"columns, but holds {text[row].as_py()!r}; name one column for one class per node."
        )
    return (np.asarray(pc.fill_null(found, 0)) % 2).astype(np.float32), known


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())


def _lists(column: pa.ChunkedArray, separator: str) -> pa.ChunkedArray:
    """Each row as a list of class names without blanks around them; empty entries are dropped."""
    if separator:
        text = pc.replace_substring_regex(_text(column), f"\\s*[{separator}]+\\s*", separator)
        column = pc.split_pattern(pc.utf8_trim(text, f" {separator}"), separator)
    lists = column.cast(pa.list_(pa.string()))
    empty = pc.equal(pc.list_flatten(lists), "")
    if pc.any(empty).as_py():  # "" split by the separator is one empty name
        rows = [None if row is None else [name for name in row if name] for row in lists.to_pylist()]
        lists = pa.chunked_array([pa.array(rows, pa.list_(pa.string()))])
    return lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists


def _classes(text: pa.ChunkedArray) -> tuple[str, ...]:
    values = pc.unique(text).drop_null().to_pylist()
    try:
        return tuple(sorted(values, key=float))  # 2 before 10
    except ValueError:
        return tuple(sorted(values))


def _some(values: tuple[str, ...]) -> str:
    return ", ".join(values[:5]) + (", ..." if len(values) > 5 else "")
