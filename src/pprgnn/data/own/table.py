"""A user's table, from CSV, TSV, Parquet, Excel or memory, that can say where each of its rows came from."""

from __future__ import annotations

import difflib
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from pprgnn.data.own.text_file import GZIP, TextFile, open_text_file, trimmed
from pprgnn.errors import DataError

T = TypeVar("T")
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
    _texts: dict[str, pa.ChunkedArray] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name, count in Counter(self.columns.column_names).items():
            if count > 1:
                raise DataError(f"{self.origin} has {count} columns named {name!r}; rename all but one of them.")

    @property
    def names(self) -> list[str]:
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
            return [self.converted(name, _as_text) for name in names]
        if all(is_text(column.type) and (na_is_missing or not column.null_count) for column in columns):
            return columns
        table = self.file.read(as_text=names, na_is_missing=na_is_missing).select(list(names))
        return list((table if self.rows is None else _taken(table, self.rows)).columns)

    def text(self, name: str) -> pa.ChunkedArray:
        """A column of names: blank ones are missing, and 1.0 is 1 (pandas makes floats when one is missing)."""
        if name not in self._texts:  # labels are asked for several times, and each would read the file again
            text = pc.replace_substring_regex(self.texts([name])[0], r"^([-+]?\d+)\.0+$", r"\1")
            self._texts[name] = trimmed(text)
        return self._texts[name]

    def converted(
        self, name: str, change: Callable[[Any], T], expected: str = "text or numbers here", remedy: str = ""
    ) -> T:
        """What Arrow makes of a column, or a refusal of its type."""
        column = self.column(name)
        try:
            return change(column)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise DataError(
                f"{self.origin}, column {name!r} must hold {expected}, but holds {column.type}; "
                f"{remedy or 'convert it'}."
            ) from None

    def refuse(self, rows: Any, name: str, message: Callable[[int], str]) -> None:
        """Raise for the first of these rows, if there is one, with what is wrong with its value."""
        if (row := first(rows)) is not None:
            raise DataError(f"{self.where(row)}, column {name!r} {message(row)}.")


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if isinstance(column.type, pa.BaseExtensionType):  # a UUID
        return pa.chunked_array([[None if each is None else str(each) for each in column.to_pylist()]])
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    return column.cast(pa.string())


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
        columns, has_names = _read_excel(path, header)
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
        table = pyarrow.parquet.read_table(path, memory_map=True)
        table.validate(full=True)  # text must be UTF-8, in names too: later reads rely on it
        table.column_names  # noqa: B018
        return table
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"{path} is not a whole Parquet file ({reason}); write or copy it again.") from error


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text, in any of Arrow's forms."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists, in any of Arrow's forms."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def first(mask: Any) -> int | None:
    """The first row where the mask is true, if there is one."""
    rows = np.flatnonzero(np.asarray(mask))
    return int(rows[0]) if len(rows) else None


def some(values: Sequence[str]) -> str:
    """The first few of them, for messages."""
    return ", ".join(values[:5]) + (", ..." if len(values) > 5 else "")


# ------------------------------------------------------------ Excel, by openpyxl
def _read_excel(path: Path, header: bool | None = None) -> tuple[pa.Table, bool]:
    """Rows without any value are left out; and whether the first row holds names, which ``None`` guesses."""
    openpyxl = _openpyxl(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and the like, which are not read
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
            sheet = book.worksheets[0]
            sheet.reset_dimensions()  # some programs write wrong ones
            rows = [row for row in sheet.iter_rows(values_only=True) if any(map(_is_there, row))]
            book.close()
    except (zipfile.BadZipFile, KeyError, ValueError, IndexError, OSError) as error:
        raise DataError(f"{path} is not a whole Excel file ({error}); save or copy it again.") from error
    if not rows:
        raise DataError(f"{path} is empty; expected column names and at least one row in its first sheet.")
    width = max(max((i for i, cell in enumerate(row, start=1) if _is_there(cell)), default=0) for row in rows)
    rows = [(*row, *[None] * width)[:width] for row in rows]
    if header is None:
        header = not all(isinstance(cell, int | float) for cell in rows[0] if _is_there(cell))
    names: Sequence[Any] = [None] * width
    if header:
        names, *rows = rows
    named = [_text(name).strip() or f"column {place}" for place, name in enumerate(names, start=1)]
    columns = [_column([row[i] for row in rows]) for i in range(width)]
    return pa.Table.from_arrays(columns, names=named), header


def write_excel(table: pa.Table, path: Path) -> None:
    """One sheet: a row of names, then the rows."""
    book = _openpyxl(path).Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    sheet.append(table.column_names)
    for row in table.to_pylist():
        sheet.append(list(row.values()))
    book.save(path)


def _openpyxl(path: Path) -> Any:
    try:
        import openpyxl
    except ImportError as error:
        raise DataError(f"{path} is an Excel file, which needs openpyxl: pip install 'pprgnn[tables]'.") from error
    return openpyxl


def _is_there(cell: Any) -> bool:
    return cell is not None and (not isinstance(cell, str) or bool(cell.strip()))


def _text(cell: Any) -> str:
    """As one would type it: 3.0 is 3."""
    if cell is None:
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _column(cells: Sequence[Any]) -> pa.Array:
    """With the type that all cells share, or else as text."""
    cells = [(cell.strip() if isinstance(cell, str) else cell) if _is_there(cell) else None for cell in cells]
    kinds = {float if type(cell) is int else type(cell) for cell in cells if cell is not None}
    if len(kinds) <= 1:
        whole = all(cell is None or type(cell) is int for cell in cells)
        return pa.array(cells, pa.float64() if kinds == {float} and not whole else None)
    return pa.array([None if cell is None else _text(cell) for cell in cells], pa.string())
