"""`pprgnn predict`: what a trained model says about its own graph, or about a new one."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pprgnn.cli.saved_run import NewData, NewEdges, RunArgument, open_data, open_model
from pprgnn.cli.tables import READING, takes
from pprgnn.training.terminal import is_terminal, paragraph, styled, width
from pprgnn.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from pprgnn.training.few_nodes import Effort

PREVIEW = 5
DIGITS = 4
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".xlsx", ".gz")


@takes("reading", READING)
def predict_command(
    run: RunArgument,
    edges: NewEdges = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--nodes",
            help="Only these nodes, at the price of their neighbourhood: ids separated by commas, or @FILE with "
            "one per line; may be repeated. With --edges, a file is its node table, with columns as in training.",
        ),
    ] = None,
    data: NewData = None,
    reading: Any = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a .csv, .tsv, .parquet or .xlsx file.")
    ] = None,
    unlabelled: Annotated[bool, typer.Option("--unlabelled", help="Only what has no label yet.")] = False,
    precision: Annotated[
        int | None,
        typer.Option(
            help=f"Significant digits of probabilities; {DIGITS} by default, all of them in Parquet and JSON.",
            min=1,
            max=17,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Predict classes and probabilities.

    For the graph of the run, or for a new one, which the model has never seen. In a pipe, the rows alone go to the
    standard output, with tabs between their columns.
    """
    from pprgnn.training.errors import TrainingError
    from pprgnn.training.few_nodes import FewNodes
    from pprgnn.training.predictions import (
        SUFFIXES,
        named_rows,
        predict_table,
        rounded,
        unlabelled_rows,
        write_table,
    )

    if output is not None and output.suffix.lower() not in SUFFIXES:
        raise TrainingError(f"The output must end in .csv, .tsv, .parquet or .xlsx, but is {output}.")
    table_file, ids = _table_and_ids(nodes or [])
    if ids is not None and unlabelled:
        raise TrainingError("Expected --nodes or --unlabelled, but both came; drop one.")
    model = open_model(run)
    dataset = open_data(run, model, edges, table_file, data, reading)
    effort = None
    if ids is None:
        table = predict_table(model, dataset, unlabelled_rows(dataset) if unlabelled else None)
    else:
        rows = named_rows(dataset, ids)
        logits, effort = FewNodes(model, dataset).logits(rows)
        table = predict_table(model, dataset, rows, logits)
    for_programs = as_json if output is None else output.suffix.lower() == ".parquet"
    if precision is not None or not for_programs:
        table = rounded(table, precision or DIGITS)
    if output is not None:
        write_table(table, output)
    if as_json:
        typer.echo(json.dumps(_for_programs(table, output, effort), indent=2))
        return
    shown = output is None and (effort is not None or not is_terminal())
    lines = [f"{counted(table.num_rows, dataset.facts.task)} of {dataset.facts.name}: {_by_class(table)}"]
    if model.facts.multi_label:
        lines.append(paragraph("labels   ", f"above probability {model.threshold.describe()}", width()))
    if effort is not None:
        lines += _described(effort)
    if output is not None:
        lines.append(f"Written to {output}.")
    elif not shown:
        lines.append(styled("Nothing was written; add -o FILE.csv or -o FILE.parquet.", dim=True))
    for line in lines:
        typer.echo(line, err=shown)  # the rows have the standard output for themselves
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
    from pprgnn.training.errors import TrainingError

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
    from pprgnn.training.errors import TrainingError

    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or "it is no text"
        raise TrainingError(f"{path} cannot be read ({what}); name a file with one id per line.") from error


def _for_programs(table: pa.Table, output: Path | None, effort: Effort | None) -> Any:
    rows = table.to_pylist()
    if effort is None:
        return {"file": str(output), "rows": len(rows)} if output else rows
    found = {"file": str(output), "rows": len(rows)} if output else {"predictions": rows}
    return found | {"effort": effort.to_dict()}


def _described(effort: Effort) -> list[str]:
    """What the answer took, and what is known about it."""
    if not effort.certified:
        size = f"{counted(effort.all_nodes, 'node')}, {effort.all_edges:,} entries of its matrix"
        whole = f"the whole graph ({size}), {effort.seconds:.2f} s"
        return [paragraph("computed ", f"on {whole}; not on a neighbourhood, because {effort.reason}", width())]
    part = (
        f"on {effort.nodes:,} of {counted(effort.all_nodes, 'node')} and "
        f"{effort.edges:,} of {effort.all_edges:,} entries of the matrix, {effort.seconds:.2f} s"
    )
    proof = f"the asked rows are off by at most {effort.error_bound:.1e} of their input"
    return [f"computed {part}", paragraph("proved   ", proof, width())]
