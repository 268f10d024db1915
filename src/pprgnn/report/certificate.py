"""What is known about a solve: its error beside the proof of it, and what a gradient of few terms leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from pprgnn.report.absent import missing_shown, reasons
from pprgnn.report.measured.results import Convergence, Missing, Truncation
from pprgnn.report.plot import DOTTED, Line, Place, Plot
from pprgnn.report.shown import Shown
from pprgnn.report.subject import Subject
from pprgnn.report.wording import counted, number, part, percent, small

FLOOR = 1e-12
TITLE = "Error against depth, and what is proved"


# ------------------------------------------------------------------------------------------------- the certificate
def convergence(subjects: Sequence[Subject]) -> list[Shown]:
    """The signature of the method: the error of a depth, and the proof above it."""
    found: list[tuple[Subject, list[Convergence]]] = [
        (each, each.measured.convergence)
        for each in subjects
        if not isinstance(each.measured.convergence, Missing) and each.measured.convergence
    ]
    missing = reasons(subjects, "convergence")
    if not found:
        return [missing_shown("convergence", TITLE, missing)]
    if len(subjects) > 1:
        return [_compared(found), *([missing_shown("no-convergence", TITLE, missing)] if missing else [])]
    ((_, layers),) = found
    return [_one(layer, place, len(layers)) for place, layer in enumerate(layers)]


def _one(layer: Convergence, place: int, count: int) -> Shown:
    name, wide = f"convergence-{place + 1}", count == 1
    title = TITLE + ("" if wide else f": {layer.layer}")
    depths = [float(depth) for depth in layer.depths]
    lines = [
        Line("measured error", depths, layer.errors, 0, strong=True, marked=len(depths) <= 40),
        Line("certificate (proved)", depths, _useful(layer.certificate), 1, marked=False),
        Line("the paper's estimate (no bound)", depths, layer.influence, 2, dash=DOTTED, marked=False),
    ]
    at = _at(layer, layer.errors)
    places = [
        Place(f"tolerance {number(layer.tol)}", y=layer.tol),
        Place(f"chosen: depth {layer.chosen}", x=float(layer.chosen), y=at if at else None),
    ]
    floor = max(FLOOR, layer.rounding / 10)
    plot = Plot(
        lines,
        "depth k, hops",
        "error relative to ‖B‖",
        places,
        log_y=True,
        floor=floor,
        until=_seen_until(layer, floor),
    )
    reading = _reading(layer)
    how = (
        "A depth is good enough once the solid line is below the tolerance, and known to be so once the dashed "
        f"one is. Below {number(layer.rounding)} there is nothing but rounding."
    )
    drawn = plot.both(name, reading) if wide else {"svg": plot.svg(name, reading)}
    return Shown(name, title, reading=reading, how=how, table=plot.table("depths"), **drawn)


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
    place = dict(zip(layer.depths, values, strict=True))
    return place.get(layer.chosen)


def _reading(layer: Convergence) -> str:
    error, proved = _at(layer, layer.errors), _at(layer, layer.certificate)
    text = f"Depth {layer.chosen} was chosen"
    if error is None:
        return f"{text}; it lies beyond the depths that were measured."
    seen = "only rounding is left" if error <= layer.rounding else f"its measured error is {small(error)}"
    if proved is not None and proved < 1:
        return f"{text}; {seen}, and {small(proved)} is proved by the product of the step bounds alone."
    return f"{text}; {seen}; the product of the step bounds proves nothing there yet."


def _compared(found: Sequence[tuple[Subject, Sequence[Convergence]]]) -> Shown:
    lines, readings = [], []
    for subject, layers in found:
        layer = layers[0]
        depths = [float(depth) for depth in layer.depths]
        lines += [
            Line(subject.name, depths, layer.errors, subject.look, strong=True, marked=False),
            Line(
                f"{subject.name}, proved",
                depths,
                _useful(layer.certificate),
                subject.look,
                dash=DOTTED,
                marked=False,
            ),
        ]
        readings.append(f"{subject.name}: {_reading(layer)}")
    plot = Plot(lines, "depth k, hops", "error relative to ‖B‖", log_y=True, floor=FLOOR)
    reading = "\n".join(readings)
    how = "First layer of each run: the measured error, and above it, dotted, the certificate."
    drawn = plot.both("convergence", reading)
    return Shown("convergence", TITLE, reading=reading, how=how, table=plot.table("depths"), **drawn)


# ------------------------------------------------------------------------------------------------------ truncation
def truncation(subjects: Sequence[Subject]) -> list[Shown]:
    """What a gradient of few terms leaves out; of each run in a comparison, in its first layer."""
    title, several, shown = "Error of a gradient of few terms", len(subjects) > 1, []
    for subject in subjects:
        layers = subject.measured.truncation
        if isinstance(layers, Missing) or not layers:
            continue
        for place, layer in enumerate(layers[:1] if several else layers):
            what = f": {subject.name}" if several else f": {layer.layer}" if len(layers) > 1 else ""
            shown.append(_truncated(layer, f"truncation-{subject.look + 1}-{place + 1}", title + what))
    missing = reasons(subjects, "truncation")
    return [*shown, missing_shown("truncation", title, missing)] if missing or not shown else shown


def _truncated(layer: Truncation, name: str, title: str) -> Shown:
    terms = [float(term) for term in layer.terms]
    lines = [
        Line("of B", terms, layer.error_b, 0, strong=True),
        Line("of W", terms, layer.error_weight, 1),
        Line("bound for B (proved)", terms, _useful(layer.bound), 2, dash=DOTTED, marked=False),
    ]
    places = [] if layer.used is None else [Place(f"used: {layer.used}", x=float(layer.used))]
    plot = Plot(lines, "terms N", "error relative to all terms", places, log_y=True, floor=1e-9)
    at = dict(zip(layer.terms, zip(layer.error_b, layer.error_weight, layer.bound, strict=True), strict=True))
    if layer.used is None:
        reading = "All terms trained this model, so nothing was left out."
    elif layer.used not in at:
        reading = f"{counted(layer.used, 'term')} trained this model, which is beyond those that were measured."
    else:
        b, weight, bound = at[layer.used]
        useful = bound is not None and bound < 1
        proved = f"at most {percent(bound)} is proved for B" if useful else "there is no useful bound for B"
        reading = (
            f"{counted(layer.used, 'term')} trained this model: {part(b)} of the gradient of B and "
            f"{part(weight)} of that of W were left out; {proved}."
        )
    how = "Each further term follows the gradient one hop further back; memory grows with their number."
    return Shown(name, title, plot.svg(name, reading), reading, how, plot.table("terms"))
