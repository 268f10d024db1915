"""`pprgnn reproduce`: the tables and figures of the paper, and more, from trainings whose results are kept."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from pprgnn import report as reports
from pprgnn.cli.commands import Reproduce
from pprgnn.cli.group import STOPPED
from pprgnn.cli.options import PAGE as HTML
from pprgnn.cli.output import show, show_json
from pprgnn.cli.report import not_written
from pprgnn.cli.reproduce_view import CellLines, plan_lines
from pprgnn.experiments import EXPERIMENTS, page
from pprgnn.experiments.cell import Cell
from pprgnn.experiments.experiment import PROTOCOLS, Experiment, Extent
from pprgnn.experiments.plan import Estimates, make_plan, usual_jobs
from pprgnn.experiments.store import Store
from pprgnn.training.errors import TrainingError
from pprgnn.training.systems import find_system
from pprgnn.training.workers import Workers
from pprgnn.wording import counted

ALL, REPORT = "all", "report"
RESULTS, PAGE, SMOKE = Path("results"), "RESULTS.md", Path("runs/smoke")
UNFINISHED = Path("runs/reproduce")


def reproduce(options: Reproduce) -> None:
    """Only the page, only the plan, or all that is missing."""
    if options.as_json and not options.plan:
        raise TrainingError("--json goes with --plan; results are JSON anyway, in the folder of --results.")
    folder = _results_folder(options.results, options.smoke)
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
def _results_folder(wanted: Path | None, smoke: bool) -> Path:
    if smoke and wanted is not None and wanted.resolve() == RESULTS.resolve():
        raise TrainingError(f"What --smoke tries is no result, so it cannot go into {RESULTS}; name another.")
    return wanted or (SMOKE if smoke else RESULTS)


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
        store=store,
    )
    _check_names(experiments, extent)
    cells = [cell for each in experiments for cell in each.cells(extent, smoke=options.smoke)]
    if not cells:
        told = ", ".join(each.name for each in experiments)
        raise TrainingError(f"--models, --data and --protocol leave no cell of {told}; leave one of them out.")
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
