"""The opening of the page: the result, who chose it, what to beware of; of several, how they compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pprgnn.drawing import canvas
from pprgnn.drawing.plot import MARKS, add_legend, name_rows, write_at
from pprgnn.report.measured.results import Missing
from pprgnn.report.shown import Shown, Table, drawn
from pprgnn.report.subject import Subject
from pprgnn.training.evaluation import TRIVIAL, cautions
from pprgnn.training.metrics import ACCURACY
from pprgnn.wording import UNKNOWN, counted, cut, duration, known, listed, number, of, percent, points, scored

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMED = 8  # classes that are named, of many
PARTS = {"val": "validation", "test": "test"}


# ----------------------------------------------------------------------------------------------------- the opening
@dataclass(frozen=True)
class Answer:
    """What one sees first of a run."""

    subject: Subject
    score: str  # on the test part
    spread: str
    chosen: str  # who chose the weights, in a sentence
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
def compared(subjects: Sequence[Subject]) -> Table:
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


# --------------------------------------------------------------------------------------------------- beside others
@dataclass(frozen=True)
class Score:
    """A score of the test part, ours or somebody else's."""

    name: str
    value: float
    spread: float | None
    source: str
    kind: str  # ours, measured, quoted
    look: int = 0


def against_others(subjects: Sequence[Subject]) -> Shown:
    """The score beside baselines measured here, and figures from papers."""
    title, metric = "Beside simple baselines and the paper", subjects[0].metric
    rows = _rows(subjects)
    if not rows:
        return Shown("others", title, missing=f"The {metric} of the test part is not defined.")
    reading = _beside(subjects, rows)
    how = (
        "Filled: measured here, on the same split; hollow: quoted from elsewhere, which may have another split "
        "and protocol. Bars are standard deviations."
    )
    ordered = sorted(rows, key=lambda row: row.value)
    cells = [
        [row.name, scored(row.value, row.spread), points(row.value - rows[0].value), row.source]
        for row in reversed(ordered)
    ]
    table = Table(["system", f"test {metric}", "points to the first", "source"], cells, kind="words")
    height = 76 + 30 * len(ordered)
    return drawn(
        "others", title, lambda figure: _dots(figure, ordered, metric), reading, how, table, height, height
    )


def _rows(subjects: Sequence[Subject]) -> list[Score]:
    rows = []
    for each in subjects:
        value, spread = each.score("test")
        if known(value):
            name = each.label or f"{each.system} (this {'study' if each.is_study else 'run'})"
            rows.append(Score(name, value, spread, "this page", "ours", each.look))
    for each in subjects:
        for one in each.measured.baselines:
            if one.name not in {row.name for row in rows} and known(one.value):
                kind = "measured" if one.measured else "quoted"
                rows.append(Score(one.name, one.value, one.spread, one.source, kind))
    return rows if any(row.kind == "ours" for row in rows) else []


def _beside(subjects: Sequence[Subject], rows: Sequence[Score]) -> str:
    ours, *others = rows
    name = f"{ours.name}: " if len(subjects) > 1 else ""
    text = f"{name}{scored(ours.value, ours.spread)} {subjects[0].metric} on the test part"
    best = max(others, key=lambda row: row.value, default=None)
    if best is None:
        return f"{text}."
    text += f"; {_to(ours, best, 'the best other figure')}"
    here = [row for row in others if row.kind != "quoted"]
    if best.kind == "quoted" and here:
        text += f", which is quoted; {_to(ours, max(here, key=lambda row: row.value), 'the best measured here')}"
    return f"{text}."


def _to(ours: Score, other: Score, says: str) -> str:
    return (
        f"{points(ours.value - other.value)} points to {says}, {other.name} ({scored(other.value, other.spread)})"
    )


