"""Columns of a table into numbers: how is learned once and written down, so that new rows are treated the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pprgnn.data.errors import DataError
from pprgnn.data.own.table import Table

MOST_CATEGORIES = 50
NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
Array = NDArray[np.float32]


@dataclass(frozen=True)
class Feature:
    """How one column becomes numbers."""

    name: str
    kind: Literal["number", "category", "vector"]
    mean: tuple[float, ...] = ()  # numbers and vectors: (value - mean) / scale
    scale: tuple[float, ...] = ()
    categories: tuple[str, ...] = ()  # one column of zeros and ones each
    other: bool = False  # one more for the rarer categories
    missing: bool = False  # one more that tells where the value is missing

    @property
    def outputs(self) -> list[str]:
        """The names of the columns it makes."""
        names = {
            "number": [self.name],
            "category": [f"{self.name} = {category}" for category in self.categories],
            "vector": [f"{self.name}[{i}]" for i in range(len(self.mean))],
        }[self.kind]
        return names + [f"{self.name} = other"] * self.other + [f"{self.name} is missing"] * self.missing

    def encode(self, table: Table) -> Array:
        """The numbers of this column, (rows, outputs)."""
        column = table.column(self.name)
        valid = np.asarray(pc.is_valid(column))
        parts: list[NDArray[Any]] = []
        if self.kind == "category":
            parts.append(self._encode_category(column))
        elif self.kind == "number":
            parts.append(self._standardise(_numbers(table, self.name, column), valid))
        else:
            parts.append(self._standardise(_vectors(table, self.name, column, len(self.mean)), valid))
        if self.missing:
            parts.append(~valid[:, None])
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _standardise(self, values: NDArray[np.float64], valid: NDArray[np.bool_]) -> NDArray[np.float64]:
        values = (values - np.array(self.mean)) / np.array(self.scale)
        values[~valid] = 0.0  # what is missing is put at the mean
        return values

    def _encode_category(self, column: pa.ChunkedArray) -> NDArray[np.bool_]:
        text = column.cast(pa.string())
        found = pc.index_in(text, value_set=pa.array(self.categories, pa.string()))
        rest = len(self.categories) if self.other else -1
        known = np.where(np.asarray(pc.is_null(text)), -1, np.asarray(pc.fill_null(found, rest)))
        return np.asarray(known[:, None] == np.arange(len(self.categories) + self.other))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {key: value for key, value in asdict(self).items() if value not in ((), False)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Feature:
        """The inverse of :meth:`to_dict`."""
        tuples: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**tuples)


def learn_feature(table: Table, name: str, categorical: bool) -> tuple[Feature | None, str | None]:
    """How to encode this column; or no way, and the reason. A remark may come with a way, too."""
    column = table.column(name)
    missing = column.null_count > 0
    share = f"{column.null_count:,} of {len(column):,} values are missing" if missing else None
    if column.null_count == len(column):
        return None, "it is empty"
    if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return _learn_vector(table, name, column, missing), share
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or categorical:
        return _learn_category(name, column.cast(pa.string()), missing, categorical, share)
    values = _numbers(table, name, column)[np.asarray(pc.is_valid(column))]
    if values.min() == values.max() and not missing:
        return None, "all its values are the same"
    mean, scale = _moments(values)
    return Feature(name, "number", mean, scale, missing=missing), share


def _learn_vector(table: Table, name: str, column: pa.ChunkedArray, missing: bool) -> Feature:
    width = int(pc.max(pc.list_value_length(column)).as_py())
    values = _vectors(table, name, column, width)[np.asarray(pc.is_valid(column))]
    mean, scale = _moments(values)
    return Feature(name, "vector", mean, scale, missing=missing)


def _learn_category(
    name: str, column: pa.ChunkedArray, missing: bool, asked_for: bool, share: str | None
) -> tuple[Feature | None, str | None]:
    counts = pc.value_counts(column.drop_null())
    distinct = len(counts)
    if distinct == 1 and not missing:
        return None, "all its values are the same"
    many = distinct > MOST_CATEGORIES and distinct > len(column) / 10
    if (many or distinct == len(column) > 2) and not asked_for:
        return None, f"{distinct:,} different texts look like names, not like categories"
    by_count = sorted(counts.to_pylist(), key=lambda entry: (-entry["counts"], entry["values"]))
    kept = tuple(sorted(entry["values"] for entry in by_count[:MOST_CATEGORIES]))
    rest = distinct - len(kept)
    remark = [share] if share else []
    if rest:
        remark.append(f"the {rest:,} rarest categories count as one")
    return Feature(name, "category", categories=kept, other=rest > 0, missing=missing), "; ".join(remark) or None


def _moments(values: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    mean, scale = values.mean(axis=0), values.std(axis=0)
    # A column that does not vary (up to rounding) keeps its unit.
    scale = np.where(scale > 1e-12 * np.maximum(np.abs(mean), 1e-300), scale, 1.0)
    return tuple(mean.tolist()), tuple(scale.tolist())


def _numbers(table: Table, name: str, column: pa.ChunkedArray) -> NDArray[np.float64]:
    kind = column.type
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        column = (column.cast(pa.timestamp("us")) if not pa.types.is_time(kind) else column).cast(pa.int64())
    try:
        values: NDArray[np.float64] = column.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        row = _first_bad_number(column)
        raise DataError(
            f"{table.where(row)}, column {name!r} must hold a number, but holds {column[row].as_py()!r}; "
            f"correct it, leave it empty, or name the column as categorical."
        ) from None
    except pa.ArrowNotImplementedError:
        raise DataError(f"{table.origin}, column {name!r} holds {kind}, which is no feature; ignore it.") from None
    _check_finite(table, name, values, np.asarray(pc.is_valid(column)))
    return values[:, None]


def _vectors(table: Table, name: str, column: pa.ChunkedArray, width: int) -> NDArray[np.float64]:
    lengths = pc.fill_null(pc.list_value_length(column), width).to_numpy()
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{table.where(row)}, column {name!r} must hold {width} numbers, but holds {int(lengths[row])}."
        )
    valid = np.asarray(pc.is_valid(column))
    values = np.zeros((len(column), width))
    flat = pc.list_flatten(column.drop_null())
    if flat.null_count:
        raise DataError(f"{table.origin}, column {name!r} has missing numbers inside its lists; fill them.")
    values[valid] = flat.cast(pa.float64()).to_numpy().reshape(-1, width)
    _check_finite(table, name, values, valid)
    return values


def _check_finite(table: Table, name: str, values: NDArray[np.float64], valid: NDArray[np.bool_]) -> None:
    finite = np.isfinite(values) if values.ndim == 1 else np.isfinite(values).all(axis=1)
    bad = np.flatnonzero(~finite & valid)
    if len(bad):
        row = int(bad[0])
        raise DataError(
            f"{table.where(row)}, column {name!r} must be finite, but is {values[row]}; correct it "
            f"or leave it empty."
        )


def _first_bad_number(column: pa.ChunkedArray) -> int:
    number = pc.match_substring_regex(column.cast(pa.string()), NUMBER)
    return int(np.flatnonzero(~np.asarray(pc.fill_null(number, True)))[0])
