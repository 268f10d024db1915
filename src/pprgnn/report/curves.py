"""How training went: loss, metric, learning rate, weights, and how deep each layer looked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pprgnn.drawing.plot import STRONG, THIN, Line, Place, Plot
from pprgnn.report.shown import Shown, plotted
from pprgnn.report.subject import Subject
from pprgnn.wording import counted, known, listed, number, of, percent, sentence

EPOCH, EPOCHS = "epoch", "epochs"
SHOWN_LAYERS = 6
CHOOSER = "Of the part that chose the epoch."
Read = Callable[[Mapping[str, Any]], float | None]


def training_curves(subjects: Sequence[Subject]) -> list[Shown]:
    """Loss, metric and learning rate over epochs, of one run or of several."""
    if not any(subject.records for subject in subjects):
        return [Shown("curves", "Over epochs", missing="No epochs were kept: this system is fitted in one step.")]
    return [_loss(subjects), _metric(subjects), _rate(subjects)]


def weight_curves(subjects: Sequence[Subject]) -> list[Shown]:
    """‖W‖₂ and, where they were learned, the rates of decay over epochs."""
    if not any(subject.records for subject in subjects):
        return []
    return [_weights(subjects), *_rates_of_decay(subjects)]


def _line(name: str, subject: Subject, read: Read, look: int, width: float = THIN) -> Line:
    """The epochs that have a value, and the values."""
    pairs = [(float(record["epoch"]), read(record)) for record in subject.records]
    points = [(x, y) for x, y in pairs if y is not None]
    return Line(name, [x for x, _ in points], [y for _, y in points], look, width)


def _at(*path: str | int) -> Read:
    """Reads what stands there in the record of an epoch, if anything does."""

    def read(record: Mapping[str, Any]) -> float | None:
        found: Any = record
        try:
            for key in path:
                found = found[key]
        except (KeyError, IndexError, TypeError):
            return None
        value: float | None = found
        return value

    return read


def _parts(subjects: Sequence[Subject], train: Read, val: Read) -> list[Line]:
    """Training and validation of one run; of several, the part that chose the epoch alone."""
    if len(subjects) > 1:
        lines = [_line(each.name, each, val, each.look, STRONG) for each in subjects]
    else:
        (one,) = subjects
        chooser = "test" if one.optimistic else "validation"
        lines = [_line("training", one, train, 1), _line(chooser, one, val, 0, STRONG)]
    return [line for line in lines if line.x]


def _best(subjects: Sequence[Subject], below: bool) -> list[Place]:
    if len(subjects) > 1:
        return []
    epoch = subjects[0].detail["best_epoch"]
    return [Place(f"kept: epoch {epoch}", x=float(epoch), below=below)]


def _loss(subjects: Sequence[Subject]) -> Shown:
    lines = _parts(subjects, _at("loss"), _at("val", "loss"))
    plot = Plot(lines, EPOCH, "loss", _best(subjects, below=False), log_y=None)
    if len(subjects) > 1:
        reading, how = "\n".join(of(line.name, _fall(line)) for line in lines), CHOOSER
    else:
        reading = " ".join(f"The {line.name} loss {_fall(line)}" for line in lines)
        how = "Validation rising while training still falls is over-fitting; the kept epoch has the weights."
    return plotted("loss", "Loss", plot, reading or "No loss was kept.", how, EPOCHS)


def _fall(line: Line) -> str:
    finite = [(x, y) for x, y in zip(line.x, line.y, strict=True) if known(y)]
    if not finite:
        return "was never finite."
    epoch, lowest = min(finite, key=lambda pair: pair[1])
    first, last = number(finite[0][1]), number(finite[-1][1])
    return f"went from {first} to {last}, and was lowest in epoch {epoch:.0f} ({number(lowest)})."


def _metric(subjects: Sequence[Subject]) -> Shown:
    metric = subjects[0].metric
    lines = _parts(subjects, _at("train", metric), _at("val", metric))
    plot = Plot(lines, EPOCH, f"{metric}, percent", _best(subjects, below=True), share=True)
    reading = "\n".join(of(subject.label, _chosen(subject)) for subject in subjects)
    how = "Training is scored with dropout on, so it may lie below validation."
    return plotted("metric", sentence(metric), plot, reading, CHOOSER if len(subjects) > 1 else how, EPOCHS)


def _chosen(subject: Subject) -> str:
    best = subject.detail["best_epoch"]
    if not subject.chose:
        return f"the last of {counted(best, 'epoch')} counts."
    record = next((each for each in subject.records if each["epoch"] == best), {})
    value = _at("val", subject.metric)(record)
    who = "the test part" if subject.optimistic else "validation"
    by = "lowest loss" if subject.config.training.monitor == "loss" else f"best {subject.metric}"
    at = "" if value is None else f", at {percent(value)}"
    return f"epoch {best} of {subject.detail['epochs']} was kept{at}; {who} chose it by its {by}."


def _rate(subjects: Sequence[Subject]) -> Shown:
    lines = [_line(each.name, each, _at("lr"), each.look) for each in subjects]
    values = [value for line in lines for value in line.y if known(value)]
    if not values:
        return Shown("rate", "Learning rate", missing="No learning rate was kept.")
    plot = Plot(lines, EPOCH, "learning rate", log_y=None, from_zero=True)
    low, high = min(values), max(values)
    stayed = math.isclose(low, high)
    reading = f"It stayed at {number(high)}." if stayed else f"It lay between {number(low)} and {number(high)}."
    how = "Of the schedule in the settings; W has its own part of it (recursion_lr)."
    return plotted("rate", "Learning rate", plot, reading, how, EPOCHS)


# -------------------------------------------------------------------------------------------------------- by layer
def _by_layer(subjects: Sequence[Subject], key: str) -> list[Line]:
    """A line per layer; in a comparison, of each run the layers in its colour."""
    lines = []
    for subject in subjects:
        count = max((len(record.get(key) or ()) for record in subject.records), default=0)
        for layer in range(min(count, SHOWN_LAYERS)):
            which = [f"layer {layer + 1}"] if count > 1 or not subject.label else []
            name = ", ".join([subject.label, *which] if subject.label else which)
            look = subject.look if subject.label else layer
            lines.append(_line(name, subject, _at(key, layer), look))
    return lines


def _ends(lines: Sequence[Line]) -> str:
    return listed([f"{number(line.y[0])} to {number(line.y[-1])} in {line.name}" for line in lines])


def _weights(subjects: Sequence[Subject]) -> Shown:
    lines, title = _by_layer(subjects, "weight_norm"), "‖W‖₂ of each layer"
    if not lines:
        infinite = any(subject.detail["layers"] for subject in subjects)
        reason = (
            "The run was made before ‖W‖₂ was kept for every epoch; the final one is in the table of layers."
            if infinite
            else "This system has no layer of infinite depth, so there is no W of a recursion."
        )
        return Shown("weights", title, missing=reason)
    plot = Plot(lines, EPOCH, "largest singular value of W", [Place("", y=1.0)])
    how = (
        "Above 1 the state may grow over the first hops before βₙ wins; a recursion without decay is only sure to "
        "converge below 1."
    )
    return plotted("weights", title, plot, f"It went from {_ends(lines)}.", how, EPOCHS)


def _rates_of_decay(subjects: Sequence[Subject]) -> list[Shown]:
    """Only where it was learned: a line that stays where it is tells nothing."""
    lines = [line for line in _by_layer(subjects, "eps") if len(set(line.y)) > 1]
    if not lines:
        return []
    plot = Plot(lines, EPOCH, "ε of the slowest channel", log_y=None)
    how = "Smaller means further: a message keeps more of itself on each hop."
    return [plotted("eps", "Decay rate ε", plot, f"ε was learned: from {_ends(lines)}.", how, EPOCHS)]


def depth_over_epochs(subjects: Sequence[Subject]) -> Shown:
    """How many hops each layer looked, in every epoch."""
    lines, title = _by_layer(subjects, "depth"), "Depth of each layer over epochs"
    if not lines:
        reason = "This system has no layer of infinite depth; it looks as many hops as it has layers."
        return Shown("depth", title, missing=reason)
    tolerances = sorted({subject.config.training.tol for subject in subjects})
    plot = Plot(lines, EPOCH, "hops", log_y=None, from_zero=True, whole=True)
    reading = "\n".join(of(each.label, _looked(each)) for each in subjects if each.detail["layers"])
    how = (
        f"The depth is found anew as the weights change, at the tolerance of training "
        f"({listed([number(each) for each in tolerances])}); the scores are computed at a finer one."
    )
    return plotted("depth", title, plot, reading, how, EPOCHS)


def _looked(subject: Subject) -> str:
    depths = [depth for record in subject.records for depth in record.get("depth") or ()]
    final = [str(layer["depth"]) for layer in subject.detail["layers"]]
    between = f"{counted(max(depths), 'hop')} in training, " if depths else ""
    if depths and min(depths) < max(depths):
        between = f"{min(depths)} to {between}"
    return f"{between}{listed(final)} for the scores."
