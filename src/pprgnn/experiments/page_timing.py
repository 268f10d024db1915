"""The section of the page on time: what ours and IGNN take to a score that both of them reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pprgnn.experiments import paper
from pprgnn.experiments.experiment import OURS
from pprgnn.experiments.figures import Pictures
from pprgnn.experiments.store import Line
from pprgnn.experiments.summary import Entry, Results
from pprgnn.experiments.tables import FAILED, NOT_RUN, NOTHING, failures, table, title
from pprgnn.experiments.timing import CASES, REFERENCE

Curve = Sequence[Mapping[str, Any]]  # epoch, seconds of that epoch, validation score or None


@dataclass(frozen=True)
class Pace:
    """So many epochs, and the seconds that they took in all."""

    epochs: int
    seconds: float

    @property
    def per_epoch(self) -> float:
        """The mean."""
        return self.seconds / self.epochs


def best_epoch(curve: Curve) -> tuple[int, float] | None:
    """The first epoch with the best validation score, and that score in percent."""
    scores = [(each["epoch"], 100 * each["val"]) for each in curve if each["val"] is not None]
    return max(scores, key=lambda pair: (pair[1], -pair[0]), default=None)


def shared_level(*curves: Curve) -> float | None:
    """The highest validation score, in percent, that all of them reach; ``None``: some have no score."""
    best = [best_epoch(curve) for curve in curves]
    return min(each[1] for each in best if each) if all(best) else None


def until(curve: Curve, score: float | None) -> Pace | None:
    """What it takes until the validation score, in percent, is at least this one; ``None``: it never is."""
    seconds = 0.0
    for each in curve:
        seconds += each["seconds"]
        if score is not None and each["val"] is not None and 100 * each["val"] >= score:
            return Pace(each["epoch"], seconds)
    return None


def seconds_per_epoch(curve: Curve) -> float:
    """The median without the first, in which everything warms up."""
    return float(median(each["seconds"] for each in (curve[1:] or curve)))


def implementation_ratio(direct: Curve, ours: Curve) -> float | None:
    """How much slower the direct one is in the very same epochs: later solves may be deeper."""
    both = {each["epoch"] for each in direct} & {each["epoch"] for each in ours}
    same = [[each for each in curve if each["epoch"] in both] for curve in (direct, ours)]
    return seconds_per_epoch(same[0]) / seconds_per_epoch(same[1]) if both else None


def timing(results: Results, _: Pictures) -> list[str]:
    """A table and the ratios for each case; seeds are cases of their own."""
    about = (
        "*Minutes* and *epochs* until the validation score is what both reach: the lower of the two best ones. Of "
        "the direct one, the time is that on our core times the ratio in the epochs that both have run. "
        "The paper counts until ours is better than the best of IGNN; its values were measured on a P100."
    )
    blocks = [about]
    for case in CASES:
        at = {"case": case}
        data = next(group.data for group in results.groups if f'"{case}"' in group.place)
        trio = [
            results.entry(data, system, variant, at=at)
            for system, variant in ((OURS, ""), ("ignn", ""), ("ignn", REFERENCE))
        ]
        seeds = sorted({line["seed"] for entry in trio for line in entry.lines}) or [0]
        for seed in seeds:
            stand_in, which = "" if data == case else f" (here {data})", f", seed {seed}" if seed else ""
            lines, elsewhere = on_one_machine([_line(entry, seed) for entry in trio])
            blocks += [f"### {case}{stand_in}{which}", *_case(case, *lines), elsewhere]
    return [*blocks, failures(results)]


def _line(entry: Entry, seed: int) -> Line | None:
    return next((line for line in entry.lines if line["seed"] == seed), None)


def on_one_machine(lines: Sequence[Line | None]) -> tuple[list[Line | None], str]:
    """Those of the processor that has most of them, the newest of equals; and what was left out, in a sentence."""
    there = [line for line in lines if line is not None]
    of_each = {line["cpu"]: [each for each in there if each["cpu"] == line["cpu"]] for line in there}
    ranks = {cpu: (len(own), max(line["date"] for line in own)) for cpu, own in of_each.items()}
    best = max(ranks, key=lambda cpu: ranks[cpu], default="")
    others = [cpu for cpu in of_each if cpu != best]
    left_out = f"Measured on {best}; left out, because times of two machines do not compare: {', '.join(others)}."
    kept = [line if line is not None and line["cpu"] == best else None for line in lines]
    return kept, left_out if others else f"Measured on {best}." if best else ""


def _case(case: str, ours: Line | None, ignn: Line | None, direct: Line | None) -> list[str]:
    level = shared_level(_curve(ours), _curve(ignn))
    mine, theirs = until(_curve(ours), level), until(_curve(ignn), level)
    slower = implementation_ratio(_curve(direct), _curve(ignn))
    reference = Pace(theirs.epochs, theirs.seconds * slower) if theirs and slower else None
    known = paper.TIMING[case]
    rows = [
        [title(OURS), *_measured(ours, mine), *_known(known[OURS])],
        ["IGNN, on our core", *_measured(ignn, theirs), *_known(known["ignn"])],
        ["IGNN, direct (calculated)", *_measured(direct, reference), *[NOTHING] * 3],
    ]
    columns = ("epochs", "seconds per epoch", "minutes")
    return [
        table(["", *columns, *(f"paper: {each}" for each in columns)], rows),
        _remarks(level, _curve(ours), _curve(ignn), _curve(direct)),
        _ratios(mine, theirs, reference, known),
    ]


def _remarks(level: float | None, ours: Curve, ignn: Curve, direct: Curve) -> str:
    """What score was to be reached, whose best is higher, and what was measured of the direct one."""
    notes = []
    if level is not None:
        best = [
            f"{name} {each[1]:.2f} in epoch {each[0]} of {curve[-1]['epoch']}"
            for name, curve in (("ours", ours), ("IGNN", ignn))
            if (each := best_epoch(curve))
        ]
        notes.append(f"Best validation scores: {', '.join(best)}; both reach {level:.2f}.")
    if direct:
        notes.append(
            f"Measured of the direct one: {seconds_per_epoch(direct):.2f} s in epoch {direct[-1]['epoch']}."
        )
    return " ".join(notes)


def _ratios(
    ours: Pace | None, ignn: Pace | None, direct: Pace | None, known: Mapping[str, tuple[int, float, int]]
) -> str:
    """How much of the time the method saves, and how much the implementation."""
    published = [Pace(epochs, epochs * seconds) for epochs, seconds, _ in (known["ignn"], known[OURS])]
    words = {
        "seconds": "method: IGNN on our core / ours",
        "epochs": "– in epochs",
        "per_epoch": "– in time per epoch",
    }
    rows = [[word, _ratio(name, ignn, ours), _ratio(name, *published)] for name, word in words.items()]
    rows.append(["implementation: IGNN direct / on our core", _ratio("seconds", direct, ignn), NOTHING])
    rows.append(["both: IGNN direct / ours", _ratio("seconds", direct, ours), NOTHING])
    return table(["ratio of times", "here", "paper"], rows)


def _ratio(name: str, above: Pace | None, below: Pace | None) -> str:
    return f"{getattr(above, name) / getattr(below, name):.1f} ×" if above and below else NOTHING


def _curve(line: Line | None) -> Curve:
    return (line or {}).get("curve") or []


def _measured(line: Line | None, pace: Pace | None) -> list[str]:
    """Epochs, seconds per epoch and minutes, as far as they are known."""
    if line is None or not _curve(line):
        return [NOT_RUN if line is None else FAILED, NOTHING, NOTHING]
    if pace is None:
        return [NOTHING, f"{seconds_per_epoch(_curve(line)):.2f}", NOTHING]
    return [str(pace.epochs), f"{pace.per_epoch:.2f}", f"{pace.seconds / 60:.{1 if pace.seconds > 60 else 2}f}"]


def _known(values: tuple[int, float, int]) -> list[str]:
    return [f"{each:g}" for each in values]
