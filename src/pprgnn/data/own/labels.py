"""The label column into classes: one per node, several per node, or none where it is to be predicted."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pprgnn.data.own.reading import UNKNOWN
from pprgnn.data.own.table import Table, first, is_list, some
from pprgnn.data.own.text_file import NUMBER
from pprgnn.errors import DataError

SEPARATORS = ("|", ";")
FEWEST = 3  # nodes of a class: one each for training, validation and test
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
    def described(self) -> str:
        """How the column is read, in words."""
        count = f"{len(self.classes)} class{'es' * (len(self.classes) != 1)}"
        return f"label, {'any' if self.multi else 'one'} of {count}"

    @property
    def multi(self) -> bool:
        """Whether a node may have several classes."""
        return self.kind != "single"

    def encode(self, table: Table) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Class numbers (rows,), -1 for none, or zeros and ones (rows, classes); and which rows are labelled."""
        y: NDArray[Any] = np.full(len(table), -1)
        if self.multi:
            y = np.zeros((len(table), len(self.classes)), dtype=np.float32)
        if set(self.columns).isdisjoint(table.names):  # new rows: all are to be predicted
            return y, np.zeros(len(table), dtype=bool)
        if self.kind == "columns":
            return y, self._encode_columns(table, y)
        names, row, labelled = _entries(table, self.columns[0], self.separator)
        found = pc.index_in(names, value_set=pa.array(self.classes, pa.string()))
        if (unknown := first(pc.is_null(found))) is not None:
            raise DataError(
                f"{table.where(int(row[unknown]))}, column {self.columns[0]!r} holds the class "
                f"{names[unknown].as_py()!r}, which is none of the {len(self.classes)} known classes "
                f"({some(self.classes)}); correct it or leave it empty."
            )
        if self.multi:
            y[row, np.asarray(found)] = 1.0
        else:
            y[row] = np.asarray(found)
        return y, labelled

    def _encode_columns(self, table: Table, y: NDArray[Any]) -> NDArray[np.bool_]:
        labelled = np.zeros(len(table), dtype=bool)
        for i, name in enumerate(self.columns):
            y[:, i], known = _zero_or_one(table, name)
            if i and (row := first(labelled != known)) is not None:
                raise DataError(
                    f"{table.where(row)} has some label columns filled and others empty; fill all "
                    f"({', '.join(self.columns)}) or none."
                )
            labelled = known
        return labelled

    def guesses(self, separator: str | None) -> list[str]:
        """What was guessed about the label, and how to say otherwise; ``separator`` as the user gave it."""
        column = repr(self.columns[0])
        if self.kind == "separated" and separator is None:
            return [
                f"column {column} holds several classes, separated by {self.separator!r}; --label-separator '' "
                f"reads one class per node"
            ]
        if self.kind == "single" and all(re.match(NUMBER, name) for name in self.classes):
            return [
                f"the numbers in the label column {column} are read as {len(self.classes)} classes, not as "
                f"amounts; --target names another column"
            ]
        return []


def learn_label(table: Table, columns: tuple[str, ...], separator: str | None) -> Label:
    """What classes there are; ``separator=None`` looks whether the text is a list."""
    for each in columns:
        table.column(each)  # refuses unknown names
    if len(columns) > 1:
        label = Label(columns, "columns", columns)
        if not label.encode(table)[1].any():
            raise DataError(
                f"{table.origin}, columns {some(columns)} are empty, so nothing can be learned; label some rows."
            )
        return label
    name, kind = columns[0], table.column(columns[0]).type
    separator = _separator(table, name) if separator is None else separator
    names, row, _ = _entries(table, name, separator)
    classes = _classes(names)
    if not classes:
        raise DataError(
            f"{table.origin}, column {name!r} is empty, so nothing can be learned; label rows or name no label."
        )
    if separator or is_list(kind):
        return Label(columns, "separated" if separator else "list", classes, separator)
    if pa.types.is_floating(kind) and not all(re.fullmatch(r"[-+]?\d+", value) for value in classes):
        raise DataError(
            f"{table.origin}, column {name!r} holds decimal numbers, but a label names a class; "
            f"divide the numbers into ranges first, or name another label or none."
        )
    if len(classes) > max(20, len(row) / 2):
        raise DataError(
            f"{table.origin}, column {name!r} has {len(classes):,} different values in {len(row):,} labelled "
            f"rows, which look like names and not like classes; name another label or none."
        )
    return Label(columns, "single", classes)