def _dots(figure: Figure, rows: Sequence[Score], metric: str) -> None:
    axes, wide = figure.subplots(), figure.get_size_inches()[0] * 72 > canvas.HALF
    for place, row in enumerate(rows):
        look: dict[str, Any] = {
            "ours": {
                "color": canvas.SERIES[row.look % len(canvas.SERIES)],
                "marker": MARKS[row.look % len(MARKS)],
            },
            "measured": {"color": canvas.SOFT, "marker": "s"},
            "quoted": {"color": canvas.SOFT, "marker": "D", "markerfacecolor": canvas.GROUND},
        }[row.kind]
        size = 11 if row.kind == "ours" else 8
        bar = None if row.spread is None else 100 * row.spread
        axes.errorbar(100 * row.value, place, xerr=bar, markersize=size, capsize=3, elinewidth=1.4, **look)
        style = {"fontsize": canvas.LARGE - 2 if wide else canvas.SMALL - 1, "ha": "center", "va": "bottom"}
        colour = canvas.INK if row.kind == "ours" else canvas.SOFT
        write_at(axes, f"{100 * row.value:.1f}", (100 * row.value, place), (0, 8), color=colour, **style)
    names = [cut(row.name, 36 if wide else 24) for row in rows]
    name_rows(axes, range(len(rows)), names, f"test {metric}, percent")
    for name, row in zip(axes.get_yticklabels(), rows, strict=True):
        name.set_fontweight("bold" if row.kind == "ours" else "normal")
    axes.set_ylim(-0.6, len(rows) - 0.2)
    axes.grid(visible=True, axis="y")
    axes.margins(x=0.08)


# ----------------------------------------------------------------------------------------------------------- folds
def folds(subjects: Sequence[Subject]) -> list[Shown]:
    """Every run of a study, with mean and standard deviation."""
    return [_folds(each) for each in subjects if each.is_study]


def _folds(subject: Subject) -> Shown:
    metric = subject.metric
    parts = [part for part in PARTS if known(subject.score(part)[0])]
    said = [f"{PARTS[part]} {scored(*subject.score(part))}" for part in parts]
    runs = counted(len(subject.members), "run")
    reading = of(subject.label, f"{metric} over {runs}: {', '.join(said)} (mean ± standard deviation).")
    test = [each["scores"].get("test", {}).get(metric) for each in subject.members]
    finite = [value for value in test if known(value)]
    if len(finite) > 1:
        reading += f" The runs lie between {percent(min(finite))} and {percent(max(finite))} on the test part."
    if not subject.summary["finished"]:
        reading += " The study is not finished: runs are missing."
    rows = []
    for each in subject.members:
        values = [percent(each["scores"].get(part, {}).get(metric)) for part in parts]
        rows.append([each["run"], *values, str(each["best_epoch"]), str(each["epochs"])])
    table = Table(["run", *(f"{PARTS[part]} {metric}" for part in parts), "epoch kept", "of"], rows)
    how = "One point per split and seed; the bar is the mean with one standard deviation to each side."
    name, title, height = f"folds-{subject.look + 1}", f"Every run{subject.suffix}", 90 + 64 * len(parts)
    return drawn(name, title, lambda figure: _strip(figure, subject, parts), reading, how, table, height, height)


def _strip(figure: Figure, subject: Subject, parts: Sequence[str]) -> None:
    axes = figure.subplots()
    seeds = sorted({each["seed"] for each in subject.members})
    for place, part in enumerate(parts):
        _points(axes, subject, part, place, seeds)
        mean, std = subject.score(part)
        if mean is not None and std is not None:
            at = place + 0.32
            style = {"color": canvas.INK, "marker": "|", "markersize": 14, "capsize": 4, "elinewidth": 1.6}
            axes.errorbar(100 * mean, at, xerr=100 * std, zorder=4, **style)  # type: ignore[arg-type]
            text = f"{100 * mean:.1f} ± {100 * std:.1f}"
            write_at(axes, text, (100 * mean, at), (0, 7), ha="center", va="bottom")
    names = [PARTS[part] for part in parts]
    name_rows(axes, range(len(parts)), names, f"{subject.metric}, percent")
    axes.set_ylim(-0.5, len(parts) - 0.2)
    axes.margins(x=0.06)
    if 1 < len(seeds) <= len(MARKS):
        add_legend(figure)


def _points(axes: Axes, subject: Subject, part: str, place: int, seeds: Sequence[int]) -> None:
    """The points of one part; those with the same value stand above each other."""
    seen: dict[float, int] = {}
    for each in subject.members:
        value = each["scores"].get(part, {}).get(subject.metric)
        if not known(value):
            continue
        height = seen[value] = seen.get(value, -1) + 1
        look = seeds.index(each["seed"]) if len(seeds) <= len(MARKS) else 0
        axes.plot(
            [100 * value],
            [place - 0.25 + 0.11 * (height % 5)],
            MARKS[look],
            color=canvas.SERIES[look % len(canvas.SERIES)],
            markersize=8,
            alpha=0.8,
            label=f"seed {each['seed']}",
        )
