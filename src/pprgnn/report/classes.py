"""How well each class is found, and with which others it is confused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pprgnn.report import svg
from pprgnn.report.absent import missing_shown, reasons
from pprgnn.report.measured.results import ClassScores, Missing
from pprgnn.report.plot import tidy
from pprgnn.report.shown import Shown, Table
from pprgnn.report.subject import Subject
from pprgnn.report.wording import counted, cut, known, number, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EACH_END = 15  # of the best and of the worst classes, where there are many
LARGEST_MATRIX = 12
LISTED = 15


def classes(subjects: Sequence[Subject]) -> list[Shown]:
    """F1 of every class and the confusions, for each run."""
    shown: list[Shown] = []
    for subject in subjects:
        found, after = subject.measured.classes, f": {subject.name}" if len(subjects) > 1 else ""
        if isinstance(found, Missing):
            shown.append(
                missing_shown(f"classes-{subject.look + 1}", f"F1 by class{after}", reasons([subject], "classes"))
            )
        else:
            shown += [_f1(found, subject, after), _confused(found, subject, after)]
    return shown


# -------------------------------------------------------------------------------------------------------------- F1
def _f1(found: ClassScores, subject: Subject, after: str) -> Shown:
    order = sorted(range(len(found.names)), key=lambda i: (found.f1[i] if known(found.f1[i]) else -1.0, -i))
    many = len(order) > 2 * EACH_END
    drawn = [*order[:EACH_END], *order[-EACH_END:]] if many else order
    worst, best = order[0], order[-1]
    name = f"classes-{subject.look + 1}"
    reading = (
        f"All {counted(len(order), 'class', 'classes')} are found equally well on the {found.part} part."
        if found.f1[best] == found.f1[worst]
        else f"{_called(found, best)} is found best (F1 {percent(found.f1[best])}), {_called(found, worst)} worst "
        f"({percent(found.f1[worst])}), of {counted(len(order), 'class', 'classes')} on the {found.part} part."
    )
    how = (
        "Precision: of those called so, how many are; recall: of those that are, how many are called so; F1 is "
        "their harmonic mean. In brackets, how many there are."
    )
    if many:
        how += (
            f" Of {len(order)} classes the {EACH_END} best and the {EACH_END} worst are drawn; the table has all."
        )
    rows = [
        [
            found.names[i],
            percent(found.f1[i]),
            percent(found.precision[i]),
            percent(found.recall[i]),
            f"{found.support[i]:,}",
        ]
        for i in reversed(order)
    ]
    height = 60 + 21 * len(drawn) + (12 if many else 0)
    drawing = svg.draw(name, reading, (svg.HALF, height), lambda figure: _bars(figure, found, drawn, many))
    table = Table(["class", "F1", "precision", "recall", "in this part"], rows)
    return Shown(name, f"F1 by class{after}", drawing, reading, how, table)


def _called(found: ClassScores, place: int) -> str:
    return f"“{cut(found.names[place], 40)}”"


def _bars(figure: Figure, found: ClassScores, drawn: Sequence[int], many: bool) -> None:
    axes = figure.subplots()
    heights = [place + (0.6 if many and place >= EACH_END else 0.0) for place in range(len(drawn))]
    values = [100 * found.f1[i] if known(found.f1[i]) else 0.0 for i in drawn]
    axes.barh(heights, values, height=0.62, color=svg.BLUE, alpha=0.85, linewidth=0)
    style = {"textcoords": "offset points", "va": "center", "fontsize": svg.SMALL - 1, "color": svg.INK}
    for height, value, i in zip(heights, values, drawn, strict=True):
        text = f"{value:.0f}" if known(found.f1[i]) else "–"
        inside = value > 88
        axes.annotate(
            text,
            (value, height),
            xytext=(-4 if inside else 4, -0.5),
            ha="right" if inside else "left",
            **style | {"color": svg.GROUND if inside else svg.INK},  # type: ignore[arg-type]
        )
    axes.set_yticks(heights, [f"{cut(found.names[i], 22)} ({found.support[i]:,})" for i in drawn])
    axes.set_ylim(-0.6, heights[-1] + 0.6)
    axes.set_xlim(0, 100)
    axes.set_xlabel("F1, percent")
    axes.tick_params(axis="y", length=0, labelcolor=svg.INK)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.xaxis.set_major_formatter(lambda value, _: tidy(value))


# ------------------------------------------------------------------------------------------------------- confusion
def _confused(found: ClassScores, subject: Subject, after: str) -> Shown:
    name, title = f"confusion-{subject.look + 1}", f"Confusions{after}"
    if found.confusion is None:
        reason = "A node may have several classes here, so no class stands in the place of another."
        return Shown(name, title, missing=reason)
    counts = found.confusion
    pairs = sorted(
        ((counts[i][j], i, j) for i in range(len(counts)) for j in range(len(counts)) if i != j and counts[i][j]),
        key=lambda pair: (-pair[0], pair[1:]),
    )
    wrong, right = sum(pair[0] for pair in pairs), sum(counts[i][i] for i in range(len(counts)))
    reading = f"{right:,} of {right + wrong:,} are right."
    if pairs:
        count, i, j = pairs[0]
        reading += (
            f" The largest confusion: {_called(found, i)} called {_called(found, j)}, {counted(count, 'time')}."
        )
    listed = Table(
        ["true class", "called", "times", "of the true class"],
        [
            [
                cut(found.names[i], 40),
                cut(found.names[j], 40),
                f"{count:,}",
                percent(count / max(1, sum(counts[i]))),
            ]
            for count, i, j in pairs[:LISTED]
        ],
        f"The {LISTED} largest of {len(pairs):,} confusions." if len(pairs) > LISTED else "",
        "text",
    )
    if len(counts) > LARGEST_MATRIX:
        how = f"With {len(counts)} classes a matrix could not be read; the largest confusions are listed."
        return Shown(name, title, "", reading, how, listed)
    how = "Rows are true classes, columns what they were called; a stronger colour is a larger share of a row."
    side = max(300.0, 110 + 34.0 * len(counts))
    drawing = svg.draw(name, reading, (svg.HALF, min(side, 430)), lambda figure: _matrix(figure, found, counts))
    table = Table(
        ["true \\ called", *found.names], [[n, *map(str, row)] for n, row in zip(found.names, counts, strict=True)]
    )
    return Shown(name, title, drawing, reading, how, table)


def _matrix(figure: Figure, found: ClassScores, counts: Sequence[Sequence[int]]) -> None:
    from matplotlib.patches import Rectangle

    axes, size = figure.subplots(), len(counts)
    small = svg.SMALL if size <= 8 else svg.SMALL - 1
    for i, row in enumerate(counts):
        total = max(1, sum(row))
        for j, count in enumerate(row):
            share = count / total
            axes.add_patch(
                Rectangle((j - 0.48, i - 0.47), 0.96, 0.94, color=svg.BLUE, alpha=0.04 + 0.91 * share, linewidth=0)
            )
            if count:
                colour = svg.GROUND if share > 0.5 else svg.INK
                axes.text(j, i, _short(count), ha="center", va="center_baseline", color=colour, fontsize=small)
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    axes.set_yticks(range(size), [cut(name, 16) for name in found.names])
    long = max(len(name) for name in found.names) > (6 if size <= 4 else 2)
    axes.set_xticks(
        range(size),
        [cut(name, 16) for name in found.names],
        rotation=40 if long else 0,
        ha="right" if long else "center",
        rotation_mode="anchor",
    )
    axes.tick_params(length=0, labelcolor=svg.INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel("called")
    axes.set_title("true", loc="left")


def _short(count: int) -> str:
    return str(count) if count < 10_000 else number(count)
