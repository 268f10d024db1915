"""Text and Parquet files into Arrow tables, with errors that name the file, the line and the remedy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from pprgnn.data.errors import DataError


def read_numbers(
    path: Path, columns: int | None, kind: type[np.int64] | type[np.float64], *, delimiter: str = ",", skip: int = 0
) -> NDArray[Any]:
    """A text file of numbers without a header as an array (rows, columns); ``None`` takes the width it has."""
    if not path.is_file():
        raise DataError(f"{path} is missing; fetch the data set again.")
    target = pa.int64() if kind is np.int64 else pa.float64()
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, quote_char=False)
    convert = pyarrow.csv.ConvertOptions(null_values=[], strings_can_be_null=False)
    read = pyarrow.csv.ReadOptions(autogenerate_column_names=True, skip_rows=skip, use_threads=True)
    table = _csv(path, read, parse, convert)
    if columns is not None and table.num_columns != columns:
        raise DataError(f"{path} must have {columns} numbers on each line, but has {table.num_columns}.")
    arrays = []
    for number, column in enumerate(table.columns, start=1):
        if not (column.type == target or (kind is np.float64 and pa.types.is_integer(column.type))):
            line, value = _first_not_a(target, column)
            raise DataError(
                f"{path}, line {line + 1 + skip}, column {number} must hold a {'whole ' * (kind is np.int64)}number, "
                f"but holds {value!r}; the file is damaged or of another format."
            )
        arrays.append(column.cast(target).to_numpy())
    return np.stack(arrays, axis=1) if len(arrays) != 1 else arrays[0][:, None]


def _csv(path: Path, read: Any, parse: Any, convert: Any) -> pa.Table:
    try:
        return pyarrow.csv.read_csv(path, read, parse, convert)
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        raise DataError(_explain(path, error, read, parse, convert)) from error


def _explain(path: Path, error: BaseException, read: Any, parse: Any, convert: Any) -> str:
    message = str(error)
    if "Empty CSV" in message or path.stat().st_size == 0:
        return f"{path} is empty; expected at least one line of data."
    if "runcated" in message or "EOF" in message or "end-of-stream" in message:
        return f"{path} ends in the middle of its compressed data; copy or fetch it again."
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message)
    if ragged is None and "Expected" in message and read.use_threads:  # row numbers are only known to one thread
        slow = pa.csv.ReadOptions(use_threads=False, **{k: getattr(read, k) for k in _READ_OPTIONS})
        try:
            pyarrow.csv.read_csv(path, slow, parse, convert)
        except pa.ArrowInvalid as second:
            return _explain(path, second, slow, parse, convert)
    if ragged is not None:
        line, expected, got = ragged.groups()
        return f"{path}, line {line} must have {expected} columns, but has {got}; repair or remove that line."
    return f"{path} cannot be read ({message.splitlines()[0]}); expected a table of text in UTF-8."


_READ_OPTIONS = ("skip_rows", "column_names", "autogenerate_column_names", "encoding", "block_size")


def _first_not_a(target: pa.DataType, column: pa.ChunkedArray) -> tuple[int, str]:
    """Row and text of the first value that cannot be converted."""
    position = 0
    for chunk in column.chunks:
        for value in chunk.to_pylist():
            try:
                fits = float(value).is_integer() if pa.types.is_integer(target) else True
            except (TypeError, ValueError):
                fits = False
            if not fits:
                return position, str(value)
            position += 1
    return position, "?"


