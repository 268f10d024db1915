"""One call from a config to a trained model; what the command line and the classifiers use."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pprgnn.data.dataset import GraphDataset
from pprgnn.data.registry import load
from pprgnn.data.split import Split
from pprgnn.distributed.team import Team
from pprgnn.training.config import Config
from pprgnn.training.defaults import settle
from pprgnn.training.errors import TrainingError
from pprgnn.training.grid_fit import GridTraining, LabelTraining
from pprgnn.training.kernel_fit import KernelTraining
from pprgnn.training.listener import Listener
from pprgnn.training.loop import Training
from pprgnn.training.model import Model
from pprgnn.training.run import Run, locked
from pprgnn.training.systems import find_system


@dataclass(frozen=True)
class Trained:
    """What comes out of training."""

    model: Model
    summary: dict[str, Any]
    run: Run | None


def load_data(config: Config) -> GraphDataset:
    """The data set of a config."""
    if not config.data.name:
        raise TrainingError("There is no data to learn from: name a data set (data.name), or give --edges.")
    return load(config.data.name, **config.data.options)


def choose_split(config: Config, dataset: GraphDataset) -> Split:
    """The split of a config."""
    data = config.data
    splits = dataset.splits(data.protocol, data.split_seed, **data.split)
    if data.fold >= len(splits):
        raise TrainingError(
            f"data.fold must be below {len(splits)}, the number of splits of {dataset.facts.name} under this "
            f"protocol, but is {data.fold}."
        )
    return splits[data.fold]


def train(
    config: Config,
    *,
    dataset: GraphDataset | None = None,
    split: Split | None = None,
    folder: Path | str | None = None,
    listener: Listener | None = None,
    command: str = "",
    team: Team | None = None,
    accept_divergence: bool = False,
) -> Trained:
    """Train; with a folder, all of it is kept there.

    Args:
        config: All settings.
        dataset: What to learn from, if it is not the one that the config names; a run keeps a copy of it.
        split: How it is divided, if not as the config says.
        folder: Where to keep the run; ``None``: nowhere.
        listener: Is told how it goes.
        command: What started it, for the record.
        team: The processes that train together; each of them calls this. The first one keeps the
            run and returns the whole model.
        accept_divergence: A training whose loss explodes ends with its best epoch so far and a warning, as early
            stopping would; without a validated epoch, or by default, with an error.
    """
    own, team = dataset, team or Team.alone()
    with team.main_first():
        dataset = load_data(config) if dataset is None else dataset
    split = choose_split(config, dataset) if split is None else split
    config, run = settle(config, dataset, [split]), None
    training = _training(config, dataset, split, listener=listener, team=team)  # refuses before there is a folder
    with locked(folder) if folder is not None and team.is_main else nullcontext():
        if folder is not None and team.is_main:
            run = training.run = Run.create(folder, config, split, own=own, command=command)
        training.accept_divergence = accept_divergence
        summary = training.fit()
    return Trained(training.model, summary, run)


def check_trainable(config: Config, dataset: GraphDataset, split: Split) -> None:
    """Raise what training would raise before its first epoch; nothing is kept."""
    system = find_system(config.model.system)
    if "edge_weight" in dataset._data and not system.edge_weights:
        raise TrainingError(
            f"{system.title} cannot use edge weights, but {dataset.facts.name} has some; leave it out."
        )
    _training(config, dataset, split, team=Team.alone())


def resume(
    folder: Path | str,
    *,
    changes: Sequence[str] = (),
    listener: Listener | None = None,
    team: Team | None = None,
    accept_divergence: bool = False,
) -> Trained:
    """Go on with a run that was stopped or killed; it ends as if it had not been.

    By as many processes as there are now, whatever their number was before. With ``changes``, such as
    ``epochs=800``, also a finished run goes on.
    """
    run, team = Run.open(folder), team or Team.alone()
    kept = run if team.is_main else None
    with locked(folder) if team.is_main else nullcontext():
        if run.finished and not changes:
            raise TrainingError(
                f"The run in {run.folder} is finished, so there is nothing to continue; more epochs take "
                f"--set epochs=N."
            )
        with team.main_first():
            if changes and team.is_main:
                run.extend(changes)
            config = run.config
            dataset = load_data(config)
        training = _training(config, dataset, run.split, run=kept, listener=listener, team=team)
        training.accept_divergence = accept_divergence
        return Trained(training.model, training.fit(resume=True), kept)


def _training(config: Config, dataset: GraphDataset, split: Split, **options: Any) -> Training | GridTraining:
    system = find_system(config.model.system)
    if system.kind not in ("kernel", "labels"):
        return Training(config, dataset, split, **options)
    if options.pop("team").size > 1:
        who = "Graph kernels are" if system.kind == "kernel" else f"{system.title} is"
        raise TrainingError(f"{who} fitted by one process; use --folds with --jobs for several fits.")
    return (KernelTraining if system.kind == "kernel" else LabelTraining)(config, dataset, split, **options)
