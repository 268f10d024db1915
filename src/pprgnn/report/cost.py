"""Time and memory of a training step against depth, beside plain automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pprgnn.report.absent import missing_shown, reasons
from pprgnn.report.measured.results import Cost, Missing
from pprgnn.report.plot import Line, Plot
from pprgnn.report.shown import Shown
from pprgnn.report.subject import Subject
from pprgnn.report.wording import counted, duration, memory, sentence


@dataclass(frozen=True)
class Kind:
    """What is counted, and how it is written."""

    name: str
    title: str
    unit: str
    scale: float  # units in one second or byte
    say: Callable[[float], str]
    ours: str
    unrolled: str


KINDS = (
    Kind("time", "Time of a step against depth", "milliseconds", 1e3, duration, "seconds", "unrolled_seconds"),
    Kind("memory", "Memory for the gradient against depth", "MiB", 2.0**-20, memory, "bytes", "unrolled_bytes"),
)


def cost(subjects: Sequence[Subject]) -> list[Shown]:
    """Time and memory of a training step of the first layer."""
    found = [(each, each.measured.cost) for each in subjects if not isinstance(each.measured.cost, Missing)]
    missing = reasons(subjects, "cost")
    shown = [_one(kind, found, len(subjects) > 1) for kind in KINDS] if found else []
    return [*shown, missing_shown("cost", "Time and memory against depth", missing)] if missing else shown


def _one(kind: Kind, found: Sequence[tuple[Subject, Cost]], several: bool) -> Shown:
    lines, readings = [], []
    for subject, one in found:
        label, depths = subject.name if several else "this layer", [float(depth) for depth in one.depths]
        ours, unrolled = getattr(one, kind.ours), getattr(one, kind.unrolled)
        lines.append(Line(label, depths, [kind.scale * each for each in ours], subject.look, strong=True))
        if not several:
            scaled = [None if each is None else kind.scale * each for each in unrolled]
            lines.append(Line("unrolled under autograd", depths, scaled, 1))
        readings.append(_cheaper(label, one.depths, ours, unrolled, kind.say))
    how = (
        f"One training step of the first layer, median of {counted(found[0][1].repeats, 'repeat')} on "
        f"{found[0][0].measured.machine}. Both axes are logarithmic."
    )
    plot, reading = Plot(lines, "depth k, hops", kind.unit, log_x=True, log_y=True), "\n".join(readings)
    return Shown(kind.name, kind.title, plot.svg(kind.name, reading), reading, how, plot.table("depths"))


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
