"""`pprgnn train` in this process: one run, several, or several systems; new, or from where it stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
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
from pprgnn.data.dataset import GraphDataset
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
from pprgnn.training.listener import Listener
from pprgnn.training.run import CONFIG, Run
from pprgnn.training.study import Study, is_study
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
from pprgnn.training.train import resume, train
from pprgnn.wording import counted

Summary = dict[str, Any]


def begin(options: Train, configs: list[Config]) -> None:
    """Train what is new."""
    with _team(configs[0].training.device) as team:
        dataset = None
        if options.tables.edges is not None:
            dataset = labelled_graph(options.tables, options.details, options.as_json or not team.is_main)
            configs = [each.with_values({"data.name": dataset.facts.name}) for each in configs]
        folder = _folder_of_all(options.output, Path(configs[0].data.name).stem, team)
        repeats: dict[str, Any] = {
            "folds": wanted_folds(options.folds),
            "seeds": options.seeds,
            "ensemble": options.ensemble,
            "workers": chosen_workers(options.at_once) or 1,
            "command": typed_command(),
        }
        if len(configs) > 1:
            _compare(Comparison.create(folder, configs, dataset, **repeats), options)
            return
        if is_several(options):
            summary = _study(Study.create(folder, configs[0], dataset, **repeats), options.as_json)
        else:
            summary = _train(configs[0], dataset, folder, options.as_json, team)
        _finish(summary, options.as_json, team)
    _write_page(summary, options, team)


def go_on(options: Train, folder: Path) -> None:
    """Train what is left of a folder."""
    if is_comparison(folder):
        if options.changes:
            raise TrainingError(f"{folder} holds several systems, whose settings are fixed; leave out --set.")
        _compare(Comparison.open(folder), options)
        return
    with _team(Run.open(folder).config.training.device) as team:
        summary = _resume(folder, options, team)
        _finish(summary, options.as_json, team)
    _write_page(summary, options, team)


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


def _write_page(summary: Summary, options: Train, team: Team) -> None:
    if options.report and team.is_main:  # the others have left: nobody waits for the page
        write_after_training(summary, options.as_json)


# --------------------------------------------------------------------------------------------------------- running
def _train(config: Config, dataset: GraphDataset | None, folder: Path, quiet: bool, team: Team) -> Summary:
    listener = _listener(quiet, team)
    with _ending_well(folder, listener):
        if is_restarted() and team.broadcast((folder / CONFIG).is_file()):
            trained = resume(folder, listener=listener, team=team)
        else:
            trained = train(
                config, dataset=dataset, folder=folder, command=typed_command(), listener=listener, team=team
            )
    return trained.summary | {"folder": str(folder)}


def _resume(folder: Path, options: Train, team: Team) -> Summary:
    workers = chosen_workers(options.at_once)
    if is_study(folder):
        if options.changes:
            raise TrainingError(f"{folder} holds several runs, whose settings are fixed; leave out --set.")
        return _study(Study.open(folder, workers), options.as_json)
    if workers is not None and not workers.is_this_process:
        raise TrainingError(ONE_RUN)
    listener = _listener(options.as_json, team)
    with _ending_well(folder, listener):
        trained = resume(folder, changes=options.changes or [], listener=listener, team=team)
    return trained.summary | {"folder": str(folder)}


def _study(study: Study, quiet: bool) -> Summary:
    with _ending_well(study.folder):
        return study.run(_listeners(quiet))


def _compare(comparison: Comparison, options: Train) -> None:
    """Train all systems, then one table and one page about all of them."""
    with _ending_well(comparison.folder):
        summary = comparison.run(_listeners(options.as_json), chosen_workers(options.at_once))
    _finish(summary, options.as_json)
    if options.report and summary["systems"]:
        write_after_training(summary, options.as_json)
    if summary["failed"]:
        raise typer.Exit(1)


def _listener(quiet: bool, team: Team) -> Listener | None:
    """Who shows how it goes: one of the processes does, unless nobody should."""
    return Listener() if not team.is_main else None if quiet else EpochLines()


def _listeners(quiet: bool) -> Callable[[str], Listener | None]:
    """The same for each of several trainings, by its label."""
    return (lambda label: None) if quiet else (lambda label: EpochLines(f"{label}: "))


@contextlib.contextmanager
def _ending_well(folder: Path, listener: Any = None) -> Iterator[None]:
    """Whatever happens, the live line ends; who stopped it at once is told how to go on."""
    try:
        yield
    except KeyboardInterrupt as error:
        kept = (folder / CONFIG).is_file() or is_comparison(folder)
        raise KeyboardInterrupt(f"go on with `pprgnn train --resume {folder}`." if kept else "") from error
    finally:
        if hasattr(listener, "stop"):
            listener.stop()


# --------------------------------------------------------------------------------------------------- what is shown
def _finish(summary: Summary, as_json: bool, team: Team | None = None) -> None:
    """Show it, in one of the processes, and end with the right code."""
    leads = team is None or team.is_main
    if leads and as_json:
        show_json(summary)
    elif leads:
        typer.echo()
        view = _show_comparison if "systems" in summary else _show_study if "runs" in summary else _show_run
        view(summary)
    if not summary["finished"] and not summary.get("failed"):
        if leads and not as_json:
            when = f" after epoch {summary['epochs']}" if "epochs" in summary else ""
            typer.echo(f"Stopped{when}; go on with `pprgnn train --resume {summary['folder']}`.")
        raise typer.Exit(STOPPED)


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
