"""One setting: its help, its range, and how it is read from and written as TOML."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pprgnn.training.errors import TrainingError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

__all__ = ["checked", "described", "option", "parse", "read_toml", "toml", "tomllib"]


def option(
    default: Any, text: str, *, least: float | None = None, above: float | None = None, most: float | None = None
) -> Any:
    """A field of a dataclass with its sentence for `--help`, and the range of its value."""
    metadata = {"help": text, "least": least, "above": above, "most": most}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def checked(kind: type[Any], section: str, name: str, value: Any, origin: str) -> Any:
    """The value in the type of its field, or one sentence."""
    hint, limits = _hints(kind)[name], _limits(kind)[name]  # type: ignore[arg-type]
    fitted = _fit(hint, value)
    numbers = fitted if isinstance(fitted, tuple) else (fitted,)
    if fitted is None or not all(_within(number, limits) for number in numbers):
        words = {"least": "of at least", "above": "above", "most": "of at most"}
        ends = " and".join(f" {word} {limits[key]}" for key, word in words.items() if limits[key] is not None)
        raise TrainingError(f"{origin} {section}.{name} must be {kind_of(hint)}{ends}, but is {value!r}.")
    return fitted


def described(options: Any) -> Iterator[tuple[str, Any, str, str]]:
    """Name, value, kind and sentence of each field of a dataclass of settings."""
    kind: Any = type(options)
    for each in fields(options):
        yield each.name, getattr(options, each.name), kind_of(_hints(kind)[each.name]), each.metadata["help"]


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """The types of its fields; evaluating their texts takes most of the time of a check, so once is enough."""
    return get_type_hints(kind)


@cache
def _limits(kind: Any) -> dict[str, Mapping[str, Any]]:
    """The ranges of its fields."""
    return {each.name: each.metadata for each in fields(kind)}


def _within(value: Any, limits: Mapping[str, Any]) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    low, above, high = limits["least"], limits["above"], limits["most"]
    return (
        (isinstance(value, int) or math.isfinite(value))
        and (low is None or value >= low)
        and (above is None or value > above)
        and (high is None or value <= high)
    )


def _fit(hint: Any, value: Any) -> Any:
    """The value as this type takes it; None: not at all."""
    if get_origin(hint) is Literal:
        return value if value in get_args(hint) and isinstance(value, str) else None
    if hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(value) if number and abs(value) <= sys.float_info.max else None
    if hint is int:
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if hint in (bool, str):
        return value if isinstance(value, hint) else None
    if get_origin(hint) is dict:
        return dict(value) if isinstance(value, Mapping) and _plain(value) else None
    if get_origin(hint) is tuple:
        several = [_fit(float, each) for each in value] if isinstance(value, (list, tuple)) else []
        return tuple(several) if several and None not in several else None
    return next((fitted for each in get_args(hint) if (fitted := _fit(each, value)) is not None), None)


def _plain(value: Any) -> bool:
    """Whether TOML and JSON can hold it: a run keeps its settings in both."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _plain(each) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return isinstance(value, (str, bool, int, float))


def kind_of(hint: Any) -> str:
    """A type in words."""
    if get_origin(hint) is Literal:
        return " | ".join(get_args(hint))
    if get_origin(hint) is tuple:
        return "a list of numbers"
    if get_origin(hint) is dict:
        return "a table of texts, numbers, lists and tables"
    words = {float: "a number", int: "a whole number", bool: "true | false", str: "text"}
    return words[hint] if hint in words else " or ".join(kind_of(each) for each in get_args(hint))


def parse(text: str) -> Any:
    """A value as TOML writes it; what is not TOML is text, so that quotes may be left out."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def read_toml(path: Path | str, what: str) -> dict[str, Any]:
    """What is in a TOML file, or one sentence that names what it should be."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(f"{what} {path} cannot be read ({error}); check the path.") from error
    except tomllib.TOMLDecodeError as error:
        raise TrainingError(f"{what} {path} is not valid TOML: {error}.") from error


def toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml(str(key))} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML wants it escaped, JSON does not
