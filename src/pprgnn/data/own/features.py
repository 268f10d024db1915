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
from pprgnn.data.own.table import Table, is_list, is_text
from pprgnn.data.own.text_file import NUMBER

MOST_CATEGORIES = 50
FEW = 10  # rows of which 0, 1, 2, ... might be a feature
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
    time: bool = False  # the numbers are microseconds of dates or times

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
        if self.kind == "category":
            values, valid = self._encode_category(table.text(self.name))
        else:
            numbers, valid = self._numbers(table)
            values = (numbers - np.array(self.mean)) / np.array(self.scale)
            values[~valid] = 0.0  # what is missing is put at the mean
            large = np.flatnonzero((np.abs(values) > np.finfo(np.float32).max).any(axis=1))
            if len(large):
                raise DataError(
                    f"{table.where(int(large[0]))}, column {self.name!r} is too far from all earlier values; "
                    f"correct it or leave it empty."
                )
        return np.hstack([values, ~valid[:, None]][: 1 + self.missing]).astype(np.float32)

    def _numbers(self, table: Table) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        if self.kind == "vector":
            return _vectors(table, self.name, len(self.mean))
        kind = table.column(self.name).type
        if pa.types.is_temporal(kind) != self.time and not pa.types.is_null(kind):
            raise DataError(
                f"{table.origin}, column {self.name!r} must hold {'dates or times' if self.time else 'numbers'} "
                f"as in the earlier table, but holds {kind}; convert it."
            )
        return _numbers(table, self.name)

    def _encode_category(self, text: pa.ChunkedArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        found = pc.index_in(text, value_set=pa.array(self.categories, pa.string()))
        rest = len(self.categories) if self.other else -1
        valid = np.asarray(pc.is_valid(text))
        known = np.where(valid, np.asarray(pc.fill_null(found, rest)), -1)
        return known[:, None] == np.arange(len(self.categories) + self.other), valid

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {key: value for key, value in asdict(self).items() if value not in ((), False)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Feature:
        """The inverse of :meth:`to_dict`."""
        tuples: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**tuples)


def learn_feature(
    table: Table, name: str, *, categorical: bool = False, asked_for: bool = False
) -> tuple[Feature | None, str | None]:
    """How to encode this column; or no way, and the reason. A remark may come with a way, too."""
    column = table.column(name)
    if column.null_count == len(column):
        return None, "it is empty"
    if is_list(column.type):
        width = int(pc.max(pc.list_value_length(column)).as_py())
        if width == 0:
            return None, "it is empty"
        numbers, valid = _vectors(table, name, width)
    elif is_text(column.type) or categorical:
        return _learn_category(name, table.text(name), categorical or asked_for)
    else:
        numbers, valid = _numbers(table, name)
    missing = not valid.all()
    values = numbers[valid]
    if not missing and (values == values[0]).all():
        return None, "all values are the same"
    counting = np.arange(len(values))[:, None] + values[0]
    if not asked_for and len(values) >= FEW and values[0, 0] in (0, 1) and np.array_equal(values, counting):
        return None, "it counts the rows"
    # By the largest value first: squares of numbers beyond 1e154 overflow.
    size = np.maximum(np.abs(values).max(axis=0), 1e-300)
    mean, scale = (values / size).mean(axis=0), (values / size).std(axis=0)
    scale = np.where(scale > 1e-12 * np.abs(mean), scale * size, 1.0)  # varies by rounding alone: keeps its unit
    feature = Feature(
        name,
        "vector" if is_list(column.type) else "number",
        mean=tuple((mean * size).tolist()),
        scale=tuple(scale.tolist()),
        missing=missing,
        time=pa.types.is_temporal(column.type),
    )
    return feature, _share(valid) if missing else None


def _learn_category(name: str, text: pa.ChunkedArray, asked_for: bool) -> tuple[Feature | None, str | None]:
    missing = text.null_count > 0
    counts = pc.value_counts(text.drop_null())
    distinct = len(counts)
    if distinct == 0:
        return None, "it is empty"
    if distinct == 1 and not missing:
        return None, "all values are the same"
    many = distinct > MOST_CATEGORIES and distinct > len(text) / 10
    if (many or distinct == len(text) > 2) and not asked_for:
        return None, "its texts look like names, not like categories"
    by_count = sorted(counts.to_pylist(), key=lambda entry: (-entry["counts"], entry["values"]))
    kept = tuple(sorted(entry["values"] for entry in by_count[:MOST_CATEGORIES]))
    rest = distinct - len(kept)
    remarks = [_share(np.asarray(pc.is_valid(text)))] if missing else []
    if rest:
        remarks.append(f"the {rest:,} rarest categories count as one")
    return Feature(name, "category", categories=kept, other=rest > 0, missing=missing), "; ".join(remarks) or None


def _share(valid: NDArray[np.bool_]) -> str:
    return f"{int((~valid).sum()):,} of {len(valid):,} values are missing"


def _numbers(table: Table, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The column as numbers (rows, 1), and which are there; times and dates in microseconds."""
    column = table.numeric(name)
    kind = column.type
    try:
        if pa.types.is_temporal(kind):
            of_day, length = pa.types.is_time(kind), pa.types.is_duration(kind)
            unit = pa.time64("us") if of_day else pa.duration("us") if length else pa.timestamp("us")
            column = column.cast(unit, safe=False).cast(pa.int64())
        numbers: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if is_text(kind):
            right = pc.fill_null(pc.match_substring_regex(column, NUMBER), True)
            row = int(np.flatnonzero(~np.asarray(right))[0])
            place, problem = table.where(row), f"must hold a number, but holds {column[row].as_py()!r}"
        else:
            place, problem = table.origin, f"must hold numbers or text, but holds {kind}"
        raise DataError(f"{place}, column {name!r} {problem}; correct it, or leave it empty or out.") from None
    valid = np.asarray(pc.is_valid(column))
    _check_finite(table, name, numbers, valid)
    return numbers[:, None], valid


def _vectors(table: Table, name: str, width: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The column as (rows, width) numbers, and which rows are there."""
    column = table.column(name)
    try:
        lengths = pc.fill_null(pc.list_value_length(column), width).to_numpy()
        flat = pc.list_flatten(column.drop_null()).cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"{table.origin}, column {name!r} must hold lists of numbers, but holds {column.type}; convert it."
        ) from None
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{table.where(row)}, column {name!r} must hold {width} numbers, but holds {int(lengths[row])}; "
            f"make all lists equally long."
        )
    if flat.null_count:
        raise DataError(f"{table.origin}, column {name!r} has missing numbers inside its lists; fill them.")
    valid = np.asarray(pc.is_valid(column))
    numbers = np.zeros((len(column), width))
    numbers[valid] = flat.to_numpy().reshape(-1, width)
    _check_finite(table, name, numbers, valid)
    return numbers, valid


def _check_finite(table: Table, name: str, numbers: NDArray[np.float64], valid: NDArray[np.bool_]) -> None:
    finite = np.isfinite(numbers) if numbers.ndim == 1 else np.isfinite(numbers).all(axis=1)
    bad = np.flatnonzero(~finite & valid)
    if len(bad):
        row = int(bad[0])
        raise DataError(
            f"{table.where(row)}, column {name!r} must be finite, but is {numbers[row]}; correct it or leave it "
            f"empty."
        )
