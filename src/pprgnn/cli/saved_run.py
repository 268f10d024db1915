"""A trained model on the command line: opening it and its graphs, `pprgnn evaluate` and `pprgnn predict`."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer

from pprgnn.cli.main import DIGITS, Evaluate, Predict
from pprgnn.cli.options import NewGraph, given, spelled
from pprgnn.cli.output import show, show_json, show_labelled
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.own.tables import from_tables
from pprgnn.data.registry import load
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import choose_device, final_metrics, prior_logits, trivial_levels
from pprgnn.training.evaluation import evaluate as scores_of
from pprgnn.training.few_nodes import Effort, FewNodes
from pprgnn.training.model import Model
from pprgnn.training.predictions import (
    SUFFIXES,
    named_rows,
    predict_table,
    rounded,
    unlabelled_rows,
    without_formulas,
    write_table,
)
from pprgnn.training.run import CHECKPOINT, MODEL, Run
from pprgnn.training.systems import find_system
from pprgnn.training.terminal import is_terminal, labelled, layer_table, remarks, score_table, styled
from pprgnn.training.train import load_data
from pprgnn.wording import counted

PREVIEW = 5
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".xlsx", ".gz")


# --------------------------------------------------------------------------------------------------------- opening
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
    reading = given(new.reading)
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


# -------------------------------------------------------------------------------------------------------- evaluate
def evaluate(options: Evaluate) -> None:
    """Score the parts of the run, or all that is labelled in new data."""
    model = open_model(options.run)
    dataset = open_data(options.run, model, options.new)
    own = not options.new.is_given
    masks = Run.open(options.run).split.masks(dataset) if own else {"labelled": dataset.labelled()}
    if not own and not bool(masks["labelled"].any()):
        raise TrainingError(f"Nothing in {dataset.facts.name} is labelled; use `pprgnn predict` instead.")
    note, last = dataset.facts.note, "test" if own else "labelled"
    if own and find_system(model.config.model.system).kind == "kernel":
        masks.pop("val", None)
        more = "The machine was fitted to the validation part, too: summary.json has its honest score."
        note = f"{note} {more}".strip()
    metrics, batches = final_metrics(model.config, model.facts), model.batches(dataset)
    on_device = {part: mask.to(model.device) for part, mask in masks.items()}
    scores, layers, predicted = scores_of(model, batches, on_device, metrics)
    y, several = dataset.labels(), model.facts.multi_label
    prior = prior_logits(y[masks["train"]], len(model.facts.class_names)) if own else model.prior
    summary = {
        "data": dataset.facts.title,
        "metric": metrics[0],
        "scores": scores,
        "predicted": predicted.get(last),
        "threshold": model.threshold.to_dict() if several else None,
        "trivial": trivial_levels(prior, y[masks[last]], several, metrics),
        "layers": layers,
    }
    if options.as_json:
        show_json(summary | {"note": note})
        return
    show([*score_table(summary), "", *remarks(summary)])
    show_labelled([("note", note)] if note else ())
    show(["", *layer_table(layers)] if layers else ())


# --------------------------------------------------------------------------------------------------------- predict
def predict(options: Predict) -> None:
    """Predict, write, and tell; the rows alone have the standard output for themselves."""
    output = options.output
    if output is not None and output.suffix.lower() not in SUFFIXES:
        raise TrainingError(f"The output must end in .csv, .tsv, .parquet or .xlsx, but is {output}.")
    table_file, ids = _table_and_ids(options.nodes or [])
    if ids is not None and options.unlabelled:
        raise TrainingError("Expected --nodes or --unlabelled, but both came; drop one.")
    model = open_model(options.run)
    new = NewGraph(edges=options.edges, nodes=table_file, data=options.data, reading=options.reading)
    dataset = open_data(options.run, model, new)
    effort = None
    if ids is None:
        table = predict_table(model, dataset, unlabelled_rows(dataset) if options.unlabelled else None)
    else:
        rows = named_rows(dataset, ids)
        logits, effort = FewNodes(model, dataset).logits(rows)
        table = predict_table(model, dataset, rows, logits)
    for_programs = options.as_json if output is None else output.suffix.lower() == ".parquet"
    if options.precision is not None or not for_programs:
        table = rounded(table, options.precision or DIGITS)
    if output is not None:
        for_spreadsheets = options.safe_csv and output.suffix.lower() != ".parquet"
        write_table(without_formulas(table) if for_spreadsheets else table, output)
    if options.as_json:
        show_json(_for_programs(table, output, effort))
        return
    shown = output is None and (effort is not None or not is_terminal())
    lines = [f"{counted(table.num_rows, dataset.facts.task)} of {dataset.facts.name}: {_by_class(table)}"]
    if model.facts.multi_label:
        lines += labelled([("labels", f"above probability {model.threshold.describe()}")])
    if effort is not None:
        lines += _described(effort)
    if output is not None:
        lines.append(f"Written to {output}.")
    elif not shown:
        lines.append(styled("Nothing was written; add -o FILE.csv or -o FILE.parquet.", dim=True))
    for line in lines:
        typer.echo(line, err=shown)
    if shown:
        writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
        writer.writerows([table.column_names, *(row.values() for row in table.to_pylist())])


def _by_class(table: pa.Table) -> str:
    """How many have which class, the most frequent ones first."""
    counts = Counter(table.column("prediction").to_pylist()).most_common()
    told = ", ".join(f"{count:,} as {name or '(none)'}" for name, count in counts[:PREVIEW])
    rest = sum(count for _, count in counts[PREVIEW:])
    more = counted(len(counts) - PREVIEW, "more class", "more classes")
    return f"{told}, and {rest:,} in {more}" if rest else told


def _table_and_ids(given: list[str]) -> tuple[Path | None, list[str] | None]:
    """Which of the values of --nodes is the table of a new graph, and the ids that the others hold."""

    def is_table(value: str) -> bool:
        path = Path(value)
        return path.suffix.lower() in TABLES or (bool(path.suffix) and path.is_file())

    tables, others = [each for each in given if is_table(each)], [each for each in given if not is_table(each)]
    if len(tables) > 1:
        raise TrainingError(f"Expected one node table, but {len(tables)} came: {', '.join(tables)}; drop one.")
    ids: list[str] = []
    for value in others:
        ids += _lines(Path(value[1:])) if value.startswith("@") else [each.strip() for each in value.split(",")]
    ids = [each for each in ids if each]
    if others and not ids:
        raise TrainingError(f"--nodes must name at least one node, but came as {', '.join(map(repr, others))}.")
    return (Path(tables[0]) if tables else None), (ids or None)


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or "it is no text"
        raise TrainingError(f"{path} cannot be read ({what}); name a file with one id per line.") from error


def _for_programs(table: pa.Table, output: Path | None, effort: Effort | None) -> Any:
    written = {"file": str(output), "rows": table.num_rows} if output else None
    if effort is None:
        return written or table.to_pylist()
    return (written or {"predictions": table.to_pylist()}) | {"effort": effort.to_dict()}


def _described(effort: Effort) -> list[str]:
    """What the answer took, and what is known about it."""
    if not effort.certified:
        size = f"{counted(effort.all_nodes, 'node')}, {effort.all_edges:,} entries of its matrix"
        whole = f"the whole graph ({size}), {effort.seconds:.2f} s"
        return labelled([("computed", f"on {whole}; not on a neighbourhood, because {effort.reason}")])
    part = (
        f"on {effort.nodes:,} of {counted(effort.all_nodes, 'node')} and "
        f"{effort.edges:,} of {effort.all_edges:,} entries of the matrix, {effort.seconds:.2f} s"
    )
    proof = f"the asked rows are off by at most {effort.error_bound:.1e} of their input"
    return [f"computed {part}", *labelled([("proved", proof)])]
