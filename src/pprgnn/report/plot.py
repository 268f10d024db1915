"""Lines against an axis, which is what most figures of the page are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pprgnn.report import svg
from pprgnn.report.shown import Table
from pprgnn.report.wording import cut, known, number, percent, power_of_ten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES: Sequence[Any] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (3, 1.2)), (0, (8, 2)))
MARKS = "os^Dvp"
DOTTED: Any = (0, (1.2, 1.8))
STEPS = (1, 2, 2.5, 5, 10)
FEW = 16  # so many points are marked one by one


@dataclass(frozen=True)
class Line:
    """One line.

    Attributes:
        name: In the legend and in the table.
        x, y: Its points; one without a finite value is a gap.
        look: Number of its colour, dash and mark.
        dash: Another dash than that of its look.
        strong: Thicker than others.
        low, high: The edges of a band around it.
        marked: Whether each point has a mark; ``None``: when they are few.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    look: int = 0
    dash: Any = None
    strong: bool = False
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    marked: bool | None = None


@dataclass(frozen=True)
class Place:
    """Something to see on the way: a line across at ``y``, upwards at ``x``, or a point at both."""

    text: str
    x: float | None = None
    y: float | None = None
    below: bool = False  # whether the text of an upward line stands at its foot


@dataclass(frozen=True)
class Plot:
    """One pair of axes.

    Attributes:
        lines: What is drawn.
        along, up: What is to the right and upwards, with units.
        places: What is marked.
        log_x, log_y: Whether an axis is logarithmic.
        share: Whether values are shares of 1, shown in percent.
        ticks: What is written where to the right.
        floor: Nothing below is shown.
        whole: Whether values are whole numbers.
        from_zero: Whether the axis upwards starts at 0.
        until: How far the axis to the right goes; to the last point by default.
    """

    lines: Sequence[Line]
    along: str
    up: str
    places: Sequence[Place] = ()
    log_x: bool = False
    log_y: bool = False
    share: bool = False
    ticks: Mapping[float, str] | None = None
    floor: float | None = None
    whole: bool = False
    from_zero: bool = False
    until: float | None = None

    def svg(self, name: str, says: str, wide: bool = False, height: float | None = None) -> str:
        """The drawing."""
        width = svg.WIDE if wide else svg.HALF
        return svg.draw(name, says, (width, height or (400 if wide else 270)), lambda figure: _fill(figure, self))

    def both(self, name: str, says: str, height: float = 400) -> dict[str, Any]:
        """The drawing for the whole width, and the one for a narrow screen: what a wide :class:`Shown` needs."""
        narrow = self.svg(f"{name}-slim", says)
        return {"svg": self.svg(name, says, wide=True, height=height), "narrow": narrow, "wide": True}

    def table(self, what: str = "rows") -> Table:
        """The values."""
        all_x = sorted({x for line in self.lines for x in line.x})
        columns = [dict(zip(line.x, line.y, strict=True)) for line in self.lines]
        shown = percent if self.share else number
        rows = [
            [(self.ticks or {}).get(x, f"{x:g}"), *(shown(column.get(x)) for column in columns)] for x in all_x
        ]
        return Table([self.along, *(line.name for line in self.lines)], rows).thinned(what)


def spans_decades(values: Sequence[float | None], decades: float = 1.7) -> bool:
    """Whether values need a logarithmic axis."""
    positive = [value for value in values if value is not None and math.isfinite(value) and value > 0]
    return len(positive) > 1 and math.log10(max(positive) / min(positive)) > decades


def _fill(figure: Figure, plot: Plot) -> None:
    axes = figure.subplots()
    drawn = [line for line in plot.lines if any(known(value) for value in line.y)]
    for line in drawn:
        _draw_line(axes, line, plot)
    _scales(axes, plot)
    axes.grid(axis="y")
    axes.set_title(plot.up, loc="left")
    axes.set_xlabel(plot.along)
    for place in plot.places:
        _mark(axes, place, plot)
    if len(drawn) > 1:
        add_legend(figure, [axes])


