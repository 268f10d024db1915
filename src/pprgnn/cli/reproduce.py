"""`pprgnn reproduce`: the tables and figures of the paper, and more, from trainings whose results are kept."""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from pprgnn import report as reports
from pprgnn.cli.main import Reproduce
from pprgnn.cli.options import PAGE as HTML
from pprgnn.cli.options import STOPPED
from pprgnn.cli.output import show, show_json
from pprgnn.cli.report import not_written
from pprgnn.experiments import EXPERIMENTS, page
from pprgnn.experiments.cell import Cell, address_of, label_of
from pprgnn.experiments.experiment import PROTOCOLS, Experiment, Extent
from pprgnn.experiments.plan import Estimates, Plan, Row, make_plan, usual_jobs
from pprgnn.experiments.store import Store
from pprgnn.training.errors import TrainingError
from pprgnn.training.systems import find_system
from pprgnn.training.terminal import Lines, clock, paragraph, table, width
from pprgnn.training.workers import Workers
from pprgnn.wording import counted

ALL, REPORT = "all", "report"
RESULTS, PAGE, SMOKE = Path("results"), "RESULTS.md", Path("runs/smoke")
UNFINISHED = Path("runs/reproduce")


def reproduce(options: Reproduce) -> None:
    """Only the page, only the plan, or all that is missing."""
    if options.as_json and not options.plan:
        raise TrainingError("--json goes with --plan; results are JSON anyway, in the folder of --results.")
    if options.smoke and options.results is not None and options.results.resolve() == RESULTS.resolve():
        raise TrainingError(f"What --smoke tries is no result, so it cannot go into {RESULTS}; name another.")
    folder = options.results or (SMOKE if options.smoke else RESULTS)
    path = options.page or (Path(PAGE) if folder == RESULTS else folder / PAGE)
    store = Store(folder)
    Workers(options.jobs or 1, options.backend, options.address)  # refuses before anything is read
    if REPORT in options.names:
        if len(options.names) > 1 or options.plan:
            raise TrainingError("`report` only makes the page of what is there; it stands alone.")
        _write_page(store, path, options.html)
        return

    def grid() -> list[Cell]:
        return _cells(options, store)

    jobs = options.jobs or usual_jobs(grid())
    if not options.plan:
        _run(grid, store, Workers(jobs, options.backend, options.address), path, options)
        return
    found = make_plan(grid(), store, EXPERIMENTS, jobs, options.retry)
    if options.as_json:
        show_json(asdict(found))
    else:
        show(plan_lines(found, options.verbose))


# --------------------------------------------------------------------------------------------------- what is meant
def _listed(values: Sequence[str] | None) -> list[str] | None:
    """`a,b` and `a` `b` alike; ``None``: not given."""
    return [word for value in values for word in value.split(",") if word] if values else None


def _cells(options: Reproduce, store: Store) -> list[Cell]:
    experiments = _experiments(options.names)
    if options.protocol not in (*PROTOCOLS, "both"):
        raise TrainingError(f"--protocol must be paper, honest or both, but is {options.protocol!r}.")
    few = 1 if options.smoke else None
    extent = Extent(
        folds=options.folds or few,
        seeds=options.seeds or few,
        models=_listed(options.models),
        protocols=PROTOCOLS if options.protocol == "both" else (options.protocol,),
        data=_listed(options.data),
        only=options.only or (),
        store=store,
    )
    _check_names(experiments, extent)
    cells = [cell for each in experiments for cell in each.cells(extent, smoke=options.smoke)]
    if not cells:
        told = ", ".join(each.name for each in experiments)
        raise TrainingError(
            f"--models, --data, --only and --protocol leave no cell of {told}; leave one of them out."
        )
    return cells


def _experiments(names: Sequence[str]) -> list[Experiment]:
    known = (*EXPERIMENTS, ALL, REPORT)
    for name in names:
        if name not in known:
            raise TrainingError(f"There is no experiment {name!r}; {_hint(name, known)}")
    return [each for name, each in EXPERIMENTS.items() if name in names or ALL in names]


def _check_names(experiments: Sequence[Experiment], extent: Extent) -> None:
    """Refuse a model or data set that none of the experiments has."""
    models = [find_system(name).name for name in extent.models or ()]
    if not models and not extent.data:
        return
    cells = [cell for each in experiments for cell in each.cells(Extent(1, 1))]
    systems = list(dict.fromkeys(cell.config.model.system for cell in cells))
    sets = list(dict.fromkeys(name for cell in cells for name in (cell.config.data.name, cell.data) if name))
    told = " and ".join(each.name for each in experiments)
    for what, wanted, there in (("model", models, systems), ("data set", extent.data or (), sets)):
        for name in wanted:
            if name.lower() not in (each.lower() for each in there):
                raise TrainingError(f"There is no {what} {name!r} in {told}; {_hint(name, there)}")


def _hint(name: str, there: Sequence[str]) -> str:
    known = {each.lower(): each for each in there}
    close = difflib.get_close_matches(name.lower(), known, 1)
    return f"did you mean {known[close[0]]!r}?" if close else f"there are {', '.join(there)}."


