"""`pprgnn train` in this process: one run, several, or several systems; new, or from where it stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from pprgnn.cli.commands import Train
from pprgnn.cli.processes import folder_of_all, joined
from pprgnn.cli.report import write_after_training
from pprgnn.cli.tables import labelled_graph
from pprgnn.cli.train import ONE_RUN, is_several, wanted_folds
from pprgnn.cli.train_view import finish
from pprgnn.cli.training_options import chosen_workers, typed_command
from pprgnn.data.dataset import GraphDataset
from pprgnn.distributed.launch import is_launched, is_restarted
from pprgnn.distributed.team import Team
from pprgnn.training.comparison import Comparison, is_comparison
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.listener import Listener
from pprgnn.training.run import CONFIG, Run
from pprgnn.training.study import Study, is_study
from pprgnn.training.terminal import EpochLines
from pprgnn.training.train import resume, train

Summary = dict[str, Any]


def begin(options: Train, configs: list[Config]) -> None:
    """Train what is new."""
    with _team(configs[0].training.device) as team:
        dataset = None
        if options.tables.edges is not None:
            dataset = labelled_graph(options.tables, options.details, options.as_json or not team.is_main)
            configs = [each.with_values({"data.name": dataset.facts.name}) for each in configs]
        folder = folder_of_all(options.output, Path(configs[0].data.name).stem, team)
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
        finish(summary, options.as_json, team)
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
        finish(summary, options.as_json, team)
    _write_page(summary, options, team)


@contextlib.contextmanager
def _team(device: str) -> Iterator[Team]:
    """The processes that train together, if torchrun has started this one as one of several."""
    if is_launched():
        with joined(device) as team:
            yield team
    else:
        yield Team.alone()


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
    finish(summary, options.as_json)
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
