"""`pprgnn report`: one page about a run, or several side by side; and the page that `train` writes by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from pprgnn import report as reports
from pprgnn.cli.main import Report
from pprgnn.cli.options import PAGE
from pprgnn.cli.output import show_hint
from pprgnn.training.comparison import Comparison, is_comparison
from pprgnn.training.terminal import is_terminal, width

SHORTEST, LONGEST = 5.0, 20.0  # seconds to measure a run that has just been trained


def report(options: Report) -> None:
    """Write the page; of a comparison, about all that it compares."""
    runs = options.runs
    page = options.output or (runs[0] / PAGE if len(runs) == 1 else Path(PAGE))
    runs = [each for run in runs for each in (Comparison.open(run).folders if is_comparison(run) else [run])]
    with announcing() as announce:
        reports.write_report(runs, page, seconds=options.seconds, announce=announce, again=options.again)
    typer.echo(f"The page is {page}.")


@contextmanager
def announcing() -> Iterator[Callable[[str], None]]:
    """Who tells what is being measured: a line that changes on a terminal, a line each elsewhere."""
    if not is_terminal():
        yield lambda text: typer.echo(f"{text} ...")
        return
    with Console(highlight=False).status("Reading ...", spinner="line") as status:
        yield lambda text: status.update(text[: (width() or 80) - 4].replace("[", "\\["))


def write_after_training(summary: dict[str, Any], quiet: bool) -> None:
    """The page of a run that has just come to its end; whatever happens, the training stays a success."""
    folder, each = summary["folder"], list(summary.get("systems", {"": summary}).values())
    trained = max(sum(run["seconds"] for run in one.get("runs", [one])) for one in each)
    # A live line or nothing: the log of a training should not be about its page.
    line = announcing() if is_terminal() and not quiet else nullcontext(lambda text: None)
    with not_written(f"`pprgnn report {folder}`", quiet), line as announce:
        seconds, runs = min(LONGEST, max(SHORTEST, trained)), [one["folder"] for one in each]
        page = reports.write_report(runs, Path(folder) / PAGE, seconds=seconds, announce=announce)
        if not quiet:
            show_hint(f"{page} shows it.")


@contextmanager
def not_written(remedy: str, quiet: bool = False) -> Iterator[None]:
    """A page that cannot be written is told of, and nothing else comes of it."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        why = "it was stopped" if isinstance(error, KeyboardInterrupt) else str(error).rstrip(".") or repr(error)
        if not quiet:
            show_hint(f"The report could not be written: {why}; {remedy} tries again.")
