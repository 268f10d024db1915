"""`pprgnn tune`: search for good settings, and write them as a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from pprgnn.cli.data_import import labelled_graph
from pprgnn.cli.main import TRIALS, Tune
from pprgnn.cli.options import STOPPED, TableDetails
from pprgnn.cli.output import show, show_hint, show_json, show_labelled, under
from pprgnn.cli.train import check_source, chosen_workers, config_for, new_folder, typed_command
from pprgnn.training import tune as tuning
from pprgnn.training.errors import TrainingError
from pprgnn.training.listener import Listener
from pprgnn.training.loop import Record, Training
from pprgnn.training.search import read_search, search_space
from pprgnn.training.terminal import Lines, aligned, clock, paragraph, percent, width
from pprgnn.training.tune import Tuning, ranked

SHOWN = 5  # trials in the table


def tune(options: Tune) -> None:
    """Search, show what came out, and end with the right code."""
    listener = Listener() if options.as_json else TrialLines()
    how: dict[str, Any] = {
        "timeout": None if options.timeout is None else 60 * options.timeout,
        "workers": chosen_workers(options.at_once),
        "listener": listener,
    }
    summary = _begin(options, how) if options.resume is None else _go_on(options, options.resume, how)
    if options.as_json:
        show_json(summary)
    else:
        show_tuning(summary)
        if not summary["finished"]:
            typer.echo(f"Stopped; go on with `pprgnn tune --resume {summary['folder']}`.")
    if summary["stopped"] == "Ctrl-C":
        raise typer.Exit(STOPPED)


def _begin(options: Tune, how: Mapping[str, Any]) -> dict[str, Any]:
    details = TableDetails()
    check_source(options.what, options.tables, details)
    config = config_for(options.what, options.changes, options.model)
    space = search_space(read_search(options.search), config) if options.search else None
    dataset = None
    if options.tables.edges is not None:
        dataset = labelled_graph(options.tables, details, options.as_json)
        config = config.with_values({"data.name": dataset.facts.name})
    return tuning.tune(
        config,
        options.output or new_folder(Path(config.data.name).stem, parent="tunings"),
        trials=options.trials or TRIALS,
        dataset=dataset,
        search=space,
        command=typed_command(),
        **how,
    )


def _go_on(options: Tune, folder: Path, how: Mapping[str, Any]) -> dict[str, Any]:
    tables = options.tables
    new = (options.what, tables.edges, tables.nodes, tables.target, options.output)
    if new != (None,) * 5 or options.changes or options.model or options.search:
        raise TrainingError(
            "--resume takes all settings from its folder; only --trials and --jobs may go with it."
        )
    return tuning.resume_tuning(folder, trials=options.trials, **how)


# --------------------------------------------------------------------------------------------------- what is shown
class TrialLines(Lines, Listener):
    """A line per trial; on a terminal, another one below that moves with the epochs."""

    tuning: Tuning  # once it has started

    def __init__(self) -> None:
        super().__init__()
        self._trial, self._epochs = 0, 0  # that are running
        self._best: Mapping[str, Any] | None = None

    def tuning_started(self, tuning: Tuning) -> None:
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
        self.start_line()

    def trial_started(self, number: int, settings: Mapping[str, Any]) -> None:
        """Nothing yet: the line comes when the trial is over."""
        self._trial = number

    def started(self, training: Training) -> None:
        self._epochs = training.settings.epochs

    def epoch(self, record: Record) -> None:
        """Move the line, a few times a second."""
        if not self.moving or not self.is_due():
            return
        cells = [f"trial {self._trial}/{self.tuning.trials}", f"epoch {record.epoch}/{self._epochs}"]
        if record.val is not None:
            cells.append(f"val {self.tuning.figure} {figure(record.val[self.tuning.figure], self.tuning.figure)}")
        if self._best is not None:
            best = figure(self._best["value"], self.tuning.figure)
            cells.append(f"best {best} in trial {self._best['trial']}")
        self.move(cells)

    def trial_finished(self, entry: Mapping[str, Any]) -> None:
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
        self.say(paragraph(f"{'trial ' + str(entry['trial']):<9}", text, width()))


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
