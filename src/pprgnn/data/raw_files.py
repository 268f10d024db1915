"""Raw files of data sets: numbers in text and numpy files, and edges by number, checked; nothing is unpickled.

Errors name the file, the line and the remedy.
"""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, cast
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import torch
from numpy.typing import NDArray
from torch import Tensor

from pprgnn.errors import DataError

# What numpy and zipfile raise on damaged files; headers of arrays are Python text, which numpy tokenises.
_UNREADABLE = (
    *(ValueError, OSError, EOFError, LookupError, TypeError, MemoryError, OverflowError, SyntaxError),
    *(NotImplementedError, RuntimeError, BadZipFile, zlib.error, TokenError),
)
UNPACKED, GROWTH = 1 << 28, 200  # bytes that a compressed file may always become, and how many times its size


# --------------------------------------------------------------------------------------------------------- text
def open_bytes(path: Path) -> IO[bytes]:
    """A file to be read; what is in it, if its name says that it is compressed."""
    return cast(IO[bytes], _Unpacked(path)) if path.suffix == ".gz" else path.open("rb")


class _Unpacked(gzip.GzipFile):
    """Ends with an error where a small file becomes so large that it must be meant to fill the memory."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path, self._most = path, max(UNPACKED, GROWTH * path.stat().st_size)

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            size = max(self._most + 1 - self.tell(), 1)
        return self._checked(super().read(size))

    def read1(self, size: int = -1) -> bytes:
        return self._checked(super().read1(size))

    def _checked(self, found: bytes) -> bytes:
        if self.tell() > self._most:
            raise DataError(
                f"{self._path} unpacks to more than {GROWTH} times its size, as only files without information "
                f"do; unpack it first if it is meant."
            )
        return found


def existing(path: Path) -> Path:
    """The path of a file that must be there."""
    if not path.is_file():
        raise DataError(f"{path} is missing; fetch the data set again.")
    return path


def read_numbers(
    path: Path,
    columns: int | None,
    kind: type[np.int64] | type[np.float64],
    *,
    delimiter: str = ",",
    skip: int = 0,
) -> NDArray[Any]:
    """A text file of numbers without a header as an array (rows, columns); ``None`` takes the width it has."""
    read = pyarrow.csv.ReadOptions(autogenerate_column_names=True, skip_rows=skip, use_threads=True)
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, quote_char=False)
    convert = pyarrow.csv.ConvertOptions(null_values=[], strings_can_be_null=False)
    try:
        if columns is None:
            columns = len(read_csv(existing(path), read, parse, convert, pyarrow.csv.open_csv).schema.names)
        names = [f"f{column}" for column in range(columns)]  # as Arrow generates them
        convert.column_types = dict.fromkeys(names, pa.int64() if kind is np.int64 else pa.float64())
        table = read_csv(existing(path), read, parse, convert)
    except DataError:
        _refuse_line(path, kind, delimiter, skip)
        raise
    if table.num_columns != columns:
        raise DataError(
            f"{path} must have {columns} numbers on each line, but has {table.num_columns}; "
            f"the file is damaged or of another format."
        )
    numbers = np.empty((table.num_rows, columns), dtype=kind, order="F")  # columns in one piece: faster
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
        message = str(error)
        if "Empty CSV" in message or path.stat().st_size == 0:
            raise DataError(f"{path} is empty; expected at least one line of data.") from error
        if "runcated" in message or "EOF" in message or "end-of-stream" in message:
            message = f"{path} ends in the middle of its compressed data; copy or fetch it again."
            raise DataError(message) from error
        message = f"{path} cannot be read ({message.splitlines()[0]}); expected a table of text in UTF-8."
        raise DataError(message) from error


def _refuse_line(path: Path, kind: type[np.int64] | type[np.float64], delimiter: str, skip: int) -> None:
    """Name the first line that is not one of numbers, as many as on the first."""
    width = 0
    with contextlib.suppress(EOFError, OSError, zlib.error), open_bytes(path) as file:
        for line, content in enumerate(file, start=1):
            fields = content.decode(errors="replace").rstrip("\r\n").split(delimiter)
            if line <= skip or fields == [""]:
                continue
            width = width or len(fields)
            if len(fields) != width:
                raise DataError(
                    f"{path}, line {line} must have {width} columns, but has {len(fields)}; repair or remove "
                    f"that line."
                )
            for column, field in enumerate(fields, start=1):
                try:
                    kind(field)
                except (ValueError, OverflowError):  # noqa: PERF203
                    expected = "a whole number" if kind is np.int64 else "a number"
                    raise DataError(
                        f"{path}, line {line}, column {column} must hold {expected}, but holds {field.strip()!r}; "
                        f"the file is damaged or of another format."
                    ) from None


# -------------------------------------------------------------------------------------------------------- numpy
@contextlib.contextmanager
def plain_arrays(path: Path, kind: str = "numpy file", remedy: str = "fetch it again") -> Iterator[Any]:
    """What `numpy.load` gives; errors in our words, also those of reading from an archive inside the block."""
    try:
        with existing(path).open("rb") as file:  # by name, numpy would leave a damaged archive open
            yield np.load(file, allow_pickle=False)
    except DataError:
        raise
    except _UNREADABLE as error:
        pickled = "it is none, or holds pickled objects, which can run code"
        reason = pickled if "pickle" in str(error) else str(error)
        raise DataError(
            f"{path} must be a whole {kind} of plain arrays, but cannot be used: {reason}; {remedy}."
        ) from error


def checked_array(where: str, array: Any, dimensions: int, kinds: str) -> NDArray[Any]:
    """An array of so many dimensions; ``kinds`` are the dtypes it may have, see ``numpy.dtype.kind``."""
    if not isinstance(array, np.ndarray) or array.ndim != dimensions or array.dtype.kind not in kinds:
        came = f"{array.ndim} of {array.dtype}" if isinstance(array, np.ndarray) else "an archive"
        names = {"b": "truth values", "i": "whole numbers", "u": "whole numbers", "f": "numbers"}
        wanted = " or ".join(dict.fromkeys(names[kind] for kind in kinds))
        raise DataError(f"{where} must have {dimensions} dimensions of {wanted}, but has {came}; save it so.")
    return array


def finite_floats(where: str, numbers: NDArray[Any]) -> NDArray[np.float32]:
    """The matrix in single precision, without NaN and infinity."""
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is refused below
        floats = numbers.astype(np.float32, order="C", copy=False)
    finite = np.isfinite(floats)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise DataError(
            f"{where}, row {row + 1}, column {column + 1} must hold a finite number, but holds "
            f"{numbers[row, column]}; replace it by a number."
        )
    return floats


def check_length(path: Path, rows: int, expected: int, per: str) -> None:
    """As many rows as there are nodes, graphs or edges."""
    if rows != expected:
        raise DataError(
            f"{path} must have one row for each of the {expected} {per}, but has {rows}; "
            f"the file is damaged or belongs to another data set."
        )


# -------------------------------------------------------------------------------------------------------- edges
def read_links(path: Path) -> NDArray[Any]:
    """The links of a graph in networkx's node-link format, as rows of two nodes."""
    link = pa.struct([("source", pa.int64()), ("target", pa.int64())])
    parse = pyarrow.json.ParseOptions(
        explicit_schema=pa.schema([("links", pa.list_(link))]),
        newlines_in_values=True,
        unexpected_field_behavior="ignore",
    )
    # Half the time and a tenth of the memory of the standard library's dictionaries. The whole file is one row.
    whole = pyarrow.json.ReadOptions(block_size=existing(path).stat().st_size + 1, use_threads=False)
    try:
        rows = pyarrow.json.read_json(path, whole, parse)["links"].combine_chunks()
        links = rows.flatten()
        source, target = links.field("source"), links.field("target")
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(
            f"{path} must be JSON with a list `links` of {{source, target}}, but cannot be read "
            f"({str(error).splitlines()[0].rstrip('.')}); fetch it again."
        ) from error
    if rows.null_count or source.null_count or target.null_count:
        what = "a link" if rows.null_count == 0 else "the list `links`"
        raise DataError(f"{path} must have `links` with source and target, but {what} lacks them; fetch it again.")
    return np.stack([source.to_numpy(), target.to_numpy()], axis=1)


