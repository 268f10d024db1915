"""`pprgnn train`: from a recipe, a data set or a user's own tables to a run."""

from __future__ import annotations

from pathlib import Path

from pprgnn.cli.commands import Train
from pprgnn.cli.output import settings_lines, show
from pprgnn.cli.processes import new_folder, start_processes
from pprgnn.cli.training_options import check_source, chosen_workers, config_for, said_about_tables
from pprgnn.distributed.launch import is_launched
from pprgnn.training.comparison import is_comparison
from pprgnn.training.config import Config, settings
from pprgnn.training.errors import TrainingError
from pprgnn.training.recipes import recipe_names
from pprgnn.training.systems import find_systems
from pprgnn.training.terminal import paragraph, width

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
