"""What one sees of a grid of trainings: a line that moves on a terminal, a line per cell elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pprgnn.cli.moving_line import MovingLine
from pprgnn.experiments.cell import Cell, address_of, label_of
from pprgnn.experiments.plan import Estimates, Plan, Row
from pprgnn.training.terminal import clock, paragraph, table, width
from pprgnn.wording import counted


class CellLines:
    """A line per cell; on a terminal only what failed has one, above a line that moves."""

    def __init__(self, estimates: Estimates, jobs: int) -> None:
        self.estimates, self.jobs = estimates, jobs
        self.done = self.total = 0
        self.last: dict[str, Any] = {}
        self.moving = MovingLine(self._line, per_second=1)
        self._left: dict[str, Cell] = {}
        self._told: set[str] = set()
        self._started = time.monotonic()

    def started(self, missing: Sequence[Cell], done: int) -> None:
        """Tell how much there is to do."""
        self.done, self.total = done, done + len(missing)
        self._left = {address_of(cell.coordinates): cell for cell in missing}
        self._started = time.monotonic()
        todo = f"{len(missing):,} to run{self._rest(', ')}" if missing else "nothing is left to run"
        self.moving.say(f"{counted(self.total, 'cell')}, {done:,} done; {todo}.")
        if missing:
            self.moving.start()

    def finished(self, line: dict[str, Any]) -> None:
        """Tell how a cell went; what is missing for many of them only once."""
        self.done += 1
        self._left.pop(address_of(line), None)
        self.estimates.add(line)
        self.last = line
        if "missing" in line:
            if line["missing"] not in self._told:
                self._told.add(line["missing"])
                self.moving.say(f"{line['data']} {line['system']} skipped: {line['missing']}")
        elif "error" in line or "broken" in line or not self.moving.moves:
            self.moving.say(f"{self.done}/{self.total} {label_of(line)}: {result_text(line)}")

    def stop(self) -> None:
        """End the line, whatever happened."""
        self.moving.stop()

    def _rest(self, before: str) -> str:
        """What is left, by the times of results so far."""
        seconds, unknown = self.estimates.total(self._left.values(), self.jobs)
        if not seconds:
            return ""
        return f"{before}{'at least' if unknown else 'about'} {clock(seconds)} left"

    def _line(self) -> str:
        """How many, since when, how long to go, and the last result."""
        head = f"{self.done:,}/{self.total:,}  {clock(time.monotonic() - self._started)}{self._rest('  ')}"
        return f"{head}  {result_text(self.last)}: {label_of(self.last)}" if self.last else head


def result_text(line: dict[str, Any]) -> str:
    """What came out of a cell, or why nothing did."""
    for reason in ("error", "missing", "broken"):
        if reason in line:
            return f"failed: {line[reason]}"
    if "trials" in line:
        return f"{len(line['trials'])} candidates, the best with {100 * line['val']:.1f} % on validation"
    score = "undefined" if line["test"] is None else f"{100 * line['test']:.1f} %"
    return f"test {line['metric']} {score}, {duration(line['total_seconds'])}"


def plan_lines(plan: Plan, verbose: bool = False) -> list[str]:
    """What would run as a table, and in all; of several experiments a line each, unless ``verbose``."""
    experiments = list(dict.fromkeys(row.experiment for row in plan.rows))
    if len(experiments) == 1 or verbose:
        return [*table(_plan_rows(plan), ("as",), width()), "", *_in_all(plan)]
    rows = [_in_short(name, [row for row in plan.rows if row.experiment == name]) for name in experiments]
    more = "Name one experiment, or add --verbose, to see its systems and data."
    return [*table(rows, (), width()), "", *_in_all(plan), paragraph("", more, width())]


def _in_short(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    left = sum(row.cells - row.done for row in rows)
    unknown = sum(row.without_estimate for row in rows)
    least = "at least " if unknown else ""
    seconds = sum(row.seconds for row in rows)
    return {
        "experiment": name,
        "systems": len({row.system for row in rows}),
        "data sets": len({row.data for row in rows}),
        "cells": sum(row.cells for row in rows),
        "done": sum(row.done for row in rows),
        "time": f"{least}{clock(seconds)}" if seconds else "no estimate" if left else "",
    }


def _plan_rows(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "experiment": row.experiment,
            "system": row.system,
            "data": row.data,
            "cells": row.cells,
            "done": row.done,
            "time": clock(row.seconds) if row.sources else "" if row.done == row.cells else "no estimate",
            "as": ", ".join(row.sources)
            + (f"; {row.without_estimate:,} without" if row.sources and row.without_estimate else ""),
        }
        for row in plan.rows
    ]


def _in_all(plan: Plan) -> list[str]:
    left = plan.cells - plan.done
    at_once = f" with {plan.jobs} at once" if plan.jobs > 1 else ""
    text = f"{counted(plan.cells, 'cell')}, {plan.done:,} done, {left:,} to run"
    if plan.without_estimate < left:
        text += f": about {clock(plan.seconds)}{at_once}"
    if plan.without_estimate:
        text += f"; {counted(plan.without_estimate, 'cell')} without an estimate"
    how = "Times are medians of results that are there: of the same system, data and variant, or of what is named."
    return [f"{text}.", *([paragraph("", how, width())] if plan.seconds else [])]


def duration(seconds: float) -> str:
    """A time as people say it, short ones in seconds."""
    return f"{seconds:.0f} s" if seconds < 60 else clock(seconds)
