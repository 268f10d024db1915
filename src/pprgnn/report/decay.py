"""How a message fades with every hop, beside APPNP's geometric decay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from pprgnn.report.absent import missing_shown, reasons
from pprgnn.report.measured.results import Decay, Missing
from pprgnn.report.plot import Line, Plot
from pprgnn.report.shown import Shown
from pprgnn.report.subject import Subject
from pprgnn.report.wording import counted, listed, number, percent, sentence

FADED = 1e-3  # of a message: so little counts as gone


def decay(subjects: Sequence[Subject]) -> list[Shown]:
    """A figure per layer with rates of its own; in a comparison, one with the first layer of each run."""
    title, missing = "What is left of a message after n hops", reasons(subjects, "decay")
    found: list[tuple[Subject, list[Decay]]] = [
        (each, each.measured.decay)
        for each in subjects
        if not isinstance(each.measured.decay, Missing) and each.measured.decay
    ]
    if not found:
        return [missing_shown("decay", title, missing)]
    if len(subjects) > 1:
        return [
            _decays([(each.name, layers[0], each.look) for each, layers in found], title, missing, several=True)
        ]
    layers = list({(layer.eps, layer.with_weight[-1]): layer for layer in reversed(found[0][1])}.values())[::-1]
    return [
        _decays([("", layer, 0)], title if len(layers) == 1 else f"{title}: {layer.layer}", missing, place=place)
        for place, layer in enumerate(layers)
    ]


def _decays(
    layers: Sequence[tuple[str, Decay, int]],
    title: str,
    missing: Sequence[str],
    several: bool = False,
    place: int = 0,
) -> Shown:
    name, lines, readings = f"decay-{place + 1}", [], list(missing)
    for label, layer, look in layers:
        hops = [float(hop) for hop in layer.hops]
        slowest, median, fastest = layer.ours
        spread = {"low": fastest, "high": slowest} if layer.eps[0] != layer.eps[2] else {}
        label = label if several else f"∏ βᵢ, ε = {number(layer.eps[1])}"
        lines.append(Line(label, hops, median, look, strong=True, marked=False, **spread))
        if not several:
            lines.append(Line("∏ βᵢ‖W‖₂", hops, layer.with_weight, 1, marked=False))
        readings.append(_faded(label if several else "", layer))
    first, looks = layers[0][1], count(len(layers) if several else 2)
    for alpha, values in first.appnp.items():
        label = f"APPNP, α = {alpha}"
        lines.append(Line(label, [float(hop) for hop in first.hops], values, next(looks), marked=False))
    plot = Plot(lines, "hops n", "share that is left", log_y=True, floor=1e-9)
    reading = " ".join(readings)
    how = (
        "A straight line is geometric decay, as in APPNP; ours bends down faster and faster, so that the sum over "
        "all depths stays finite whatever ‖W‖₂ is."
    )
    return Shown(name, title, plot.svg(name, reading), reading, how, plot.table("hops"))


def _faded(name: str, layer: Decay) -> str:
    ours = layer.ours[1]
    gone = next((place for place, value in enumerate(ours) if value < FADED), None)
    ahead = f"{name}: " if name else ""
    if gone is None:
        return sentence(f"{ahead}{percent(ours[-1])} is still left after {counted(layer.hops[-1], 'hop')}.")
    beside = [f"{percent(values[gone])} with α = {alpha}" for alpha, values in layer.appnp.items()]
    appnp = f"; in APPNP there still is {listed(beside)}" if beside else ""
    return sentence(f"{ahead}less than {percent(FADED)} is left after {counted(layer.hops[gone], 'hop')}{appnp}.")
