"""Results are kept: a file per experiment, a line per cell, only ever added to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pprgnn.data.atomic_io import drop_torn_line, plain
from pprgnn.errors import DataError
from pprgnn.experiments.cell import COORDINATES, Cell, address_of

Line = dict[str, Any]


class Store:
    """The folder of the results."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._lines: dict[str, list[Line]] = {}
        self._by_address: dict[str, dict[str, list[Line]]] = {}

    def path(self, experiment: str) -> Path:
        """The file of an experiment."""
        return self.folder / f"{experiment}.jsonl"

    def lines(self, experiment: str) -> list[Line]:
        """All lines of an experiment; one that a crash cut short is left out."""
        if experiment not in self._lines:
            self._lines[experiment] = _read(self.path(experiment), experiment)
        return self._lines[experiment]

    def add(self, line: Mapping[str, Any]) -> None:
        """One line more, on the disk before this returns."""
        experiment = str(line["experiment"])
        lines, path, added = self.lines(experiment), self.path(experiment), plain(line)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            drop_torn_line(path)
            with open(path, "ab") as file:  # in one piece: another process may add to the same file
                file.write(json.dumps(added, ensure_ascii=False).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DataError(
                f"The result cannot be added to {path} ({error.strerror or error}); make room or choose another "
                f"folder with --results. The same command then goes on."
            ) from error
        lines.append(added)
        self._by_address.pop(experiment, None)

    def answers(self, cells: Iterable[Cell]) -> dict[int, Line]:
        """The line of each cell that has one, by the cell's place in the list; the newest counts."""
        found = {number: self.answer(cell) for number, cell in enumerate(cells)}
        return {number: line for number, line in found.items() if line is not None}

    def answer(self, cell: Cell) -> Line | None:
        """The newest line of a cell."""
        if cell.experiment not in self._by_address:
            there: dict[str, list[Line]] = {}
            for line in reversed(self.lines(cell.experiment)):
                there.setdefault(address_of(line), []).append(line)
            self._by_address[cell.experiment] = there
        candidates = self._by_address[cell.experiment].get(address_of(cell.coordinates), [])
        return next((line for line in candidates if cell.is_answered_by(line)), None)


def _read(path: Path, experiment: str) -> list[Line]:
    try:
        *whole, _ = path.read_bytes().split(b"\n")  # what follows the last end of a line was cut short
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for number, text in enumerate(whole, start=1):
        if text.strip():
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            if not isinstance(line, dict) or any(name not in line for name in COORDINATES):
                raise DataError(
                    f"Line {number} of {path} must be a JSON object with the result of a cell ("
                    f"{', '.join(COORDINATES)}, ...), but is not; remove that line."
                )
            if line["experiment"] != experiment:
                raise DataError(
                    f"Line {number} of {path} must be of the experiment {experiment}, but is of "
                    f"{line['experiment']}; move it to {path.with_name(str(line['experiment']) + '.jsonl')}."
                )
            found.append(line)
    return found
