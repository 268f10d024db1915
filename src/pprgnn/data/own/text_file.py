"""A CSV or TSV file: its delimiter, its header, its lines; read by Arrow, explained by Python's csv."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pprgnn.data.raw_files import open_bytes, read_csv
from pprgnn.errors import DataError

GZIP = b"\x1f\x8b"
DELIMITERS = ("\t", ",", ";", "|", " ")
NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
LIKE_NUMBER = r"^\s*[-+]?[$€£¥]?\s*\d[\d.,' \u00a0]*[%€$£¥]?\s*$"  # also 3,50 and 1 234 and 31.12.2020
UTF8 = "utf8"
MISSING = [*pyarrow.csv.ConvertOptions().null_values, " "]  # NA, null, nan, ...


@dataclass(frozen=True)
class TextFile:
    """How a CSV or TSV file is laid out."""

    path: Path
    delimiter: str
    header: bool
    names: tuple[str, ...]
    skipped: int  # lines before the first row: comments, blank lines, the header
    quotes: bool  # whether there are any, so that a value may hold line ends
    empty: bool  # there are no rows: Arrow calls that an error, we do not
    encoding: str = UTF8
    decimal: str = "."

    def read(self, as_text: Sequence[str] | None = None, *, na_is_missing: bool = True) -> pa.Table:
        """All columns with the types they look like, or only these as text; blanks around text do not count."""
        if self.empty:
            return pa.table({name: pa.array([], pa.string()) for name in as_text or self.names})
        read = pyarrow.csv.ReadOptions(
            skip_rows=self.skipped, column_names=list(self.names), encoding=self.encoding
        )
        parse = pyarrow.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=self.quotes)
        convert = pyarrow.csv.ConvertOptions(
            null_values=MISSING if na_is_missing else [""],
            strings_can_be_null=True,
            include_columns=list(as_text or ()),
            column_types=dict.fromkeys(as_text or (), pa.string()),
            decimal_point=self.decimal,
        )
        try:
            table = read_csv(self.path, read, parse, convert)
        except DataError:
            self._explain()
            raise
        except UnicodeDecodeError as error:
            raise DataError(_not_in(self.path, self.encoding)) from error
        if any(pa.types.is_binary(kind) for kind in table.schema.types):  # Arrow's guess for other encodings
            self._explain()
        columns = [trimmed(column) if pa.types.is_string(column.type) else column for column in table.columns]
        return pa.table(columns, table.column_names)

    def line_of(self, row: int) -> int:
        """The line on which a row starts, counted from 1; reads the file, so it is for messages."""
        for position, (line, _) in enumerate(self._rows()):
            if position == row:
                return line
        return self.skipped + 1 + row

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Each row with its line: blank lines are no rows, and a value may hold line ends."""
        with _opened(self.path, self.encoding, errors="replace") as file:
            for _ in range(self.skipped):
                next(file)
            rows = csv.reader(file, delimiter=self.delimiter)
            line = self.skipped + 1
            with contextlib.suppress(csv.Error):  # a value of more than 131072 letters: no way to count on
                for fields in rows:
                    if fields:
                        yield line, fields
                    line = self.skipped + rows.line_num + 1

    def _explain(self) -> None:
        """Why Arrow cannot read the file, with the line."""
        if self.encoding == UTF8:
            _refuse_other_encodings(self.path)
        for line, fields in self._rows():
            if len(fields) != len(self.names):
                raise DataError(
                    f"{self.path}, line {line} must have {len(self.names)} columns as the lines before, but has "
                    f"{len(fields)}; repair or remove that line."
                )


def open_text_file(
    path: Path, delimiter: str | None, header: bool | None, encoding: str | None = None, decimal: str = "."
) -> TextFile:
    """Look how the file is laid out; ``None`` is guessed from its first lines; the encoding is UTF-8."""
    try:
        encoding = codecs.lookup(encoding or UTF8).name
    except LookupError:
        usual = "utf-8, cp1252, latin1 and utf-16 are usual"
        raise DataError(f"There is no encoding {encoding!r}; {usual}.") from None
    encoding = UTF8 if encoding in ("utf-8", "utf-8-sig") else encoding
    quotes = _count_quotes(path)
    before, lines = _first_lines(path, encoding)
    delimiter = delimiter or _guess_delimiter(lines)
    first, *rest = [_fields(line, delimiter) for line in lines]
    if delimiter == " " and "" in first:
        raise DataError(
            f"{path}, line {len(before) + 1} has blanks beside blanks or at an end; put one blank, tab or comma "
            f"between columns."
        )
    likely = _looks_like_header(first, rest[0] if rest else [])
    commented = _commented_header(before, first, delimiter, likely) if header is not False else []
    if header is None:
        header = bool(commented) or likely is not False
    inside = header and not commented  # the header is a line of its own
    names = commented or (first if header else [""] * len(first))
    names = [name.strip() or f"column {position}" for position, name in enumerate(names, start=1)]
    if quotes % 2:
        _refuse_open_quote(path, delimiter, encoding)
    skipped, empty = len(before) + inside, len(lines) <= inside
    return TextFile(path, delimiter, header, tuple(names), skipped, quotes > 0, empty, encoding, decimal)


