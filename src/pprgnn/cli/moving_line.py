"""One line on a terminal that moves; what is said stays above it, and is all there is elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer
from rich.live import Live
from rich.text import Text

from pprgnn.training.terminal import is_terminal, width


class MovingLine:
    """Shows what ``text`` returns, some times a second, from :meth:`start` to :meth:`stop`."""

    def __init__(self, text: Callable[[], str], per_second: float = 10) -> None:
        self.text, self.per_second = text, per_second
        self._live: Live | None = None

    def start(self) -> None:
        """Begin, if there is a terminal."""
        if is_terminal():
            self._live = Live(get_renderable=self.rendered, refresh_per_second=self.per_second, transient=True)
            self._live.start()

    def stop(self) -> None:
        """End the line, whatever happened."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def moves(self) -> bool:
        """Whether there is one."""
        return self._live is not None

    def rendered(self) -> Text:
        """What fits into the window."""
        return Text(self.text()[: (width() or 80) - 1])

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            typer.echo(text)
            sys.stdout.flush()
