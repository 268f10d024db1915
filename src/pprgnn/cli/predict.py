"""`pprgnn predict`: what a trained model says about its own graph, or about a new one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pprgnn.cli.layout import is_terminal, paragraph, styled, width
from pprgnn.cli.saved_run import NewData, NewEdges, RunArgument, open_data, open_model
from pprgnn.cli.tables import READING, takes

if TYPE_CHECKING:
    import pyarrow as pa

    from pprgnn.training.few_nodes import Effort

PREVIEW = 5
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
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Predict classes and probabilities.

    For the graph of the run, or for a new one, which the model has never seen.
    """
    from pprgnn.training.errors import TrainingError
    from pprgnn.training.few_nodes import FewNodes
    from pprgnn.training.predictions import SUFFIXES, named_rows, predict_table, unlabelled_rows, write_table

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
    if output is not None:
        write_table(table, output)
    if as_json:
        typer.echo(json.dumps(_for_programs(table, output, effort), indent=2))
        return
    counts = Counter(table.column("prediction").to_pylist())
    unit = "graphs" if dataset.facts.task == "graph" else "nodes"
    typer.echo(f"{table.num_rows:,} {unit} of {dataset.facts.name}: ", nl=False)
    typer.echo(", ".join(f"{count:,} {name or '(none)'}" for name, count in counts.most_common(PREVIEW)))
    if model.facts.multi_label:
        typer.echo(paragraph("labels   ", f"above probability {model.threshold.describe()}", width()))
    if effort is not None:
        for line in _described(effort):
            typer.echo(line)
    if output is not None:
        typer.echo(f"Written to {output}.")
    elif is_terminal() and effort is None:
        typer.echo(styled("Nothing was written; add -o FILE.csv or -o FILE.parquet.", dim=True))
    else:
        _write_lines(table.to_pylist())


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
        size = f"{effort.all_nodes:,} nodes, {effort.all_edges:,} entries of its matrix"
        whole = f"the whole graph ({size}), {effort.seconds:.2f} s"
        return [paragraph("computed ", f"on {whole}; not on a neighbourhood, because {effort.reason}", width())]
    part = (
        f"on {effort.nodes:,} of {effort.all_nodes:,} nodes and {effort.edges:,} of {effort.all_edges:,} entries "
        f"of the matrix, {effort.seconds:.2f} s"
    )
    proof = f"the asked rows are off by at most {effort.error_bound:.1e} of their input"
    return [f"computed {part}", paragraph("proved   ", proof, width())]


def _write_lines(rows: list[dict[str, object]]) -> None:
    for row in rows:
        typer.echo("\t".join(str(value) for value in row.values()))
