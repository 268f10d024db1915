"""What stands on a page: sections of figures, each with its reading and its values as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_ROWS = 60


@dataclass(frozen=True)
class Table:
    """Values; the first column names the rows.

    Attributes:
        header, rows: The cells.
        note: Below it.
        kind: ``words``: the last column is text; ``text``: all are; otherwise they are numbers.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    kind: str = ""

    def thinned(self, what: str) -> Table:
        """At most :data:`MOST_ROWS` rows, evenly chosen; the last one is among them."""
        step = -(-len(self.rows) // MOST_ROWS)
        if step <= 1:
            return self
        last = len(self.rows) - 1
        kept = [row for number, row in enumerate(self.rows) if (last - number) % step == 0]
        return Table(self.header, kept, f"One in {step} {what} is listed.", self.kind)


@dataclass(frozen=True)
class Shown:
    """One figure.

    Attributes:
        name: Unique on the page; starts the ids inside the drawing.
        title: Above it.
        svg: The drawing; empty: there is only the table, or nothing.
        narrow: Of a wide figure, the drawing for a narrow screen.
        reading: What this figure shows, in one sentence with its values.
        how: How to read any figure of this kind.
        table: The values.
        missing: Why there is no figure.
        wide: Whether it takes the whole width.
    """

    name: str
    title: str
    svg: str = ""
    reading: str = ""
    how: str = ""
    table: Table | None = None
    missing: str = ""
    wide: bool = False
    narrow: str = ""


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