# --------------------------------------------------------------------------------------------------------- running
def _run(grid: Callable[[], list[Cell]], store: Store, workers: Workers, path: Path, options: Reproduce) -> None:
    """What can run; then what had to wait for settings that this has chosen. Imports torch only now."""
    from pprgnn.experiments.runner import run_missing

    watcher = CellLines(Estimates(line for name in EXPERIMENTS for line in store.lines(name)), workers.jobs)
    stopped, cells, waiting = False, grid(), math.inf
    try:
        while (waits := sum(cell.waits for cell in cells)) < waiting:
            ready, waiting = [cell for cell in cells if not cell.waits], waits
            run_missing(ready, store, workers, folder=UNFINISHED, retry=options.retry, watcher=watcher)
            cells = grid() if waits else cells
    except KeyboardInterrupt:
        stopped = True
    finally:
        watcher.stop()
        _write_page(store, path, options.html)
    if stopped:
        typer.echo("Stopped; the same command goes on.")
        raise typer.Exit(STOPPED)
    answers = store.answers(cells)
    broken_off, without = sum("error" in line for line in answers.values()), len(cells) - len(answers)
    if broken_off:
        typer.echo(f"{counted(broken_off, 'cell')} failed; --retry runs them again.")
    if without:
        typer.echo(f"{counted(without, 'cell')} without a result; the same command tries again.")
    if broken_off or without:
        raise typer.Exit(1)


def _write_page(store: Store, path: Path, html: bool) -> None:
    page.write_page(store, path, store.folder / "figures")
    typer.echo(f"The page is {path}.")
    if html:
        with not_written("`pprgnn reproduce report`"):
            typer.echo(f"As one file: {reports.write_results(store, path, store.folder / HTML)}.")


# --------------------------------------------------------------------------------------------------- what is shown
class CellLines(Lines):
    """A line per cell; on a terminal only what failed has one, above a line that moves."""

    def __init__(self, estimates: Estimates, jobs: int) -> None:
        super().__init__()
        self.estimates, self.jobs = estimates, jobs
        self.done = self.total = 0
        self.last: dict[str, Any] = {}
        self._left: dict[str, Cell] = {}
        self._told: set[str] = set()
        self._started = time.monotonic()

    def started(self, missing: Sequence[Cell], done: int) -> None:
        self.done, self.total = done, done + len(missing)
        self._left = {address_of(cell.coordinates): cell for cell in missing}
        self._started = time.monotonic()
        todo = f"{len(missing):,} to run{self._rest(', ')}" if missing else "nothing is left to run"
        self.say(f"{counted(self.total, 'cell')}, {done:,} done; {todo}.")
        if missing:
            self.start_line(self._line)

    def finished(self, line: dict[str, Any]) -> None:
        """Tell how a cell went; what is missing for many of them only once."""
        self.done += 1
        self._left.pop(address_of(line), None)
        self.estimates.add(line)
        self.last = line
        if "missing" in line:
            if line["missing"] not in self._told:
                self._told.add(line["missing"])
                self.say(f"{line['data']} {line['system']} skipped: {line['missing']}")
        elif "error" in line or "broken" in line or not self.moving:
            self.say(f"{self.done}/{self.total} {label_of(line)}: {_result(line)}")

    def _rest(self, before: str) -> str:
        """What is left, by the times of results so far."""
        seconds, unknown = self.estimates.total(self._left.values(), self.jobs)
        if not seconds:
            return ""
        return f"{before}{'at least' if unknown else 'about'} {clock(seconds)} left"

    def _line(self) -> str:
        """How many, since when, how long to go, and the last result."""
        head = f"{self.done:,}/{self.total:,}  {clock(time.monotonic() - self._started)}{self._rest('  ')}"
        return f"{head}  {_result(self.last)}: {label_of(self.last)}" if self.last else head


def _result(line: dict[str, Any]) -> str:
    """What came out of a cell, or why nothing did."""
    for reason in ("error", "missing", "broken"):
        if reason in line:
            return f"failed: {line[reason]}"
    if "trials" in line:
        return f"{len(line['trials'])} candidates, the best with {100 * line['val']:.1f} % on validation"
    score = "undefined" if line["test"] is None else f"{100 * line['test']:.1f} %"
    seconds = line["total_seconds"]
    return f"test {line['metric']} {score}, {f'{seconds:.0f} s' if seconds < 60 else clock(seconds)}"


def plan_lines(plan: Plan, verbose: bool = False) -> list[str]:
    """What would run as a table, and in all; of several experiments a line each, unless ``verbose``."""
    experiments = list(dict.fromkeys(row.experiment for row in plan.rows))
    if len(experiments) == 1 or verbose:
        return [*table(_plan_rows(plan), ("as",), width()), "", *_in_all(plan)]
    rows = [_in_short(name, [row for row in plan.rows if row.experiment == name]) for name in experiments]
    more = "Name one experiment, or add --verbose, to see its systems and data."
    return [*table(rows, (), width()), "", *_in_all(plan), paragraph("", more, width())]


def _in_short(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    left, seconds = sum(row.cells - row.done for row in rows), sum(row.seconds for row in rows)
    least = "at least " if any(row.without_estimate for row in rows) else ""
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
