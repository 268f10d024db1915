"""The sections of the page that are figures with their tables: Amazon, depth, chains."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pprgnn.drawing import canvas
from pprgnn.drawing.plot import THIN, Line, Place, Plot
from pprgnn.experiments import paper
from pprgnn.experiments.amazon import DEPTHS, FRACTIONS, LABELS, METRIC
from pprgnn.experiments.depth import INFINITE
from pprgnn.experiments.experiment import OURS
from pprgnn.experiments.figures import Pictures
from pprgnn.experiments.standing import ABOUT, standing
from pprgnn.experiments.summary import Entry, Results
from pprgnn.experiments.tables import NOTHING, failures, percent, table, title

Rows = Mapping[str, Mapping[float, Entry]]  # by name, then by place on the axis
OUR_WIDTH = 5.0
PROTOCOLS = {
    "paper": "Paper's protocol (optimistic: the test nodes chose the epoch, the number of labels is known)",
    "honest": "Honest protocol",
}


# -------------------------------------------------------------------------------------------------------- amazon
def amazon(results: Results, pictures: Pictures) -> list[str]:
    """For each protocol a figure, the values, and who is ahead; beside it, what depth is worth."""
    ticks = {fraction: f"{100 * fraction:.0f} %" for fraction in sorted(places(results, "fraction"))}
    blocks = []
    for data, (protocol, heading) in itertools.product(results.data, PROTOCOLS.items()):
        metrics = [METRIC[protocol], METRIC[protocol].replace("micro", "macro")]
        metrics += [METRIC["paper"]] if protocol == "honest" else []  # of the epoch that validation chose
        tables = {metric: _at_fractions(results, data, protocol, metric, list(ticks)) for metric in metrics}
        plots = [
            Plot(lines(rows), "labels that train", f"{metric} in percent", ticks=ticks)
            for metric, rows in tables.items()
        ]
        hops, deep = _at_depths(results, data, protocol, metrics[0])
        above = f"{metrics[0]} at {ticks[min(ticks)]} of the labels"
        plots.append(Plot(lines(deep), "hops", above, ticks=hops))
        blocks += [f"### {data}. {heading}"]
        blocks += pictures.add(
            f"{data.lower()}-{protocol}",
            plots,
            f"{data}: F1 against the share of labels and the number of hops, {protocol} protocol",
        )
        for metric, rows in tables.items():
            ahead = [standing(results, data, protocol, {"fraction": at}, metric) for at in ticks]
            words = [f"{title(OURS)}: difference", *(NOTHING if each is None else each.short for each in ahead)]
            blocks += [f"**{metric}**", value_table("system", rows, ticks, words)]
        blocks += [f"**{metrics[0]} against hops**", value_table("system \\ hops", deep, hops)]
        blocks += [failures(results, protocol)]
    about = (
        f"{ABOUT} In the paper, on com-Amazon, ours is ahead of all but APPNP by {paper.AMAZON_MARGIN:.0f} point "
        f"or more at every fraction, and APPNP is ahead of ours; label propagation is not in its figure."
    )
    return [about, *blocks]


def _at_fractions(results: Results, data: str, protocol: str, metric: str, fractions: Sequence[float]) -> Rows:
    return {
        title(system, variant): {
            at: results.entry(data, system, variant, protocol, {"fraction": at}, metric) for at in fractions
        }
        for system, variant in results.systems
    }


def _at_depths(results: Results, data: str, protocol: str, metric: str) -> tuple[dict[float, str], Rows]:
    """Ours on labels, cut off after some hops, and converged at the right end."""
    axis: dict[float, Mapping[str, Any]] = {
        math.log2(depth): {"fraction": FRACTIONS[0], "depth": depth} for depth in DEPTHS
    }
    end = max(axis) + 1
    axis[end] = {"fraction": FRACTIONS[0]}
    ticks = {place: str(at.get("depth", INFINITE)) for place, at in axis.items()}
    row = {place: results.entry(data, OURS, LABELS, protocol, at, metric) for place, at in axis.items()}
    return ticks, {title(OURS, LABELS): row}


# ------------------------------------------------------------------------------------------------ depth and chains
def depth(results: Results, pictures: Pictures) -> list[str]:
    """Accuracy against depth; the infinite one is at the right end."""
    (data,) = results.data
    found = places(results, "depth")
    finite = sorted(each for each in found if each != INFINITE)
    end = math.log2(finite[-1]) + 1
    axis = {**{math.log2(each): each for each in finite}, end: INFINITE}
    ticks = {place: str(each) for place, each in axis.items()}
    rows: dict[str, dict[float, Entry]] = {}
    for system, variant in results.systems:
        if system != "ppnp":
            row = {place: results.entry(data, system, variant, at={"depth": each}) for place, each in axis.items()}
            if system == "appnp":
                row[end] = results.entry(data, "ppnp", at={"depth": INFINITE})
            rows[title(system, variant)] = row
    plot = Plot(lines(rows), "depth", f"Test accuracy on {data} in percent", ticks=ticks)
    picture = pictures.add("depth", [plot], f"Test accuracy on {data} against depth")
    return [*picture, value_table("system \\ depth", rows, ticks), failures(results)]


def chains(results: Results, pictures: Pictures) -> list[str]:
    """Accuracy against length."""
    (data,) = results.data
    axis = {math.log10(length): length for length in sorted(places(results, "length"))}
    ticks = {place: str(length) for place, length in axis.items()}
    rows = {
        title(system, variant): {
            place: results.entry(data, system, variant, at={"length": length}) for place, length in axis.items()
        }
        for system, variant in results.systems
    }
    chance = Place("chance", y=50.0, below=True)
    plot = Plot(lines(rows), "nodes of a chain", "Test accuracy in percent", [chance], ticks=ticks)
    picture = pictures.add("chains", [plot], "Test accuracy against the length of chains")
    return [*picture, value_table("system \\ length", rows, ticks), failures(results)]


# --------------------------------------------------------------------------------------------------------- parts
def places(results: Results, name: str) -> list[Any]:
    """The values of an axis, in the order of the grid."""
    return list(dict.fromkeys(json.loads(group[4])[name] for group in results.groups))


def lines(rows: Rows) -> list[Line]:
    """The lines of a figure; ours are thick, and the only ones in their colour."""
    colours = len(canvas.SERIES)
    ours, others = itertools.count(0, colours), (look for look in itertools.count() if look % colours)
    found = []
    for name, row in rows.items():
        is_ours = "(ours)" in name
        values = [(place, entry.mean, entry.std or 0.0) for place, entry in row.items() if entry.mean is not None]
        x, y, bars = ([each[i] for each in values] for i in range(3))
        look, width = (next(ours), OUR_WIDTH) if is_ours else (next(others), THIN)
        found.append(Line(name.replace("*", ""), x, y, look, width, bars=bars))
    return found


def value_table(corner: str, rows: Rows, ticks: Mapping[float, str], *more: Sequence[str]) -> str:
    """The same values in figures, and ``more`` rows."""
    body = [[name, *(percent(row[place]) for place in ticks)] for name, row in rows.items()]
    return table([corner, *ticks.values()], [*body, *more])
