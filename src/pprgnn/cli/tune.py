"""`pprgnn tune`: search for good settings, and write them as a recipe."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pprgnn.cli.tables import Edges, Nodes, Target, named_columns
from pprgnn.cli.train import (
    STOPPED,
    Address,
    Backend,
    Jobs,
    Json,
    OldJobs,
    Set,
    System,
    What,
    check_source,
    chosen_workers,
    config_for,
    own_tables,
    typed_command,
)
from pprgnn.training.errors import TrainingError
from pprgnn.training.search import read_search, search_space

if TYPE_CHECKING:
    from pprgnn.training.workers import Workers

TRIALS = 30


def tune_command(
    what: What = None,
    edges: Edges = None,
    nodes: Nodes = None,
    target: Target = None,
    trials: Annotated[int | None, typer.Option(help=f"How many trainings; {TRIALS} by default.", min=1)] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=RANGE",
            help="What to search instead of the usual: lr=0.001..0.1:log, dropout=0..0.8, hidden=32,64, or a "
            ".toml file of such lines. Repeatable.",
        ),
    ] = None,
    model: System = None,
    changes: Set = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="tunings/... by default.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Go on with the tuning in this folder.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="MINUTES", help="Stop after this time.", min=0)] = None,
    jobs: Jobs = None,
    workers_before: OldJobs = None,
    backend: Backend = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Search for good settings.

    Many short trainings, compared by validation, never by test. The best settings become a recipe, best.toml.
    Ctrl-C saves, --resume goes on. Tables with unusual columns go through `pprgnn data import` first.
    """
    seconds = None if timeout is None else 60 * timeout
    workers = chosen_workers(jobs or workers_before, backend, address)
    if resume is not None:
        tables = (edges, nodes, target)
        if (what, *tables, output) != (None,) * 5 or changes or model or search:
            raise TrainingError(
                "--resume takes all settings from its folder; only --trials and --jobs may go with it."
            )
        _run(as_json, lambda listener: _resume(resume, trials, seconds, workers, listener))
        return
    own = {"nodes": nodes, "target": target}
    check_source(what, edges, {key: value for key, value in own.items() if value is not None})
    config = config_for(what, changes or [], model)
    space = search_space(read_search(search), config) if search else None
    dataset = None
    if edges is not None:
        dataset = own_tables(edges, nodes, None, None, False, named_columns({}, target), as_json)
        config = config.with_values({"data.name": dataset.facts.name})
    folder = output or Path("tunings") / f"{Path(config.data.name).stem}-{time.strftime('%Y%m%d-%H%M%S')}"

    def start(listener: Any) -> dict[str, Any]:
        from pprgnn.training.tune import tune

        return tune(
            config,
            folder,
            trials=trials or TRIALS,
            dataset=dataset,
            search=space,
            timeout=seconds,
            workers=workers,
            listener=listener,
            command=typed_command(),
        )

    _run(as_json, start)


def _resume(
    folder: Path, trials: int | None, seconds: float | None, workers: Workers | None, listener: Any
) -> dict[str, Any]:
    from pprgnn.training.tune import resume_tuning

    return resume_tuning(folder, trials=trials, timeout=seconds, workers=workers, listener=listener)


def _run(as_json: bool, search: Any) -> None:
    """Search, show what came out, and end with the right code."""
    from pprgnn.cli.tuning_view import TrialLines, show

    listener = None if as_json else TrialLines()
    try:
        summary = search(listener)
    finally:
        if listener is not None:
            listener.stop()
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        show(summary)
        if not summary["finished"]:
            typer.echo(f"Stopped; go on with `pprgnn tune --resume {summary['folder']}`.")
    if summary["stopped"] == "Ctrl-C":
        raise typer.Exit(STOPPED)
