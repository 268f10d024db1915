"""From how far away decisions come, and whether depth makes all nodes alike."""

from __future__ import annotations

from collections.abc import Sequence

from pprgnn.report.absent import missing_shown, reasons
from pprgnn.report.measured.results import Missing, Reach, ReachLine, Smoothing, SmoothingLine
from pprgnn.report.plot import Line, Plot, spans_decades
from pprgnn.report.shown import Shown
from pprgnn.report.subject import Subject
from pprgnn.report.wording import counted, listed, number, of, percent

FAR = 2  # hops: as far as the usual two layers see


# ----------------------------------------------------------------------------------------------------------- reach
def reach(subjects: Sequence[Subject]) -> list[Shown]:
    """Influence by distance, beside others; and how many nodes are that far away."""
    title = "Where the influence on a decision comes from"
    found = [(each, each.measured.reach) for each in subjects if not isinstance(each.measured.reach, Missing)]
    missing = reasons(subjects, "reach")
    absent = [missing_shown("no-reach", title, missing)] if missing else []
    if not found:
        return absent
    several, lines = len(subjects) > 1, []
    for subject, one in found:
        hops = [float(hop) for hop in one.hops]
        own = one.lines[:1] if several else one.lines
        for place, line in enumerate(own):
            label = subject.name if several else line.name
            look = subject.look if several else place
            lines.append(Line(label, hops, line.shares, look, strong=several or place == 0))
    longest = max((one for _, one in found), key=lambda one: len(one.hops))
    ticks = _ticks(longest)
    plot = Plot(lines, "hops away", "share of the influence, percent", share=True, ticks=ticks, from_zero=True)
    reading = "\n".join(of(subject.name if several else "", _far(one, several)) for subject, one in found)
    how = "Shares of one line add up to 100 %; the last place stands for all that is further away."
    drawn = plot.both("reach", reading, height=340)
    shown = Shown("reach", title, reading=reading, how=how + _not_measured(own), table=plot.table("hops"), **drawn)
    return [shown, _population(longest, ticks), *absent]


def _not_measured(lines: Sequence[ReachLine] | Sequence[SmoothingLine]) -> str:
    """Which lines are not of a trained network."""
    names = [line.name for line in lines if not line.measured]
    return f" From the graph alone, without weights: {listed(names)}." if names else ""


def _ticks(one: Reach) -> dict[float, str]:
    step = max(1, -(-len(one.hops) // 12))
    last = one.hops[-1]
    names = {float(hop): str(hop) for hop in one.hops if hop % step == 0 and last - hop >= step}
    return names | {float(last): f"{last}+"}


def _far(one: Reach, several: bool) -> str:
    ours, *rest = one.lines
    beyond = sum(share for hop, share in zip(one.hops, ours.shares, strict=True) if hop > FAR)
    others = [
        f"{line.name} {percent(sum(s for hop, s in zip(one.hops, line.shares, strict=True) if hop > FAR), 0)}"
        for line in rest
    ]
    beside = f" ({listed(others)})" if others and not several else ""
    return (
        f"{percent(beyond)} of the influence comes from more than {FAR} hops away{beside}, in the mean "
        f"over {counted(one.nodes, 'node')}."
    )


def _population(one: Reach, ticks: dict[float, str]) -> Shown:
    hops = [float(hop) for hop in one.hops]
    log = spans_decades(one.nodes_by_hop)
    line = Line("nodes", hops, one.nodes_by_hop, strong=True)
    plot = Plot([line], "hops away", "nodes, in the mean", log_y=log, ticks=ticks, from_zero=not log)
    most = max(range(len(hops)), key=lambda place: one.nodes_by_hop[place])
    far = f"{counted(one.hops[most], 'hop')}{' or more' if most == len(hops) - 1 else ''}"
    reading = f"Most nodes are {far} away ({number(one.nodes_by_hop[most])} in the mean)."
    how = "What there is to see at each distance: a few nodes may have much influence, or many have little."
    return Shown(
        "population",
        "How many nodes are that far away",
        plot.svg("population", reading),
        reading,
        how,
        plot.table("hops"),
    )


# ------------------------------------------------------------------------------------------------------- smoothing
def smoothing(subjects: Sequence[Subject]) -> list[Shown]:
    """Whether neighbours, and all nodes, can still be told apart at a depth."""
    found = [
        (each, each.measured.smoothing) for each in subjects if not isinstance(each.measured.smoothing, Missing)
    ]
    missing = reasons(subjects, "smoothing")
    absent = [missing_shown("no-smoothing", "Over-smoothing against depth", missing)] if missing else []
    if not found:
        return absent
    kinds = {
        "energy": ("Difference between neighbours", "Dirichlet energy", "0: neighbours cannot be told apart."),
        "distance": ("Difference between all nodes", "mean cosine distance", "0: no nodes can be told apart."),
    }
    return [*(_smoothed(found, len(subjects) > 1, key, *texts) for key, texts in kinds.items()), *absent]


def _smoothed(
    found: Sequence[tuple[Subject, Smoothing]],
    several: bool,
    key: str,
    title: str,
    up: str,
    how: str,
) -> Shown:
    lines, readings = [], []
    for subject, one in found:
        depths = [float(max(depth, 0.5)) for depth in one.depths]  # depth 0 has a place on a logarithmic axis, too
        own = one.lines[:1] if several else one.lines
        for place, line in enumerate(own):
            label = subject.name if several else line.name
            look = subject.look if several else place
            lines.append(Line(label, depths, getattr(line, key), look, strong=several or place == 0))
        readings.append(of(subject.name if several else "", _kept(one, several, key, up)))
    places = sorted({x for line in lines for x in line.x})
    ticks = {place: "0" if place < 1 else f"{place:.0f}" for place in _sparse(places)}
    log_y = spans_decades([value for line in lines for value in line.y], 2.5)
    plot = Plot(lines, "depth, hops", up, log_x=True, log_y=log_y, ticks=ticks, floor=1e-8, from_zero=not log_y)
    reading = "\n".join(readings)
    return Shown(key, title, plot.svg(key, reading), reading, how + _not_measured(own), plot.table("depths"))


def _sparse(places: Sequence[float]) -> list[float]:
    """Ticks far enough apart on a logarithmic axis."""
    kept: list[float] = []
    for place in places:
        if not kept or place >= 1.9 * kept[-1]:
            kept.append(place)
    return kept


def _kept(one: Smoothing, several: bool, key: str, what: str) -> str:
    ours, *rest = one.lines
    ends = [] if several else [f"{line.name} {number(getattr(line, key)[-1])}" for line in rest]
    beside = f" ({listed(ends)})" if ends else ""
    return f"the {what} is {number(getattr(ours, key)[-1])} at depth {one.depths[-1]}{beside}."
