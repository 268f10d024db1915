"""Arrays from numpy's files, without ever unpickling one."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pprgnn.data.errors import DataError


def read_npy(path: Path, dimensions: int, kinds: str) -> NDArray[Any]:
    """The array of a .npy file; ``kinds`` are the letters of the dtypes it may have, see ``numpy.dtype.kind``."""
    with _opened(path) as array:
        return _checked(str(path), array, dimensions, kinds)


def read_arrays(path: Path, expected: Mapping[str, tuple[int, str]]) -> dict[str, NDArray[Any]]:
    """These arrays (name: dimensions and kinds of dtypes) of a .npz file."""
    with _opened(path) as archive:
        if isinstance(archive, np.ndarray):
            raise DataError(f"{path} must be a .npz archive of arrays, but is a single array; use numpy.savez.")
        missing = [name for name in expected if name not in archive.files]
        if missing:
            raise DataError(
                f"{path} must hold the array {missing[0]}, but holds {', '.join(archive.files) or 'none'}; "
                f"save it with numpy.savez."
            )
        return {name: _checked(f"{path}, array {name}", archive[name], *expected[name]) for name in expected}


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


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """What `numpy.load` gives; errors in our words, also those of reading from an archive inside the block."""
    if not path.is_file():
        raise DataError(f"{path} is missing; fetch the data set again.")
    try:
        with path.open("rb") as file:  # by name, numpy would leave a damaged archive open
            yield np.load(file, allow_pickle=False)
    except DataError:
        raise
    except (ValueError, EOFError, OSError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error):
            raise DataError(
                f"{path} must hold plain numbers, but holds a pickle, which can run code and is not opened; "
                f"save the numbers with numpy.save or numpy.savez."
            ) from error
        raise DataError(
            f"{path} must be a whole numpy file, but cannot be read ({error}); fetch it again."
        ) from error


def _checked(where: str, array: Any, dimensions: int, kinds: str) -> NDArray[Any]:
    if not isinstance(array, np.ndarray) or array.ndim != dimensions or array.dtype.kind not in kinds:
        came = f"{array.ndim} of {array.dtype}" if isinstance(array, np.ndarray) else "an archive"
        names = {"b": "truth values", "i": "whole numbers", "u": "whole numbers", "f": "numbers"}
        wanted = " or ".join(dict.fromkeys(names[kind] for kind in kinds))
        raise DataError(f"{where} must have {dimensions} dimensions of {wanted}, but has {came}; save it so.")
    return array
