"""How people write numbers and dates: decimal commas, thousands, currencies, percent; the day before the month.

Which way is meant is decided once for a column and written down, so that later tables are read the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pprgnn.errors import DataError

MOSTLY = 0.8  # the share of a column's texts that must be numbers (or dates) for the others to be strays
# What people write where a number is not known, in lower case.
UNKNOWN = (
    *("unknown", "missing", "none", "nil", "null", "nan", "na", "n/a", "n.a.", "n/k", "not available", "tbd"),
    *("-", "--", "---", "–", "—", "?", "??", ".", "..", "..."),
    *("#n/a", "#na", "#value!", "#div/0!", "#ref!", "#name?", "#num!", "#null!"),
)
FORMATS = ((".", ","), (",", "."), (".", " "), (",", " "), (".", "'"), (",", "'"))  # decimal, thousands
MARKS = {".": "point", ",": "comma", " ": "blank", "'": "apostrophe"}
UNIT = r"(?:US|CA|A)?\$|[€£¥₹₽₩₺₴%]|USD|EUR|GBP|CHF|JPY|CNY|SEK|NOK|DKK|PLN|kr|zł"
DAY, MONTH, YEAR = r"(?P<d>\d{1,2})", r"(?P<m>\d{1,2})", r"(?P<y>\d{4}|\d{2})"
CLOCK = r"(?:[T ,]\s*(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:\.\d+)?)?\s*(?:(?P<p>[AaPp])\.?[Mm]\.?)?\s*Z?)?"
ORDERS = {
    "ymd": rf"(?P<y>\d{{4}})[-/.]{MONTH}[-/.]{DAY}",
    "dmy": rf"{DAY}[-/.]\s?{MONTH}[-/.]\s?{YEAR}",
    "mdy": rf"{MONTH}[-/.]\s?{DAY}[-/.]\s?{YEAR}",
}
ORDER_NAMES = {"ymd": "year-month-day", "dmy": "day.month.year", "mdy": "month/day/year"}
Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Style:
    """What the user says about how values are written; ``None`` is found out for each column."""

    decimal: str | None = None
    thousands: str | None = None
    date: str | None = None

    def __post_init__(self) -> None:
        for name, known in (("decimal", tuple(".,")), ("thousands", tuple(",. '")), ("date", tuple(ORDERS))):
            value = getattr(self, name)
            if value is not None and value not in known:
                choices = ", ".join(repr(each) for each in known)
                raise DataError(f"The option {name} must be one of {choices}, but is {value!r}.")
        if self.decimal is not None and self.decimal == self.thousands:
            raise DataError(f"The mark {self.decimal!r} cannot be for decimals and thousands at once; change one.")

    @property
    def point(self) -> str:
        """The decimal mark of numbers that have nothing else to them."""
        return self.decimal or ("," if self.thousands == "." else ".")

    def formats(self, comma_first: bool) -> list[tuple[str, str]]:
        """The (decimal, thousands) that are possible, the likeliest first."""
        order = sorted(FORMATS, key=lambda each: each[0] != ",") if comma_first else FORMATS
        fitting = [each for each in order if self.decimal in (None, each[0])]
        return [each for each in fitting if self.thousands in (None, each[1])]


@dataclass(frozen=True)
class Reading:
    """How the texts of one column are numbers, or dates."""

    decimal: str = "."
    thousands: str = ""  # "": none was seen, so that later there may be the mark that is not the decimal one
    unit: str = ""  # a currency or %, which are left out
    date: str = ""  # the order of day, month and year: the texts are dates
    stray: tuple[str, ...] = ()  # texts that are no numbers and count as missing

    @property
    def described(self) -> str:
        """In words, for people."""
        if self.date:
            return f"date, {ORDER_NAMES[self.date]}"
        words = ["number"]
        words += [f"decimal {MARKS[self.decimal]}"] if self.decimal != "." else []
        words += [f"thousands {MARKS[self.thousands]}"] if self.thousands else []
        return ", ".join([*words, *([f"in {self.unit}"] if self.unit else [])])

    def read(self, text: pa.ChunkedArray) -> tuple[Numbers, Mask, Mask]:
        """The numbers (dates: microseconds), which are there, and which texts are neither numbers nor missing."""
        text = _plain(text)
        numbers = self._dates(text) if self.date else self._numbers(text)
        there = ~np.isnan(numbers)
        missing = np.asarray(pc.is_null(text)) | _is_unknown(text) | _is_in(text, self.stray)
        return numbers, there, ~there & ~missing

    def with_style(self, style: Style) -> Reading:
        """The same, but as the user says now."""
        if self.date:
            return replace(self, date=style.date or self.date)
        decimal = style.decimal or (style.point if style.thousands else self.decimal)
        thousands = style.thousands or self.thousands
        return replace(self, decimal=decimal, thousands="" if thousands == decimal else thousands)

    # ----------------------------------------------------------------------------------------------------- parsing
    @cached_property
    def _pattern(self) -> str:
        if self.date:
            return f"^{ORDERS[self.date]}{CLOCK}$"
        point, mark = re.escape(self.decimal), re.escape(self._mark)
        whole = rf"(?:[1-9]\d{{0,2}}(?:{mark}\d{{3}})+|\d+)"
        number = rf"(?:{whole}(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?"
        return (
            rf"^(?P<sign>[-+]?)\s*(?P<before>{UNIT})?\s*(?P<inner>[-+]?)(?P<number>{number})\s*(?P<after>{UNIT})?$"
        )

    def _parts(self, text: pa.ChunkedArray) -> pa.StructArray:
        return pc.extract_regex(text, self._pattern).combine_chunks()

    @property
    def _mark(self) -> str:
        return self.thousands or {".": ",", ",": "."}[self.decimal]

    def _numbers(self, text: pa.ChunkedArray) -> Numbers:
        found = self._parts(text)
        number = pc.replace_substring(pc.struct_field(found, "number"), self._mark, "")
        number = pc.replace_substring(number, self.decimal, ".").cast(pa.float64())
        signs = pc.binary_join_element_wise(pc.struct_field(found, "sign"), pc.struct_field(found, "inner"), "")
        negative = np.asarray(pc.fill_null(pc.match_substring(signs, "-"), False))
        return np.asarray(pc.fill_null(number, float("nan"))) * np.where(negative, -1.0, 1.0)

    def _dates(self, text: pa.ChunkedArray) -> Numbers:
        found = self._parts(text)
        known = np.asarray(pc.is_valid(found))

        def part(name: str) -> NDArray[np.int64]:
            field = pc.fill_null(pc.struct_field(found, name), "")
            return np.asarray(pc.if_else(pc.equal(field, ""), "0", field).cast(pa.int64()))

        year, month, day, hour, minute, second = (part(name) for name in "ymdHMS")
        two_digits = pc.fill_null(pc.less_equal(pc.utf8_length(pc.struct_field(found, "y")), 2), False)
        year = np.where(np.asarray(two_digits), year + np.where(year < 70, 2000, 1900), year)
        half = pc.fill_null(pc.utf8_lower(pc.struct_field(found, "p")), "")
        afternoon, morning = np.asarray(pc.equal(half, "p")), np.asarray(pc.equal(half, "a"))
        hour = np.where((afternoon | morning) & (hour == 12), 0, hour) + 12 * afternoon
        first = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
        date = first.astype("datetime64[D]") + (day - 1)
        right = known & (month >= 1) & (month <= 12) & (day >= 1) & (date.astype("datetime64[M]") == first)
        right &= (hour < 24) & (minute < 60) & (second <= 60)
        seconds = date.astype(np.int64) * 86400 + hour * 3600 + minute * 60 + second
        return np.where(right, seconds * 1e6, np.nan)

    def units(self, text: pa.ChunkedArray) -> set[str]:
        """The currencies and percent signs in these texts."""
        found = self._parts(_plain(text))
        sides = (pc.unique(pc.struct_field(found, side)).to_pylist() for side in ("before", "after"))
        return {unit for side in sides for unit in side if unit}


def as_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass after JSON, which knows lists only."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def learn_reading(text: pa.ChunkedArray, style: Style, comma_first: bool = False) -> tuple[Reading | None, str]:
    """How a column of texts is meant, if nearly all are numbers or dates; and what is uncertain about it.

    Texts that are all whole numbers were made texts on purpose: they are no numbers.
    ``comma_first``: where 1,234 might be either, a comma is decimal.
    """
    counted = pc.value_counts(_plain(text).drop_null())
    words, counts = pa.chunked_array([counted.field("values")]), np.asarray(counted.field("counts"))
    counts = np.where(_is_unknown(words), 0, counts)
    if not counts.sum() or not pc.any(pc.match_substring_regex(words, r"\d")).as_py():
        return None, ""
    if pc.all(pc.match_substring_regex(words, r"^[-+]?\d+$")).as_py():
        return None, ""
    ways = [Reading(decimal, thousands) for decimal, thousands in style.formats(comma_first)]
    month_first = pc.any(pc.match_substring(words, "/")).as_py()
    orders = ("ymd", "mdy", "dmy") if month_first else ("ymd", "dmy", "mdy")
    ways += [Reading(date=order) for order in orders if style.date in (None, order) or order == "ymd"]
    results = [way.read(words) for way in ways]
    scores = [int(counts[there].sum()) for _, there, _ in results]
    best = int(np.argmax(scores))
    way, (numbers, _, wrong) = ways[best], results[best]
    if scores[best] < MOSTLY * counts.sum():
        return None, ""
    way = replace(way, stray=tuple(sorted(words.filter(pa.array(wrong)).to_pylist())))
    if way.date:
        other = best + 1 if best + 1 < len(ways) and scores[best] == scores[best + 1] else None
    else:
        units = way.units(words)
        if len(units) > 1:  # dollars beside euros are not comparable
            return None, ""
        # The mark between thousands, if there is one; it would be no help to name another.
        used = pc.any(pc.match_substring_regex(words, rf"\d{re.escape(way.thousands)}\d{{3}}")).as_py()
        way = replace(way, unit="".join(units), thousands=way.thousands if used else "")
        rivals = (i for i, each in enumerate(ways) if scores[i] == scores[best] and not each.date)
        other = next((i for i in rivals if not np.array_equal(results[i][0], numbers, equal_nan=True)), None)
    return way, "" if other is None else _doubt(words, numbers, ways[best], results[other][0], ways[other])


def _doubt(words: pa.ChunkedArray, numbers: Numbers, way: Reading, rival: Numbers, other: Reading) -> str:
    """One text that could be read in two ways, and how to get the other one."""
    row = int(np.flatnonzero((numbers != rival) & ~np.isnan(numbers))[0])
    example = words[row].as_py()
    if way.date:
        return f"{example} is read as {ORDER_NAMES[way.date]}; --date {other.date} reads {ORDER_NAMES[other.date]}"
    return f"{example} is read as {numbers[row]:.15g}; --decimal {other.decimal} reads {rival[row]:.15g}"


def unknown_words(text: pa.ChunkedArray) -> list[str]:
    """The words for what is not known that occur in these texts."""
    words = pc.unique(_plain(text).drop_null())
    return sorted(words.filter(pa.array(_is_unknown(words))).to_pylist())


def _plain(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without blanks around it, and with one kind of blank and of minus inside."""
    text = pc.replace_substring_regex(text.cast(pa.string()), "[\u00a0\u2007\u2009\u202f]", " ")
    text = pc.utf8_trim_whitespace(pc.replace_substring(text, "\u2212", "-"))
    return pc.if_else(pc.equal(text, ""), None, text)


def _is_unknown(text: Any) -> Mask:
    return _is_in(pc.utf8_lower(text), UNKNOWN)


def _is_in(text: Any, words: tuple[str, ...]) -> Mask:
    return np.asarray(pc.is_in(text, value_set=pa.array(words, pa.string())))
