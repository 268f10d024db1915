"""What one sees of a training: a line that moves on a terminal, some lines elsewhere, tables at the end.

Text fits a terminal of any width, and is plain for a pipe; rich, which would slow the start, is imported late.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from pprgnn.training.listener import Listener
from pprgnn.wording import counted, noun

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

    from pprgnn.training.loop import Record, Training

MOMENT, PAUSE = 0.1, 5.0  # seconds: between two moves of a line, and between two lines
BAR = 12  # blocks
COLOURS = {
    "ready": "green",
    "here": "green",
    "ready (inside grakel)": "green",
    "in grakel": "green",
    "ok": "green",
    "generated": "cyan",
    "needs download": "yellow",
    "to fetch": "yellow",
    "unknown": "yellow",
    "missing": "red",
    "bad": "red",
}


def is_terminal() -> bool:
    """Whether somebody is looking."""
    return sys.stdout.isatty()


def width() -> int | None:
    """Columns of the terminal; None: no terminal, no limit."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def styled(text: str, *, error: bool = False, **style: Any) -> str:
    """A text in a style; plain without a terminal, or when NO_COLOR asks for it."""
    if os.environ.get("NO_COLOR") or not (sys.stderr if error else sys.stdout).isatty():
        return text
    return typer.style(text, **style)


def state_word(word: str) -> str:
    """A state in its colour."""
    return styled(word, fg=COLOURS[word])


