"""How training went: loss, metric, learning rate, weights, and how deep each layer looked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pprgnn.report.plot import Line, Place, Plot, spans_decades
from pprgnn.report.shown import Shown
from pprgnn.report.subject import Records, Subject
from pprgnn.report.wording import counted, known, listed, number, of, percent, sentence

EPOCH = "epoch"
SHOWN_LAYERS = 6
Read = Callable[[Mapping[str, Any]], float | None]


def training_curves(subjects: Sequence[Subject]) -> list[Shown]:
    """Loss, metric, learning rate and ‖W‖₂ over epochs, of one run or of several."""
    if not any(subject.records for subject in subjects):
        return [Shown("curves", "Over epochs", missing="No epochs were kept: this system is fitted in one step.")]
    return [_loss(subjects), _metric(subjects), _rate(subjects), *_weights(subjects), *_rates_of_decay(subjects)]


def _series(records: Records, read: Read) -> tuple[list[float], list[float | None]]:
    """Epochs that have a value, and the values."""
    pairs = [(float(record["epoch"]), read(record)) for record in records]
    return [x for x, y in pairs if y is not None], [y for _, y in pairs if y is not None]


def _line(name: str, records: Records, read: Read, look: int, **more: Any) -> Line:
    x, y = _series(records, read)
    return Line(name, x, y, look, **more)


def _val(record: Mapping[str, Any], name: str) -> float | None:
    return (record.get("val") or {}).get(name)


def _parts(subjects: Sequence[Subject], train: Read, val: Read) -> list[Line]:
    """Training and validation of one run; of several, the part that chose the epoch alone."""
    if len(subjects) > 1:
        lines = [_line(each.name, each.records, val, each.look, strong=True) for each in subjects]
    else:
        (one,) = subjects
        chooser = "test" if one.optimistic else "validation"
        lines = [
            _line("training", one.records, train, 1),
            _line(chooser, one.records, val, 0, strong=True),
        ]
    return [line for line in lines if line.x]


def _best(subjects: Sequence[Subject], below: bool) -> list[Place]:
    if len(subjects) > 1:
        return []
    epoch = subjects[0].detail["best_epoch"]
    return [Place(f"kept: epoch {epoch}", x=float(epoch), below=below)]


def _loss(subjects: Sequence[Subject]) -> Shown:
    lines = _parts(subjects, lambda record: record.get("loss"), lambda record: _val(record, "loss"))
    values = [value for line in lines for value in line.y]
    plot = Plot(lines, EPOCH, "loss", _best(subjects, below=False), log_y=spans_decades(values))
    several = len(subjects) > 1
    said = [of(line.name, _fall(line)) if several else f"The {line.name} loss {_fall(line)}" for line in lines]
    reading = ("\n" if several else " ").join(said) or "No loss was kept."
    how = (
        "Of the part that chose the epoch."
        if several
        else "Validation rising while training still falls is over-fitting; the kept epoch has the weights."
    )
    return Shown("loss", "Loss", plot.svg("loss", reading), reading, how, plot.table("epochs"))


def _fall(line: Line) -> str:
    finite = [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None and math.isfinite(y)]
    if not finite:
        return "was never finite."
    low = min(finite, key=lambda pair: pair[1])
    return (
        f"went from {number(finite[0][1])} to {number(finite[-1][1])}, and was lowest in epoch {low[0]:.0f} "
        f"({number(low[1])})."
    )


def _metric(subjects: Sequence[Subject]) -> Shown:
    metric = subjects[0].metric
    lines = _parts(
        subjects, lambda record: (record.get("train") or {}).get(metric), lambda record: _val(record, metric)
    )
    plot = Plot(lines, EPOCH, f"{metric}, percent", _best(subjects, below=True), share=True)
    several = len(subjects) > 1
    reading = "\n".join(of(subject.name if several else "", _chosen(subject)) for subject in subjects)
    how = "Training is scored with dropout on, so it may lie below validation."
    how = "Of the part that chose the epoch." if several else how
    title = sentence(metric)
    return Shown("metric", title, plot.svg("metric", reading or title), reading, how, plot.table("epochs"))


def _chosen(subject: Subject) -> str:
    best = subject.detail["best_epoch"]
    record = next((each for each in subject.records if each["epoch"] == best), None)
    value = None if record is None else _val(record, subject.metric)
    if not subject.chose:
        return f"the last of {counted(best, 'epoch')} counts."
    who = "the test part" if subject.optimistic else "validation"
    by = "lowest loss" if subject.config.training.monitor == "loss" else f"best {subject.metric}"
    at = "" if value is None else f", at {percent(value)}"
    return f"epoch {best} of {subject.detail['epochs']} was kept{at}; {who} chose it by its {by}."


def _rate(subjects: Sequence[Subject]) -> Shown:
    lines = [_line(each.name, each.records, lambda record: record.get("lr"), each.look) for each in subjects]
    values = [value for line in lines for value in line.y if known(value)]
    if not values:
        return Shown("rate", "Learning rate", missing="No learning rate was kept.")
    plot = Plot(lines, EPOCH, "learning rate", log_y=spans_decades(values), from_zero=not spans_decades(values))
    low, high = min(values), max(values)  # type: ignore[type-var]
    reading = (
        f"It stayed at {number(high)}."
        if math.isclose(low, high)  # type: ignore[arg-type]
        else f"It lay between {number(low)} and {number(high)}."
    )
    how = "Of the schedule in the settings; W has its own part of it (recursion_lr)."
    return Shown("rate", "Learning rate", plot.svg("rate", reading), reading, how, plot.table("epochs"))


# -------------------------------------------------------------------------------------------------------- by layer
def _by_layer(subjects: Sequence[Subject], key: str) -> list[Line]:
    """A line per layer; in a comparison, of each run the layers in its colour."""
    lines = []
    for subject in subjects:
        count = max((len(record.get(key) or ()) for record in subject.records), default=0)
        for layer in range(min(count, SHOWN_LAYERS)):
            name = f"layer {layer + 1}" if len(subjects) == 1 else subject.name
            if len(subjects) > 1 and count > 1:
                name += f", layer {layer + 1}"
            look = layer if len(subjects) == 1 else subject.look
            x, y = _series(subject.records, lambda record, layer=layer: _item(record.get(key), layer))  # type: ignore[misc]
            lines.append(Line(name, x, y, look))
    return lines


def _item(values: Sequence[float] | None, place: int) -> float | None:
    return values[place] if values is not None and place < len(values) else None


def _weights(subjects: Sequence[Subject]) -> list[Shown]:
    lines = _by_layer(subjects, "weight_norm")
    title = "‖W‖₂ of each layer"
    if not lines:
        infinite = any(subject.detail["layers"] for subject in subjects)
        reason = (
            "The run was made before ‖W‖₂ was kept for every epoch; the final one is in the table of layers."
            if infinite
            else "This system has no layer of infinite depth, so there is no W of a recursion."
        )
        return [Shown("weights", title, missing=reason)]
    plot = Plot(lines, EPOCH, "largest singular value of W", [Place("", y=1.0)])
    ends = [f"{number(line.y[0])} to {number(line.y[-1])} in {line.name}" for line in lines]
    reading = f"It went from {listed(ends)}."
    how = (
        "Above 1 the state may grow over the first hops before βₙ wins; a recursion without decay is only sure to "
        "converge below 1."
    )
    return [Shown("weights", title, plot.svg("weights", reading), reading, how, plot.table("epochs"))]


def _rates_of_decay(subjects: Sequence[Subject]) -> list[Shown]:
    """Only where it was learned: a line that stays where it is tells nothing."""
    lines = [line for line in _by_layer(subjects, "eps") if len(set(line.y)) > 1]
    if not lines:
        return []
    plot = Plot(
        lines, EPOCH, "ε of the slowest channel", log_y=spans_decades([y for line in lines for y in line.y])
    )
    ends = [f"{number(line.y[0])} to {number(line.y[-1])} in {line.name}" for line in lines]
    reading = f"ε was learned: from {listed(ends)}."
    how = "Smaller means further: a message keeps more of itself on each hop."
    return [Shown("eps", "Decay rate ε", plot.svg("eps", reading), reading, how, plot.table("epochs"))]


def depth_over_epochs(subjects: Sequence[Subject]) -> Shown:
    """How many hops each layer looked, in every epoch."""
    lines, title = _by_layer(subjects, "depth"), "Depth of each layer over epochs"
    if not lines:
        reason = "This system has no layer of infinite depth; it looks as many hops as it has layers."
        return Shown("depth", title, missing=reason)
    tolerances = sorted({subject.config.training.tol for subject in subjects})
    values = [value for line in lines for value in line.y if value is not None]
    plot = Plot(lines, EPOCH, "hops", log_y=spans_decades(values), from_zero=not spans_decades(values), whole=True)
    deep = [subject for subject in subjects if subject.detail["layers"]]
    reading = "\n".join(of(each.name if len(subjects) > 1 else "", _looked(each)) for each in deep)
    how = (
        f"The depth is found anew as the weights change, at the tolerance of training "
        f"({listed([number(each) for each in tolerances])}); the scores are computed at a finer one."
    )
    return Shown("depth", title, plot.svg("depth", reading), reading, how, plot.table("epochs"))


def _looked(subject: Subject) -> str:
    depths = [depth for record in subject.records for depth in record.get("depth") or ()]
    final = [str(layer["depth"]) for layer in subject.detail["layers"]]
    between = f"{counted(max(depths), 'hop')} in training, " if depths else ""
    if depths and min(depths) < max(depths):
        between = f"{min(depths)} to {between}"
    return f"{between}{listed(final)} for the scores."
