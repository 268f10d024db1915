"""`pprgnn reproduce`: the tables and figures of the paper, and more, from trainings whose results are kept."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pprgnn.cli.report import PAGE as HTML
from pprgnn.cli.report import SWITCH, not_written
from pprgnn.cli.train import STOPPED
from pprgnn.training.errors import TrainingError
from pprgnn.training.systems import find_system
from pprgnn.wording import counted

if TYPE_CHECKING:
    from pprgnn.experiments.cell import Cell
    from pprgnn.experiments.experiment import Experiment, Extent
    from pprgnn.experiments.runner import Workers
    from pprgnn.experiments.store import Store

ALL, REPORT = "all", "report"
RESULTS, PAGE, SMOKE = Path("results"), "RESULTS.md", Path("runs/smoke")
UNFINISHED = Path("runs/reproduce")


def reproduce_command(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="graphs, ppi, amazon, timing, depth, chains, heterophily, convolutions, ablations, or all of "
            "them; report: only the page.",
        ),
    ],
    models: Annotated[
        list[str] | None, typer.Option(metavar="NAME,NAME", help="Only these systems. Repeatable.")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(metavar="NAME,NAME", help="Only these data sets. Repeatable.")
    ] = None,
    protocol: Annotated[str, typer.Option(metavar="NAME", help="paper, honest or both.")] = "both",
    folds: Annotated[int | None, typer.Option(help="Only so many splits.", min=1)] = None,
    seeds: Annotated[int | None, typer.Option(help="So many seeds.", min=1)] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Try it: tiny networks, two epochs; kept apart, in runs/smoke.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Cells at once, one CPU thread each; by default as many as cores for graphs, otherwise 1.", min=1
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option(metavar="NAME", help="Where: loky (this machine), dask or ray.")
    ] = "loky",
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Of the Dask or Ray cluster.")] = "",
    plan: Annotated[
        bool, typer.Option("--plan", help="Only tell what would run, and how long it may take.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --plan: every system and data set of all experiments.")
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Run again what failed.")] = False,
    results: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Of the results; results by default.")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="The page; RESULTS.md by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --plan: as JSON, for programs.")] = False,
    html: Annotated[
        bool,
        typer.Option(
            "--report/--no-report", envvar=SWITCH, help=f"Write the page as {HTML}, too, with the results."
        ),
    ] = True,
) -> None:
    """Run the experiments of the paper, and more.

    Every result is kept as a line of results/NAME.jsonl and shown in RESULTS.md. Ctrl-C stops; the same command
    goes on, and runs nothing twice.
    """
    from pprgnn.experiments.runner import Workers, usual_jobs
    from pprgnn.experiments.store import Store

    if as_json and not plan:
        raise TrainingError("--json goes with --plan; results are JSON anyway, in the folder of --results.")
    folder = _results_folder(results, smoke)
    page = page or (Path(PAGE) if folder == RESULTS else folder / PAGE)
    store = Store(folder)
    Workers(jobs or 1, backend, address)  # refuses before anything is read
    if REPORT in names:
        if len(names) > 1 or plan:
            raise TrainingError("`report` only makes the page of what is there; it stands alone.")
        _write_page(store, page, html)
        return

    def cells() -> list[Cell]:
        return _cells(names, _listed(models), _listed(data), protocol, folds, seeds, smoke, store)

    jobs = jobs or usual_jobs(cells())
    if plan:
        _show_plan(cells(), store, jobs, retry, as_json, verbose)
    else:
        _run(cells, store, Workers(jobs, backend, address), retry, page, html)


# --------------------------------------------------------------------------------------------------- what is meant
def _results_folder(wanted: Path | None, smoke: bool) -> Path:
    if smoke and wanted is not None and wanted.resolve() == RESULTS.resolve():
        raise TrainingError(f"What --smoke tries is no result, so it cannot go into {RESULTS}; name another.")
    return wanted or (SMOKE if smoke else RESULTS)


def _listed(values: Sequence[str] | None) -> list[str] | None:
    """`a,b` and `a` `b` alike; ``None``: not given."""
    return [word for value in values for word in value.split(",") if word] if values else None


def _cells(
    names: Sequence[str],
    models: Sequence[str] | None,
    data: Sequence[str] | None,
    protocol: str,
    folds: int | None,
    seeds: int | None,
    smoke: bool,
    store: Store,
) -> list[Cell]:
    from pprgnn.experiments.experiment import PROTOCOLS, Extent

    experiments = _experiments(names)
    if protocol not in (*PROTOCOLS, "both"):
        raise TrainingError(f"--protocol must be paper, honest or both, but is {protocol!r}.")
    protocols = PROTOCOLS if protocol == "both" else (protocol,)
    if smoke:
        folds, seeds = folds or 1, seeds or 1
    extent = Extent(folds, seeds, models, protocols, data, store=store)
    _check_names(experiments, extent)
    cells = [cell for each in experiments for cell in each.cells(extent, smoke=smoke)]
    if not cells:
        told = ", ".join(each.name for each in experiments)
        raise TrainingError(f"--models, --data and --protocol leave no cell of {told}; leave one of them out.")
    return cells


def _experiments(names: Sequence[str]) -> list[Experiment]:
    from pprgnn.experiments import EXPERIMENTS

    known = (*EXPERIMENTS, ALL, REPORT)
    for name in names:
        if name not in known:
            raise TrainingError(f"There is no experiment {name!r}; {_hint(name, known)}")
    return [each for name, each in EXPERIMENTS.items() if name in names or ALL in names]


def _check_names(experiments: Sequence[Experiment], extent: Extent) -> None:
    """Refuse a model or data set that none of the experiments has."""
    from pprgnn.experiments.experiment import Extent

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
def _run(
    grid: Callable[[], list[Cell]], store: Store, workers: Workers, retry: bool, page: Path, html: bool
) -> None:
    """What can run; then what had to wait for settings that this has chosen."""
    from pprgnn.cli.reproduce_view import view
    from pprgnn.experiments import EXPERIMENTS
    from pprgnn.experiments.plan import Estimates
    from pprgnn.experiments.runner import run_missing

    watcher = view(Estimates(line for name in EXPERIMENTS for line in store.lines(name)), workers.jobs)
    stopped, cells, waiting = False, grid(), math.inf
    try:
        while (waits := sum(cell.waits for cell in cells)) < waiting:
            ready, waiting = [cell for cell in cells if not cell.waits], waits
            run_missing(ready, store, workers, folder=UNFINISHED, retry=retry, watcher=watcher)
            cells = grid() if waits else cells
    except KeyboardInterrupt:
        stopped = True
    finally:
        watcher.stop()
        _write_page(store, page, html)
    if stopped:
        typer.echo("Stopped; the same command goes on.")
        raise typer.Exit(STOPPED)
    answers = store.answers(cells)
    broken_off = sum("error" in line for line in answers.values())
    if broken_off:
        typer.echo(f"{counted(broken_off, 'cell')} failed; --retry runs them again.")
    if len(answers) < len(cells):
        typer.echo(f"{counted(len(cells) - len(answers), 'cell')} without a result; the same command tries again.")
    if broken_off or len(answers) < len(cells):
        raise typer.Exit(1)


def _show_plan(cells: Sequence[Cell], store: Store, jobs: int, retry: bool, as_json: bool, verbose: bool) -> None:
    from pprgnn.cli.reproduce_view import plan_lines
    from pprgnn.experiments import EXPERIMENTS
    from pprgnn.experiments.plan import make_plan

    found = make_plan(cells, store, EXPERIMENTS, jobs, retry)
    typer.echo(json.dumps(asdict(found), indent=2) if as_json else "\n".join(plan_lines(found, verbose)))


def _write_page(store: Store, path: Path, html: bool) -> None:
    from pprgnn.experiments.page import write_page

    write_page(store, path, store.folder / "figures")
    typer.echo(f"The page is {path}.")
    if html:
        with not_written("`pprgnn reproduce report`"):
            from pprgnn.report import write_results

            typer.echo(f"As one file: {write_results(store, path, store.folder / HTML)}.")
