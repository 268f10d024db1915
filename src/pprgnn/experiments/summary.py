"""The lines that answer today's grid: cells that differ in fold and seed only are one entry of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, pstdev
from typing import Any

from pprgnn.experiments.cell import Cell, Group, address_of, group_of
from pprgnn.experiments.experiment import Experiment, Extent, of_fold
from pprgnn.experiments.store import Line, Store


def score(line: Line, metric: str = "") -> float | None:
    """The test score in percent, of the metric that counts or of another one; None: there is none."""
    if "error" in line:
        return None
    value = line.get("scores", {}).get("test", {}).get(metric) if metric else line.get("test")
    return None if value is None else 100 * float(value)


@dataclass(frozen=True)
class Entry:
    """One value of a table.

    Args:
        lines: Of the cells that were run, also of those that failed.
        cells: How many there should be; 0: the grid has no such entry.
        usual: How many there are without further seeds.
        metric: Which score; empty: the one that counts.
    """

    lines: Sequence[Line] = ()
    cells: int = 0
    usual: int = 0
    metric: str = ""

    @property
    def by_split(self) -> dict[tuple[int, int], float]:
        """The scores in percent, by fold and seed."""
        found = {(line["fold"], line["seed"]): score(line, self.metric) for line in self.lines}
        return {split: value for split, value in found.items() if value is not None}

    @property
    def count(self) -> int:
        """How many cells have a score."""
        return len(self.by_split)

    @property
    def failed(self) -> int:
        """How many cells were run and have none."""
        return len(self.lines) - self.count

    @property
    def is_complete(self) -> bool:
        """Whether every cell has a score."""
        return 0 < self.count == self.cells

    @property
    def mean(self) -> float | None:
        """Over folds and seeds, in percent."""
        return fmean(self.by_split.values()) if self.count else None

    @property
    def std(self) -> float | None:
        """Population standard deviation; one cell has none."""
        return pstdev(self.by_split.values()) if self.count > 1 else None

    @property
    def good(self) -> list[Line]:
        """The lines with a score."""
        return [line for line in self.lines if score(line, self.metric) is not None]

    def average(self, name: str) -> float | None:
        """Mean of another number of the lines, such as ``seconds``."""
        values = [line[name] for line in self.good if line.get(name) is not None]
        return fmean(values) if values else None

    @property
    def depths(self) -> list[float]:
        """The depth of each layer, mean over folds and seeds; empty: it has no layers of infinite depth.

        Where trials chose other numbers of layers in other folds, only the sum over the layers has a mean.
        """
        found = [line["depth"] for line in self.good if line.get("depth")]
        if len({len(layers) for layers in found}) > 1:
            return [fmean(map(sum, found))]
        return [fmean(layer) for layer in zip(*found, strict=True)]


@dataclass(frozen=True)
class Results:
    """An experiment, and what of it has been run.

    Args:
        experiment: The experiment.
        cells: Its grid of today, and cells with further seeds where they were run.
        answers: Their lines, by place.
        usual: How many of the cells are without further seeds; they come first.
        earlier: Lines that answer no cell, since settings or grid have changed.
    """

    experiment: Experiment
    cells: Sequence[Cell]
    answers: Mapping[int, Line]
    usual: int
    earlier: Sequence[Line]

    @classmethod
    def read(cls, experiment: Experiment, store: Store) -> Results:
        """All that the store has of it."""
        lines = store.lines(experiment.name)
        known = {line.get("config", {}).get("data.name", "") for line in lines}
        usual = [cell for cell in experiment.cells(Extent(known=known, store=store)) if not cell.candidates]
        more = [cell for cell in _further_seeds(usual, lines) if store.answer(cell) is not None]
        cells = [*usual, *more]
        answers = store.answers(cells)
        return cls(experiment, cells, answers, len(usual), _earlier(lines, answers, cells))

    @cached_property
    def groups(self) -> dict[Group, Entry]:
        """All entries, in the order of the grid."""
        entries: dict[Group, Entry] = {}
        for number, cell in enumerate(self.cells):
            old, line = entries.get(cell.group, Entry()), self.answers.get(number)
            lines = old.lines if line is None else [*old.lines, line]
            entries[cell.group] = Entry(lines, old.cells + 1, old.usual + (number < self.usual))
        return entries

    @property
    def lines(self) -> list[Line]:
        """Those that count."""
        return list(self.answers.values())

    @property
    def failed(self) -> int:
        """How many cells were run and have no score."""
        return sum(score(line) is None for line in self.lines)

    @property
    def seconds(self) -> float:
        """What all of it took."""
        return sum(line.get("total_seconds") or 0.0 for line in self.lines)

    def entry(
        self,
        data: str,
        system: str,
        variant: str = "",
        protocol: str = "honest",
        at: Mapping[str, Any] | None = None,
        metric: str = "",
    ) -> Entry:
        """One value of a table."""
        names = {"data": data, "system": system, "variant": variant, "protocol": protocol, "at": dict(at or {})}
        return replace(self.groups.get(group_of(names), Entry()), metric=metric)

    @property
    def data(self) -> list[str]:
        """The data sets, in the order of the grid."""
        return list(dict.fromkeys(group.data for group in self.groups))

    @property
    def systems(self) -> list[tuple[str, str]]:
        """Systems with their variants, in the order of the grid: ours first."""
        return list(dict.fromkeys((group.system, group.variant) for group in self.groups))


def _further_seeds(usual: Sequence[Cell], lines: Sequence[Line]) -> list[Cell]:
    """The same cells with the seeds that some lines have and the grid has not."""
    seeds = sorted({line["seed"] for line in lines if isinstance(line.get("seed"), int)})
    known = {address_of(cell.coordinates) for cell in usual}
    first = [cell for cell in usual if cell.config.training.seed == 0]
    more = (
        replace(cell, config=of_fold(cell.config, cell.config.data.fold, seed))
        for seed in seeds
        if seed
        for cell in first
    )
    return [cell for cell in more if address_of(cell.coordinates) not in known]


def _earlier(lines: Sequence[Line], answers: Mapping[int, Line], cells: Sequence[Cell]) -> list[Line]:
    """The lines that answer no cell; one that a newer line has replaced does answer its cell."""
    used = {id(line) for line in answers.values()}
    others = [line for line in lines if id(line) not in used]
    there: dict[str, list[Cell]] = {}
    for cell in cells if others else ():
        there.setdefault(address_of(cell.coordinates), []).append(cell)
    return [
        line for line in others if not any(cell.is_answered_by(line) for cell in there.get(address_of(line), ()))
    ]
