"""One training by several processes: starting them, and speaking with one voice."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pprgnn.distributed.launch import (
    is_about_others,
    is_first_to_tell,
    is_restarted,
    job_name,
    join,
    launch,
    leave,
)
from pprgnn.errors import DataError
from pprgnn.training.errors import TrainingError
from pprgnn.training.run import CONFIG, SUMMARY

if TYPE_CHECKING:
    from pprgnn.distributed.team import Team

STOPPED = 130


def start_processes(processes: int, restarts: int, folder: Path, resumed: bool) -> None:
    """Run what was typed in so many processes; the run is kept in ``folder``."""
    where = [] if resumed else ["--output", str(folder)]
    try:
        failed = launch([*_without_launching(sys.argv[1:]), *where], processes, restarts)
    except KeyboardInterrupt as error:
        if (folder / SUMMARY).is_file():  # they came to the end of an epoch, and one has said how to go on
            raise typer.Exit(STOPPED) from error
        raise KeyboardInterrupt(f"go on with `pprgnn train --resume {folder}`.") from error
    if failed is None:
        return
    rank, how = failed
    if how == f"exit code {STOPPED}":
        raise typer.Exit(STOPPED)
    if how.startswith("exit code"):  # it has said why
        raise typer.Exit(1)
    go_on = f" Go on with `pprgnn train --resume {folder}`." if (folder / CONFIG).is_file() else ""
    raise TrainingError(
        f"Process {rank} of {processes} was ended by {how}, and the others with it; if it ran out of memory, use "
        f"fewer processes or a smaller model.{go_on}"
    )


def _without_launching(arguments: list[str]) -> list[str]:
    """What was typed, without the options that are for the launcher, and without where to."""
    kept, skip = [], False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if skip:
            skip = False
        elif argument.startswith("-o") and argument != "-o":  # -oFOLDER
            continue
        elif name in ("--nproc", "--restarts", "--output", "-o"):
            skip = not equals
        else:
            kept.append(argument)
    return kept


@contextlib.contextmanager
def joined(device: str) -> Iterator[Team]:
    """One of several processes, from joining to leaving; what goes wrong is said once."""
    try:
        team = join(device)
        yield team
    except (RuntimeError, DataError, OSError) as error:
        about_others, text = is_about_others(error), str(error)
        if not about_others and not isinstance(error, DataError | OSError):
            raise  # a bug: with its traceback
        if about_others:
            text = (
                "Another process of this job has ended, so training cannot go on; what was saved is kept. Go on "
                "with `pprgnn train --resume FOLDER`, with any number of processes."
            )
        if not is_first_to_tell(text, about_others):
            raise typer.Exit(1) from error
        raise TrainingError(text) from error
    else:
        leave()


def folder_of_all(output: Path | None, stem: str, team: Team) -> Path:
    """Where the run is kept: the same in all processes, and after a restart."""
    if output is None and is_restarted() and job_name() is None:
        raise TrainingError("A job without a name cannot find its run after a restart; give the folder with -o.")
    return Path(team.shared(str(output or new_folder(stem, job_name()))))


def new_folder(stem: str, name: str | None = None) -> Path:
    """Where a run is kept that was given no folder."""
    return Path("runs") / f"{stem}-{name or time.strftime('%Y%m%d-%H%M%S')}"