def trimmed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text without blanks around it; what is blank is missing."""
    column = pc.utf8_trim_whitespace(column)
    blank = pc.equal(column, "")
    return pc.if_else(blank, None, column) if pc.any(blank).as_py() else column


def _refuse_other_encodings(path: Path) -> None:
    """Name the first line that is not UTF-8."""
    with open_bytes(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:  # noqa: PERF203
                raise DataError(
                    f"{path}, line {number} is not UTF-8 text; convert the file, or name its encoding: "
                    f"--encoding cp1252 is usual for files from Windows."
                ) from None


def _not_in(path: Path, encoding: str) -> str:
    return f"{path} is not text in the encoding {encoding}; name another with --encoding."


def _opened(path: Path, encoding: str, errors: str = "strict") -> IO[str]:
    encoding = "utf-8-sig" if encoding == UTF8 else encoding
    return io.TextIOWrapper(open_bytes(path), encoding, errors, newline="")


def _count_quotes(path: Path) -> int:
    try:
        with open_bytes(path) as file:
            return sum(block.count(b'"') for block in iter(lambda: file.read(1 << 20), b""))
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); copy or fetch it again.") from error


def _first_lines(path: Path, encoding: str) -> tuple[list[str], list[str]]:
    """Blank lines and comments (#) at the top, and the two lines (without blank ones) after them."""
    before: list[str] = []
    lines: list[str] = []
    try:
        with _opened(path, encoding) as file:
            for line in file:
                if lines and line.strip():
                    return before, [*lines, line.rstrip("\r\n")]
                if not lines and (line.startswith("#") or not line.strip()):
                    before.append(line)
                elif line.strip():
                    lines.append(line.rstrip("\r\n"))
    except UnicodeError as error:
        if encoding == UTF8:
            _refuse_other_encodings(path)
        raise DataError(_not_in(path, encoding)) from error
    if not lines:
        raise DataError(f"{path} is empty; expected a header line and at least one line of data.")
    return before, lines


def _guess_delimiter(lines: Sequence[str]) -> str:
    """The first that divides both lines into equally many columns, or else the header."""
    widths = {mark: [len(_fields(line, mark)) for line in lines] for mark in DELIMITERS}
    even = [mark for mark, found in widths.items() if found[0] == found[-1] > 1]
    if "," in even and ";" in even and widths[";"] > widths[","]:  # 1;2;0,5
        even.remove(",")
    return next(iter(even), None) or next((mark for mark, found in widths.items() if found[0] > 1), ",")


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a value of more than 131072 letters
        return line.split(delimiter)


def _commented_header(
    before: Sequence[str], first: Sequence[str], delimiter: str, first_is_header: bool | None
) -> list[str]:
    """Column names behind a # as in ``#node1,node2``, directly above the first row; empty: there are none."""
    if not before or not before[-1].startswith("#") or first_is_header:
        return []
    if first_is_header is None and not before[-1][1:2].strip():  # above nothing but text, "# words" is a remark
        return []
    names = _fields(before[-1].lstrip("#").strip(), delimiter)
    return names if len(names) == len(first) > 1 else []


def _looks_like_header(first: Sequence[str], second: Sequence[str]) -> bool | None:
    """A name above a number makes a header, numbers above all numbers make none; ``None``: nothing but text."""
    if all(_is_number(field) for field in first if field):
        return False
    above = [name for name, field in zip(first, second, strict=False) if name.strip() and _is_number(field)]
    return not all(_is_number(name) for name in above) if above else None


def _is_number(text: str) -> bool:
    return re.match(NUMBER, text) is not None or re.match(LIKE_NUMBER, text) is not None


def _refuse_open_quote(path: Path, delimiter: str, encoding: str) -> None:
    """An odd number of quotes may be one that never ends and swallows the rest of the file."""
    start = 1
    with _opened(path, encoding, errors="replace") as file:
        rows = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            for _ in rows:
                start = rows.line_num + 1
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise DataError(
                    f"{path}, line {start} opens a quote that never ends; close it, or copy the whole file again."
                ) from None
