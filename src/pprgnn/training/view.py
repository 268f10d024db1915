"""What one sees of training: a line that moves on a terminal, some lines elsewhere, a table at the end."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from pprgnn.training.listener import Listener
from pprgnn.training.terminal import is_terminal, paragraph, styled, width
from pprgnn.wording import counted, noun

if TYPE_CHECKING:
    from rich.live import Live

    from pprgnn.training.loop import Record, Training

MOMENT, PAUSE = 0.1, 5.0  # seconds: between two moves of a line, and between two lines


class Lines(Listener):
    """Says lines; on a terminal there can be one below them that moves."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._moved = -PAUSE

    @property
    def moving(self) -> bool:
        """Whether there is a line that moves."""
        return self._live is not None

    def start_line(self) -> None:
        """Begin the line that moves, if somebody looks."""
        if is_terminal():
            from rich.live import Live

            self._live = Live(auto_refresh=False, transient=True)
            self._live.start()

    def is_due(self) -> bool:
        """Whether the last time it was so is long enough ago: for a line that moves, a moment."""
        now = time.monotonic()
        due = now - self._moved >= (MOMENT if self.moving else PAUSE)
        if due:
            self._moved = now
        return due

    def move(self, cells: Sequence[str]) -> None:
        """Move the line to these cells, as far as there is room for them."""
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(fitting(cells, (width() or 80) - 1)), refresh=True)

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            typer.echo(text)
            sys.stdout.flush()

    def note(self, text: str) -> None:
        """Tell at once, unless it is Ctrl-C in the middle of another line: Python does not let lines mix."""
        with contextlib.suppress(RuntimeError):
            self.say(text)

    def stop(self) -> None:
        """End the line that moves, whatever happened."""
        if self._live is not None:
            self._live.stop()
            self._live = None


class EpochLines(Lines):
    """How a training goes: a line that moves, or one now and then for logs; and one at the end that stays."""

    def __init__(self, label: str = "") -> None:
        super().__init__()
        self.label = label
        self.training: Training | None = None
        self._recent: list[float] = []
        self._record: Record | None = None
        self._said = 0  # the epoch that was told last

    def started(self, training: Training) -> None:
        """Tell what is about to happen."""
        self.training = training
        for line in describe(training):
            self.say(line)
        self.start_line()

    def epoch(self, record: Record) -> None:
        """Tell how the epoch went, unless the last time is just a moment ago."""
        self._record = record
        self._recent = [*self._recent[-9:], record.seconds]
        if not self.is_due():
            return
        if self.moving:
            assert self.training is not None
            bar = _bar(record.epoch, self.training.settings.epochs)
            self.move([self.label + bar, *self.cells(record)])
        else:
            self._say_record(record)

    def warned(self, text: str) -> None:
        """Tell at once."""
        self.say(f"Warning: {text}")

    def finished(self, summary: Mapping[str, Any]) -> None:
        """The last epoch, if it was not told yet."""
        self.stop()
        if self._record is not None and self._record.epoch != self._said:
            self._say_record(self._record)

    def _say_record(self, record: Record) -> None:
        self._said = record.epoch
        self.say(paragraph(self.label, "  ".join(self.cells(record)), width()))

    def cells(self, record: Record) -> list[str]:
        """Epoch, loss, validation, best, depths, seconds per epoch, and what is left."""
        assert self.training is not None
        metric, epochs = self.training.metrics[0], self.training.settings.epochs
        cells = [f"epoch {record.epoch}/{epochs}", f"loss {record.loss:.4g}"]
        if record.val is not None:
            cells.append(f"{self.training.monitored} {metric} {percent(record.val[metric])}")
        if record.best is not None:
            best = percent(record.best) if self.training.settings.monitor == "metric" else f"{-record.best:.4g}"
            cells.append(f"best {best} at {record.best_epoch}")
        if record.depth:
            cells.append(f"depth {' '.join(map(str, record.depth))}")
        pace = sum(self._recent) / len(self._recent)
        left = pace * (epochs - record.epoch)
        cells += [f"{pace:.2g} s/epoch", f"{clock(left)} left" if record.epoch < epochs else "done"]
        return cells


def fitting(cells: Sequence[str], limit: int) -> str:
    """As many cells as the window has room for; the least important ones go first, the bar among them."""
    kept = list(cells)
    for dropped in ("loss", "depth", "s/epoch", "█", "░", " at ", "best", "left"):
        if len("  ".join(kept)) <= limit:
            break
        if dropped == " at ":  # when the best one was is less than how good it is
            kept = [cell.partition(dropped)[0] for cell in kept]
        else:
            kept = [cell for cell in kept if dropped not in cell]
    return "  ".join(kept)[:limit]


