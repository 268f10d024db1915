"""The first sheet of an Excel file as an Arrow table, and a table as an Excel file; by openpyxl."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pprgnn.data.errors import DataError


def read_excel(path: Path, header: bool | None = None) -> tuple[pa.Table, bool]:
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
