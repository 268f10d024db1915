"""What would run, how many at once, and how long it may take: from the times of the results that are there.

Imports neither torch nor PyG.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pprgnn.experiments.cell import Cell, without_twins
from pprgnn.experiments.store import Store
from pprgnn.training.environment import cores

SMALL = ("graphs", "graphs-trials")  # experiments with steps so small that a second thread makes them slower

# Whose times stand for a cell's: what they have in common with it, and what that is called; the nearest first.
NEAREST: dict[str, tuple[str, ...]] = {
    "the same variant": ("experiment", "data", "system", "variant"),
    "other variants": ("experiment", "data", "system"),
    "other experiments": ("data", "system"),
    "other systems": ("experiment", "data"),
}
Key = tuple[str, ...]


class Estimates:
    """The median time of the results that are most like a cell."""

    def __init__(self, lines: Iterable[Mapping[str, Any]] = ()) -> None:
        self._seconds: dict[tuple[str, Key], list[float]] = {}
        for line in lines:
            self.add(line)

    def add(self, line: Mapping[str, Any]) -> None:
        """Learn from one more; a training that broke off says nothing about a whole one."""
        if "error" not in line and isinstance(line.get("total_seconds"), int | float):
            for source, names in NEAREST.items():
                key = source, tuple(line[name] for name in names)
                self._seconds.setdefault(key, []).append(line["total_seconds"])

    def of(self, cell: Cell) -> tuple[float, str] | None:
        """Seconds, and whose they are; ``None``: there is nothing like it."""
        where = cell.coordinates
        for source, names in NEAREST.items():
            seconds = self._seconds.get((source, tuple(where[name] for name in names)))
            if seconds:
                return statistics.median(seconds), source
        return None

    def total(self, cells: Iterable[Cell], jobs: int) -> tuple[float, int]:
        """Seconds for all of them with so many at once, and of how many nothing is known."""
        seconds, unknown = 0.0, 0
        for cell in cells:
            found = self.of(cell)
            unknown += found is None
            seconds += 0.0 if found is None else found[0] / (1 if cell.alone else jobs)
        return seconds, unknown


@dataclass
class Row:
    """All cells of a system on a data set."""

    experiment: str
    system: str
    data: str
    cells: int = 0
    done: int = 0
    seconds: float = 0.0
    without_estimate: int = 0
    sources: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """What would run: rows in the order of the grids, and in all, with so many at once."""

    rows: list[Row]
    jobs: int
    cells: int
    done: int
    seconds: float
    without_estimate: int


def make_plan(cells: Sequence[Cell], store: Store, experiments: Iterable[str], jobs: int, retry: bool) -> Plan:
    """Look up what is done and estimate the rest from the results of these experiments."""
    estimates = Estimates(line for name in experiments for line in store.lines(name))
    answers = store.answers(cells)
    rows: dict[Key, Row] = {}
    missing = []
    for number, cell in enumerate(cells):
        where = cell.coordinates
        key = where["experiment"], where["system"], where["data"]
        row = rows.setdefault(key, Row(*key))
        row.cells += 1
        if number in answers and not (retry and "error" in answers[number]):
            row.done += 1
            continue
        missing.append(cell)
    to_run, _ = without_twins(missing)
    for cell in to_run:
        where = cell.coordinates
        row = rows[where["experiment"], where["system"], where["data"]]
        found = estimates.of(cell)
        if found is None:
            row.without_estimate += 1
            continue
        row.seconds += found[0]
        if found[1] not in row.sources:
            row.sources.append(found[1])
    return Plan(list(rows.values()), jobs, len(cells), len(cells) - len(missing), *estimates.total(to_run, jobs))


def wants_one_thread(cell: Cell) -> bool:
    """Whether it is quickest with a single CPU thread, so that others can run beside it."""
    return cell.experiment in SMALL and not cell.config.training.threads


def usual_jobs(cells: Sequence[Cell]) -> int:
    """So many at once where nobody says: as many as there are cores where all are small, otherwise one."""
    small = all(map(wants_one_thread, cells))
    return max(min(int(cores()["allowed"] or 1), len(cells)), 1) if small else 1
