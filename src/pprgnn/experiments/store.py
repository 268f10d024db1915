"""Results are kept: a file per experiment, a line per cell, only ever added to."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pprgnn.data.errors import DataError
from pprgnn.experiments.cell import Cell

Line = dict[str, Any]


class Store:
    """The folder of the results."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._lines: dict[str, list[Line]] = {}

    def path(self, experiment: str) -> Path:
        """The file of an experiment."""
        return self.folder / f"{experiment}.jsonl"

    def lines(self, experiment: str) -> list[Line]:
        """All lines of an experiment; one that a crash cut short is left out."""
        if experiment not in self._lines:
            self._lines[experiment] = _read(self.path(experiment))
        return self._lines[experiment]

    def add(self, line: Mapping[str, Any]) -> None:
        """One line more, on the disk before this returns."""
        experiment = str(line["experiment"])
        lines, path = self.lines(experiment), self.path(experiment)
        plain = _plain(line)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _drop_torn_line(path)
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(plain, ensure_ascii=False) + "\n")
        except OSError as error:
            raise DataError(
                f"The result cannot be added to {path} ({error.strerror or error}); make room or choose another "
                f"folder with --results. The same command then goes on."
            ) from error
        lines.append(plain)

    def answers(self, cells: Iterable[Cell]) -> dict[int, Line]:
        """The line of each cell that has one, by the cell's place in the list; the newest counts."""
        found: dict[int, Line] = {}
        by_coordinates: dict[str, list[Line]] = {}
        seen: set[str] = set()
        for number, cell in enumerate(cells):
            if cell.experiment not in seen:
                seen.add(cell.experiment)
                for line in self.lines(cell.experiment):
                    by_coordinates.setdefault(_address(line), []).append(line)
            for line in reversed(by_coordinates.get(_address(cell.coordinates), [])):
                if cell.is_answered_by(line):
                    found[number] = line
                    break
        return found


def _address(line: Mapping[str, Any]) -> str:
    names = ("experiment", "data", "system", "variant", "protocol", "at", "fold", "seed")
    return json.dumps([line.get(name) for name in names], sort_keys=True)


def _read(path: Path) -> list[Line]:
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    if lines[-1]:
        lines.pop()  # it has no end
    found = []
    for number, text in enumerate(lines, start=1):
        if text:
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            if not isinstance(line, dict) or "experiment" not in line:
                raise DataError(
                    f"Line {number} of {path} must be a JSON object with the result of a cell, but is not; "
                    f"remove that line."
                )
            found.append(line)
    return found


def _drop_torn_line(path: Path) -> None:
    """A line that a crash cut short: what is appended after it could not be read."""
    if not path.is_file():
        return
    with open(path, "r+b") as file:
        whole = file.read()
        if whole and not whole.endswith(b"\n"):
            file.truncate(whole.rfind(b"\n") + 1)


def _plain(value: Any) -> Any:
    """The same without what JSON has no word for."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
