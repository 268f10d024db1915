"""How well each class is found, with which others it is confused, and which features decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pprgnn.drawing import canvas
from pprgnn.drawing.plot import draw_bars, name_rows, write_at
from pprgnn.report.measured.results import ClassScores, FeatureShares
from pprgnn.report.shown import Shown, Table, drawn, having
from pprgnn.report.subject import Subject
from pprgnn.wording import counted, cut, known, number, part, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EACH_END = 15  # of the best and of the worst classes, where there are many
LARGEST_MATRIX = 12
LISTED = 15
DRAWN = 10  # features


def classes(subjects: Sequence[Subject]) -> list[Shown]:
    """F1 of every class and the confusions, for each run."""
    found, absent = having(subjects, "F1 by class", lambda measured: measured.classes)
    return [*(shown for subject, one in found for shown in (_f1(one, subject), _confused(one, subject))), *absent]


# -------------------------------------------------------------------------------------------------------------- F1
def _f1(found: ClassScores, subject: Subject) -> Shown:
    order = sorted(range(len(found.names)), key=lambda i: (found.f1[i] if known(found.f1[i]) else -1.0, -i))
    many = len(order) > 2 * EACH_END
    chosen = [*order[:EACH_END], *order[-EACH_END:]] if many else order
    worst, best = order[0], order[-1]
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
    scores = (found.f1, found.precision, found.recall)
    rows = [
        [found.names[i], *(percent(each[i]) for each in scores), f"{found.support[i]:,}"] for i in reversed(order)
    ]
    table = Table(["class", "F1", "precision", "recall", "in this part"], rows)
    height = 60 + 21 * len(chosen) + (12 if many else 0)
    name, title = f"classes-{subject.look + 1}", f"F1 by class{subject.suffix}"
    return drawn(name, title, lambda figure: _f1_bars(figure, found, chosen, many), reading, how, table, height)


def _called(found: ClassScores, place: int) -> str:
    return f"“{cut(found.names[place], 40)}”"


def _f1_bars(figure: Figure, found: ClassScores, chosen: Sequence[int], many: bool) -> None:
    axes = figure.subplots()
    heights = [place + (0.6 if many and place >= EACH_END else 0.0) for place in range(len(chosen))]
    values = [100 * found.f1[i] if known(found.f1[i]) else 0.0 for i in chosen]
    draw_bars(axes, heights, values)
    name_rows(axes, heights, [f"{cut(found.names[i], 22)} ({found.support[i]:,})" for i in chosen], "F1, percent")
    axes.set_xlim(0, 100)
    for height, value, i in zip(heights, values, chosen, strict=True):
        inside = value > 88
        text, away = f"{value:.0f}" if known(found.f1[i]) else "–", (-4 if inside else 4, -0.5)
        style = {"ha": "right", "color": canvas.GROUND} if inside else {"ha": "left"}
        write_at(axes, text, (value, height), away, va="center", fontsize=canvas.SMALL - 1, **style)


# ------------------------------------------------------------------------------------------------------- confusion
def _confused(found: ClassScores, subject: Subject) -> Shown:
    name, title, counts = f"confusion-{subject.look + 1}", f"Confusions{subject.suffix}", found.confusion
    if counts is None:
        reason = "A node may have several classes here, so no class stands in the place of another."
        return Shown(name, title, missing=reason)
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
    if len(counts) > LARGEST_MATRIX:
        how = f"With {len(counts)} classes a matrix could not be read; the largest confusions are listed."
        return Shown(name, title, "", reading, how, _largest(found, counts, pairs))
    how = "Rows are true classes, columns what they were called; a stronger colour is a larger share of a row."
    rows = [[name, *map(str, row)] for name, row in zip(found.names, counts, strict=True)]
    table = Table(["true \\ called", *found.names], rows)
    height = min(max(300.0, 110 + 34.0 * len(counts)), 430)
    return drawn(name, title, lambda figure: _matrix(figure, found, counts), reading, how, table, height)


def _largest(found: ClassScores, counts: Sequence[Sequence[int]], pairs: Sequence[tuple[int, int, int]]) -> Table:
    names = [cut(name, 40) for name in found.names]
    rows = [
        [names[i], names[j], f"{count:,}", percent(count / max(1, sum(counts[i])))]
        for count, i, j in pairs[:LISTED]
    ]
    note = f"The {LISTED} largest of {len(pairs):,} confusions." if len(pairs) > LISTED else ""
    return Table(["true class", "called", "times", "of the true class"], rows, note, "text")


def _matrix(figure: Figure, found: ClassScores, counts: Sequence[Sequence[int]]) -> None:
    from matplotlib.patches import Rectangle

    axes, size = figure.subplots(), len(counts)
    small = canvas.SMALL if size <= 8 else canvas.SMALL - 1
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            share = count / max(1, sum(row))
            corner, shade = (j - 0.48, i - 0.47), 0.04 + 0.91 * share
            axes.add_patch(Rectangle(corner, 0.96, 0.94, color=canvas.BLUE, alpha=shade, linewidth=0))
            if count:
                colour, text = (
                    canvas.GROUND if share > 0.5 else canvas.INK,
                    str(count) if count < 10_000 else number(count),
                )
                axes.text(j, i, text, ha="center", va="center_baseline", color=colour, fontsize=small)
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    names = [cut(name, 16) for name in found.names]
    axes.set_yticks(range(size), names)
    long = max(map(len, found.names)) > (6 if size <= 4 else 2)
    turned: dict[str, Any] = {"rotation": 40, "ha": "right"} if long else {"rotation": 0, "ha": "center"}
    axes.set_xticks(range(size), names, rotation_mode="anchor", **turned)
    axes.tick_params(length=0, labelcolor=canvas.INK)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("called")
    axes.set_title("true", loc="left")


# -------------------------------------------------------------------------------------------------------- features
def features(subjects: Sequence[Subject]) -> list[Shown]:
    """What the most important features add to the scores, for each run."""
    found, absent = having(subjects, "Features that matter most", lambda measured: measured.features)
    return [*(_shares(one, subject) for subject, one in found), *absent]


def _shares(found: FeatureShares, subject: Subject) -> Shown:
    reading = (
        f"“{cut(found.names[0], 40)}” matters most, with {percent(found.shares[0])} of what "
        f"{counted(found.count, 'feature')} add, in the mean over {counted(found.samples, found.unit)}."
    )
    how = (
        f"What a feature adds to the score of the predicted class, on all nodes together and without its sign: "
        f"integrated gradients from zeros to the input. They miss {part(found.residual)} of what they should add "
        f"up to. A column of categories counts as one."
    )
    rows = [[each, percent(share)] for each, share in zip(found.names, found.shares, strict=True)]
    note = f"The first {len(rows)} of {found.count:,}." if found.count > len(rows) else ""
    table, height = Table(["feature", "share"], rows, note), 60 + 21 * min(len(rows), DRAWN)
    name, title = f"features-{subject.look + 1}", f"Features that matter most{subject.suffix}"
    return drawn(name, title, lambda figure: _share_bars(figure, found), reading, how, table, height)


def _share_bars(figure: Figure, found: FeatureShares) -> None:
    axes = figure.subplots()
    shares = [100 * share for share in reversed(found.shares[:DRAWN])]
    names = [cut(name, 22) for name in reversed(found.names[:DRAWN])]
    draw_bars(axes, range(len(shares)), shares)
    name_rows(axes, range(len(shares)), names, "share of what all features add, percent")