def table(rows: Sequence[Mapping[str, Any]], droppable: Sequence[str], limit: int | None) -> list[str]:
    """Rows under a header, numbers to the right; in a narrow window, closer together and with fewer columns."""

    def cell(value: object) -> str:
        return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)

    def fits(gap: int) -> bool:
        needed = sum(max(map(len, column)) + gap for column in cells.values()) - gap
        return limit is None or needed <= limit

    cells = {key: [key, *(cell(row[key]) for row in rows)] for key in rows[0]}
    gap = 2 if fits(2) else 1
    for key in droppable:
        if not fits(gap):
            del cells[key]
    numbers = [any(isinstance(row[key], int) for row in rows) for key in cells]
    return _columns(list(zip(*cells.values(), strict=True)), numbers, gap)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows under a header, the first and a wordy last column to the left, numbers to the right."""
    wordy = not any(letter.isdigit() for row in rows[1:] for letter in row[-1])
    last = len(rows[0]) - 1
    return _columns(rows, [0 < i < last + (not wordy) for i in range(last + 1)])


def _columns(rows: Sequence[Sequence[str]], to_the_right: Sequence[bool], gap: int = 2) -> list[str]:
    """Rows under a bold header; a state at the end of a line has its colour."""
    columns = []
    for column, right in zip(zip(*rows, strict=True), to_the_right, strict=True):
        size = max(map(len, column))
        columns.append([cell.rjust(size) if right else cell.ljust(size) for cell in column])
    header, *lines = ((" " * gap).join(cells).rstrip() for cells in zip(*columns, strict=True))
    return [styled(header, bold=True), *map(_coloured, lines)]


def paragraph(label: str, text: str, limit: int | None) -> str:
    """A text behind its label, broken between words to a column of its own."""
    if limit is None:
        return label + text
    return textwrap.fill(
        text,
        max(limit, len(label) + 20),
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )


def labelled(lines: Iterable[tuple[str, str]], indent: int = 9) -> list[str]:
    """Texts behind their labels, as wide as the terminal."""
    return [paragraph(f"{label:<{indent}}", text, width()) for label, text in lines]


def _coloured(line: str) -> str:
    """A line whose last word is a state."""
    word = next((word for word in COLOURS if line.endswith(f" {word}")), "")
    return line.removesuffix(word) + state_word(word) if word else line


# ----------------------------------------------------------------------------------------------------- progress
class Lines:
    """Says lines; on a terminal there can be one below them that moves."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._moved = -PAUSE

    @property
    def moving(self) -> bool:
        """Whether there is a line that moves."""
        return self._live is not None

    def start_line(self, text: Callable[[], str] | None = None) -> None:
        """Begin the line that moves, if somebody looks: by itself once a second, or with :meth:`move`."""
        if is_terminal():
            from rich.live import Live

            rendered = None if text is None else lambda: _rendered(text())
            self._live = Live(
                get_renderable=rendered, auto_refresh=text is not None, refresh_per_second=1, transient=True
            )
            self._live.start()

    def is_due(self) -> bool:
        """Whether the last time it was so is long enough ago: for a line that moves, a moment."""
        due = time.monotonic() - self._moved >= (MOMENT if self.moving else PAUSE)
        if due:
            self._moved = time.monotonic()
        return due

    def move(self, cells: Sequence[str]) -> None:
        """Move the line to these cells, as far as there is room for them."""
        if self._live is not None:
            self._live.update(_rendered(fitting(cells, _room())), refresh=True)

    def say(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            typer.echo(text)
            sys.stdout.flush()

    def note(self, text: str) -> None:
        """Tell at once, or right after the line that Ctrl-C interrupts: Python does not let lines mix."""
        try:
            self.say(text)
        except RuntimeError:
            threading.Thread(target=self.say, args=(text,)).start()

    def stop(self) -> None:
        """End the line that moves, whatever happened."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def _room() -> int:
    """Letters on the line that moves."""
    return (width() or 80) - 1


def _rendered(text: str) -> Text:
    from rich.text import Text

    return Text(text[: _room()])


class EpochLines(Lines, Listener):
    """How a training goes: a line that moves, or one now and then for logs; and one at the end that stays."""

    training: Training  # once it has started

    def __init__(self, label: str = "") -> None:
        super().__init__()
        self.label = label
        self._recent: list[float] = []
        self._record: Record | None = None
        self._said = 0  # the epoch that was told last

    def started(self, training: Training) -> None:
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
            full = BAR * record.epoch // self.training.settings.epochs
            self.move([self.label + "█" * full + "░" * (BAR - full), *self.cells(record)])
        else:
            self._say_record(record)

    def warned(self, text: str) -> None:
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
    return "  ".join(kept)


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
    return labelled(lines)


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
    """A row for each system that came to its end: validation, test and time; then trivial levels on test.

    Of a study, mean and standard deviation.
    """
    done = {name: each for name, each in systems.items() if each["finished"]}
    if not done:
        return []
    first = next(iter(done.values()))
    metric, study = first["metric"], "runs" in first
    parts = [part for part in ("val", "test") if part in first["mean" if study else "scores"]]
    rows = [["system", *(f"{part} {metric}" for part in parts), "time"]]
    for name, each in done.items():
        seconds = sum(run["seconds"] for run in each["runs"]) if study else each["seconds"]
        figures = [each[what] for what in (("mean", "std") if study else ("scores",))]
        scores = [[figure[part][metric] for figure in figures] for part in parts]
        rows.append(
            [name, *("–" if None in of else " ± ".join(map(percent, of)) for of in scores), clock(seconds)]
        )
    for name, values in (first.get("trivial") or {}).items():
        level = percent(values[metric]) if values.get(metric) is not None else "–"
        rows.append([name, *("" for _ in parts[1:]), level, ""])
    return aligned(rows)


def remarks(summary: Mapping[str, Any]) -> list[str]:
    """What one has to know to read the final scores."""
    from pprgnn.training.evaluation import TRIVIAL, cautions
    from pprgnn.training.metrics import ORACLE_MICRO_F1

    last, scores = list(summary["scores"].items())[-1]
    lines = [("warning", text) for text in cautions(summary)]
    lines += [("trivial", f"{name}, on {last}: {TRIVIAL[name]}") for name in summary.get("trivial") or ()]
    if summary.get("threshold"):
        lines.append(("labels", f"predicted above probability {summary['threshold']['told']}"))
    if ORACLE_MICRO_F1 in scores:
        lines.append(("oracle", "is told how many labels each row has, and takes as many with the highest logits"))
    return labelled(lines)


def layer_table(layers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Depth and error of each layer, a row each."""
    rows = [["layer", "depth", "error", "‖W‖₂", "eps", "what is known"]]
    for each in layers:
        known = [each.get(name) for name in ("truncation_bound", "measured_error", "estimated_error")]
        error = next((value for value in known if value is not None), None)
        shown = "–" if error is None else f"{error:.1e}" if error < 1 else "no useful bound"
        numbers = [f"{each['weight_norm']:.3g}", f"{each['eps']:.3g}"]
        rows.append([each["layer"], str(each["depth"]), shown, *numbers, each["status"].lower()])
    return aligned(rows)


def percent(share: float) -> str:
    """A share of 1 in percent."""
    return f"{100 * share:.2f}%"


def clock(seconds: float) -> str:
    """A time as people say it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
