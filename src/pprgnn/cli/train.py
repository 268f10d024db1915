"""`pprgnn train`: from what was typed to settings, data and workers; starts several processes. No torch."""

from __future__ import annotations

import difflib
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from pprgnn.cli.main import Train
from pprgnn.cli.options import STOPPED, AtOnce, TableDetails, Tables, spelled
from pprgnn.cli.output import settings_lines, show
from pprgnn.data.catalog import find, handle
from pprgnn.data.registry import attributes_file
from pprgnn.data.roots import data_root
from pprgnn.distributed.launch import is_launched, launch
from pprgnn.errors import DataError
from pprgnn.training.comparison import is_comparison
from pprgnn.training.config import Config, settings
from pprgnn.training.errors import TrainingError
from pprgnn.training.recipes import find_recipe, recipe_names
from pprgnn.training.run import CONFIG, SUMMARY
from pprgnn.training.systems import find_system, find_systems
from pprgnn.training.terminal import paragraph, width
from pprgnn.training.workers import Workers

ONE_RUN = "--jobs and --backend are for several trainings, but this is one; say which with --folds or --seeds."


def train(options: Train) -> None:
    """Refuse what cannot be meant; then train in several processes, or here, which imports torch only now."""
    systems = [None] if options.model is None else [system.name for system in find_systems(options.model)]
    if options.show_settings:
        for system in systems:
            show(_all_settings(config_for(options.what, options.changes, system)))
        return
    folder = options.resume
    configs: list[Config] = []
    if folder is not None:
        _check_resume(options)
    else:
        check_source(options.what, options.tables, options.details)
        configs = [config_for(options.what, options.changes, system) for system in systems]
        _check_repeats(options, len(configs))
    if options.nproc is not None and not is_launched() and not (folder and is_comparison(folder)):
        start_processes(options, folder or options.output or new_folder(_stem(options, configs[0])))
        return
    from pprgnn.cli import train_here

    if folder is not None:
        train_here.go_on(options, folder)
    else:
        train_here.begin(options, configs)


def _stem(options: Train, config: Config) -> str:
    edges = options.tables.edges
    return Path(config.data.name).stem if edges is None else options.details.name or edges.stem


# -------------------------------------------------------------------------------------------------------- refusals
def _check_resume(options: Train) -> None:
    new = options.what is not None or options.tables.edges is not None or options.model
    if new or said_about_tables(options.tables, options.details):
        raise TrainingError(
            "--resume takes all settings from the run's folder; leave out everything but --set epochs=N."
        )


def _check_repeats(options: Train, systems: int) -> None:
    """Whether so many trainings, at once or together, can be meant."""
    workers, several = chosen_workers(options.at_once), is_several(options)
    if workers is not None and not workers.is_this_process and not several:
        raise TrainingError(ONE_RUN)
    if (several or systems > 1) and (options.nproc is not None or is_launched()):
        raise TrainingError("Several processes train one model; for several trainings at once use --jobs.")
    wanted_folds(options.folds)


def is_several(options: Train) -> bool:
    """Whether each system is trained more than once."""
    return options.folds is not None or options.seeds > 1


def wanted_folds(folds: str | None) -> int | None:
    """How many splits; -1: all of them."""
    if folds is not None and folds != "all" and not (folds.isdigit() and int(folds) > 0):
        raise TrainingError(f"--folds must be 'all' or a number from 1 on, but is {folds!r}.")
    return None if folds is None else -1 if folds == "all" else int(folds)


def _all_settings(config: Config) -> list[str]:
    lines = settings_lines((each, config.value(each.key)) for each in settings(config.model.system))
    return [*lines[1:], "", paragraph("Recipes: ", ", ".join(recipe_names()), width())]


# ----------------------------------------------------------------------------------------------- several processes
def start_processes(options: Train, folder: Path) -> None:
    """Run what was typed in so many processes; the run is kept in ``folder``."""
    processes = options.nproc or 1
    where = [] if options.resume is not None else ["--output", str(folder)]
    try:
        failed = launch([*_without_launching(sys.argv[1:]), *where], processes, options.restarts)
    except KeyboardInterrupt as error:
        if (folder / SUMMARY).is_file():  # they came to the end of an epoch, and one has said how to go on
            raise typer.Exit(STOPPED) from error
        raise KeyboardInterrupt(f"go on with `pprgnn train --resume {folder}`.") from error
    if failed is None:
        return
    rank, how = failed
    if how == f"exit code {STOPPED}":
        raise typer.Exit(STOPPED)
    if how.startswith("exit code"):  # it has said why
        raise typer.Exit(1)
    go_on = f" Go on with `pprgnn train --resume {folder}`." if (folder / CONFIG).is_file() else ""
    raise TrainingError(
        f"Process {rank} of {processes} was ended by {how}, and the others with it; if it ran out of memory, use "
        f"fewer processes or a smaller model.{go_on}"
    )


