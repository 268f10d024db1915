"""`pprgnn data fetch`: bars on a terminal, one line per file elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from pprgnn.cli.commands import Fetch
from pprgnn.data.catalog import find
from pprgnn.data.download import fetch
from pprgnn.data.registry import state
from pprgnn.data.roots import data_root
from pprgnn.training.terminal import is_terminal, state_word
from pprgnn.wording import counted


def fetch_sets(options: Fetch) -> None:
    """Download each set that has something to download."""
    root = data_root()
    for card in [find(name, root) for name in options.names]:
        found = state(card, root)
        if found.word in ("generated", "ready (inside grakel)"):
            typer.echo(f"{card.name}: {state_word(found.word)}, nothing to fetch")
            continue
        with progress() as tell:
            new = fetch(card, root, tell, checked=not options.unchecked)
        files = counted(len(new), "new file") if new else "all files were there"
        typer.echo(f"{card.name}: {state_word('ready')}, {files} (in {root})")


@contextmanager
def progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Who is told how much of which file has come, and of how much."""
    if not is_terminal():
        yield Lines()
        return
    columns = BarColumn(bar_width=20), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(compact=True)
    with Progress(TextColumn("{task.description}", markup=False), *columns) as bars:
        tasks = {}

        def tell(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name)
            bars.update(tasks[name], completed=done, total=total)

        yield tell


class Lines:
    """A line when a file begins."""

    def __init__(self) -> None:
        self.name = ""

    def __call__(self, name: str, done: int, total: int | None) -> None:
        if name != self.name:
            self.name = name
            typer.echo(f"Downloading {name}{'' if total is None else f' ({total:,} bytes)'} ...")
