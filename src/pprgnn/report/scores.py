"""How good it is: beside baselines and the paper, and over the runs of a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pprgnn.drawing import canvas
from pprgnn.drawing.plot import MARKS, add_legend, name_rows
from pprgnn.report.shown import Shown, Table, drawn
from pprgnn.report.subject import Subject
from pprgnn.wording import counted, cut, known, of, percent, points, scored

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARTS = {"val": "validation", "test": "test"}


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
        axes.annotate(
            f"{100 * row.value:.1f}",
            (100 * row.value, place),
            xytext=(0, 8),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=canvas.LARGE - 2 if wide else canvas.SMALL - 1,
            color=canvas.INK if row.kind == "ours" else canvas.SOFT,
        )
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
            text = {"textcoords": "offset points", "ha": "center", "va": "bottom", "color": canvas.INK}
            axes.annotate(f"{100 * mean:.1f} ± {100 * std:.1f}", (100 * mean, at), xytext=(0, 7), **text)  # type: ignore[arg-type]
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
