"""The opening of the page: the result, who chose it, what to beware of; of several, how they compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pprgnn.report.measured.results import Missing
from pprgnn.report.shown import Shown, Table
from pprgnn.report.subject import Subject
from pprgnn.training.evaluation import TRIVIAL, cautions
from pprgnn.training.metrics import ACCURACY
from pprgnn.wording import UNKNOWN, counted, cut, duration, listed, number, percent, points, scored

NAMED = 8  # classes that are named, of many


@dataclass(frozen=True)
class Answer:
    """What one sees first of a run.

    Attributes:
        subject: The run.
        score, spread: On the test part.
        chosen: Who chose the weights, in a sentence.
        facts: Size, time, protocol.
        warnings: What to beware of.
        scores: All of them.
    """

    subject: Subject
    score: str
    spread: str
    chosen: str
    facts: Sequence[str]
    warnings: Sequence[str]
    scores: Table


def answer(subject: Subject) -> Answer:
    """The opening of one run."""
    mean, spread = subject.score("test")
    detail = subject.detail
    warnings = [*cautions(detail), *map(str, dict.fromkeys(detail.get("warnings") or ()))]
    if subject.is_study and not subject.summary["finished"]:
        warnings.append("The study is not finished: its mean is over the runs that are.")
    facts = [
        "" if len({run["fold"] for run in subject.members}) > 1 else subject.split.description.rstrip("."),
        counted(detail["parameters"], "parameter") if detail.get("parameters") else "",
        f"trained in {duration(subject.seconds)}",
        f"depth, curves and measurements below are of {subject.detail_folder.name}" if subject.is_study else "",
    ]
    return Answer(
        subject,
        percent(mean).removesuffix(" %"),
        "" if spread is None else percent(spread).removesuffix(" %"),
        _chosen(subject),
        [fact for fact in facts if fact],
        warnings,
        _scores(subject),
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
        whose = f" (in {subject.detail_folder.name})" if subject.is_study else ""
        threshold = subject.detail["threshold"]["told"]
        sentences.append(f"A label is predicted above probability {threshold}{whose}.")
        sentences.append("The oracle is told how many labels each row has.")
    return " ".join(sentences)


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
                each.data,
                scored(*each.score("val")),
                scored(test, spread),
                "–" if each is subjects[0] else ahead,
                " + ".join(depths) or UNKNOWN,
                duration(each.seconds),
            ]
        )
    metric = subjects[0].metric
    scores = [f"validation {metric}", f"test {metric}", "points to the first"]
    return Table(["run", "system", "data", *scores, "depth", "time"], rows)


def not_comparable(subjects: Sequence[Subject]) -> list[str]:
    """Why scores of these runs must not be held against each other; nothing: they may."""
    reasons = []
    kinds = {
        "data": {each.data for each in subjects},
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
