"""`pprgnn train` in this process: one run, several, or several systems; new, or from where it stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import typer

from pprgnn.cli.data_import import labelled_graph
from pprgnn.cli.main import Train
from pprgnn.cli.options import STOPPED
from pprgnn.cli.output import Labelled, show, show_hint, show_json, show_labelled
from pprgnn.cli.report import write_after_training
from pprgnn.cli.train import (
    ONE_RUN,
    chosen_workers,
    is_several,
    new_folder,
    typed_command,
    wanted_folds,
)
from pprgnn.distributed.launch import (
    is_about_others,
    is_first_to_tell,
    is_launched,
    is_restarted,
    job_name,
    join,
    leave,
)
from pprgnn.distributed.team import Team
from pprgnn.errors import DataError
from pprgnn.training.comparison import Comparison, is_comparison
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.listener import Listener, Silent
from pprgnn.training.run import CONFIG, Run
from pprgnn.training.study import Listeners, Study, is_study
from pprgnn.training.terminal import (
    EpochLines,
    aligned,
    clock,
    comparison_table,
    layer_table,
    paragraph,
    percent,
    remarks,
    score_table,
    width,
)
from pprgnn.training.train import Trained, resume, train
from pprgnn.wording import counted

Summary = dict[str, Any]
Work = Callable[[Listeners], Summary]


def begin(options: Train, configs: list[Config]) -> None:
    """Train what is new."""
    with _team(configs[0].training.device) as team:
        dataset, config, workers = None, configs[0], chosen_workers(options.at_once)
        if options.tables.edges is not None:
            dataset = labelled_graph(options.tables, options.details, options.as_json or not team.is_main)
            configs = [each.with_values({"data.name": dataset.facts.name}) for each in configs]
            config = configs[0]
        folder = _folder_of_all(options.output, Path(config.data.name).stem, team)
        repeats: dict[str, Any] = {
            "folds": wanted_folds(options.folds),
            "seeds": options.seeds,
            "ensemble": options.ensemble,
            "workers": workers or 1,
            "command": typed_command(),
        }
        work: Work
        if len(configs) > 1:
            work = partial(Comparison.create(folder, configs, dataset, **repeats).run, workers=workers)
        elif is_several(options):
            work = Study.create(folder, config, dataset, **repeats).run
        elif is_restarted() and team.broadcast((folder / CONFIG).is_file()):
            work = partial(_one_run, resume, folder, team=team)
        else:
            given: dict[str, Any] = {"dataset": dataset, "folder": folder, "command": typed_command()}
            work = partial(_one_run, train, config, team=team, **given)
        summary = _trained(work, folder, options, team)
    _end(summary, options, team)


def go_on(options: Train, folder: Path) -> None:
    """Train what is left of a folder."""
    workers, team = chosen_workers(options.at_once), Team.alone()
    several = "systems" if is_comparison(folder) else "runs" if is_study(folder) else ""
    if several and options.changes:
        raise TrainingError(f"{folder} holds several {several}, whose settings are fixed; leave out --set.")
    if several == "systems":
        summary = _trained(partial(Comparison.open(folder).run, workers=workers), folder, options, team)
    else:
        with _team(Run.open(folder).config.training.device) as team:
            work: Work
            if several:
                work = Study.open(folder, workers).run
            elif workers is not None and not workers.is_this_process:
                raise TrainingError(ONE_RUN)
            else:
                work = partial(_one_run, resume, folder, changes=options.changes or [], team=team)
            summary = _trained(work, folder, options, team)
    _end(summary, options, team)


def _one_run(start: Callable[..., Trained], what: Any, listeners: Listeners, **given: Any) -> Summary:
    return start(what, listener=listeners(""), **given).summary


@contextlib.contextmanager
def _team(device: str) -> Iterator[Team]:
    """The processes that train together, if torchrun has started several; what goes wrong is said once."""
    if not is_launched():
        yield Team.alone()
        return
    try:
        yield join(device)
    except (RuntimeError, DataError, OSError) as error:
        about_others, text = is_about_others(error), str(error)
        if not about_others and not isinstance(error, DataError | OSError):
            raise  # a bug: with its traceback
        if about_others:
            text = (
                "Another process of this job has ended, so training cannot go on; what was saved is kept. Go on "
                "with `pprgnn train --resume FOLDER`, with any number of processes."
            )
        if not is_first_to_tell(text, about_others):
            raise typer.Exit(1) from error
        raise TrainingError(text) from error
    else:
        leave()


def _folder_of_all(output: Path | None, stem: str, team: Team) -> Path:
    """Where the run is kept: the same in all processes, and after a restart."""
    if output is None and is_restarted() and job_name() is None:
        raise TrainingError("A job without a name cannot find its run after a restart; give the folder with -o.")
    return Path(team.broadcast(str(output or new_folder(stem, job_name()))))


# --------------------------------------------------------------------------------------------------------- running
def _trained(work: Work, folder: Path, options: Train, team: Team) -> Summary:
    """Train; one of the processes shows how it goes and what came out. Who stops it is told how to go on."""

    def listeners(label: str) -> Listener:
        if not team.is_main:
            return Listener()
        return Silent() if options.as_json else EpochLines(label and f"{label}: ")

    try:
        summary = work(listeners) | {"folder": str(folder)}
    except KeyboardInterrupt as error:
        kept = (folder / CONFIG).is_file() or is_comparison(folder)
        raise KeyboardInterrupt(f"go on with `pprgnn train --resume {folder}`." if kept else "") from error
    if team.is_main and options.as_json:
        show_json(summary)
    elif team.is_main:
        typer.echo()
        view = _show_comparison if "systems" in summary else _show_study if "runs" in summary else _show_run
        view(summary)
    if not summary["finished"] and not summary.get("failed"):
        if team.is_main and not options.as_json:
            when = f" after epoch {summary['epochs']}" if "epochs" in summary else ""
            typer.echo(f"Stopped{when}; go on with `pprgnn train --resume {folder}`.")
        raise typer.Exit(STOPPED)
    return summary


def _end(summary: Summary, options: Train, team: Team) -> None:
    """Write the page, for which the other processes do not wait; and end with the right code."""
    if options.report and team.is_main and summary.get("systems", True):
        write_after_training(summary, options.as_json)
    if summary.get("failed"):
        raise typer.Exit(1)


# --------------------------------------------------------------------------------------------------- what is shown
def _show_run(summary: Summary) -> None:
    """All scores, where the weights come from, and each layer."""
    show([*score_table(summary), ""])
    who = "the test part" if summary["test_chose_the_epoch"] else "validation"
    chosen = f"epoch {summary['best_epoch']} of {summary['epochs']}, chosen by {who}"
    if "chosen" in summary:  # graph kernels and label propagation have no epochs
        values = ", ".join(f"{name} = {value:g}" for name, value in summary["chosen"].items())
        chosen = f"{values}, chosen by {summary.get('chosen_by', 'cross-validation')} among {summary['epochs']}"
    show(remarks(summary))
    lines = [("weights", f"{chosen}; {clock(summary['seconds'])}"), ("kept in", summary["folder"])]
    if summary["note"]:
        lines.append(("note", summary["note"]))
    show_labelled(lines)
    if summary["layers"]:
        show(["", *layer_table(summary["layers"]), ""])
    if summary["finished"]:
        show_hint(f"`pprgnn predict {summary['folder']} -o predictions.csv` uses it.")


def _show_study(summary: Summary) -> None:
    """A row for each run, then mean and standard deviation."""
    metric, runs = summary["metric"], summary["runs"]
    parts = [part for part in ("val", "test") if part in summary["mean"]]
    rows = [["run", *(f"{part} {metric}" for part in parts), "epoch"]]
    rows += [
        [each["run"], *(percent(each["scores"][part][metric]) for part in parts), str(each["best_epoch"])]
        for each in runs
    ]
    show(aligned(rows) if runs else ())
    for part in parts:
        typer.echo(f"{part} {metric}: {_spread(summary, part)} over {counted(len(runs), 'run')}")
    known = {name: values.get(metric) for name, values in (summary.get("trivial") or {}).items()}
    trivial = ", ".join(f"{name} {percent(value)}" for name, value in known.items() if value is not None)
    if trivial:
        typer.echo(f"test {metric} without looking at anything: {trivial}")
    if "ensemble" in summary:
        together = _spread(summary["ensemble"] | {"metric": metric}, "test")
        typer.echo(f"test {metric} of the seeds together: {together} over the splits")
    splits = summary.get("splits", ())  # those of folds are numbered
    lines: list[Labelled] = [("split", splits[0])] if len(splits) == 1 else []
    show_labelled([*lines, ("kept in", summary["folder"])])


def _spread(summary: Summary, part: str) -> str:
    mean, std = (percent(summary[what][part][summary["metric"]]) for what in ("mean", "std"))
    return f"{mean} ± {std}"


def _show_comparison(summary: Summary) -> None:
    """A row for each system, and why some failed."""
    show(comparison_table(summary["systems"]))
    for name, why in summary["failed"].items():
        typer.echo(paragraph(f"{name} failed: ", why, width()))
    show_labelled([("kept in", ", ".join(each["folder"] for each in summary["systems"].values()))])
