"""One call from a config to a trained model; what the command line and the classifiers use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pprgnn.data.dataset import GraphDataset
from pprgnn.data.registry import load
from pprgnn.data.split import Split
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.kernel_fit import KernelTraining
from pprgnn.training.listener import Listener
from pprgnn.training.loop import Training
from pprgnn.training.model import Model
from pprgnn.training.run import Run
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
) -> Trained:
    """Train; with a folder, all of it is kept there.

    Args:
        config: All settings.
        dataset: What to learn from, if it is not the one that the config names; a run keeps a copy of it.
        split: How it is divided, if not as the config says.
        folder: Where to keep the run; ``None``: nowhere.
        listener: Is told how it goes.
        command: What started it, for the record.
    """
    own = dataset
    dataset = load_data(config) if dataset is None else dataset
    split = choose_split(config, dataset) if split is None else split
    run = None
    training = _kind(config)(config, dataset, split, listener=listener)  # refuses before there is a folder
    if folder is not None:
        run = training.run = Run.create(folder, config, split, own=own, command=command)
    summary = training.fit()
    return Trained(training.model, summary, run)


def resume(folder: Path | str, *, listener: Listener | None = None) -> Trained:
    """Go on with a run that was stopped or killed; it ends as if it had not been."""
    run = Run.open(folder)
    if run.finished:
        raise TrainingError(f"The run in {folder} is finished, so there is nothing to continue; see summary.json.")
    config = run.config
    training = _kind(config)(config, load_data(config), run.split, run=run, listener=listener)
    summary = training.fit(resume=True)
    return Trained(training.model, summary, run)


def _kind(config: Config) -> type[Training] | type[KernelTraining]:
    return KernelTraining if find_system(config.model.system).kind == "kernel" else Training
