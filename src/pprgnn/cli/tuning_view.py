"""What one sees of a tuning: a line per trial, on a terminal one more that moves, and a table at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import typer

from pprgnn.cli.moving_line import MovingLine
from pprgnn.cli.output import show, show_hint, show_labelled, under
from pprgnn.training.loop import Record, Training
from pprgnn.training.terminal import paragraph, width
from pprgnn.training.tune import Tuning, ranked
from pprgnn.training.view import aligned, clock, percent

SHOWN = 5  # trials in the table


class TrialLines:
    """A line per trial; on a terminal, another one below that moves with the epochs."""

    def __init__(self) -> None:
        self.tuning: Tuning | None = None
        self._moving = MovingLine(self._line)
        self._now: tuple[int, Record, int] | None = None  # trial, its last epoch, and of how many
        self._best: Mapping[str, Any] | None = None

    def started(self, tuning: Tuning) -> None:
        """Tell what is searched where."""
        self.tuning = tuning
        entries = tuning.entries()
        self._best = next(iter(ranked(entries, tuning.figure)), None)
        done = f", {len(entries)} of them done" if entries else ""
        show_labelled(
            [
                ("data", f"{tuning.dataset!r}"[len("GraphDataset(") : -1]),
                *under("search", (f"{key} {wanted}" for key, wanted in tuning.space.items())),
                ("trials", f"{tuning.trials}{done}; compared by validation {tuning.figure}"),
            ]
        )
        self._moving.start()

    def trial(self, number: int, settings: Mapping[str, Any]) -> None:
        """Nothing yet: the line comes when the trial is over."""

    def epoch(self, number: int, record: Record, training: Training) -> None:
        """What the moving line is about."""
        self._now = number, record, training.settings.epochs

    def ended(self, entry: Mapping[str, Any]) -> None:
        """How the trial went."""
        assert self.tuning is not None
        name = self.tuning.figure
        if entry["state"] == "complete":
            better = ranked([dict(entry), *([dict(self._best)] if self._best else [])], name)[0]
            new = better["trial"] == entry["trial"]
            self._best = better
            result = f"val {name} {figure(entry['value'], name)}{', the best so far' if new else ''}"
        elif entry["state"] == "pruned":
            result = f"cut short after epoch {entry['epochs']} with {figure(entry['value'], name)}"
        else:
            result = f"failed: {entry['error']}"
        text = f"{result}; {told(entry['settings'])}; {clock(entry['seconds'])}"
        self._moving.say(paragraph(f"{'trial ' + str(entry['trial']):<9}", text, width()))

    def note(self, text: str) -> None:
        """Tell at once, unless it is Ctrl-C in the middle of another line: Python does not let lines mix."""
        with contextlib.suppress(RuntimeError):
            self._moving.say(text)

    def stop(self) -> None:
        """End the line, whatever happened."""
        self._moving.stop()

    def _line(self) -> str:
        if self.tuning is None or self._now is None:
            return ""
        name, (number, record, epochs) = self.tuning.figure, self._now
        cells = [f"trial {number}/{self.tuning.trials}", f"epoch {record.epoch}/{epochs}"]
        if record.val is not None:
            cells.append(f"val {name} {figure(record.val[name], name)}")
        if self._best is not None:
            cells.append(f"best {figure(self._best['value'], name)} in trial {self._best['trial']}")
        return "  ".join(cells)


def show_tuning(summary: Mapping[str, Any]) -> None:
    """The best trials, which settings mattered, and what to do next."""
    name = summary["figure"]
    best = ranked(summary["trials"], name)[:SHOWN]
    typer.echo()
    if not best:
        typer.echo("No trial is complete yet.")
        return
    show([*_table(best, name), ""])
    states = [each["state"] for each in summary["trials"]]
    counts = [(states.count(state), word) for state, word in (("pruned", "cut short"), ("failed", "failed"))]
    others = "".join(f", {count} {word}" for count, word in counts if count)
    lines = [("trials", f"{len(states)} of {summary['wanted']}{others}; {clock(summary['seconds'])}")]
    if summary["importance"]:
        shares = [f"{key.partition('.')[2]} {100 * share:.0f}%" for key, share in summary["importance"].items()]
        lines.append(("matters", ", ".join(shares)))
    lines.append(("best", summary["recipe"]))
    show_labelled(lines)
    show_hint(f"`{summary['command']}` trains with it.")


def _table(best: list[dict[str, Any]], name: str) -> list[str]:
    """Trials as rows; in a window too narrow for them, as columns."""
    keys = list(best[0]["settings"])
    rows = [["trial", f"val {name}", *(key.partition(".")[2] for key in keys)]]
    rows += [
        [str(each["trial"]), figure(each["value"], name), *(shown(each["settings"][key]) for key in keys)]
        for each in best
    ]
    lines = aligned(rows)
    limit = width()
    if limit is not None and max(map(len, lines[1:])) > limit:
        lines = aligned([list(column) for column in zip(*rows, strict=True)])
    return lines


def told(settings: Mapping[str, Any]) -> str:
    """Settings as `--set` takes them, without their sections."""
    return " ".join(f"{key.partition('.')[2]}={shown(value)}" for key, value in settings.items())


def shown(value: Any) -> str:
    """A value of a setting."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def figure(value: float | None, name: str) -> str:
    """A score in percent, a loss as it is."""
    if value is None or value != value:
        return "–"
    return f"{value:.4g}" if name == "loss" else percent(value)
