"""`pprgnn tune`: search for good settings, and write them as a recipe."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import typer

from pprgnn.cli.commands import TRIALS, Tune
from pprgnn.cli.group import STOPPED
from pprgnn.cli.options import TableDetails
from pprgnn.cli.output import show_json
from pprgnn.cli.tables import labelled_graph
from pprgnn.cli.training_options import check_source, chosen_workers, config_for, typed_command
from pprgnn.cli.tuning_view import TrialLines, show_tuning
from pprgnn.training import tune as tuning
from pprgnn.training.errors import TrainingError
from pprgnn.training.search import read_search, search_space


def tune(options: Tune) -> None:
    """Search, show what came out, and end with the right code."""
    listener = None if options.as_json else TrialLines()
    try:
        if options.resume is None:
            summary = _begin(options, listener)
        else:
            summary = _go_on(options, options.resume, listener)
    finally:
        if listener is not None:
            listener.stop()
    if options.as_json:
        show_json(summary)
    else:
        show_tuning(summary)
        if not summary["finished"]:
            typer.echo(f"Stopped; go on with `pprgnn tune --resume {summary['folder']}`.")
    if summary["stopped"] == "Ctrl-C":
        raise typer.Exit(STOPPED)


def _begin(options: Tune, listener: TrialLines | None) -> dict[str, Any]:
    workers, details = chosen_workers(options.at_once), TableDetails()
    check_source(options.what, options.tables, details)
    config = config_for(options.what, options.changes, options.model)
    space = search_space(read_search(options.search), config) if options.search else None
    dataset = None
    if options.tables.edges is not None:
        dataset = labelled_graph(options.tables, details, options.as_json)
        config = config.with_values({"data.name": dataset.facts.name})
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return tuning.tune(
        config,
        options.output or Path("tunings") / f"{Path(config.data.name).stem}-{stamp}",
        trials=options.trials or TRIALS,
        dataset=dataset,
        search=space,
        timeout=_seconds(options),
        workers=workers,
        listener=listener,
        command=typed_command(),
    )


def _go_on(options: Tune, folder: Path, listener: TrialLines | None) -> dict[str, Any]:
    workers, tables = chosen_workers(options.at_once), options.tables
    new = (options.what, tables.edges, tables.nodes, tables.target, options.output)
    if new != (None,) * 5 or options.changes or options.model or options.search:
        raise TrainingError(
            "--resume takes all settings from its folder; only --trials and --jobs may go with it."
        )
    return tuning.resume_tuning(
        folder, trials=options.trials, timeout=_seconds(options), workers=workers, listener=listener
    )


def _seconds(options: Tune) -> float | None:
    return None if options.timeout is None else 60 * options.timeout
