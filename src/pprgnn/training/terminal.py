"""Text for a terminal of any width, or plain for a pipe. Without rich, which would slow the start."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import typer

COLOURS = {
    "ready": "green",
    "here": "green",
    "ready (inside grakel)": "green",
    "in grakel": "green",
    "ok": "green",
    "generated": "cyan",
    "needs download": "yellow",
    "to fetch": "yellow",
    "unknown": "yellow",
    "missing": "red",
    "bad": "red",
}


def is_terminal() -> bool:
    """Whether somebody is looking."""
    return sys.stdout.isatty()


def width() -> int | None:
    """Columns of the terminal; None: no terminal, no limit."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def styled(text: str, *, error: bool = False, **style: Any) -> str:
    """A text in a style; plain without a terminal, or when NO_COLOR asks for it."""
    if os.environ.get("NO_COLOR") or not (sys.stderr if error else sys.stdout).isatty():
        return text
    return typer.style(text, **style)


def state_word(word: str) -> str:
    """A state in its colour."""
    return styled(word, fg=COLOURS[word])


def table(rows: Sequence[Mapping[str, Any]], droppable: Sequence[str], limit: int | None) -> list[str]:
    """Rows under a header, numbers to the right; in a narrow window, closer together and with fewer columns."""

    def cell(value: object) -> str:
        return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)

    def fits(gap: int) -> bool:
        needed = sum(max(map(len, column)) + gap for column in cells.values()) - gap
        return limit is None or needed <= limit

    cells = {key: [key, *(cell(row[key]) for row in rows)] for key in rows[0]}
    numbers = {key for key in cells if any(isinstance(row[key], int) for row in rows)}
    gap = 2 if fits(2) else 1
    for key in droppable:
        if not fits(gap):
            del cells[key]
    for key, column in cells.items():
        size = max(map(len, column))
        cells[key] = [word.rjust(size) if key in numbers else word.ljust(size) for word in column]
    header, *lines = ((" " * gap).join(words) for words in zip(*cells.values(), strict=True))
    return [styled(header.rstrip(), bold=True), *(_coloured(line.rstrip()) for line in lines)]


def paragraph(label: str, text: str, limit: int | None) -> str:
    """A text behind its label, broken between words to a column of its own."""
    if limit is None:
        return label + text
    return textwrap.fill(
        text,
        max(limit, len(label) + 20),
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _coloured(line: str) -> str:
    """A line whose last word is a state."""
    word = next((word for word in COLOURS if line.endswith(f" {word}")), "")
    return line.removesuffix(word) + state_word(word) if word else line
