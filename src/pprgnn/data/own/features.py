"""Columns of a table into numbers: how is learned once and written down, so that new rows are treated the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pprgnn.data.own.reading import Reading, Style, as_tuples, learn_reading, unknown_words
from pprgnn.data.own.table import Table, is_list, is_text, some
from pprgnn.errors import DataError

MOST_CATEGORIES = 50
MOSTLY_ZERO = 0.9  # of a column's values: its zeros stay zeros
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
    reading: Reading | None = None  # how numbers and dates are written, if they came as text

    @property
    def described(self) -> str:
        """How the column is read, in words."""
        if self.kind == "category":
            return f"category of {len(self.categories)}{' and others' if self.other else ''}"
        if self.kind == "vector":
            return f"list of {len(self.mean)} numbers"
        return "date" if self.time and self.reading is None else (self.reading or Reading()).described

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
            values[~valid] = 0.0  # what is missing is put at the mean, or at zero
            far = (np.abs(values) > np.finfo(np.float32).max).any(axis=1)
            problem = "is too far from all earlier values; correct it or leave it empty"
            table.refuse(far, self.name, lambda _: problem)
        return np.hstack([values, ~valid[:, None]][: 1 + self.missing]).astype(np.float32)

    def _numbers(self, table: Table) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        if self.kind == "vector":
            return _vectors(table, self.name, len(self.mean))
        kind = table.column(self.name).type
        if pa.types.is_temporal(kind) != self.time and not (pa.types.is_null(kind) or is_text(kind)):
            raise DataError(
                f"{table.origin}, column {self.name!r} must hold {'dates or times' if self.time else 'numbers'} "
                f"as in the earlier table, but holds {kind}; convert it."
            )
        return _numbers(table, self.name, self.reading or (Reading(date="ymd") if self.time else None))

    def with_style(self, style: Style) -> Feature:
        """The same, with numbers or dates that are written as the user says now."""
        if self.kind != "number":
            return self
        reading = self.reading or Reading(date="ymd" if self.time else "")
        return replace(self, reading=reading.with_style(style))

    def unseen(self, table: Table) -> str | None:
        """What a later table has that the earlier one did not, for people."""
        if self.kind != "category":
            return None
        text = table.text(self.name).drop_null()
        new = text.filter(pc.invert(pc.is_in(text, value_set=pa.array(self.categories, pa.string()))))
        if not len(new):
            return None
        treated = "they count as one more" if self.other else "they count as none"
        kept = "the most frequent" if self.other else "there"
        return (
            f"column {self.name!r}: {len(new):,} of {len(table):,} rows hold a category that was not {kept} in "
            f"training ({some(pc.unique(new).to_pylist())}); {treated}"
        )

    def _encode_category(self, text: pa.ChunkedArray) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        found = pc.index_in(text, value_set=pa.array(self.categories, pa.string()))
        rest = len(self.categories) if self.other else -1
        valid = np.asarray(pc.is_valid(text))
        known = np.where(valid, np.asarray(pc.fill_null(found, rest)), -1)
        return known[:, None] == np.arange(len(self.categories) + self.other), valid

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {key: value for key, value in asdict(self).items() if value not in ((), False, None)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Feature:
        """The inverse of :meth:`to_dict`."""
        reading = Reading(**as_tuples(values["reading"])) if "reading" in values else None
        return cls(**as_tuples(values) | {"reading": reading})


def learn_feature(
    table: Table, name: str, *, categorical: bool = False, asked_for: bool = False, style: Style | None = None
) -> tuple[Feature | None, str | None]:
    """How to encode this column; or no way, and the reason. A remark may come with a way, too."""
    column = table.column(name)
    reading, doubt = learn_written(table, name, style or Style()) if not categorical else (None, "")
    if column.null_count == len(column):
        return None, "it is empty"
    if is_list(column.type):
        width = int(pc.max(pc.list_value_length(column)).as_py())
        if width == 0:
            return None, "it is empty"
        numbers, valid = _vectors(table, name, width)
    elif (is_text(column.type) and reading is None) or categorical:
        return _learn_category(name, table.text(name), categorical or asked_for)
    else:
        numbers, valid = _numbers(table, name, reading)
    missing = not valid.all()
    values = numbers[valid]
    remarks = [_share(valid, [*unknown_words(column), *reading.stray] if reading else [])] if missing else []
    if not missing and (values == values[0]).all():
        return None, "all values are the same"
    counting = np.arange(len(values))[:, None] + values[0]
    if not asked_for and len(values) >= FEW and values[0, 0] in (0, 1) and np.array_equal(values, counting):
        return None, "it counts the rows"
    mean, scale = usual_scale(values)
    feature = Feature(
        name,
        "vector" if is_list(column.type) else "number",
        mean=tuple(mean.tolist()),
        scale=tuple(scale.tolist()),
        missing=missing,
        time=pa.types.is_temporal(column.type) or (reading is not None and bool(reading.date)),
        reading=reading,
    )
    return feature, "; ".join([*remarks, *([doubt] if doubt else [])]) or None


def usual_scale(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What is subtracted from each column, and by what it is divided then.

    Mean and standard deviation; but zeros of a column that is mostly zero stay zeros, and zeros and ones stay what
    they are. Standardised, a word in one of a hundred texts would count ten times as much there as the words in
    half of them: on Cora with 20 labels a class, every system that was tried lost three to six points by that.
    """
    # By the largest value first: squares of numbers beyond 1e154 overflow.
    size = np.maximum(np.abs(values).max(axis=0), 1e-300)
    parts = values / size
    mean, scale = parts.mean(axis=0), parts.std(axis=0)
    scale = np.where(scale > 1e-12 * np.abs(mean), scale * size, 1.0)  # varies by rounding alone: keeps its unit
    zero = (values == 0).mean(axis=0)
    sparse = (zero >= MOSTLY_ZERO) & (zero < 1)
    typical = np.sqrt((parts**2).mean(axis=0) / (1 - np.where(sparse, zero, 0.0))) * size
    plain = ((values == 0) | (values == 1)).all(axis=0)
    return np.where(plain | sparse, 0.0, mean * size), np.where(plain, 1.0, np.where(sparse, typical, scale))


