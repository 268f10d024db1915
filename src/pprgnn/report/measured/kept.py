"""Measurements as a JSON file in the folder of their run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pprgnn.data.atomic_io import write_text
from pprgnn.report.measured.results import Measurements
from pprgnn.training.errors import TrainingError
from pprgnn.training.run import Run

FILE = "measurements.json"
FORMAT = "pprgnn measurements, version 4"


def fingerprint(model: Path) -> str:
    """A short text that tells this file from others."""
    digest = hashlib.sha256()
    with open(model, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()[:32]


def keep_measurements(run: Run, found: Measurements) -> None:
    """Write them into the run's folder, whole or not at all."""
    path = run.folder / FILE
    text = json.dumps({"format": FORMAT, **asdict(found)}, allow_nan=False, indent=1, ensure_ascii=False)
    try:
        write_text(path, text)
    except OSError as error:
        raise TrainingError(
            f"{path} cannot be written ({error.strerror or error}); make room, or allow writing there."
        ) from error


def kept_measurements(run: Run) -> Measurements | None:
    """Those in the run's folder; ``None``: there are none, of another model, or the file is damaged."""
    try:
        values = json.loads((run.folder / FILE).read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
            return None
        found: Measurements = _built(Measurements, values)
        return found if found.fingerprint == fingerprint(run.model_path) else None
    except (OSError, ValueError, RecursionError):
        return None


def _built(kind: Any, value: Any) -> Any:
    """A value out of JSON in this type; ValueError: it does not fit."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return _one_of(inner, value)
    if is_dataclass(kind) and isinstance(value, dict) and set(value) == {each.name for each in fields(kind)}:
        hints = get_type_hints(kind)
        return kind(**{name: _built(hints[name], each) for name, each in value.items()})  # type: ignore[operator]
    if origin is list and isinstance(value, list):
        return [_built(inner[0], each) for each in value]
    if origin is tuple and isinstance(value, list) and len(value) == len(inner):
        return tuple(_built(each, part) for each, part in zip(inner, value, strict=True))
    if origin is dict and isinstance(value, dict):
        return {key: _built(inner[1], each) for key, each in value.items()}
    if kind is float and type(value) is int:
        return float(value)
    if kind in (float, int, str, bool, NoneType) and type(value) is kind:
        return value
    raise ValueError(f"{value!r} is not {kind}")


def _one_of(kinds: tuple[Any, ...], value: Any) -> Any:
    first, *others = kinds
    if not others:
        return _built(first, value)
    try:
        return _built(first, value)
    except ValueError:
        return _one_of(tuple(others), value)