def describe(training: Training) -> list[str]:
    """A few lines about what will be trained on what."""
    from pprgnn.training.defaults import describe_settled
    from pprgnn.training.evaluation import rare_class
    from pprgnn.training.metrics import ROC_AUC
    from pprgnn.training.systems import find_system

    dataset, split, settings = training.dataset, training.split, training.settings
    parts = ", ".join(f"{len(getattr(split, part)):,} {part}" for part in ("train", "val", "test"))
    rule = split.description.partition(";")[0].removesuffix(".")  # what follows from it is said elsewhere
    model = find_system(training.config.model.system).title
    lines = [
        ("data", f"{f'{dataset!r}'[len('GraphDataset(') : -1]}, {counted(dataset.num_edges, 'edge')}"),
        ("split", f"{split.protocol}: {parts} {noun(len(split.test), split.unit)}. {rule}"),
        ("model", f"{model}, {counted(training.distributed.parameters, 'parameter')}, {training.device}"),
    ]
    if training.distributed.description:
        lines.append(("work", training.distributed.description))
    lines.append(("memory", training.memory.describe()))
    patience = f"patience {settings.patience or '–'}"
    lines.append(("training", f"{counted(settings.epochs, 'epoch')}, {patience}, seed {settings.seed}"))
    if training.model.scaling is not None:
        lines.append(("features", training.model.scaling.describe()))
    chosen = describe_settled(training.config, dataset, split)
    if chosen:
        lines.append(("settings", chosen))
    rare = rare_class(dataset, split) if training.metrics[0] == ROC_AUC else None
    if rare is not None:
        name, share = rare
        why = f"only {percent(share)} of the training part are {name!r}, and accuracy would hide how they fare"
        lines.append(("metric", f"{ROC_AUC} comes first, because {why}"))
    if settings.monitor == "last":
        lines.append(("note", "the last epoch counts: nothing chooses one"))
    elif split.optimistic:
        lines.append(("note", "there is no validation part: the test part chooses the epoch, as in the paper"))
    if training.progress.epoch:
        lines.append(("resumed", f"after epoch {training.progress.epoch}"))
    return [paragraph(f"{label:<9}", text, width()) for label, text in lines]


def score_table(summary: Mapping[str, Any]) -> list[str]:
    """The final scores, a row per part; then what is scored on the last part without looking at anything."""
    scores: Mapping[str, Mapping[str, float]] = summary["scores"]
    names = list(next(iter(scores.values())))
    names = [summary["metric"], *(name for name in names if name not in (summary["metric"], "loss")), "loss"]
    rows = [["", *names]]
    for part, values in scores.items():
        shown = {name: percent(value) for name, value in values.items()} | {"loss": f"{values['loss']:.4g}"}
        rows.append([part, *(shown[name] for name in names)])
    for trivial, values in (summary.get("trivial") or {}).items():
        rows.append([trivial, *(percent(values[name]) if name in values else "–" for name in names)])
    return aligned(rows)


def comparison_table(systems: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A row for each system that came to its end: validation, test and time; then trivial levels on test."""
    done = {name: each for name, each in systems.items() if each["finished"]}
    if not done:
        return []
    first = next(iter(done.values()))
    metric, study = first["metric"], "runs" in first
    parts = [part for part in ("val", "test") if part in first["mean" if study else "scores"]]
    rows = [["system", *(f"{part} {metric}" for part in parts), "time"]]
    for name, each in done.items():
        seconds = sum(run["seconds"] for run in each["runs"]) if study else each["seconds"]
        rows.append([name, *(_score(each, part, metric) for part in parts), clock(seconds)])
    for name, values in (first.get("trivial") or {}).items():
        level = percent(values[metric]) if values.get(metric) is not None else "–"
        rows.append([name, *("" for _ in parts[1:]), level, ""])
    return aligned(rows)


def _score(summary: Mapping[str, Any], part: str, metric: str) -> str:
    """Of a run, or mean and standard deviation of a study."""
    if "runs" not in summary:
        return percent(summary["scores"][part][metric])
    mean, std = (summary[what][part][metric] for what in ("mean", "std"))
    return "–" if mean is None else f"{percent(mean)} ± {percent(std)}"


def remarks(summary: Mapping[str, Any]) -> list[str]:
    """What one has to know to read the final scores."""
    from pprgnn.training.metrics import ORACLE_MICRO_F1
    from pprgnn.training.trivial import TRIVIAL, cautions

    last, scores = list(summary["scores"].items())[-1]
    lines = [("warning", text) for text in cautions(summary)]
    lines += [("trivial", f"{name}, on {last}: {TRIVIAL[name]}") for name in summary.get("trivial") or ()]
    if summary.get("threshold"):
        lines.append(("labels", f"predicted above probability {summary['threshold']['told']}"))
    if ORACLE_MICRO_F1 in scores:
        lines.append(("oracle", "is told how many labels each row has, and takes as many with the highest logits"))
    return [paragraph(f"{label:<9}", text, width()) for label, text in lines]


def layer_table(layers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Depth and error of each layer, a row each."""
    rows = [["layer", "depth", "error", "‖W‖₂", "eps", "what is known"]]
    for each in layers:
        known = (each.get(name) for name in ("truncation_bound", "measured_error", "estimated_error"))
        error = next(
            (f"{value:.1e}" if value < 1 else "no useful bound" for value in known if value is not None), "–"
        )
        numbers = [f"{each['weight_norm']:.3g}", f"{each['eps']:.3g}"]
        rows.append([each["layer"], str(each["depth"]), error, *numbers, each["status"].lower()])
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with a bold header, the first and a wordy last column to the left, numbers to the right."""
    sizes = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    wordy = not any(letter.isdigit() for row in rows[1:] for letter in row[-1])
    lines = []
    for row in rows:
        cells = [cell.rjust(size) for cell, size in zip(row, sizes, strict=True)]
        for i in (0, -1) if wordy else (0,):
            cells[i] = row[i].ljust(sizes[i])
        lines.append("  ".join(cells).rstrip())
    return [styled(lines[0], bold=True), *lines[1:]]


def percent(share: float) -> str:
    """A share of 1 in percent."""
    return f"{100 * share:.2f}%"


def clock(seconds: float) -> str:
    """A time as people say it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _bar(done: int, total: int, size: int = 12) -> str:
    full = size * done // max(total, 1)
    return "█" * full + "░" * (size - full)
