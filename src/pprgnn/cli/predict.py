"""`pprgnn predict`: what a trained model says about its own graph, or about a new one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from pprgnn.cli.layout import is_terminal, styled
from pprgnn.cli.saved_run import NewData, NewEdges, NewNodes, RunArgument, open_data, open_model

PREVIEW = 5


def predict_command(
    run: RunArgument,
    edges: NewEdges = None,
    nodes: NewNodes = None,
    data: NewData = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a .csv, .tsv or .parquet file.")
    ] = None,
    unlabelled: Annotated[bool, typer.Option("--unlabelled", help="Only what has no label yet.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Predict classes and probabilities.

    For the graph of the run, or for a new one, which the model has never seen.
    """
    from pprgnn.training.errors import TrainingError
    from pprgnn.training.predictions import SUFFIXES, predict_table, unlabelled_rows, write_table

    if output is not None and output.suffix.lower() not in SUFFIXES:
        raise TrainingError(f"The output must end in .csv, .tsv or .parquet, but is {output}.")
    model = open_model(run)
    dataset = open_data(run, model, edges, nodes, data)
    table = predict_table(model, dataset, unlabelled_rows(dataset) if unlabelled else None)
    if output is not None:
        write_table(table, output)
    if as_json:
        rows = table.to_pylist()
        typer.echo(json.dumps({"file": str(output), "rows": len(rows)} if output else rows, indent=2))
        return
    counts = Counter(table.column("prediction").to_pylist())
    unit = "graphs" if dataset.facts.task == "graph" else "nodes"
    typer.echo(f"{table.num_rows:,} {unit} of {dataset.facts.name}: ", nl=False)
    typer.echo(", ".join(f"{count:,} {name or '(none)'}" for name, count in counts.most_common(PREVIEW)))
    if output is not None:
        typer.echo(f"Written to {output}.")
    elif is_terminal():
        typer.echo(styled("Nothing was written; add -o FILE.csv or -o FILE.parquet.", dim=True))
    else:
        _write_lines(table.to_pylist())


def _write_lines(rows: list[dict[str, object]]) -> None:
    for row in rows:
        typer.echo("\t".join(str(value) for value in row.values()))
