"""Run what is missing of a grid, some cells at once, and keep each result as it arrives."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Protocol

from pprgnn.experiments.cell import Cell, address_of, without_twins
from pprgnn.experiments.run_cell import Line, forget, run_cell
from pprgnn.experiments.store import Store
from pprgnn.training.listener import ended_by_sigterm
from pprgnn.training.run import locked
from pprgnn.training.workers import Workers, at_work

__all__ = ["Watcher", "Workers", "run_missing"]


class Watcher(Protocol):
    """Is told how the grid goes."""

    def started(self, missing: Sequence[Cell], done: int) -> None:
        """Before the first cell."""

    def finished(self, line: Line) -> None:
        """After each cell."""


def run_missing(
    cells: Sequence[Cell],
    store: Store,
    workers: Workers | None = None,
    *,
    folder: Path | str = "runs/reproduce",
    retry: bool = False,
    watcher: Watcher | None = None,
) -> bool:
    """Run the cells that have no result yet, in their order; whether all have one in the end.

    Ctrl-C and SIGTERM end it with :class:`KeyboardInterrupt`; the same call goes on.

    Args:
        cells: The grid, the most telling cells first.
        store: Where the results are kept.
        workers: How many at once, and where; ``None``: one after the other, here.
        folder: Where unfinished trainings are kept, so that they go on.
        retry: Whether cells whose training broke off are run again.
        watcher: Is told how it goes, if there is one.
    """
    workers, folder = workers or Workers(), Path(folder).absolute()
    answers = store.answers(cells)
    done = {number for number, line in answers.items() if not (retry and "error" in line)}
    missing, twins = without_twins(cell for number, cell in enumerate(cells) if number not in done)
    by_address = {address_of(cell.coordinates): cell for cell in missing}
    if watcher is not None:
        watcher.started(missing, len(done))
    complete = True
    with locked(store.folder), ended_by_sigterm(), closing(_lines(missing, folder, workers)) as lines:
        for line in lines:
            if line is None:
                raise KeyboardInterrupt
            if "missing" in line or "broken" in line:
                complete = False
            else:
                twin = line.pop("also", None)
                store.add(line)
                if twin is not None and address_of(twin) in twins:
                    store.add(twin)
                forget(by_address[address_of(line)], folder)
            if watcher is not None:
                watcher.finished(line)
    return complete


def _lines(cells: Sequence[Cell], folder: Path, workers: Workers) -> Generator[Line | None]:
    """What comes out of the cells; in their order but for those at once."""
    for alone, group in groupby(cells, key=lambda cell: cell.alone):
        if alone or workers.is_this_process:
            yield from (run_cell(cell, folder) for cell in group)
        else:  # one CPU thread each: threads of several processes would fight over the cores
            with at_work(workers) as at_once:
                yield from at_once(partial(run_cell, folder=folder, threads=1), list(group))
