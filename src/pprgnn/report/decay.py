"""How a message fades with every hop, beside APPNP's geometric decay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from pprgnn.report.absent import missing_shown, reasons
from pprgnn.report.measured.results import Decay, Missing
from pprgnn.report.plot import Line, Plot
from pprgnn.report.shown import Shown
from pprgnn.report.subject import Subject
from pprgnn.report.wording import counted, listed, number, of, percent

TITLE = "What is left of a message after n hops"
FADED = 1e-3  # of a message: so little counts as gone


def decay(subjects: Sequence[Subject]) -> list[Shown]:
    """A figure per layer with rates of its own; in a comparison, one with the first layer of each run."""
    found: list[tuple[Subject, list[Decay]]] = [
        (each, each.measured.decay)
        for each in subjects
        if not isinstance(each.measured.decay, Missing) and each.measured.decay
    ]
    missing = reasons(subjects, "decay")
    absent = [missing_shown("no-decay", TITLE, missing)] if missing or not found else []
    if len(subjects) > 1:
        return [
            *([_decays([(each.name, layers[0], each.look) for each, layers in found], TITLE)] if found else []),
            *absent,
        ]
    different = {(layer.eps, layer.with_weight[-1]): layer for _, layers in found for layer in reversed(layers)}
    shown = [
        _decays([("", layer, 0)], TITLE if len(different) == 1 else f"{TITLE}: {layer.layer}", place)
        for place, layer in enumerate(reversed(different.values()))
    ]
    return [*shown, *absent]


def _decays(layers: Sequence[tuple[str, Decay, int]], title: str, place: int = 0) -> Shown:
    """One figure; layers have names when they are those of several runs."""
    name, lines, several = f"decay-{place + 1}", [], bool(layers[0][0])
    for label, layer, look in layers:
        hops = [float(hop) for hop in layer.hops]
        slowest, median, fastest = layer.ours
        spread = {"low": fastest, "high": slowest} if layer.eps[0] != layer.eps[2] else {}
        shown = label or f"∏ βᵢ, ε = {number(layer.eps[1])}"
        lines.append(Line(shown, hops, median, look, strong=True, marked=False, **spread))
        if not several:
            lines.append(Line("∏ βᵢ‖W‖₂", hops, layer.with_weight, 1, marked=False))
    first, looks = layers[0][1], count(len(layers) if several else 2)
    for alpha, values in first.appnp.items():
        label = f"APPNP, α = {alpha}"
        lines.append(Line(label, [float(hop) for hop in first.hops], values, next(looks), marked=False))
    plot = Plot(lines, "hops n", "share that is left", log_y=True, floor=1e-9)
    reading = "\n".join(of(label, _faded(layer)) for label, layer, _ in layers)
    how = (
        "A straight line is geometric decay, as in APPNP; ours bends down faster and faster, so that the sum over "
        "all depths stays finite whatever ‖W‖₂ is."
    )
    return Shown(name, title, plot.svg(name, reading), reading, how, plot.table("hops"))


def _faded(layer: Decay) -> str:
    ours = layer.ours[1]
    gone = next((place for place, value in enumerate(ours) if value < FADED), None)
    if gone is None:
        return f"{percent(ours[-1])} is still left after {counted(layer.hops[-1], 'hop')}."
    beside = [f"{percent(values[gone])} with α = {alpha}" for alpha, values in layer.appnp.items()]
    appnp = f"; in APPNP there still is {listed(beside)}" if beside else ""
    return f"less than {percent(FADED)} is left after {counted(layer.hops[gone], 'hop')}{appnp}."
