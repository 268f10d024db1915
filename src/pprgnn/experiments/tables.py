"""Tables in Markdown: how a value is written, what it is compared with, and what failed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from pprgnn.experiments.experiment import OURS
from pprgnn.experiments.paper import Value
from pprgnn.experiments.store import Line
from pprgnn.experiments.summary import Entry, Results, score
from pprgnn.training.errors import TrainingError
from pprgnn.training.systems import find_system

Row = TypeVar("Row", bound=Hashable)
NOTHING = "–"
NOT_RUN, FAILED = "not run", "failed"
BREAK = "<br>"
NOT_RUN_NOR_KNOWN = f"{NOT_RUN}{BREAK}paper: {NOTHING}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; the first column to the left, the others to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(_cell(each) for each in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def without_empty_rows(rows: list[list[str]]) -> tuple[list[list[str]], str]:
    """The rows with something in them, and a sentence that names the others."""
    empty = [row for row in rows if all(cell in (NOT_RUN, NOT_RUN_NOR_KNOWN) for cell in row[1:])]
    names = ", ".join(row[0].replace("**", "") for row in empty)
    return [row for row in rows if row not in empty], f"Not run at all: {names}." if names else ""


# --------------------------------------------------------------------------------------------------------- words
def title(system: str, variant: str = "") -> str:
    """What a row is called."""
    try:
        name = find_system(system).title
    except TrainingError:
        name = system
    if system == OURS:
        name = f"**{name} (ours)**"
    return f"{name}, {variant}" if variant else name


def percent(entry: Entry) -> str:
    """``85.1 ± 3.0``, and how many cells that is if not the usual number of them."""
    if not entry.cells:
        return NOTHING
    if entry.mean is None:
        return FAILED if entry.lines else NOT_RUN
    text = f"{entry.mean:.1f}" if entry.std is None else f"{entry.mean:.1f} ± {entry.std:.1f}"
    if not entry.is_complete:
        failed = f", {entry.failed} failed" if entry.failed else ""
        return f"{text} ({entry.count} of {entry.cells}{failed})"
    return text if entry.cells == entry.usual else f"{text} ({entry.count} runs)"


def published(value: Value | None) -> str:
    """A value of the paper, as it prints it."""
    if value is None:
        return NOTHING
    mean, std = value
    return f"{mean:.1f}" if std is None else f"{mean:.1f} ± {std:.1f}"


def points(difference: float) -> str:
    """``+1.2``."""
    rounded = round(difference, 1)
    return f"{rounded:+.1f}".replace("-", "−") if rounded else "0.0"


def duration(seconds: float) -> str:
    """In the unit that suits it."""
    for unit, size in (("s", 1), ("min", 60)):
        if (amount := seconds / size) < 100:
            return f"{amount:.{1 if amount < 10 else 0}f} {unit}"
    return f"{seconds / 3600:.1f} h"


def depth_text(entry: Entry) -> str:
    """The sum over the layers and, if there are several, each: ``34.5 = 20.1 + 14.4``."""
    if not entry.depths:
        return percent(entry) if entry.mean is None else NOTHING
    each = " + ".join(f"{depth:.1f}" for depth in entry.depths)
    return f"{sum(entry.depths):.1f} = {each}" if len(entry.depths) > 1 else each


# ------------------------------------------------------------------------------------------------------ verdicts
def verdict(entry: Entry, known: Value | None) -> str:
    """Ours against a published value, as both are printed: with one decimal."""
    if known is None:
        return NOTHING
    if entry.mean is None:
        return percent(entry)
    mean, std = known
    below = round(mean - round(entry.mean, 1), 1)
    allowed = round((entry.std or 0.0) if std is None else std, 1)
    word = "above" if below < 0 else "within σ" if below <= allowed else "below"
    return word if entry.is_complete else f"{word} so far"


def with_best_in_bold(entries: Mapping[Row, Entry]) -> dict[Row, str]:
    """The values of a column by row; the best in bold among those of which every cell was run."""
    means = {row: round(entry.mean or 0.0, 1) for row, entry in entries.items() if entry.is_complete}
    best = max(means.values()) if len(means) > 1 else None  # one alone is best of nothing
    texts = {row: percent(entry) for row, entry in entries.items()}
    return {row: f"**{text}**" if row in means and means[row] == best else text for row, text in texts.items()}


def difference(entry: Entry, other: Entry) -> float | None:
    """Mean difference in points over the folds and seeds that both have."""
    ours, theirs = entry.by_split, other.by_split
    both = ours.keys() & theirs.keys()
    return sum(ours[split] - theirs[split] for split in both) / len(both) if both else None


# ------------------------------------------------------------------------------------------------------ failures
def failures(results: Results, protocol: str | None = None) -> str:
    """Why cells failed, a line for each reason; empty: none did."""
    found: dict[tuple[str, str], list[Line]] = {}
    for (data, system, variant, its_protocol, place), entry in results.groups.items():
        if protocol in (None, its_protocol):
            where = f"{title(system, variant)} on {data}" + ("" if place == "{}" else f" ({_place(place)})")
            for line in entry.lines:
                if score(line) is None:
                    found.setdefault((where, _reason(line)), []).append(line)
    return "\n".join(f"- failed: {where}, {_splits(lines)}: {reason}" for (where, reason), lines in found.items())


def _reason(line: Line) -> str:
    return " ".join(str(line.get("error") or "the score is not a number.").split())


def _place(place: str) -> str:
    return place.strip("{}").replace('"', "").replace(":", "")


def _splits(lines: Sequence[Line]) -> str:
    splits = [f"{line['fold']} (seed {line['seed']})" if line["seed"] else str(line["fold"]) for line in lines]
    return ("folds " if len(splits) > 1 else "fold ") + ", ".join(splits)