def _draw_line(axes: Axes, line: Line, plot: Plot) -> None:
    colour = svg.SERIES[line.look % len(svg.SERIES)]
    factor = 100.0 if plot.share else 1.0
    shown = [
        factor * value
        if value is not None and math.isfinite(value) and (value > 0 or not plot.log_y)
        else math.nan
        for value in line.y
    ]
    marked = line.marked if line.marked is not None else len(line.x) <= FEW
    axes.plot(
        line.x,
        shown,
        label=line.name,
        color=colour,
        linestyle=DASHES[line.look % len(DASHES)] if line.dash is None else line.dash,
        linewidth=2.4 if line.strong else 1.6,
        marker=MARKS[line.look % len(MARKS)] if marked else "none",
        markersize=5 if line.strong else 4,
        zorder=3 if line.strong else 2,
    )
    if line.low is not None and line.high is not None:
        low, high = ([factor * value for value in side] for side in (line.low, line.high))
        axes.fill_between(line.x, low, high, color=colour, alpha=0.15, linewidth=0)


def _scales(axes: Axes, plot: Plot) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    if plot.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=STEPS))
    if plot.ticks is not None:
        axes.set_xticks(list(plot.ticks), list(plot.ticks.values()))
    _room_for_one_point(axes, plot)
    if plot.until is not None and plot.until < max(x for line in plot.lines for x in line.x):
        axes.set_xlim(right=plot.until + 0.5)
    if plot.log_y:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        if plot.floor is not None and low < plot.floor < high:
            axes.set_ylim(bottom=plot.floor)
        low, high = axes.get_ylim()
        many = low > 0 and high / low > 500  # decades enough to name them alone
        axes.yaxis.set_major_locator(LogLocator(numticks=7, subs=(1.0,) if many else (1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(
            FuncFormatter(lambda value, _: power_of_ten(value) if many else number(value))
        )
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=plot.whole, steps=STEPS))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tidy(value)))
        if plot.from_zero:
            axes.set_ylim(bottom=0)


def tidy(value: float) -> str:
    """The name of a tick: as short as it can be, with a true minus."""
    value = 0.0 if abs(value) < 1e-12 else value
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}".replace("-", "−")


def _room_for_one_point(axes: Axes, plot: Plot) -> None:
    """A single value would leave the axis with nonsense around it."""
    places = {x for line in plot.lines for x in line.x}
    if len(places) == 1:
        (only,) = places
        axes.set_xlim((only / 2, only * 2) if plot.log_x else (only - 1, only + 1))
        if plot.ticks is None:
            axes.set_xticks([only], [f"{only:g}"])


def _mark(axes: Axes, place: Place, plot: Plot) -> None:
    colour = svg.SOFT
    y = None if place.y is None else place.y * (100 if plot.share else 1)
    box = {"facecolor": svg.GROUND, "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    style: dict[str, Any] = {"color": svg.INK, "bbox": box, "zorder": 5, "textcoords": "offset points"}
    if place.x is not None and y is not None:
        axes.plot([place.x], [y], "o", color=colour, markersize=9, fillstyle="none", markeredgewidth=2, zorder=4)
    if place.x is None and y is not None:
        axes.axhline(y, color=colour, linewidth=1.2, linestyle=DOTTED, zorder=1.5)
        across = axes.get_yaxis_transform()
        axes.annotate(place.text, (0.01, y), xycoords=across, xytext=(0, 4), va="bottom", ha="left", **style)
    elif place.x is not None:
        axes.axvline(place.x, color=colour, linewidth=1.2, linestyle=DOTTED, zorder=1.5)
        low, high = axes.get_xlim()
        part = (math.log(place.x / low) / math.log(high / low)) if plot.log_x else (place.x - low) / (high - low)
        side = -1 if part > 0.5 else 1
        upwards = axes.get_xaxis_transform()
        align = "left" if side > 0 else "right"
        height, va = (0.02, "bottom") if place.below else (0.99, "top")
        axes.annotate(
            place.text, (place.x, height), xycoords=upwards, xytext=(5 * side, 0), va=va, ha=align, **style
        )


def add_legend(figure: Figure, all_axes: Sequence[Axes]) -> None:
    """One legend above all axes, in as many columns as there is room for."""
    handles: dict[str, Any] = {}
    for axes in all_axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    width = figure.get_size_inches()[0] * 72
    size = svg.LARGE if width > svg.HALF else svg.SMALL
    widths = [(0.58 * len(name) + 3.8) * size for name in handles]
    columns = len(handles) if sum(widths) < width else max(1, min(len(handles), int(width / max(widths))))
    figure.legend(
        list(handles.values()),
        [cut(name, 44 if size > svg.SMALL else 34) for name in handles],
        loc="outside upper left",
        ncols=columns,
        frameon=False,
        handlelength=2.2,
        columnspacing=1.2,
        borderaxespad=0.1,
        labelcolor=svg.INK,
    )
