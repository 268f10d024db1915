"""What stands on a page: sections of figures, each with its reading and its values as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pprgnn.drawing import canvas
from pprgnn.drawing.plot import Plot
from pprgnn.report.measured.results import Measurements, Missing
from pprgnn.report.subject import Subject
from pprgnn.wording import number, of, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 60
HEIGHT, WIDE_HEIGHT = 270, 400
NO_LAYER = "There is no layer of infinite depth in this network."
Value = TypeVar("Value")


@dataclass(frozen=True)
class Table:
    """Values; the first column names the rows."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""  # below it
    kind: str = ""  # words: the last column is text; text: all are; otherwise they are numbers

    def thinned(self, what: str) -> Table:
        """At most :data:`MOST_ROWS` rows, evenly chosen; the last one is among them."""
        step = -(-len(self.rows) // MOST_ROWS)
        if step <= 1:
            return self
        last = len(self.rows) - 1
        kept = [row for place, row in enumerate(self.rows) if (last - place) % step == 0]
        return Table(self.header, kept, f"One in {step} {what} is listed.", self.kind)


@dataclass(frozen=True)
class Shown:
    """One figure."""

    name: str  # unique on the page; starts the ids inside the drawing
    title: str
    svg: str = ""  # the drawing; empty: there is only the table, or nothing
    reading: str = ""  # what this figure shows, in one sentence with its values
    how: str = ""  # how to read any figure of this kind
    table: Table | None = None
    missing: str = ""  # why there is no figure
    wide: bool = False  # whether it takes the whole width
    narrow: str = ""  # of a wide figure, the drawing for a narrow screen


@dataclass(frozen=True)
class Section:
    """Figures about one question."""

    name: str
    title: str
    lead: str
    figures: Sequence[Shown]

    @property
    def lone(self) -> set[int]:
        """Places of narrow figures without one beside them."""
        found, beside = set(), False
        for place, each in enumerate([*self.figures, None]):
            narrow = each is not None and not each.wide and not each.missing
            if beside and not narrow:
                found.add(place - 1)
            beside = narrow and not beside
        return found


def having(
    subjects: Sequence[Subject], title: str, read: Callable[[Measurements], Value | Missing]
) -> tuple[list[tuple[Subject, Value]], list[Shown]]:
    """The runs on which something was measured, with it; and a figure that says why it was not on others."""
    found, reasons = list[tuple[Subject, Value]](), list[str]()
    for subject in subjects:
        value = read(subject.measured)
        if isinstance(value, Missing):
            reasons.append(of(subject.label, value.reason))
        elif value:
            found.append((subject, value))
        else:
            reasons.append(of(subject.label, NO_LAYER))
    missing = "\n".join(dict.fromkeys(reasons))
    return found, [Shown(f"no {title}", title, missing=missing)] if missing else []


def drawn(
    name: str,
    title: str,
    fill: Callable[[Figure], None],
    reading: str,
    how: str,
    table: Table,
    height: float,
    wide_height: float | None = None,
) -> Shown:
    """A figure; with a ``wide_height`` it takes the whole width, and is drawn for a narrow screen, too."""
    if wide_height is None:
        return Shown(name, title, canvas.svg(name, reading, (canvas.HALF, height), fill), reading, how, table)
    wide = canvas.svg(name, reading, (canvas.WIDE, wide_height), fill)
    narrow = canvas.svg(f"{name}-slim", reading, (canvas.HALF, height), fill)
    return Shown(name, title, wide, reading, how, table, wide=True, narrow=narrow)


def plotted(
    name: str,
    title: str,
    plot: Plot,
    reading: str,
    how: str,
    rows: str,
    wide_height: float | None = None,
) -> Shown:
    """Lines, with their values in a table; ``rows`` is what its rows are called."""
    all_x = sorted({x for line in plot.lines for x in line.x})
    columns = [dict(zip(line.x, line.y, strict=True)) for line in plot.lines]
    write, ticks = percent if plot.share else number, plot.ticks or {}
    cells = [[ticks.get(x, f"{x:g}"), *(write(column.get(x)) for column in columns)] for x in all_x]
    table = Table([plot.along, *(line.name for line in plot.lines)], cells).thinned(rows)
    return drawn(name, title, plot.fill, reading, how, table, HEIGHT, wide_height)