def check_edges(path: Path, row: str, edges: NDArray[Any], graph: NDArray[Any], *, first: int = 0) -> None:
    """Every edge (a row of two nodes) must join nodes of one graph; ``graph`` tells that of each node.

    The first node is number ``first``.
    """
    wanted, nodes, last = "", len(graph), first + len(graph) - 1
    if edges.size and (edges.min() < first or edges.max() > last):
        bad = int(np.flatnonzero(((edges < first) | (edges > last)).any(axis=1))[0])
        wanted = f"two of the nodes {first} to {last}, but joins {edges[bad, 0]} and {edges[bad, 1]}"
    elif nodes and (crossing := np.flatnonzero(np.diff(graph[edges - first], axis=1))).size:
        bad = int(crossing[0])
        one, other = graph[edges[bad] - first] + 1
        wanted = f"two nodes of one graph, but joins graphs {one} and {other}"
    if wanted:
        raise DataError(
            f"{path}, {row} {bad + 1} must join {wanted}; the file is damaged or belongs to another data set."
        )


def graph_of_nodes(path: Path, row: str, graph: NDArray[Any], first: int) -> NDArray[Any]:
    """The graph of each node counted from 0, when the file counts from ``first``; they must follow each other."""
    steps = np.diff(graph, prepend=first)
    wrong = (steps != 0) & (steps != 1)
    wrong[0] = steps[0] != 0
    if wrong.any():
        bad = int(wrong.argmax())
        allowed = f"{graph[bad - 1]} or {graph[bad - 1] + 1}" if bad else f"{first}"
        raise DataError(
            f"{path}, {row} {bad + 1} must name graph {allowed}, but names {graph[bad]}: the nodes of a graph "
            f"must follow each other, and no graph may be empty; repair the file or fetch it again."
        )
    return graph - first