def _without_launching(arguments: list[str]) -> list[str]:
    """What was typed, without the options that are for the launcher, and without where to."""
    kept, skip = [], False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if skip:
            skip = False
        elif argument.startswith("-o") and argument != "-o":  # -oFOLDER
            continue
        elif name in ("--nproc", "--restarts", "--output", "-o"):
            skip = not equals
        else:
            kept.append(argument)
    return kept


def new_folder(stem: str, name: str | None = None, parent: str = "runs") -> Path:
    """Where a run is kept that was given no folder."""
    return Path(parent) / f"{stem}-{name or time.strftime('%Y%m%d-%H%M%S')}"


# ----------------------------------------------------------------------------------------- settings, data, workers
def config_for(what: str | None, changes: Sequence[str] | None = None, model: str | None = None) -> Config:
    """The settings: of a recipe, or a system's usual ones for a data set; then the changes.

    For another system than a recipe's own, there may be a recipe (cora-gat for GAT on cora); otherwise only the
    data are taken from the recipe.
    """
    changes = list(changes or ())
    if model is None:
        return _of_recipe(what).with_settings(changes)
    system = find_system(model).name
    special = None if what is None else find_recipe(f"{what}-{system}")
    if special is not None:
        return Config.from_toml(special).with_settings(changes)
    return _of_recipe(what).with_values({"model.system": system}).with_settings(changes)


def _of_recipe(what: str | None) -> Config:
    config = Config.for_task("node")
    if what is not None:
        recipe = find_recipe(what)
        if recipe is not None:
            config = Config.from_toml(recipe)
            relative = recipe.parent / config.data.name
            if config.data.name.endswith(".safetensors") and relative.is_file():  # beside the recipe
                config = config.with_values({"data.name": str(relative.resolve())})
        elif what.endswith(".safetensors"):
            config = config.with_values({"data.name": str(Path(what).resolve())})
        else:
            config = _of_known(what)
    return config


def _of_known(what: str) -> Config:
    """The usual settings for a data set that has no recipe of its own."""
    try:
        card = find(what, data_root())
    except DataError as error:
        close = difflib.get_close_matches(what.lower(), recipe_names(), 1)
        recipes = f"did you mean {close[0]!r}?" if close else "`pprgnn train --settings` lists them"
        raise TrainingError(f"{what!r} is neither a recipe ({recipes}) nor known data: {error}") from error
    numbers = {"data.options": {"node_attributes": True}} if attributes_file(card, data_root()) else {}
    return Config.for_task(card.task).with_values({"data.name": handle(card), **numbers})


def said_about_tables(tables: Tables, details: TableDetails) -> list[str]:
    """Which options were given that are about a user's own tables, other than --edges."""
    said = {
        "nodes": tables.nodes,
        "directed": details.directed or None,
        "header": details.header,
        "name": details.name,
        **details.named(tables.target),
    }
    return [spelled(key) for key, value in said.items() if value is not None]


def check_source(what: str | None, tables: Tables, details: TableDetails) -> None:
    """Either known data or the user's own tables."""
    if what is None and tables.edges is None:
        raise TrainingError("Expected a recipe or data set (see `pprgnn train --settings`), or --edges FILE.")
    if what is not None and tables.edges is not None:
        both = f"{what} and --edges {tables.edges}"
        raise TrainingError(f"Expected a data set or --edges, but {both} came; drop one.")
    said = said_about_tables(tables, details)
    if what is not None and said:
        raise TrainingError(
            f"{said[0]} is about your own tables (--edges), but {what} brings its own data; drop one of them."
        )


def chosen_workers(at_once: AtOnce) -> Workers | None:
    """How many trainings at once, and where; ``None``: not said."""
    jobs, backend, address = at_once.jobs or at_once.workers, at_once.backend, at_once.address
    said = (jobs, backend, address) != (None, None, None)
    return Workers(jobs or 1, backend or "loky", address or "") if said else None


def typed_command() -> str:
    """What was typed, for the record."""
    return shlex.join(["pprgnn", *sys.argv[1:]])
