"""A trained model on the command line: the model itself, and the graphs to use it on."""

from __future__ import annotations

from pathlib import Path

import typer

from pprgnn.cli.options import NewGraph, spelled
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.own.tables import from_tables
from pprgnn.data.registry import load
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import choose_device
from pprgnn.training.model import Model
from pprgnn.training.run import CHECKPOINT, MODEL, Run
from pprgnn.training.train import load_data


def open_model(run: Path) -> Model:
    """The model of a run, on the device that its settings choose."""
    path = run
    if not run.exists():
        raise TrainingError(f"There is no run and no model at {run}; check the path.")
    if run.is_dir():
        Run.open(run)  # or says that it is none
        path = run / MODEL
        if not path.is_file():
            so_far = "stopped before its end" if (run / CHECKPOINT).is_file() else "has no model yet"
            raise TrainingError(f"The run in {run} {so_far}; continue it with `pprgnn train --resume {run}`.")
    model = Model.load(path)
    model.network.to(choose_device(model.config.training.device))
    return model


def open_data(run: Path, model: Model, new: NewGraph) -> GraphDataset:
    """A new graph from tables or a file, or by default what the run was trained on.

    What is new in the tables, such as an unknown category, is told beside the answer.
    """
    reading = new.reading.given
    if new.edges is not None and new.data is not None:
        raise TrainingError("Expected --edges or --data, but both came; drop one.")
    if new.edges is not None:
        schema = model.facts.schema
        if schema is None:
            raise TrainingError(
                f"This model was trained on {model.facts.name}, not on tables; use --data instead of --edges."
            )
        dataset = from_tables(new.edges, new.nodes, schema=schema, **reading)
        for note in dataset.facts.guessed:
            typer.echo(f"Note: {note}.", err=True)
        return dataset
    if reading:
        raise TrainingError(f"{spelled(next(iter(reading)))} goes with --edges; give both.")
    if new.nodes is not None:
        raise TrainingError("--nodes goes with --edges; give both.")
    if new.data is not None:
        return load(new.data)
    if run.is_dir():
        return load_data(Run.open(run).config)
    raise TrainingError(f"{run} is a model without its data; name the graphs with --edges or --data.")
