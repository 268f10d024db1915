"""Counts, shares, times and lists as people write them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
UNKNOWN = "–"


def noun(count: int, thing: str, things: str | None = None) -> str:
    """The word for so many of them: `run` for one, `runs` for two."""
    return thing if count == 1 else things or f"{thing}s"


def counted(count: int, thing: str, things: str | None = None) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {noun(count, thing, things)}"


def known(value: float | None) -> TypeGuard[float]:
    """Whether there is a number at all."""
    return value is not None and math.isfinite(value)


def percent(share: float | None, digits: int = 1) -> str:
    """A share of 1 in percent."""
    return UNKNOWN if share is None or not math.isfinite(share) else f"{100 * share:.{digits}f} %"


def part(share: float) -> str:
    """A share that may be too small to be written in percent."""
    return "less than 0.1 %" if 0 < share < 5e-4 else percent(share)


def bound(share: float | None) -> str:
    """What is proved about an error relative to what it is an error of: 100 % or more says nothing."""
    return "no useful bound" if share is not None and share >= 1 else number(share)


def points(difference: float, digits: int = 1) -> str:
    """A difference of shares in percentage points, with its sign."""
    rounded = round(100 * difference, digits)
    return "±0" if rounded == 0 else f"{rounded:+.{digits}f}".replace("-", "−")


def scored(mean: float | None, spread: float | None = None) -> str:
    """A score, with its standard deviation if there is one."""
    return percent(mean) if spread is None else f"{percent(mean).removesuffix(' %')} ± {percent(spread)}"


def number(value: float | None) -> str:
    """A number with three digits that matter; tiny and huge ones with a power of ten."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}" if abs(value) < 1e3 else f"{value:,.0f}"
    if value == int(value) and abs(value) < 1e6:
        return f"{value:,.0f}"
    return small(value)


def small(value: float) -> str:
    """As 4.1·10⁻⁶."""
    digits, _, exponent = f"{value:.1e}".partition("e")
    digits = digits.removesuffix(".0")
    power = f"10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    return power if digits == "1" else f"{digits}·{power}"


def power_of_ten(value: float) -> str:
    """The name of a tick on a logarithmic axis."""
    if value <= 0:
        return "0"
    exponent = round(math.log10(value))
    if not math.isclose(value, 10.0**exponent, rel_tol=1e-6):
        return ""
    return f"{value:g}" if -3 < exponent < 4 else f"10{str(exponent).translate(SUPERSCRIPTS)}"


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def memory(size: float) -> str:
    """Bytes in the unit that suits them."""
    for unit, power in (("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if size >= 1024**power:
            return f"{size / 1024**power:.3g} {unit}"
    return f"{size:.0f} bytes"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def sentence(text: str) -> str:
    """With a capital letter in front."""
    return text[:1].upper() + text[1:]


def of(name: str, text: str) -> str:
    """What is said of one among several; without a name it stands alone."""
    return f"{name}: {text}" if name else sentence(text)


def cut(text: str, longest: int = 28) -> str:
    """A text that fits beside an axis; without what no page can show."""
    shown = "".join(letter if letter.isprintable() else "·" for letter in text)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"
