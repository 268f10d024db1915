"""Lines against an axis, which is what most figures are; and what all kinds of axes have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pprgnn.drawing import canvas
from pprgnn.wording import cut, known, number, power_of_ten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES: Sequence[Any] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (3, 1.2)), (0, (8, 2)))
MARKS = "os^Dvp"
DOTTED: Any = (0, (1.2, 1.8))
STEPS = (1, 2, 2.5, 5, 10)
FEW = 16  # so many points are marked one by one
THIN, STRONG = 1.6, 2.4  # lines
DECADES = 1.7  # values that span more need a logarithmic axis


@dataclass(frozen=True)
class Line:
    """One line."""

    name: str  # in the legend and in the table
    x: Sequence[float]
    y: Sequence[float | None]  # one without a finite value is a gap
    look: int = 0  # number of its colour, dash and mark: each is another one, up to 36
    width: float = THIN  # thick lines are below thin ones, so that they hide none
    dash: Any = None  # another dash than that of its look
    bars: Sequence[float] | None = None  # standard deviations, up and down from each point
    band: tuple[Sequence[float], Sequence[float]] | None = None  # lower and upper edge of what is around it
    marked: bool | None = None  # whether each point has a mark; None: when they are few


@dataclass(frozen=True)
class Place:
    """Something to see on the way: a line across at ``y``, upwards at ``x``, or a point at both."""

    text: str
    x: float | None = None
    y: float | None = None
    below: bool = False  # whether the text stands below a line across, or at the foot of an upward one


@dataclass(frozen=True)
class Plot:
    """One pair of axes."""

    lines: Sequence[Line]
    along: str  # what is to the right, with units
    up: str  # and upwards
    places: Sequence[Place] = ()  # what is marked
    log_x: bool = False
    log_y: bool | None = False  # None: if the values span decades
    share: bool = False  # whether values are shares of 1, shown in percent
    ticks: Mapping[float, str] | None = None  # what is written where to the right
    floor: float | None = None  # nothing below is shown on a logarithmic axis
    whole: bool = False  # whether values are whole numbers
    from_zero: bool = False  # whether an axis upwards that is not logarithmic starts at 0
    until: float | None = None  # how far the axis to the right goes; to the last point by default

    @property
    def is_log(self) -> bool:
        """Whether the axis upwards is logarithmic."""
        if self.log_y is not None:
            return self.log_y
        positive = [value for line in self.lines for value in line.y if known(value) and value > 0]
        return len(positive) > 1 and math.log10(max(positive) / min(positive)) > DECADES

    def fill(self, figure: Figure) -> None:
        """Draw it; if there are several lines, with a legend above."""
        axes = figure.subplots()
        _draw(axes, self)
        if len(axes.get_legend_handles_labels()[1]) > 1:
            add_legend(figure)


def side_by_side(figure: Figure, plots: Sequence[Plot]) -> None:
    """Draw several, with one legend at the right for all of them; lines of one name look the same everywhere."""
    looks: dict[str, int] = {}
    for line in (line for plot in plots for line in plot.lines):
        looks.setdefault(line.name, line.look)
    for axes, plot in zip(figure.subplots(1, len(plots), squeeze=False)[0], plots, strict=True):
        _draw(axes, replace(plot, lines=[replace(line, look=looks[line.name]) for line in plot.lines]))
    handles = _handles(figure)
    names = sorted(handles, key=list(looks).index)
    figure.legend([handles[name] for name in names], names, loc="outside right center", frameon=False)


def _draw(axes: Axes, plot: Plot) -> None:
    for line in plot.lines:
        if any(known(value) for value in line.y):
            _draw_line(axes, line, plot)
    _scales(axes, plot)
    axes.grid(axis="y")
    axes.set_title(plot.up, loc="left")
    axes.set_xlabel(plot.along)
    for place in plot.places:
        _mark(axes, place, plot)


def _draw_line(axes: Axes, line: Line, plot: Plot) -> None:
    colour, log = canvas.SERIES[line.look % len(canvas.SERIES)], plot.is_log
    factor = 100.0 if plot.share else 1.0
    shown = [factor * y if known(y) and (y > 0 or not log) else math.nan for y in line.y]
    marked = line.marked if line.marked is not None else len(line.x) <= FEW
    rounds = line.look // len(canvas.SERIES)  # a colour that comes again has another dash and mark
    axes.errorbar(
        line.x,
        shown,
        yerr=line.bars,
        label=line.name,
        color=colour,
        linestyle=DASHES[(line.look + rounds) % len(DASHES)] if line.dash is None else line.dash,
        linewidth=line.width,
        marker=MARKS[(line.look + rounds) % len(MARKS)] if marked else "none",
        markersize=2.5 + line.width,
        zorder=3 - line.width / 10,
        elinewidth=1,
        capsize=2,
    )
    if line.band is not None:
        low, high = ([factor * value for value in side] for side in line.band)
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
    if plot.is_log:
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


def _room_for_one_point(axes: Axes, plot: Plot) -> None:
    """A single value would leave the axis with nonsense around it."""
    places = {x for line in plot.lines for x in line.x}
    if len(places) == 1:
        (only,) = places
        axes.set_xlim((only / 2, only * 2) if plot.log_x else (only - 1, only + 1))
        if plot.ticks is None:
            axes.set_xticks([only], [f"{only:g}"])


def _mark(axes: Axes, place: Place, plot: Plot) -> None:
    colour = canvas.SOFT
    y = None if place.y is None else place.y * (100 if plot.share else 1)
    box = {"facecolor": canvas.GROUND, "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    style: dict[str, Any] = {"bbox": box, "zorder": 5}
    if place.x is not None and y is not None:
        axes.plot([place.x], [y], "o", color=colour, markersize=9, fillstyle="none", markeredgewidth=2, zorder=4)
    if place.x is None and y is not None:
        axes.axhline(y, color=colour, linewidth=1.2, linestyle=DOTTED, zorder=1.5)
        across = axes.get_yaxis_transform()
        above, va = (-4, "top") if place.below else (4, "bottom")
        low, high = axes.get_ylim()
        if place.below and not plot.is_log:
            axes.set_ylim(bottom=min(low, y - 0.13 * (high - low)))  # room for the text
        write_at(axes, place.text, (0.01, y), (0, above), xycoords=across, va=va, ha="left", **style)
    elif place.x is not None:
        axes.axvline(place.x, color=colour, linewidth=1.2, linestyle=DOTTED, zorder=1.5)
        low, high = axes.get_xlim()
        part = (math.log(place.x / low) / math.log(high / low)) if plot.log_x else (place.x - low) / (high - low)
        side = -1 if part > 0.5 else 1
        upwards = axes.get_xaxis_transform()
        align = "left" if side > 0 else "right"
        height, va = (0.02, "bottom") if place.below else (0.99, "top")
        at, away = (place.x, height), (5 * side, 0)
        write_at(axes, place.text, at, away, xycoords=upwards, va=va, ha=align, **style)


# ---------------------------------------------------------------------------------------------- what others need
def name_rows(axes: Axes, places: Sequence[float], names: Sequence[str], along: str) -> None:
    """Rows that have a name each, with values to the right."""
    axes.set_yticks(places, names)
    axes.set_xlabel(along)
    axes.tick_params(axis="y", length=0, labelcolor=canvas.INK)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.xaxis.set_major_formatter(lambda value, _: tidy(value))


def draw_bars(axes: Axes, places: Sequence[float], values: Sequence[float]) -> None:
    """A bar to the right in each of these rows."""
    axes.barh(places, values, height=0.62, color=canvas.BLUE, alpha=0.85, linewidth=0)
    axes.set_ylim(-0.6, places[-1] + 0.6)


def write_at(axes: Axes, text: str, at: tuple[float, float], away: tuple[float, float], **style: Any) -> None:
    """A text so many points away from a place."""
    axes.annotate(text, at, xytext=away, textcoords="offset points", **{"color": canvas.INK} | style)


def tidy(value: float) -> str:
    """The name of a tick: as short as it can be, with a true minus."""
    value = 0.0 if abs(value) < 1e-12 else value
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}".replace("-", "−")


def add_legend(figure: Figure) -> None:
    """One legend above all axes, in as many columns as there is room for."""
    handles = _handles(figure)
    width = figure.get_size_inches()[0] * 72
    size = canvas.LARGE if width > canvas.HALF else canvas.SMALL
    widths = [(0.58 * len(name) + 3.8) * size for name in handles]
    columns = len(handles) if sum(widths) < width else max(1, min(len(handles), int(width / max(widths))))
    figure.legend(
        list(handles.values()),
        [cut(name, 44 if size > canvas.SMALL else 34) for name in handles],
        loc="outside upper left",
        ncols=columns,
        frameon=False,
        handlelength=2.2,
        columnspacing=1.2,
        borderaxespad=0.1,
        labelcolor=canvas.INK,
    )


def _handles(figure: Figure) -> dict[str, Any]:
    """What a legend explains, by name."""
    found = [axes.get_legend_handles_labels() for axes in figure.axes]
    return {name: handle for pair in found for handle, name in zip(*pair, strict=True)}
