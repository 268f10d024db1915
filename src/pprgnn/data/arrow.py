"""Text and Parquet files into Arrow tables, with errors that name the file, the line and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from pprgnn.data.errors import DataError


def read_numbers(
    path: Path,
    columns: int | None,
    kind: type[np.int64] | type[np.float64],
    *,
    delimiter: str = ",",
    skip: int = 0,
) -> NDArray[Any]:
    """A text file of numbers without a header as an array (rows, columns); ``None`` takes the width it has."""
    if not path.is_file():
        raise DataError(f"{path} is missing; fetch the data set again.")
    target = pa.int64() if kind is np.int64 else pa.float64()
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, quote_char=False)
    convert = pyarrow.csv.ConvertOptions(null_values=[], strings_can_be_null=False)
    read = pyarrow.csv.ReadOptions(autogenerate_column_names=True, skip_rows=skip, use_threads=True)
    if columns is None:
        names = read_csv(path, read, parse, convert, pyarrow.csv.open_csv).schema.names
    else:
        names = [f"f{column}" for column in range(columns)]  # as Arrow generates them
    convert.column_types = dict.fromkeys(names, target)
    table = read_csv(path, read, parse, convert)
    if table.num_columns != len(names):
        raise DataError(
            f"{path} must have {len(names)} numbers on each line, but has {table.num_columns}; "
            f"the file is damaged or of another format."
        )
    numbers = np.empty((table.num_rows, table.num_columns), dtype=kind, order="F")  # columns in one piece: faster
    for position, column in enumerate(table.columns):
        numbers[:, position] = column.to_numpy()
    return numbers


def read_csv(
    path: Path, read: Any, parse: Any, convert: Any, reader: Callable[..., Any] = pyarrow.csv.read_csv
) -> Any:
    """Arrow's reader with Arrow's options, and our words for its errors."""
    try:
        return reader(path, read, parse, convert)
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        raise DataError(_explain(path, error, read, parse, convert)) from error


def _explain(path: Path, error: BaseException, read: Any, parse: Any, convert: Any) -> str:
    message = str(error)
    if "Empty CSV" in message or path.stat().st_size == 0:
        return f"{path} is empty; expected at least one line of data."
    if "runcated" in message or "EOF" in message or "end-of-stream" in message:
        return f"{path} ends in the middle of its compressed data; copy or fetch it again."
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message)
    value = re.search(r"column #(\d+): Row #(\d+): CSV conversion error to (\w+): invalid value '(.*)'", message)
    found = ragged is not None or value is not None
    if not found and read.use_threads and ("Expected" in message or "conversion error" in message):
        # Row numbers are only known to one thread.
        slow = pa.csv.ReadOptions(use_threads=False, **{k: getattr(read, k) for k in _READ_OPTIONS})
        try:
            pyarrow.csv.read_csv(path, slow, parse, convert)
        except pa.ArrowInvalid as second:
            return _explain(path, second, slow, parse, convert)
    if ragged is not None:
        line, expected, got = ragged.groups()
        return f"{path}, line {line} must have {expected} columns, but has {got}; repair or remove that line."
    if value is not None:
        column, line, target, text = value.groups()
        kind = {"int64": "a whole number", "double": "a number"}.get(target, f"a value of type {target}")
        return (
            f"{path}, line {line}, column {int(column) + 1} must hold {kind}, but holds {text!r}; "
            f"the file is damaged or of another format."
        )
    return f"{path} cannot be read ({message.splitlines()[0]}); expected a table of text in UTF-8."


_READ_OPTIONS = ("skip_rows", "column_names", "autogenerate_column_names", "encoding", "block_size")
