"""The section of the page on time: when ours is better than IGNN ever gets, and what that took."""

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
    """So many epochs of so many seconds."""

    epochs: int
    per_epoch: float

    @property
    def seconds(self) -> float:
        """In all."""
        return self.epochs * self.per_epoch


def best_epoch(curve: Curve) -> tuple[int, float] | None:
    """The first epoch with the best validation score, and that score in percent."""
    scores = [(each["epoch"], 100 * each["val"]) for each in curve if each["val"] is not None]
    return max(scores, key=lambda pair: (pair[1], -pair[0]), default=None)


def first_above(curve: Curve, score: float) -> int | None:
    """The first epoch whose validation score, in percent, is higher; None: it never is."""
    return next((each["epoch"] for each in curve if each["val"] is not None and 100 * each["val"] > score), None)


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
        "*Epochs*: of IGNN, until its best validation score; of ours, until it is better than that. *Seconds per "
        "epoch*: the median without the first epoch, with validation. *Minutes*: their product. Of the direct "
        "one, the time per epoch is that on our core times the ratio of the two in the epochs that both have run. "
        "The paper's values were measured on a P100."
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
            blocks += [f"### {case}{stand_in}{which}", *_case(case, *(_line(entry, seed) for entry in trio))]
    return [*blocks, failures(results)]


def _line(entry: Entry, seed: int) -> Line | None:
    return next((line for line in entry.lines if line["seed"] == seed), None)


def _case(case: str, ours: Line | None, ignn: Line | None, direct: Line | None) -> list[str]:
    best = best_epoch(_curve(ignn))
    passed = first_above(_curve(ours), best[1]) if best else None
    mine, theirs = _pace(ours, passed), _pace(ignn, best and best[0])
    slower = implementation_ratio(_curve(direct), _curve(ignn))
    reference = Pace(theirs.epochs, theirs.per_epoch * slower) if theirs and slower else None
    known = paper.TIMING[case]
    rows = [
        [title(OURS), *_measured(ours, mine, "never" if best else NOTHING), *_known(known[OURS])],
        ["IGNN, on our core", *_measured(ignn, theirs), *_known(known["ignn"])],
        ["IGNN, direct (calculated)", *_measured(direct, reference), *[NOTHING] * 3],
    ]
    columns = ("epochs", "seconds per epoch", "minutes")
    return [
        table(["", *columns, *(f"paper: {each}" for each in columns)], rows),
        _remarks(_curve(ours), _curve(ignn), _curve(direct)),
        _ratios(mine, theirs, reference, known),
    ]


def _remarks(ours: Curve, ignn: Curve, direct: Curve) -> str:
    """What there is to pass, whether ours does, and what was measured of the direct one."""
    best, own_best = best_epoch(ignn), best_epoch(ours)
    if best is None:
        return ""
    last = ignn[-1]["epoch"]
    notes = [f"IGNN's best validation score is {best[1]:.1f}, in epoch {best[0]} of {last}."]
    if best[0] == last:
        notes.append("That is its last epoch: with more of them it might have got better.")
    if own_best and first_above(ours, best[1]) is None:
        notes.append(
            f"Ours never passes it in {ours[-1]['epoch']} epochs: its best is {own_best[1]:.1f}, in epoch "
            f"{own_best[0]}."
        )
    if direct:
        notes.append(
            f"Measured of the direct one: {seconds_per_epoch(direct):.2f} s in epoch {direct[-1]['epoch']}."
        )
    return " ".join(notes)


def _ratios(
    ours: Pace | None, ignn: Pace | None, direct: Pace | None, known: Mapping[str, tuple[int, float, int]]
) -> str:
    """How much of the time the method saves, and how much the implementation."""
    published = Pace(*known["ignn"][:2]), Pace(*known[OURS][:2])
    words = {
        "seconds": "method: IGNN on our core / ours",
        "epochs": "– in epochs",
        "per_epoch": "– in time per epoch",
    }
    rows = [[word, _ratio(name, ignn, ours), _ratio(name, *published)] for name, word in words.items()]
    rows.append(["implementation: IGNN direct / on our core", _ratio("per_epoch", direct, ignn), NOTHING])
    rows.append(["both: IGNN direct / ours", _ratio("seconds", direct, ours), NOTHING])
    return table(["ratio of times", "here", "paper"], rows)


def _ratio(name: str, above: Pace | None, below: Pace | None) -> str:
    return f"{getattr(above, name) / getattr(below, name):.1f} ×" if above and below else NOTHING


def _pace(line: Line | None, epochs: int | None) -> Pace | None:
    return Pace(epochs, seconds_per_epoch(_curve(line))) if epochs and _curve(line) else None


def _curve(line: Line | None) -> Curve:
    return (line or {}).get("curve") or []


def _measured(line: Line | None, pace: Pace | None, unknown: str = NOTHING) -> list[str]:
    """Epochs, seconds per epoch and minutes, as far as they are known."""
    if line is None or not _curve(line):
        return [NOT_RUN if line is None else FAILED, NOTHING, NOTHING]
    if pace is None:
        return [unknown, f"{seconds_per_epoch(_curve(line)):.2f}", NOTHING]
    return [str(pace.epochs), f"{pace.per_epoch:.2f}", f"{pace.seconds / 60:.1f}"]


def _known(values: tuple[int, float, int]) -> list[str]:
    return [f"{each:g}" for each in values]
