"""How far a download is: bars on a terminal, one line per file elsewhere."""

from __future__ import annotations

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn


class Bars:
    """One bar per file."""

    def __init__(self) -> None:
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(compact=True),
        )

    def __enter__(self) -> Bars:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, name: str, done: int, total: int | None) -> None:
        task = next((task.id for task in self.progress.tasks if task.description == name), None)
        if task is None:
            task = self.progress.add_task(name)
        self.progress.update(task, completed=done, total=total)


class Lines:
    """A line when a file begins."""

    def __init__(self) -> None:
        self.name = ""

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, name: str, done: int, total: int | None) -> None:
        if name != self.name:
            self.name = name
            typer.echo(f"Downloading {name}{'' if total is None else f' ({total:,} bytes)'} ...")
