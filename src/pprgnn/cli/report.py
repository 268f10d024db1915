"""`pprgnn report`: one page about a run, or several side by side; and the page that `train` writes by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pprgnn.training.terminal import is_terminal, styled, width

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = "report.html"
SWITCH = "PPRGNN_REPORT"
SHORTEST, LONGEST = 5.0, 20.0  # seconds to measure a run that has just been trained
WantedReport = Annotated[
    bool,
    typer.Option("--report/--no-report", envvar=SWITCH, help=f"Write {PAGE} into the run's folder at the end."),
]


def report_command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs, studies or comparisons; several are compared."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=f"The page; by default RUN/{PAGE}, or {PAGE} for several."),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(min=1, help="About how long measuring a run may take; done once, or again with more time."),
    ] = 30.0,
    again: Annotated[bool, typer.Option("--again", help="Measure anew what was measured before.")] = False,
) -> None:
    """Write a page about a run.

    Result, training, depth and its proof, reach, cost, classes and where it all comes from, in one HTML file that
    needs no network. Several runs are shown side by side.
    """
    from pprgnn.report import write_report
    from pprgnn.training.comparison import Comparison, is_comparison

    page = output or (runs[0] / PAGE if len(runs) == 1 else Path(PAGE))
    runs = [each for run in runs for each in (Comparison.open(run).folders if is_comparison(run) else [run])]
    with announcing() as announce:
        write_report(runs, page, seconds=seconds, announce=announce, again=again)
    typer.echo(f"The page is {page}.")


@contextmanager
def announcing() -> Iterator[Callable[[str], None]]:
    """Who tells what is being measured: a line that changes on a terminal, a line each elsewhere."""
    if not is_terminal():
        yield lambda text: typer.echo(f"{text} ...")
        return
    from rich.console import Console

    with Console(highlight=False).status("Reading ...", spinner="line") as status:
        yield lambda text: status.update(text[: (width() or 80) - 4].replace("[", "\\["))


def write_after_training(summary: dict[str, Any], quiet: bool) -> None:
    """The page of a run that has just come to its end; whatever happens, the training stays a success."""
    folder, each = summary["folder"], list(summary.get("systems", {"": summary}).values())
    trained = max(sum(run["seconds"] for run in one.get("runs", [one])) for one in each)
    with not_written(f"`pprgnn report {folder}`", quiet), _live_line(quiet) as announce:
        from pprgnn.report import write_report

        seconds, runs = min(LONGEST, max(SHORTEST, trained)), [one["folder"] for one in each]
        page = write_report(runs, Path(folder) / PAGE, seconds=seconds, announce=announce)
        if not quiet:
            typer.echo(styled(f"{page} shows it.", dim=True))


@contextmanager
def not_written(remedy: str, quiet: bool = False) -> Iterator[None]:
    """A page that cannot be written is told of, and nothing else comes of it."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        why = "it was stopped" if isinstance(error, KeyboardInterrupt) else str(error).rstrip(".") or repr(error)
        if not quiet:
            typer.echo(styled(f"The report could not be written: {why}; {remedy} tries again.", dim=True))


@contextmanager
def _live_line(quiet: bool) -> Iterator[Callable[[str], None]]:
    """After a training, a live line or nothing: its log should not be about the page."""
    if quiet or not is_terminal():
        yield lambda text: None
    else:
        with announcing() as announce:
            yield announce
