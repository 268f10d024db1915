"""A user's table, from CSV, TSV, Parquet, Excel or memory, that can say where each of its rows came from."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from pprgnn.data.errors import DataError
from pprgnn.data.own.text_file import GZIP, TextFile, open_text_file, trimmed

TEXT = (".csv", ".tsv", ".tab", ".txt", ".edges", ".edgelist")
PARQUET = (".parquet", ".pq")
EXCEL = (".xlsx", ".xlsm")
MOST_NAMES = 10  # listed in a message


@dataclass(frozen=True)
class Table:
    """Columns, and what messages call their rows."""

    columns: pa.Table
    origin: str
    file: TextFile | None = None  # None: not from text, so rows have no lines
    path: Path | None = None  # of a file whose first row may hold names or not ...
    header: bool = True  # ... and whether it does
    rows: NDArray[np.int64] | None = None  # which rows of the file, in which order; -1: one that was added

    def __post_init__(self) -> None:
        for name, count in Counter(self.columns.column_names).items():
            if count > 1:
                raise DataError(f"{self.origin} has {count} columns named {name!r}; rename all but one of them.")

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.columns.column_names)

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def where(self, row: int) -> str:
        """For messages: the place of a row."""
        row = row if self.rows is None else int(self.rows[row])
        if self.file is None:
            return f"{self.origin}, row {row + 1}"
        return f"{self.origin}, line {self.file.line_of(row)}"

    def take(self, rows: NDArray[np.int64]) -> Table:
        """These rows, which still know where they came from; -1 is a row without values."""
        origin = rows if self.rows is None else np.where(rows < 0, -1, self.rows[rows])
        return replace(self, columns=_taken(self.columns, rows), rows=origin)

    def column(self, name: str) -> pa.ChunkedArray:
        """A column by name; an unknown name is an error that names those that are alike, and some others."""
        if self.columns.schema.get_field_index(name) < 0:
            raise DataError(f"{self.origin} has no column {name!r}{_alternatives(name, self.names)}")
        column = self.columns.column(name)
        return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column

    def texts(self, names: Sequence[str], *, na_is_missing: bool = True) -> list[pa.ChunkedArray]:
        """Columns as text, exactly as written: 007 stays 007; ``na_is_missing=False``: NA and null stay, too."""
        columns = [self.column(name) for name in names]
        if self.file is None:
            return [self._as_text(name, column) for name, column in zip(names, columns, strict=True)]
        if all(is_text(column.type) and (na_is_missing or not column.null_count) for column in columns):
            return columns
        table = self.file.read(as_text=names, na_is_missing=na_is_missing).select(list(names))
        return list((table if self.rows is None else _taken(table, self.rows)).columns)

    def text(self, name: str) -> pa.ChunkedArray:
        """A column of names: blank ones are missing, and 1.0 is 1 (pandas makes floats when one is missing)."""
        return trimmed(pc.replace_substring_regex(self.texts([name])[0], r"^([-+]?\d+)\.0+$", r"\1"))

    def _as_text(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        kind = column.type
        try:
            if isinstance(kind, pa.BaseExtensionType):  # a UUID
                return pa.chunked_array([[None if each is None else str(each) for each in column.to_pylist()]])
            if pa.types.is_floating(kind):
                column = pc.if_else(pc.is_nan(column), None, column)
            return column.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise DataError(
                f"{self.origin}, column {name!r} must hold text or numbers here, but holds {kind}; convert it."
            ) from None


def _taken(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    return table.take(pa.array(rows, mask=rows < 0))


def _alternatives(name: str, names: Sequence[str]) -> str:
    plain = {each.casefold(): each for each in reversed(names)}
    close = [plain[each] for each in difflib.get_close_matches(name.casefold(), plain, 3)]
    meant = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return f"{meant}; its columns are {', '.join(names[:MOST_NAMES])}{more}."


def read_table(
    path: Path | str, *, header: bool | None = None, encoding: str | None = None, decimal: str = "."
) -> Table:
    """Read a CSV, TSV, Parquet or Excel file; ``header=None`` looks whether a text file starts with column names.

    ``encoding`` (UTF-8 by default) and the ``decimal`` mark are those of text files.
    """
    path = Path(path)
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"{path} {problem}; name a CSV, TSV, Parquet or Excel file.")
    kind = next((suffix.lower() for suffix in reversed(path.suffixes) if suffix.lower() != ".gz"), "")
    with path.open("rb") as file:
        start = file.read(1 << 12)
    if start.startswith(b"PAR1") or kind in PARQUET:
        return Table(_read_parquet(path), path.name)
    if kind in EXCEL:
        from pprgnn.data.own.excel import read_excel

        columns, has_names = read_excel(path, header)
        return Table(columns, path.name, path=path, header=has_names)
    if kind not in (*TEXT, ""):
        raise DataError(
            f"{path} must be a table in CSV, TSV, Parquet or Excel ({', '.join(TEXT + PARQUET + EXCEL)}; .gz "
            f"allowed for text); convert it, or rename it if it is one."
        )
    if start.startswith(GZIP) and path.suffix != ".gz":
        raise DataError(f"{path} is compressed by gzip, so its name must end in .gz; rename or unpack it.")
    if b"\0" in start and path.suffix != ".gz" and encoding is None:
        raise DataError(
            f"{path} is not UTF-8 text (it has zero bytes); save the table as CSV in UTF-8, or name its encoding, "
            f"perhaps --encoding utf-16."
        )
    text_file = open_text_file(path, "\t" if kind in (".tsv", ".tab") else None, header, encoding, decimal)
    return Table(text_file.read(), path.name, text_file, path, text_file.header)


def _read_parquet(path: Path) -> pa.Table:
    try:
        return pyarrow.parquet.read_table(path, memory_map=True)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"{path} is not a whole Parquet file ({reason}); write or copy it again.") from error


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text, in any of Arrow's forms."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists, in any of Arrow's forms."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def some(values: Sequence[str]) -> str:
    """The first few of them, for messages."""
    return ", ".join(values[:5]) + (", ..." if len(values) > 5 else "")
