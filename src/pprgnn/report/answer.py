"""The opening of the page: the result, who chose it, what to beware of; and, further down, each layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pprgnn.report.measured.results import Missing
from pprgnn.report.shown import Shown, Table
from pprgnn.report.subject import Subject
from pprgnn.report.wording import UNKNOWN, bound, counted, cut, duration, listed, number, percent, points, scored
from pprgnn.training.metrics import ACCURACY
from pprgnn.training.trivial import TRIVIAL, cautions

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


HOW = (
    "Errors are relative to what goes into the layer. ‖W‖₂ is the largest singular value of the weights, ε the "
    "rate at which a message fades."
)
NAMED = 8  # classes that are named, of many


@dataclass(frozen=True)
class Answer:
    """What one sees first of a run.

    Attributes:
        name: Of the run.
        kind: Whether it is a run or a study.
        system, data: What on what.
        score, spread: On the test part.
        metric: Which score.
        optimistic: Whether the test part chose the epoch.
        chosen: Who chose the weights, in a sentence.
        facts: Size, time, protocol.
        warnings: What to beware of.
        note: What is special about the data.
        scores: All of them.
        look: Its colour among several.
    """

    name: str
    kind: str
    system: str
    data: str
    score: str
    spread: str
    metric: str
    optimistic: bool
    chosen: str
    facts: Sequence[str]
    warnings: Sequence[str]
    note: str
    scores: Table
    look: int


def answer(subject: Subject) -> Answer:
    """The opening of one run."""
    mean, spread = subject.score("test")
    detail = subject.detail
    warnings = [*cautions(detail), *map(str, dict.fromkeys(detail.get("warnings") or ()))]
    if subject.is_study and not subject.summary["finished"]:
        warnings.append("The study is not finished: its mean is over the runs that are.")
    facts = [
        "" if len({run["fold"] for run in subject.members}) > 1 else subject.split.description.rstrip("."),
        f"{counted(detail['parameters'], 'parameter')}" if detail.get("parameters") else "",
        f"trained in {duration(_seconds(subject))}",
        f"depth, curves and measurements below are of {detail_name(subject)}" if subject.is_study else "",
    ]
    return Answer(
        subject.name,
        "Study" if subject.is_study else "Run",
        subject.system,
        str(subject.summary["data"]),
        percent(mean).removesuffix(" %"),
        "" if spread is None else percent(spread).removesuffix(" %"),
        subject.metric,
        subject.optimistic,
        _chosen(subject),
        [fact for fact in facts if fact],
        warnings,
        str(subject.summary.get("note") or ""),
        _scores(subject),
        subject.look,
    )


def in_short(subject: Subject, shown: Mapping[str, Shown]) -> list[str]:
    """What one asks first, in sentences: what is predicted, how good that is, for which classes, and how sure."""
    figures = ("others", f"classes-{subject.look + 1}", f"confusion-{subject.look + 1}")
    readings = [shown[name].reading for name in figures if name in shown]
    return [text for text in (_predicted(subject), *readings, _sure(subject)) if text]


def _predicted(subject: Subject) -> str:
    counts: Mapping[str, int] = subject.detail.get("predicted") or {}
    found = subject.measured.classes
    names = list(counts) if isinstance(found, Missing) else list(found.names)
    if not names:
        return ""
    what = "any number of" if subject.detail.get("threshold") else "one of"
    some = listed([cut(name) for name in names] if len(names) <= NAMED else [*map(cut, names[:NAMED]), "others"])
    text = f"It predicts {what} {counted(len(names), 'class', 'classes')} ({some})"
    most = sorted((name for name in counts if counts[name]), key=lambda name: -counts[name])[:3]
    often = listed([f"{cut(name)} ({counts[name]:,})" for name in most])
    return f"{text}; on the test part most often {often}." if often else f"{text}."


def _sure(subject: Subject) -> str:
    """Which accuracies fit so many test labels: Wilson's interval, which says something of 0 and 100 %, too."""
    from scipy.stats import binomtest

    right = subject.detail["scores"].get("test", {}).get(ACCURACY)
    count = sum((subject.detail.get("predicted") or {}).values())
    if subject.is_study or subject.detail.get("threshold") or right is None or not count:
        return ""
    low, high = binomtest(round(right * count), count).proportion_ci(method="wilson")
    labels = counted(count, "test label")
    return f"How sure: {labels} fit a true accuracy of {100 * low:.1f} to {100 * high:.1f} % (95 % interval)."


def detail_name(subject: Subject) -> str:
    """The run of a study that the figures are about."""
    return subject.detail_folder.name


def _seconds(subject: Subject) -> float:
    runs = subject.members if subject.is_study else [subject.detail]
    return float(sum(each["seconds"] for each in runs))


