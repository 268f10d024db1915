"""Which features decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pprgnn.report import svg
from pprgnn.report.absent import missing_shown, reasons
from pprgnn.report.measured.results import FeatureShares, Missing
from pprgnn.report.plot import tidy
from pprgnn.report.shown import Shown, Table
from pprgnn.report.subject import Subject
from pprgnn.report.wording import counted, cut, part, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN = 10


def features(subjects: Sequence[Subject]) -> list[Shown]:
    """What the most important features add to the scores, for each run."""
    shown: list[Shown] = []
    for subject in subjects:
        found, after = subject.measured.features, f": {subject.name}" if len(subjects) > 1 else ""
        name, title = f"features-{subject.look + 1}", f"Features that matter most{after}"
        if isinstance(found, Missing):
            shown.append(missing_shown(name, title, reasons([subject], "features")))
        else:
            shown.append(_shares(found, name, title))
    return shown


def _shares(found: FeatureShares, name: str, title: str) -> Shown:
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
    height = 60 + 21 * min(len(rows), DRAWN)
    drawing = svg.draw(name, reading, (svg.HALF, height), lambda figure: _bars(figure, found))
    return Shown(name, title, drawing, reading, how, Table(["feature", "share"], rows, note))


def _bars(figure: Figure, found: FeatureShares) -> None:
    axes = figure.subplots()
    shares = [100 * share for share in reversed(found.shares[:DRAWN])]
    axes.barh(range(len(shares)), shares, height=0.62, color=svg.BLUE, alpha=0.85, linewidth=0)
    axes.set_yticks(range(len(shares)), [cut(name, 22) for name in reversed(found.names[:DRAWN])])
    axes.set_ylim(-0.6, len(shares) - 0.4)
    axes.set_xlabel("share of what all features add, percent")
    axes.tick_params(axis="y", length=0, labelcolor=svg.INK)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.xaxis.set_major_formatter(lambda value, _: tidy(value))
