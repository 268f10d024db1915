"""What is known about a solve: its error beside the proof of it, what few terms leave out, what it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pprgnn.drawing.plot import DOTTED, STRONG, Line, Place, Plot
from pprgnn.report.measured.results import Convergence, Cost, Truncation
from pprgnn.report.shown import WIDE_HEIGHT, Shown, Table, having, plotted
from pprgnn.report.subject import Subject
from pprgnn.wording import (
    bound,
    counted,
    duration,
    listed,
    memory,
    number,
    of,
    part,
    percent,
    sentence,
    small,
)

FLOOR = 1e-12
ERROR = "Error against depth, and what is proved"
KNOWN = {
    "FIXED": "a given depth: the finite model, nothing is claimed about the infinite one",
    "CERTIFIED": "proved in exact arithmetic",
    "MEASURED": "measured against a deeper pass, and proved in exact arithmetic",
    "COMPARED": "two depths agree; not proved",
    "REUSED": "depth of an earlier input: an estimate",
    "ROUNDING": "rounding errors exceed the tolerance",
    "INFLUENCE": "the paper’s estimate, not a bound",
    "CAPPED": "the cap was reached before the tolerance",
    "NOT_FINITE": "the state overflowed",
}


# ------------------------------------------------------------------------------------------------- the certificate
def convergence(subjects: Sequence[Subject]) -> list[Shown]:
    """The signature of the method: the error of a depth, and the proof above it."""
    found, absent = having(subjects, ERROR, lambda measured: measured.convergence)
    if len(subjects) == 1:
        return [*(_one(each, i, len(layers)) for _, layers in found for i, each in enumerate(layers)), *absent]
    return [_compared([(subject, layers[0]) for subject, layers in found]), *absent] if found else absent


def _one(layer: Convergence, place: int, count: int) -> Shown:
    depths, floor = list(map(float, layer.depths)), max(FLOOR, layer.rounding / 10)
    lines = [
        Line("measured error", depths, layer.errors, 0, STRONG, marked=len(depths) <= 40),
        Line("certificate (proved)", depths, _useful(layer.certificate), 1, marked=False),
        Line("the paper's estimate (no bound)", depths, layer.influence, 2, dash=DOTTED, marked=False),
    ]
    places = [
        Place(f"tolerance {number(layer.tol)}", y=layer.tol),
        Place(f"chosen: depth {layer.chosen}", x=float(layer.chosen), y=_at(layer, layer.errors) or None),
    ]
    until = _seen_until(layer, floor)
    plot = Plot(lines, "depth k, hops", "error relative to ‖B‖", places, log_y=True, floor=floor, until=until)
    how = (
        "A depth is good enough once the solid line is below the tolerance, and known to be so once the dashed "
        f"one is. Below {number(layer.rounding)} there is nothing but rounding."
    )
    title, height = (ERROR, WIDE_HEIGHT) if count == 1 else (f"{ERROR}: {layer.layer}", None)
    return plotted(f"convergence-{place + 1}", title, plot, _reading(layer), how, "depths", height)


def _useful(bounds: Sequence[float | None]) -> list[float | None]:
    """Those that prove something: an error of 100 % is no news."""
    return [each if each is not None and each < 1 else None for each in bounds]


def _seen_until(layer: Convergence, floor: float) -> float:
    """The depth beyond which nothing rises above the floor."""
    pairs = zip(layer.depths, layer.errors, layer.certificate, strict=True)
    seen = [depth for depth, error, proved in pairs if error >= floor or (proved is not None and proved >= floor)]
    return float(max([layer.chosen, *seen]))


def _at(layer: Convergence, values: Sequence[float | None]) -> float | None:
    """The value at the chosen depth, if it is among those that were measured."""
    return dict(zip(layer.depths, values, strict=True)).get(layer.chosen)


def _reading(layer: Convergence) -> str:
    error, proved = _at(layer, layer.errors), _at(layer, layer.certificate)
    text = f"Depth {layer.chosen} was chosen"
    if error is None:
        return f"{text}; it lies beyond the depths that were measured."
    seen = "only rounding is left" if error <= layer.rounding else f"its measured error is {small(error)}"
    if proved is not None and proved < 1:
        return f"{text}; {seen}, and {small(proved)} is proved by the product of the step bounds alone."
    return f"{text}; {seen}; the product of the step bounds proves nothing there yet."


def _compared(found: Sequence[tuple[Subject, Convergence]]) -> Shown:
    lines = []
    for subject, layer in found:
        depths, proved = list(map(float, layer.depths)), _useful(layer.certificate)
        lines += [
            Line(subject.name, depths, layer.errors, subject.look, STRONG, marked=False),
            Line(f"{subject.name}, proved", depths, proved, subject.look, dash=DOTTED, marked=False),
        ]
    plot = Plot(lines, "depth k, hops", "error relative to ‖B‖", log_y=True, floor=FLOOR)
    reading = "\n".join(of(subject.label, _reading(layer)) for subject, layer in found)
    how = "First layer of each run: the measured error, and above it, dotted, the certificate."
    return plotted("convergence", ERROR, plot, reading, how, "depths", WIDE_HEIGHT)


# ---------------------------------------------------------------------------------------------------------- layers
def layers(subjects: Sequence[Subject]) -> list[Shown]:
    """Each layer's depth and what is known about it."""
    how = (
        "Errors are relative to what goes into the layer. ‖W‖₂ is the largest singular value of the weights, ε "
        "the rate at which a message fades."
    )
    shown = []
    for each in subjects:
        name, title = f"layers-{each.look + 1}", f"Depth and error of each layer{each.suffix}"
        if each.detail["layers"]:
            deep = [f"{one['layer']} looked {counted(one['depth'], 'hop')} deep" for one in each.detail["layers"]]
            reading = f"For the scores, {listed(deep)}."
            shown.append(Shown(name, title, reading=reading, how=how, table=_layers(each), wide=True))
        else:
            reason = f"No layer of infinite depth: {each.system} looks as far as it has layers."
            shown.append(Shown(name, title, missing=reason))
    return shown


