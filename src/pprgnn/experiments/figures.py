"""Lines against an axis: one line per system, ours thick. The same values give the same bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pprgnn.data.atomic_io import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OUR_LOOKS: tuple[tuple[str, Any], ...] = (("#0072B2", "-"), ("#56B4E9", (0, (3, 1))))
# Okabe and Ito's colours, which the colour-blind can tell apart; after the first round, dashes and hollow marks.
RIVAL_COLOURS = ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000", "#8C8C8C")
DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.5)))
CHANCE = "chance"
MARKS = ("s", "^", "v", "D", "P", "X")

Point = tuple[float, float, float]  # place on the axis, mean, standard deviation


@dataclass(frozen=True)
class Series:
    """One line.

    Args:
        name: In the legend.
        points: From left to right; a line without any is not drawn, but keeps its looks for itself.
        ours: Whether it is one of ours.
    """

    name: str
    points: Sequence[Point]
    ours: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Args:
        title: Above it; says what is upwards.
        along: What is to the right.
        ticks: What is written under which place.
        series: The lines.
        chance: Where guessing is, in percent.
    """

    title: str
    along: str
    ticks: Mapping[float, str]
    series: Sequence[Series]
    chance: float | None = None


class Pictures:
    """Draws pictures for a page.

    Args:
        page: The page that shows them.
        folder: Where they are written.
    """

    def __init__(self, page: Path, folder: Path) -> None:
        self.page, self.folder, self.can_draw = page, folder, find_spec("matplotlib") is not None

    def add(self, name: str, panels: Sequence[Panel], says: str) -> list[str]:
        """Draw one; the Markdown that shows it. Nothing without values, or without matplotlib."""
        if not self.can_draw or not any(series.points for panel in panels for series in panel.series):
            return []
        draw(panels, self.folder / f"{name}.png")
        link = self.link(name)
        return [f"![{says}](<{link}>)" if " " in link else f"![{says}]({link})"]

    def link(self, name: str) -> str:
        """How the page names a picture."""
        path = self.folder / f"{name}.png"
        return Path(os.path.relpath(path.absolute(), self.page.absolute().parent)).as_posix()


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Write a PNG."""
    with drawn(panels) as figure, replacing(path) as partial:
        figure.savefig(partial, format="png", metadata={"Software": None})


@contextmanager
def drawn(panels: Sequence[Panel]) -> Iterator[Figure]:
    """The panels side by side, one legend for all of them; to be written before the context ends."""
    from matplotlib import style
    from matplotlib.figure import Figure  # without pyplot: no window, no global state

    looks = _looks({series.name: series.ours for panel in panels for series in panel.series})
    with style.context("default"):  # whatever the user's own style is
        figure = Figure(figsize=(2.6 + 5.4 * len(panels), 4.8), dpi=130, layout="constrained")
        all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, panel in zip(all_axes, panels, strict=True):
            _fill(axes, panel, looks)
        found = [axes.get_legend_handles_labels() for axes in all_axes]
        handles = {label: handle for pair in found for handle, label in zip(*pair, strict=True)}
        names = sorted(handles, key=[*looks, CHANCE].index)
        figure.legend(
            [handles[name] for name in names], names, loc="outside right center", fontsize=11, frameon=False
        )
        yield figure


def _fill(axes: Any, panel: Panel, looks: Mapping[str, Mapping[str, Any]]) -> None:
    for series in panel.series:
        if series.points:
            places, means, stds = zip(*series.points, strict=True)
            look = {"elinewidth": 1, "capsize": 2, **looks[series.name]}
            axes.errorbar(places, means, yerr=stds, label=series.name, **look)
    if panel.chance is not None:
        axes.axhline(panel.chance, color="black", linewidth=1, linestyle=":", zorder=1, label=CHANCE)
    axes.set_xticks(list(panel.ticks), list(panel.ticks.values()))
    axes.set_xlabel(panel.along, fontsize=12)
    axes.set_title(panel.title, loc="left", fontsize=13)
    axes.tick_params(labelsize=11)
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _looks(names: Mapping[str, bool]) -> dict[str, dict[str, Any]]:
    """Colour, width, dash and mark of each line; ours are thick, and below, so that they hide no other.

    Args:
        names: Of the lines, and whether they are ours.
    """
    looks: dict[str, dict[str, Any]] = {}
    for name, ours in names.items():
        number = sum(names[other] is ours for other in looks)
        if ours:
            colour, dash = OUR_LOOKS[min(number, 1)]
            look = {"linestyle": dash, "linewidth": 4.5, "marker": "o", "markersize": 9, "zorder": 2}
        else:
            rounds, place = divmod(number, len(RIVAL_COLOURS))
            colour, fill = RIVAL_COLOURS[place], "white" if rounds else RIVAL_COLOURS[place]
            look = {"linestyle": DASHES[rounds % len(DASHES)], "marker": MARKS[place], "markerfacecolor": fill}
            look |= {"linewidth": 1.4, "markersize": 5.5, "zorder": 3}
        looks[name] = {"color": colour, **look}
    return looks