def starts(keys: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a new value begins in sorted values."""
    new = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return new


def distinct(keys: NDArray[Any]) -> NDArray[Any]:
    """Each number once, in increasing order; by sorting, which is several times faster than ``numpy.unique``."""
    keys = np.sort(keys)
    new = starts(keys)
    return keys if new.all() else keys[new]


def is_dense(low: int, high: int, count: int) -> bool:
    """Whether a table from ``low`` to ``high`` is not much larger than what is looked up in it."""
    return high - low <= 8 * count + 1024


def number_ids(ids: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Each id once, in increasing order, and the position of every given one among them."""
    low, high = int(ids.min()), int(ids.max())
    if not is_dense(low, high, ids.size):
        known, position = np.unique(ids, return_inverse=True)
        return known, position.reshape(ids.shape)
    occurs, place = np.zeros(high - low + 1, dtype=bool), ids - low  # a tenth of the time of sorting
    occurs[place] = True
    return np.flatnonzero(occurs) + low, (np.cumsum(occurs) - 1)[place]


def undirected(source: NDArray[Any], target: NDArray[Any], nodes: int) -> Tensor:
    """Both directions of every edge, each once, in order of the rows and without self-loops (2 × E)."""
    if (source == target).any():
        proper = source != target
        source, target = source[proper], target[proper]
    keys = distinct(np.concatenate([source * nodes + target, target * nodes + source]))
    edge_index = np.empty((2, len(keys)), dtype=np.int64)
    np.divmod(keys, max(nodes, 1), out=(edge_index[0], edge_index[1]))
    return torch.from_numpy(edge_index)