def _layers(subject: Subject) -> Table:
    rows = []
    for each in subject.detail["layers"]:
        error = next((each[key] for key in ("measured_error", "estimated_error") if each[key] is not None), None)
        rows.append(
            [
                each["layer"],
                str(each["depth"]),
                number(error),
                bound(each.get("truncation_bound")),
                number(each.get("rounding_error")),
                number(each["weight_norm"]),
                number(each["eps"]),
                KNOWN.get(each["status"], str(each["status"]).lower()),
            ]
        )
    header = "layer, depth, error seen, truncation proved, rounding estimated, ‖W‖₂, ε, what is known"
    return Table(header.split(", "), rows, kind="words")


# ------------------------------------------------------------------------------------------------------ truncation
def truncation(subjects: Sequence[Subject]) -> list[Shown]:
    """What a gradient of few terms leaves out; of each run in a comparison, in its first layer."""
    title, shown = "Error of a gradient of few terms", []
    found, absent = having(subjects, title, lambda measured: measured.truncation)
    for subject, layers in found:
        for place, layer in enumerate(layers[:1] if subject.label else layers):
            what = subject.suffix or (f": {layer.layer}" if len(layers) > 1 else "")
            shown.append(_truncated(layer, f"truncation-{subject.look + 1}-{place + 1}", title + what))
    return [*shown, *absent]


def _truncated(layer: Truncation, name: str, title: str) -> Shown:
    terms = list(map(float, layer.terms))
    lines = [
        Line("of B", terms, layer.error_b, 0, STRONG),
        Line("of W", terms, layer.error_weight, 1),
        Line("bound for B (proved)", terms, _useful(layer.bound), 2, dash=DOTTED, marked=False),
    ]
    places = [] if layer.used is None else [Place(f"used: {layer.used}", x=float(layer.used))]
    plot = Plot(lines, "terms N", "error relative to all terms", places, log_y=True, floor=1e-9)
    how = "Each further term follows the gradient one hop further back; memory grows with their number."
    return plotted(name, title, plot, _left_out(layer), how, "terms")


def _left_out(layer: Truncation) -> str:
    if layer.used is None:
        return "All terms trained this model, so nothing was left out."
    trained = f"{counted(layer.used, 'term')} trained this model"
    if layer.used not in layer.terms:
        return f"{trained}, which is beyond those that were measured."
    at = layer.terms.index(layer.used)
    most = layer.bound[at]
    useful = most is not None and most < 1
    proved = f"at most {percent(most)} is proved for B" if useful else "there is no useful bound for B"
    return (
        f"{trained}: {part(layer.error_b[at])} of the gradient of B and {part(layer.error_weight[at])} of that of "
        f"W were left out; {proved}."
    )


# ------------------------------------------------------------------------------------------------------------ cost
def cost(subjects: Sequence[Subject]) -> list[Shown]:
    """Time and memory of a training step of the first layer."""
    found, absent = having(subjects, "Time and memory against depth", lambda measured: measured.cost)
    if not found:
        return absent
    times = [(subject, one, one.seconds, one.unrolled_seconds) for subject, one in found]
    sizes = [(subject, one, one.bytes, one.unrolled_bytes) for subject, one in found]
    return [
        _cost("time", "Time of a step against depth", "milliseconds", 1e3, duration, times),
        _cost("memory", "Memory for the gradient against depth", "MiB", 2.0**-20, memory, sizes),
        *absent,
    ]


def _cost(
    name: str,
    title: str,
    unit: str,
    scale: float,
    say: Callable[[float], str],
    found: Sequence[tuple[Subject, Cost, Sequence[float], Sequence[float | None]]],
) -> Shown:
    """One kind; ``scale`` is how many units there are in a second or byte, ``say`` writes seconds or bytes."""
    lines, readings = [], []
    for subject, one, ours, unrolled in found:
        label, depths = subject.label or "this layer", list(map(float, one.depths))
        lines.append(Line(label, depths, [scale * each for each in ours], subject.look, STRONG))
        if not subject.label:
            scaled = [None if each is None else scale * each for each in unrolled]
            lines.append(Line("unrolled under autograd", depths, scaled, 1))
        readings.append(_cheaper(label, one.depths, ours, unrolled, say))
    subject, one, *_ = found[0]
    how = (
        f"One training step of the first layer, median of {counted(one.repeats, 'repeat')} on "
        f"{subject.measured.machine}. Both axes are logarithmic."
    )
    plot = Plot(lines, "depth k, hops", unit, log_x=True, log_y=True)
    return plotted(name, title, plot, "\n".join(readings), how, "depths")


def _cheaper(
    label: str,
    depths: Sequence[int],
    ours: Sequence[float],
    unrolled: Sequence[float | None],
    say: Callable[[float], str],
) -> str:
    """At the greatest depth at which both were measured."""
    rows = zip(depths, ours, unrolled, strict=True)
    both = [(depth, one, other) for depth, one, other in rows if other is not None]
    if not both:
        return f"{sentence(label)} takes {say(ours[-1])} at depth {depths[-1]}."
    depth, one, other = both[-1]
    ratio = f", {other / one:.1f} times as much" if one > 0 else ""
    return (
        f"At depth {depth} {label} takes {say(one)}; the same recursion unrolled under autograd takes "
        f"{say(other)}{ratio}."
    )
