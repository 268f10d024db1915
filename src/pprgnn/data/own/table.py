"""A user's table, from CSV, TSV, Parquet or memory, that can say where each of its rows came from."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pprgnn.data.arrow import read_csv
from pprgnn.data.errors import DataError

DELIMITERS = ("\t", ",", ";", "|", " ")
TEXT = (".csv", ".tsv", ".tab", ".txt", ".edges", ".edgelist")
PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class Table:
    """Columns, and what messages call their rows."""

    columns: pa.Table
    origin: str
    first_line: int | None = None  # of row 0 in a text file; None: rows have no lines
    header: bool = True
    path: Path | None = None

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.columns.column_names)

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def where(self, row: int) -> str:
        """For messages: the place of a row."""
        return (
            f"{self.origin}, row {row + 1}"
            if self.first_line is None
            else (f"{self.origin}, line {row + self.first_line}")
        )

    def column(self, name: str) -> pa.ChunkedArray:
        """A column by name; an unknown name is an error that lists the known ones."""
        if name not in self.names:
            raise DataError(f"{self.origin} has no column {name!r}; its columns are {', '.join(self.names)}.")
        column = self.columns.column(name)
        return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column

    def with_text(self, names: Sequence[str]) -> Table:
        """The same table with these columns as text, exactly as written: 007 stays 007."""
        if self.path is not None and self.first_line is not None:
            return read_table(self.path, header=self.header, as_text=names)
        columns = self.columns
        for name in names:
            text = self.column(name).cast(pa.string())
            columns = columns.set_column(columns.column_names.index(name), name, text)
        return Table(columns, self.origin)


def read_table(path: Path | str, *, header: bool | None = None, as_text: Sequence[str] = ()) -> Table:
    """Read a CSV, TSV or Parquet file, plain or gzipped; ``header=None`` looks whether the first line is one."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} does not exist; name a CSV, TSV or Parquet file.")
    kind = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"][-1:]
    if kind and kind[0] in PARQUET:
        return Table(_distinct(path, _read_parquet(path)), path.name, path=path)
    if kind and kind[0] not in TEXT:
        raise DataError(
            f"{path} must be a table in CSV, TSV or Parquet ({', '.join(TEXT + PARQUET)}, .gz allowed for text); "
            f"convert it, or rename it if it is one."
        )
    comments, lines = _first_lines(path)
    delimiter = "\t" if kind == [".tsv"] else max(DELIMITERS, key=lambda d: (lines[0].count(d), d == ","))
    first = next(csv.reader(io.StringIO(lines[0]), delimiter=delimiter))
    if header is None:
        header = not all(_is_number(field) for field in first)
    names = [name.strip() for name in first] if header else [f"column {i + 1}" for i in range(len(first))]
    # Skipping the header and giving the names ourselves keeps one rule for files with and without one.
    skipped = comments + header
    read = pyarrow.csv.ReadOptions(skip_rows=skipped, column_names=_distinct_names(path, names))
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values='"' in lines[0] + lines[1])
    text = {name: pa.string() for name in as_text}
    convert = pyarrow.csv.ConvertOptions(
        strings_can_be_null=True, quoted_strings_can_be_null=False, column_types=text
    )
    if len(lines[1]) == 0 and header:  # nothing but a header: Arrow calls that an error, we do not
        columns = pa.table({name: pa.array([], pa.string()) for name in names})
    else:
        columns = read_csv(path, read, parse, convert)
    for name in names:
        if pa.types.is_binary(columns.column(name).type):
            raise DataError(f"{path}, column {name!r} is not UTF-8 text; convert the file (iconv does).")
    return Table(columns, path.name, first_line=skipped + 1, header=header, path=path)


def _read_parquet(path: Path) -> pa.Table:
    try:
        return pyarrow.parquet.read_table(path, memory_map=True)
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"{path} is not a whole Parquet file ({reason}); write or copy it again.") from error


def _first_lines(path: Path) -> tuple[int, list[str]]:
    """How many comment lines (#) come first, and the two lines after them."""
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig", errors="replace")
            if path.suffix == ".gz"
            else open(path, encoding="utf-8-sig", errors="replace") as file
        ):
            comments = 0
            line = file.readline()
            while line.startswith("#"):
                comments, line = comments + 1, file.readline()
            second = file.readline()
    except (EOFError, OSError, gzip.BadGzipFile) as error:
        raise DataError(f"{path} cannot be read ({error}); copy or fetch it again.") from error
    if not line.strip():
        raise DataError(f"{path} is empty; expected a header line and at least one line of data.")
    return comments, [line.rstrip("\r\n"), second.rstrip("\r\n")]


def _distinct_names(path: Path, names: Sequence[str]) -> list[str]:
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{path} has two columns named {name!r}; rename one of them.")
    return list(names)


def _distinct(path: Path, table: pa.Table) -> pa.Table:
    _distinct_names(path, table.column_names)
    return table


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