def class_remarks(label: Label, y: NDArray[Any]) -> list[str]:
    """Classes that may be the same, and those with too few members to be learned and tested."""
    alike = defaultdict[str, list[str]](list)
    for name in label.classes:
        alike["".join(name.casefold().split())].append(repr(name))
    groups = [" and ".join(names) for names in alike.values() if len(names) > 1]
    remarks = []
    words = [repr(name) for name in label.classes if name.lower() in UNKNOWN]
    if words:
        remarks.append(f"{some(words)} is read as a class; leave the label empty where it is to be predicted")
    if groups:
        remarks.append(f"classes that differ by case or blanks alone: {some(groups)}; are they one?")
    counts = y.sum(axis=0) if y.ndim == 2 else np.bincount(y[y >= 0], minlength=len(label.classes))
    few = [f"{name} ({int(n)})" for name, n in zip(label.classes, counts, strict=True) if n < FEWEST]
    if few:
        remarks.append(
            f"{len(few):,} class{'es' * (len(few) > 1)} with fewer than {FEWEST} nodes, too few for training, "
            f"validation and test: {some(few)}"
        )
    return remarks


def read_parts(table: Table, name: str) -> NDArray[np.int64]:
    """A split column: 0 for train, 1 for validation, 2 for test, -1 for none."""
    text = pc.utf8_lower(pc.fill_null(table.text(name), ""))
    found = pc.index_in(text, value_set=pa.array(list(PARTS), pa.string()))
    expected, remedy = "must say train, val, test or nothing", "correct it or name another split column"
    wrong = pc.is_null(found)
    table.refuse(wrong, name, lambda row: f"{expected}, but says {text[row].as_py()!r}; {remedy}")
    parts = np.array(list(PARTS.values()), dtype=np.int64)
    return np.asarray(parts[np.asarray(found)])


def _zero_or_one(table: Table, name: str) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    text = pc.utf8_lower(table.text(name))
    found = pc.index_in(text, value_set=pa.array(["0", "1", "false", "true", "no", "yes"]))
    known = np.asarray(pc.is_valid(text))
    if (row := first(np.asarray(pc.is_null(found)) & known)) is not None:
        raise DataError(
            f"{table.where(row)}, label column {name!r} must hold 0, 1 or nothing when there are several label "
            f"columns, but holds {text[row].as_py()!r}; name one column for one class per node."
        )
    return (np.asarray(pc.fill_null(found, 0)) % 2).astype(np.float32), known


def _separator(table: Table, name: str) -> str:
    """The mark between several classes, if the column seems to hold such lists."""
    if is_list(table.column(name).type):
        return ""
    text = table.text(name)
    return next((mark for mark in SEPARATORS if pc.any(pc.match_substring(text, mark)).as_py()), "")


def _entries(table: Table, name: str, separator: str) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.bool_]]:
    """All class names in the column, without blanks around them; the row of each; which rows are labelled.

    A row that holds nothing but separators, or an empty list, is labelled and has none of the classes.
    """
    column = table.column(name)
    if is_list(column.type):
        as_texts = pa.list_(pa.string())
        lists = table.converted(name, lambda each: each.cast(as_texts), "lists of class names").combine_chunks()
    elif separator:
        lists = pc.split_pattern(table.text(name), separator).combine_chunks()
    else:
        text = table.text(name).combine_chunks()
        labelled = np.asarray(pc.is_valid(text))
        return text.drop_null(), np.flatnonzero(labelled), labelled
    labelled, lists = np.asarray(pc.is_valid(lists)), lists.drop_null()
    names = pc.utf8_trim_whitespace(pc.list_flatten(lists))
    kept = pc.fill_null(pc.not_equal(names, ""), False)
    row = np.flatnonzero(labelled)[np.asarray(pc.list_parent_indices(lists))]
    return names.filter(kept), row[np.asarray(kept)], labelled


def _classes(names: pa.Array) -> tuple[str, ...]:
    values = sorted(pc.unique(names).to_pylist())
    if all(re.match(NUMBER, value) for value in values):
        values.sort(key=float)  # 2 before 10
    return tuple(values)
