"""From how far away decisions come, how a message fades on its way, and whether depth makes all nodes alike."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from pprgnn.drawing.plot import STRONG, THIN, Line, Plot
from pprgnn.report.measured.results import Decay, Reach, ReachLine, Smoothing, SmoothingLine
from pprgnn.report.shown import Shown, having, plotted
from pprgnn.report.subject import Subject
from pprgnn.wording import counted, listed, number, of, percent

FAR = 2  # hops: as far as the usual two layers see
FADED = 1e-3  # of a message: so little counts as gone
REACH_HEIGHT = 340


def _lines(subject: Subject, x: Sequence[float], lines: Sequence[Any], values: str) -> list[Line]:
    """Of this model and of others beside it; in a comparison, of this model alone."""
    if subject.label:
        return [Line(subject.label, x, getattr(lines[0], values), subject.look, STRONG)]
    return [
        Line(line.name, x, getattr(line, values), place, THIN if place else STRONG)
        for place, line in enumerate(lines)
    ]


def _not_measured(subject: Subject, lines: Sequence[ReachLine] | Sequence[SmoothingLine]) -> str:
    """Which lines are not of a trained network."""
    names = [line.name for line in lines[: 1 if subject.label else None] if not line.measured]
    return f" From the graph alone, without weights: {listed(names)}." if names else ""


# ----------------------------------------------------------------------------------------------------------- reach
def reach(subjects: Sequence[Subject]) -> list[Shown]:
    """Influence by distance, beside others; and how many nodes are that far away."""
    title = "Where the influence on a decision comes from"
    found, absent = having(subjects, title, lambda measured: measured.reach)
    if not found:
        return absent
    lines = [
        line for subject, one in found for line in _lines(subject, list(map(float, one.hops)), one.lines, "shares")
    ]
    longest = max((one for _, one in found), key=lambda one: len(one.hops))
    ticks = _ticks(longest)
    plot = Plot(lines, "hops away", "share of the influence, percent", share=True, ticks=ticks, from_zero=True)
    reading = "\n".join(of(subject.label, _far(one, beside=not subject.label)) for subject, one in found)
    how = "Shares of one line add up to 100 %; the last place stands for all that is further away."
    how += _not_measured(found[-1][0], found[-1][1].lines)
    return [
        plotted("reach", title, plot, reading, how, "hops", REACH_HEIGHT),
        _population(longest, ticks),
        *absent,
    ]


def _ticks(one: Reach) -> dict[float, str]:
    step = max(1, -(-len(one.hops) // 12))
    last = one.hops[-1]
    names = {float(hop): str(hop) for hop in one.hops if hop % step == 0 and last - hop >= step}
    return names | {float(last): f"{last}+"}


def _far(one: Reach, beside: bool) -> str:
    beyond = [
        sum(share for hop, share in zip(one.hops, line.shares, strict=True) if hop > FAR) for line in one.lines
    ]
    others = [f"{line.name} {percent(far, 0)}" for line, far in zip(one.lines[1:], beyond[1:], strict=True)]
    return (
        f"{percent(beyond[0])} of the influence comes from more than {FAR} hops away"
        f"{f' ({listed(others)})' if others and beside else ''}, in the mean over {counted(one.nodes, 'node')}."
    )


def _population(one: Reach, ticks: dict[float, str]) -> Shown:
    line = Line("nodes", list(map(float, one.hops)), one.nodes_by_hop, width=STRONG)
    plot = Plot([line], "hops away", "nodes, in the mean", log_y=None, ticks=ticks, from_zero=True)
    most = max(range(len(one.hops)), key=lambda place: one.nodes_by_hop[place])
    far = f"{counted(one.hops[most], 'hop')}{' or more' if most == len(one.hops) - 1 else ''}"
    reading = f"Most nodes are {far} away ({number(one.nodes_by_hop[most])} in the mean)."
    how = "What there is to see at each distance: a few nodes may have much influence, or many have little."
    return plotted("population", "How many nodes are that far away", plot, reading, how, "hops")


# ----------------------------------------------------------------------------------------------------------- decay
def decay(subjects: Sequence[Subject]) -> list[Shown]:
    """A figure per layer with rates of its own; in a comparison, one with the first layer of each run."""
    title = "What is left of a message after n hops"
    found, absent = having(subjects, title, lambda measured: measured.decay)
    if len(subjects) > 1:
        first = [(subject, layers[0]) for subject, layers in found]
        return [_decays(first, "decay-1", title), *absent] if found else absent
    shown = []
    for subject, layers in found:
        different = {(layer.eps, layer.with_weight[-1]): layer for layer in reversed(layers)}
        for place, layer in enumerate(reversed(different.values()), 1):
            which = f": {layer.layer}" if len(different) > 1 else ""
            shown.append(_decays([(subject, layer)], f"decay-{place}", title + which))
    return [*shown, *absent]


def _decays(layers: Sequence[tuple[Subject, Decay]], name: str, title: str) -> Shown:
    """One figure, of one layer or of a layer of each run."""
    lines = []
    for subject, layer in layers:
        hops = list(map(float, layer.hops))
        slowest, median, fastest = layer.ours
        label = subject.label or f"∏ βᵢ, ε = {number(layer.eps[1])}"
        band = (fastest, slowest) if layer.eps[0] != layer.eps[2] else None
        lines.append(Line(label, hops, median, subject.look, STRONG, band=band, marked=False))
        if not subject.label:
            lines.append(Line("∏ βᵢ‖W‖₂", hops, layer.with_weight, 1, marked=False))
    first, looks = layers[0][1], count(len(lines))
    for alpha, values in first.appnp.items():
        hops = list(map(float, first.hops))
        lines.append(Line(f"APPNP, α = {alpha}", hops, values, next(looks), marked=False))
    plot = Plot(lines, "hops n", "share that is left", log_y=True, floor=1e-9)
    reading = "\n".join(of(subject.label, _faded(layer)) for subject, layer in layers)
    how = (
        "A straight line is geometric decay, as in APPNP; ours bends down faster and faster, so that the sum over "
        "all depths stays finite whatever ‖W‖₂ is."
    )
    return plotted(name, title, plot, reading, how, "hops")


def _faded(layer: Decay) -> str:
    ours = layer.ours[1]
    gone = next((place for place, value in enumerate(ours) if value < FADED), None)
    if gone is None:
        return f"{percent(ours[-1])} is still left after {counted(layer.hops[-1], 'hop')}."
    beside = [f"{percent(values[gone])} with α = {alpha}" for alpha, values in layer.appnp.items()]
    appnp = f"; in APPNP there still is {listed(beside)}" if beside else ""
    return f"less than {percent(FADED)} is left after {counted(layer.hops[gone], 'hop')}{appnp}."


# ------------------------------------------------------------------------------------------------------- smoothing
def smoothing(subjects: Sequence[Subject]) -> list[Shown]:
    """Whether neighbours, and all nodes, can still be told apart at a depth."""
    found, absent = having(subjects, "Over-smoothing against depth", lambda measured: measured.smoothing)
    if not found:
        return absent
    neighbours = ("Difference between neighbours", "Dirichlet energy", "0: neighbours cannot be told apart.")
    all_nodes = ("Difference between all nodes", "mean cosine distance", "0: no nodes can be told apart.")
    return [_smoothed(found, "energy", *neighbours), _smoothed(found, "distance", *all_nodes), *absent]


def _smoothed(found: Sequence[tuple[Subject, Smoothing]], values: str, title: str, up: str, how: str) -> Shown:
    lines, readings = [], []
    for subject, one in found:
        depths = [float(max(depth, 0.5)) for depth in one.depths]  # depth 0 has a place on a logarithmic axis, too
        lines += _lines(subject, depths, one.lines, values)
        ours, *rest = [f"{number(getattr(line, values)[-1])}" for line in one.lines]
        ends = [f"{line.name} {end}" for line, end in zip(one.lines[1:], rest, strict=True)]
        beside = f" ({listed(ends)})" if ends and not subject.label else ""
        readings.append(of(subject.label, f"the {up} is {ours} at depth {one.depths[-1]}{beside}."))
    places = sorted({x for line in lines for x in line.x})
    ticks = {place: "0" if place < 1 else f"{place:.0f}" for place in _sparse(places)}
    plot = Plot(lines, "depth, hops", up, log_x=True, log_y=None, ticks=ticks, floor=1e-8, from_zero=True)
    how += _not_measured(found[-1][0], found[-1][1].lines)
    return plotted(values, title, plot, "\n".join(readings), how, "depths")


def _sparse(places: Sequence[float]) -> list[float]:
    """Ticks far enough apart on a logarithmic axis."""
    kept: list[float] = []
    for place in places:
        if not kept or place >= 1.9 * kept[-1]:
            kept.append(place)
    return kept
