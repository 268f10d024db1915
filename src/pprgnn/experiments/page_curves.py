"""The sections of the page that are figures with their tables: Amazon, depth, chains."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pprgnn.experiments import paper
from pprgnn.experiments.amazon import METRIC
from pprgnn.experiments.depth import INFINITE
from pprgnn.experiments.experiment import OURS
from pprgnn.experiments.figures import Panel, Pictures, Series
from pprgnn.experiments.summary import Entry, Results
from pprgnn.experiments.tables import NOT_RUN, difference, failures, percent, points, table, title

Rows = Mapping[str, Mapping[float, Entry]]  # by name, then by place on the axis
PROTOCOLS = {
    "paper": "Paper's protocol (optimistic: the test nodes chose the epoch, the number of labels is known)",
    "honest": "Honest protocol",
}


# -------------------------------------------------------------------------------------------------------- amazon
def amazon(results: Results, pictures: Pictures) -> list[str]:
    """For each protocol a figure, the values, and what the paper says about who is ahead."""
    fractions = sorted(places(results, "fraction"))
    ticks = {fraction: f"{100 * fraction:.0f} %" for fraction in fractions}
    blocks = []
    for data, (protocol, heading) in itertools.product(results.data, PROTOCOLS.items()):
        metrics = (METRIC[protocol], METRIC[protocol].replace("micro", "macro"))
        tables = {metric: _at_fractions(results, data, protocol, metric, fractions) for metric in metrics}
        panels = [
            Panel(f"{metric} in percent", "labels that train", ticks, series(rows))
            for metric, rows in tables.items()
        ]
        blocks += [f"### {data}. {heading}"]
        blocks += pictures.add(
            f"{data.lower()}-{protocol}", panels, f"{data}: F1 against the share of labels, {protocol} protocol"
        )
        for metric, rows in tables.items():
            blocks += [f"**{metric}**", value_table("system", rows, ticks)]
        blocks += [failures(results, protocol), *_claims(results, data, protocol, metrics, ticks)]
    return blocks


def _at_fractions(results: Results, data: str, protocol: str, metric: str, fractions: Sequence[float]) -> Rows:
    return {
        title(system, variant): {
            at: results.entry(data, system, variant, protocol, {"fraction": at}, metric) for at in fractions
        }
        for system, variant in results.systems
    }


def _claims(
    results: Results, data: str, protocol: str, metrics: Sequence[str], ticks: Mapping[float, str]
) -> list[str]:
    """Ours minus each rival."""
    ours = [each for each in results.systems if each[0] == OURS]
    rows = []
    for metric in metrics:
        values = _at_fractions(results, data, protocol, metric, list(ticks))
        for own in ours:
            for rival in (each for each in results.systems if each not in ours):
                pairs = [(values[title(*own)][at], values[title(*rival)][at]) for at in ticks]
                claims = [_claim(rival[0], difference(*pair)) for pair in pairs]
                rows.append([f"{title(*own)} − {title(*rival)}", metric, *claims])
    about = (
        f"Ours minus each rival, in points. In the paper, on com-Amazon, ours is ahead of all but APPNP by "
        f"{paper.AMAZON_MARGIN:.0f} point or more at every fraction, and APPNP is ahead of ours. Here: {data}."
    )
    shown = [row for row in rows if any(cell != NOT_RUN for cell in row[2:])]
    return [about, table(["difference", "metric", *ticks.values()], shown)] if shown else []


def _claim(rival: str, ahead: float | None) -> str:
    if ahead is None:
        return "not run"
    ahead = round(ahead, 1)
    if rival == "appnp":
        word = "as in the paper" if ahead < 0 else "better"
    else:
        word = "as in the paper" if ahead >= paper.AMAZON_MARGIN else "ahead by less" if ahead > 0 else "not ahead"
    return f"{points(ahead)}, {word}"


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
    panel = Panel(f"Test accuracy on {data} in percent", "depth", ticks, series(rows))
    picture = pictures.add("depth", [panel], f"Test accuracy on {data} against depth")
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
    panel = Panel("Test accuracy in percent", "nodes of a chain", ticks, series(rows), chance=50)
    picture = pictures.add("chains", [panel], "Test accuracy against the length of chains")
    return [*picture, value_table("system \\ length", rows, ticks), failures(results)]


# --------------------------------------------------------------------------------------------------------- parts
def places(results: Results, name: str) -> list[Any]:
    """The values of an axis, in the order of the grid."""
    return list(dict.fromkeys(json.loads(group[4])[name] for group in results.groups))


def series(rows: Rows) -> list[Series]:
    """The lines of a figure."""
    lines = []
    for name, row in rows.items():
        values = [(place, entry.mean, entry.std or 0.0) for place, entry in row.items() if entry.mean is not None]
        lines.append(Series(name.replace("*", ""), values, ours="(ours)" in name))
    return lines


def value_table(corner: str, rows: Rows, ticks: Mapping[float, str]) -> str:
    """The same values in figures."""
    body = [[name, *(percent(row[place]) for place in ticks)] for name, row in rows.items()]
    return table([corner, *ticks.values()], body)