def _chosen(subject: Subject) -> str:
    detail = subject.detail
    if "chosen" in detail:  # graph kernels and label propagation have no epochs
        values = listed([f"{name} = {value:g}" for name, value in detail["chosen"].items()])
        who = detail.get("chosen_by", "cross-validation")
        return f"{who[0].upper()}{who[1:]} chose {values} among {detail['epochs']}."
    if subject.is_study:
        runs = counted(len(subject.members), "run")
        who = "the test part itself" if subject.optimistic else "its validation part"
        if not subject.chose:
            return f"Mean ± standard deviation over {runs}; the last epoch counts in each."
        return f"Mean ± standard deviation over {runs}; in each, {who} chose the epoch."
    if not subject.chose:
        return f"The last of {detail['epochs']} epochs counts: nothing chose one."
    who = "The test part itself" if subject.optimistic else "The validation part"
    return f"{who} chose epoch {detail['best_epoch']} of {detail['epochs']}."


def _scores(subject: Subject) -> Table:
    by_part = subject.summary["mean"] if subject.is_study else subject.summary["scores"]
    names = [subject.metric, *(name for name in next(iter(by_part.values())) if name != subject.metric)]
    rows = []
    for part in by_part:
        cells = []
        for name in names:
            mean, spread = subject.score(part, name)
            around = "" if spread is None else f" ± {number(spread)}"
            cells.append(f"{number(mean)}{around}" if name == "loss" else scored(mean, spread))
        rows.append([part, *cells])
    for trivial, levels in (subject.summary.get("trivial") or {}).items():
        cells = [scored(levels[name], None) if name in levels else UNKNOWN for name in names]
        rows.append([f"test: {trivial}", *cells])
    return Table(["part", *names], rows, _told(subject))


def _told(subject: Subject) -> str:
    """What one has to know to read the scores."""
    told = [f"{name}: {TRIVIAL[name]}" for name in subject.summary.get("trivial") or ()]
    sentences = [f"Without looking at anything, {'; '.join(told)}."] if told else []
    if subject.detail.get("threshold"):
        whose = f" (in {detail_name(subject)})" if subject.is_study else ""
        threshold = subject.detail["threshold"]["told"]
        sentences.append(f"A label is predicted above probability {threshold}{whose}.")
        sentences.append("The oracle is told how many labels each row has.")
    return " ".join(sentences)


def layers(subjects: Sequence[Subject]) -> list[Shown]:
    """Each layer's depth and what is known about it."""
    title, shown = "Depth and error of each layer", []
    for each in subjects:
        after = f": {each.name}" if len(subjects) > 1 else ""
        name = f"layers-{each.look + 1}"
        if each.detail["layers"]:
            deep = [f"{one['layer']} looked {counted(one['depth'], 'hop')} deep" for one in each.detail["layers"]]
            reading = f"For the scores, {listed(deep)}."
            shown.append(Shown(name, title + after, reading=reading, how=HOW, table=_layers(each), wide=True))
        else:
            reason = f"No layer of infinite depth: {each.system} looks as far as it has layers."
            shown.append(Shown(name, title + after, missing=reason))
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
    return Table(
        ["layer", "depth", "error seen", "truncation proved", "rounding estimated", "‖W‖₂", "ε", "what is known"],
        rows,
        kind="words",
    )


# ------------------------------------------------------------------------------------------------------ comparison
def side_by_side(subjects: Sequence[Subject]) -> Table:
    """Scores of all, and their differences to the first."""
    first, _ = subjects[0].score("test")
    rows = []
    for each in subjects:
        test, spread = each.score("test")
        ahead = UNKNOWN if test is None or first is None else points(test - first)
        depths = [str(layer["depth"]) for layer in each.detail["layers"]]
        rows.append(
            [
                each.name,
                each.system,
                str(each.summary["data"]),
                scored(*each.score("val")),
                scored(test, spread),
                "–" if each is subjects[0] else ahead,
                " + ".join(depths) or UNKNOWN,
                duration(_seconds(each)),
            ]
        )
    metric = subjects[0].metric
    header = [
        "run",
        "system",
        "data",
        f"validation {metric}",
        f"test {metric}",
        "points to the first",
        "depth",
        "time",
    ]
    return Table(header, rows)


def not_comparable(subjects: Sequence[Subject]) -> list[str]:
    """Why scores of these runs must not be held against each other; nothing: they may."""
    reasons = []
    kinds = {
        "data": {str(each.summary["data"]) for each in subjects},
        "metrics": {each.metric for each in subjects},
        "protocols": {str(each.summary["protocol"]) for each in subjects},
    }
    for what, found in kinds.items():
        if len(found) > 1:
            reasons.append(f"The {what} differ ({listed(sorted(found))}).")
    if len({each.split.fingerprint for each in subjects}) > 1 and len(kinds["data"]) == 1:
        reasons.append("The data have the same name, but other labels or graph sizes.")
    if len({each.optimistic for each in subjects}) > 1:
        chose = listed([each.name for each in subjects if each.optimistic])
        reasons.append(f"The test part chose the epoch of {chose}: optimistic; not of the others.")
    divided = {(each.split.digest(), len(each.members)) for each in subjects}
    if len(divided) > 1 and not reasons:
        reasons.append("The splits differ: other nodes or graphs train and test.")
    return reasons
