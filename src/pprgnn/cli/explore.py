"""`pprgnn explore`: a local page that shows what a model decided, and why."""

from __future__ import annotations

import importlib.util
import os
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import typer

from pprgnn.cli.main import Explore
from pprgnn.cli.options import DEBUG, NewGraph
from pprgnn.cli.saved_run import open_data, open_model
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import fingerprint
from pprgnn.errors import DataError
from pprgnn.explore.answers import Answers
from pprgnn.explore.run_view import Opened
from pprgnn.training.build import digest
from pprgnn.training.errors import TrainingError
from pprgnn.training.explain import check_system
from pprgnn.training.run import Run
from pprgnn.training.study import is_study
from pprgnn.training.terminal import is_terminal, styled
from pprgnn.wording import counted

NEEDED = ("fastapi", "uvicorn")
CLEAR = "\r\x1b[K"  # the line on a terminal


def explore(options: Explore) -> None:
    """Open the runs, and serve until Ctrl-C."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise TrainingError(
            f"The explorer needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            f"installed; run `pip install 'pprgnn[explore]'`."
        )
    from pprgnn.explore import server  # imports what may be missing

    with server.listen(options.host, options.port) as sock:
        opened, problems = _opened(options.runs, options.new)
        answers, url = Answers(opened, problems, _say), server.url_of(sock)

        def ready() -> None:
            _end_line()
            typer.echo(f"The page is at {styled(url, bold=True)}")
            typer.echo("Ctrl-C stops it.")
            if options.open_page:
                webbrowser.open(url)

        server.serve(answers, sock, ready, lambda: typer.echo("Stopped."), debug=bool(os.environ.get(DEBUG)))


# --------------------------------------------------------------------------------------------------------- opening
def _opened(runs: Sequence[Path], new: NewGraph) -> tuple[list[Opened], list[str]]:
    """The runs that can be shown, and a sentence about each other one."""
    opened: list[Opened] = []
    problems: list[str] = []
    for run in runs:
        _say(f"Reading {run} ...")
        try:
            opened.append(_open(run, opened[0] if opened else None, new))
        except (DataError, OSError) as error:
            if len(runs) == 1:
                raise
            problems.append(f"{run}: {error}")
            _end_line()
            typer.echo(f"{styled('Left out:', error=True, fg='yellow', bold=True)} {problems[-1]}", err=True)
    if not opened:
        raise TrainingError("None of these runs can be opened; see above.")
    return opened, problems


def _open(run: Path, first: Opened | None, new: NewGraph) -> Opened:
    if is_study(run):
        members = sorted(path.parent.name for path in run.glob("*/config.toml"))
        names = f"{', '.join(members[:3])}{' ...' if len(members) > 3 else ''}"
        raise TrainingError(
            f"{run} is a study of {counted(len(members), 'run')} ({names}); name one of them, as "
            f"{run / members[0]}."
        )
    model = open_model(run)
    check_system(model, "explored")
    dataset = first.dataset if first is not None and new.is_given else open_data(run, model, new)
    if first is not None and not _same(first.dataset, dataset):
        raise TrainingError(
            f"It is on {dataset.facts.name}, but the first run is on {first.dataset.facts.name}, or on another "
            f"version of it; only runs on the same data can be compared."
        )
    return Opened(run, model, dataset if first is None else first.dataset, None if new.is_given else Run.open(run))


def _same(one: GraphDataset, other: GraphDataset) -> bool:
    if one is other:
        return True
    if one.facts.name != other.facts.name or one.num_nodes != other.num_nodes:
        return False
    return digest(one) == digest(other) and ("y" not in one._data or fingerprint(one) == fingerprint(other))


# -------------------------------------------------------------------------------------------------------- progress
def _say(text: str) -> None:
    """What is being done: on a terminal in the place of what was done before."""
    if is_terminal():
        typer.echo(f"{CLEAR}{styled(text, dim=True)}", nl=False)
    else:
        typer.echo(text)


def _end_line() -> None:
    if is_terminal():
        typer.echo(CLEAR, nl=False)
