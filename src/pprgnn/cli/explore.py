"""`pprgnn explore`: a local page that shows what a model decided, and why."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pprgnn.cli.saved_run import NewData, NewEdges, NewNodes, open_data, open_model
from pprgnn.cli.tables import READING, takes
from pprgnn.errors import DataError
from pprgnn.training.errors import TrainingError
from pprgnn.training.terminal import is_terminal, styled
from pprgnn.wording import counted

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset
    from pprgnn.explore.run_view import Opened

NEEDED = ("fastapi", "uvicorn")
CLEAR = "\r\x1b[K"  # the line on a terminal


@takes("reading", READING)
def explore(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs on the same data.")],
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port; 8471 or a free one by default.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address of this machine that only itself can reach.")] = "127.0.0.1",
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = False,
    edges: NewEdges = None,
    nodes: NewNodes = None,
    data: NewData = None,
    reading: Any = None,
) -> None:
    """Look at what a model decided, and why, in the browser.

    Serves a page on this machine alone: search a node, see which nodes decided about it, and watch the prediction
    form with depth. Several runs on the same data can be compared.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise TrainingError(
            f"The explorer needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            f"installed; run `pip install 'pprgnn[explore]'`."
        )
    from pprgnn.explore.serving import listen, serve, url_of

    with listen(host, port) as sock:
        opened, problems = _opened(runs, edges, nodes, data, reading)
        from pprgnn.explore.answers import Answers

        answers = Answers(opened, problems, _say)

        def ready() -> None:
            _end_line()
            typer.echo(f"The page is at {styled(url_of(sock), bold=True)}")
            typer.echo("Ctrl-C stops it.")
            if open_page:
                import webbrowser

                webbrowser.open(url_of(sock))

        serve(answers, sock, ready, lambda: typer.echo("Stopped."), debug=bool(os.environ.get("PPRGNN_DEBUG")))


# --------------------------------------------------------------------------------------------------------- opening
def _opened(
    runs: Sequence[Path], edges: Path | None, nodes: Path | None, data: str | None, reading: Mapping[str, str]
) -> tuple[list[Opened], list[str]]:
    """The runs that can be shown, and a sentence about each other one."""
    opened: list[Opened] = []
    problems: list[str] = []
    for run in runs:
        _say(f"Reading {run} ...")
        try:
            opened.append(_open(run, opened[0] if opened else None, edges, nodes, data, reading))
        except (DataError, OSError) as error:
            if len(runs) == 1:
                raise
            problems.append(f"{run}: {error}")
            _end_line()
            typer.echo(f"{styled('Left out:', error=True, fg='yellow', bold=True)} {problems[-1]}", err=True)
    if not opened:
        raise TrainingError("None of these runs can be opened; see above.")
    return opened, problems


def _open(
    run: Path,
    first: Opened | None,
    edges: Path | None,
    nodes: Path | None,
    data: str | None,
    reading: Mapping[str, str],
) -> Opened:
    from pprgnn.explore.run_view import Opened
    from pprgnn.training.run import Run
    from pprgnn.training.study import is_study

    if is_study(run):
        members = sorted(path.parent.name for path in run.glob("*/config.toml"))
        names = f"{', '.join(members[:3])}{' ...' if len(members) > 3 else ''}"
        raise TrainingError(
            f"{run} is a study of {counted(len(members), 'run')} ({names}); name one of them, as "
            f"{run / members[0]}."
        )
    model = open_model(run)
    _check_system(model.config.model.system)
    given = edges is not None or data is not None
    dataset = first.dataset if first is not None and given else open_data(run, model, edges, nodes, data, reading)
    if first is not None and not _same(first.dataset, dataset):
        raise TrainingError(
            f"It is on {dataset.facts.name}, but the first run is on {first.dataset.facts.name}, or on another "
            f"version of it; only runs on the same data can be compared."
        )
    return Opened(run, model, dataset if first is None else first.dataset, None if given else Run.open(run))


def _check_system(name: str) -> None:
    from pprgnn.training.systems import find_system

    system = find_system(name)
    if system.kind == "kernel" or not system.whole_gradient:
        raise TrainingError(
            f"What {system.title} decides cannot be explored, because there is no gradient from its logits back "
            f"to all nodes; train a system that has one, such as pprgnn or gcn."
        )


def _same(one: GraphDataset, other: GraphDataset) -> bool:
    from pprgnn.data.split import fingerprint
    from pprgnn.training.build import digest

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