def learn_written(table: Table, name: str, style: Style) -> tuple[Reading | None, str]:
    """How the numbers or dates of the column are written, if that is not plain, and what is uncertain about it."""
    column, file = table.column(name), table.file
    # Programs that write decimal commas put semicolons between columns.
    if is_text(column.type):
        return learn_reading(column, style, file is not None and file.delimiter == ";")
    if not pa.types.is_floating(column.type) or file is None:
        return None, ""
    if file.decimal != ".":
        return Reading(file.decimal), ""
    if file.delimiter == ";" and style.decimal is None and _may_be_thousands(column):
        reading, doubt = learn_reading(table.texts([name])[0], style, comma_first=True)
        return (reading, doubt) if reading is not None and reading.decimal == "," else (None, "")
    return None, ""


def _may_be_thousands(column: pa.ChunkedArray) -> bool:
    """Whether all that was taken for decimals could be thousands: 1.234, but neither 0.5 nor 1.2345."""
    values = np.abs(column.drop_null().to_numpy())
    decimals = values[np.isfinite(values) & (values != np.round(values))]
    like = (decimals >= 1) & (decimals < 1000) & (np.abs(decimals * 1000 - np.round(decimals * 1000)) < 1e-6)
    return bool(len(decimals) and like.all())


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


def _share(valid: NDArray[np.bool_], words: Sequence[str] = ()) -> str:
    written = f" (written as {some(words)})" if words else ""
    return f"{int((~valid).sum()):,} of {len(valid):,} values are missing{written}"


def read_texts(table: Table, name: str, reading: Reading | None) -> pa.ChunkedArray | None:
    """The column as it was written, if it has to be read as texts."""
    kind = table.column(name).type
    guessed = table.file is not None and pa.types.is_floating(kind)  # 1.234 might be a thousand
    other = table.file is not None and reading is not None and reading.decimal != table.file.decimal
    return table.texts([name])[0] if is_text(kind) or (guessed and other) else None


def _numbers(
    table: Table, name: str, reading: Reading | None = None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The column as numbers (rows, 1), and which are there; times and dates in microseconds."""
    text = read_texts(table, name, reading)
    if text is not None:
        way = reading or Reading()
        numbers, valid, wrong = way.read(text)
        expected, remedy = f"must hold a {way.described}", "correct it, or leave it empty or out"
        table.refuse(wrong, name, lambda row: f"{expected}, but holds {text[row].as_py()!r}; {remedy}")
    else:
        column = table.converted(name, _as_floats, "numbers or text", "convert it or leave it out")
        numbers, valid = column.to_numpy(), np.asarray(pc.is_valid(column))
    _check_finite(table, name, numbers[:, None], valid)
    return numbers[:, None], valid


def _as_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_temporal(kind):
        of_day, length = pa.types.is_time(kind), pa.types.is_duration(kind)
        unit = pa.time64("us") if of_day else pa.duration("us") if length else pa.timestamp("us")
        column = column.cast(unit, safe=False).cast(pa.int64())
    return column.cast(pa.float64(), safe=False)


def _vectors(table: Table, name: str, width: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The column as (rows, width) numbers, and which rows are there."""
    flat = table.converted(
        name, lambda column: pc.list_flatten(column.drop_null()).cast(pa.float64(), safe=False), "lists of numbers"
    )
    column = table.column(name)
    lengths = pc.fill_null(pc.list_value_length(column), width).to_numpy()
    expected, remedy = f"must hold {width} numbers", "make all lists equally long"
    table.refuse(lengths != width, name, lambda row: f"{expected}, but holds {int(lengths[row])}; {remedy}")
    if flat.null_count:
        raise DataError(f"{table.origin}, column {name!r} has missing numbers inside its lists; fill them.")
    valid = np.asarray(pc.is_valid(column))
    numbers = np.zeros((len(column), width))
    numbers[valid] = flat.to_numpy().reshape(-1, width)
    _check_finite(table, name, numbers, valid)
    return numbers, valid


def _check_finite(table: Table, name: str, numbers: NDArray[np.float64], valid: NDArray[np.bool_]) -> None:
    wrong = ~np.isfinite(numbers).all(axis=1) & valid
    problem = "must be finite, but is {}; correct it or leave it empty"
    table.refuse(
        wrong, name, lambda row: problem.format(numbers[row] if numbers.shape[1] > 1 else numbers[row, 0])
    )
