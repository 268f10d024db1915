"""`pprgnn data import`: a user's own graph, looked at before anything is trained on it, and kept in one file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pprgnn.cli.layout import is_terminal, paragraph, styled, width
from pprgnn.data.errors import DataError

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset
    from pprgnn.data.summary import Summary

MOST_CLASSES = 12  # shown one by one


def import_command(
    graph: Annotated[
        Path | None, typer.Argument(metavar="[GRAPH]", help="A GraphML, npz or prepared safetensors file.")
    ] = None,
    edges: Annotated[Path | None, typer.Option(help="Edge table: CSV, TSV or Parquet.")] = None,
    nodes: Annotated[Path | None, typer.Option(help="Node table: CSV, TSV or Parquet.")] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Column of the label; several, separated by commas, hold 0 or 1 each."),
    ] = None,
    source: Annotated[str | None, typer.Option(help="Where an edge starts.")] = None,
    destination: Annotated[str | None, typer.Option(help="Where it ends.")] = None,
    weight: Annotated[str | None, typer.Option(help="Weight of the edge.")] = None,
    node_id: Annotated[str | None, typer.Option("--id", help="Id of the node.")] = None,
    split: Annotated[str | None, typer.Option(help="Says train, val, test or nothing.")] = None,
    features: Annotated[
        str | None, typer.Option(help="Feature columns, separated by commas; all others by default.")
    ] = None,
    ignore: Annotated[str | None, typer.Option(help="Columns that are no features.")] = None,
    categorical: Annotated[str | None, typer.Option(help="Columns whose numbers are categories.")] = None,
    label_separator: Annotated[
        str | None, typer.Option(help="Separates several classes in the label column; '' means never.")
    ] = None,
    directed: Annotated[bool, typer.Option("--directed", help="Edges have a direction.")] = False,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether text files start with column names.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What to call the graph.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Keep the graph in this .safetensors file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Read your own graph.

    Shows what it looks like and what was guessed, and keeps it in one file for training.
    """
    if (graph is None) == (edges is None):
        raise DataError("Expected either one GRAPH file or --edges FILE (with --nodes FILE); see --help.")
    if output is not None and output.suffix != ".safetensors":
        raise DataError(f"The output must be a .safetensors file, but is {output}; try {output}.safetensors.")
    named: dict[str, Any] = {
        "label": _several(target),
        "source": source,
        "destination": destination,
        "weight": weight,
        "id": node_id,
        "split": split,
        "features": _several(features),
        "ignore": _several(ignore),
        "categorical": _several(categorical),
        "label_separator": label_separator,
    }
    named = {key: value for key, value in named.items() if value is not None}
    if is_terminal() and not as_json:
        files = [str(path) for path in (graph, edges, nodes) if path is not None]
        typer.echo(styled(f"Reading {' and '.join(files)} ...", dim=True))
    dataset = _read(graph, edges, nodes, name, header, directed, named)
    from pprgnn.data.summary import summarise

    summary = summarise(dataset)
    if output is not None:
        from pprgnn.data.store import save

        save(dataset, output)
    if as_json:
        typer.echo(json.dumps(summary.to_dict() | {"file": None if output is None else str(output)}, indent=2))
        return
    for label, text in _lines(summary):
        typer.echo(paragraph(f"{label:<13}", text, width()))
    if output is not None:
        typer.echo(f"\nKept in {output}: pprgnn.data.load({str(output)!r}) reads it.")
    else:
        typer.echo()
        typer.echo(styled("Nothing was kept; add -o FILE.safetensors to keep the graph.", dim=True))


def _several(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def _read(
    graph: Path | None,
    edges: Path | None,
    nodes: Path | None,
    name: str | None,
    header: bool | None,
    directed: bool,
    named: dict[str, Any],
) -> GraphDataset:
    if edges is not None:
        from pprgnn.data.own.tables import from_tables

        return from_tables(edges, nodes, name=name, header=header, directed=directed, **named)
    assert graph is not None
    kind = graph.suffix.lower()
    for option, value in (("nodes", nodes), ("header", header)):
        if value is not None:
            raise DataError(
                f"--{option} goes with --edges, but {graph} was given as a whole graph; drop one of them."
            )
    if kind == ".graphml":
        from pprgnn.data.own.objects import from_graphml

        if directed:
            named["directed"] = True
        return from_graphml(graph, name=name, **named)
    if named:
        option = {"label": "target"}.get(first := next(iter(named)), first).replace("_", "-")
        raise DataError(f"{graph} has no named columns, so --{option} cannot be used with it; drop it.")
    if kind == ".npz":
        from pprgnn.data.own.npz import from_npz

        return from_npz(graph, name=name, directed=directed)
    if kind == ".safetensors":
        from pprgnn.data.store import open_file

        if directed:
            raise DataError(f"{graph} already says whether it is directed; drop --directed.")
        return open_file(graph) if name is None else open_file(graph).rename(name)
    raise DataError(f"{graph} must be a .graphml, .npz or .safetensors file; tables go to --edges and --nodes.")


def _lines(s: Summary) -> list[tuple[str, str]]:
    kind = ("directed" if s.directed else "undirected") + (", weighted" if s.weighted else "")
    lines = [("graph", f"{s.name}, {kind}" + (f", {s.graphs:,} graphs" if s.graphs > 1 else ""))]
    lines.append(("nodes", f"{s.nodes:,}" + (f", {s.isolated:,} of them isolated" if s.isolated else "")))
    loops = f", {s.self_loops:,} of them from a node to itself" if s.self_loops else ""
    lines.append(("edges", f"{s.edges:,}{loops}"))
    share = s.largest_component / s.nodes
    lines.append(("components", f"{s.components:,}, the largest has {_percent(share)} of the nodes"))
    degree = {key: f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}" for key, value in s.degree.items()}
    lines.append(("degrees", "{min} to {max}, median {median}, mean {mean}".format(**degree)))
    lines.append(("features", f"{s.features:,}" if s.features else "none: a model learns from the edges alone"))
    if s.classes:
        several = ", any number each" if s.multi_label else ""
        lines.append(("labels", f"{s.labelled:,} labelled, {s.to_predict:,} to predict{several}"))
        lines += _class_lines(s)
    else:
        lines.append(("labels", "none"))
    if s.homophily is not None:
        alike = "shared classes, averaged over the edges" if s.multi_label else "of the edges join equal classes"
        lines.append(("homophily", f"{_percent(s.homophily)} {alike}"))
    if any(s.parts.values()):
        lines.append(("split", ", ".join(f"{count:,} {part}" for part, count in s.parts.items())))
    lines += [("guessed" if i == 0 else "", note) for i, note in enumerate(s.guessed)]
    return lines


def _class_lines(s: Summary) -> list[tuple[str, str]]:
    most = sorted(s.classes.items(), key=lambda item: -item[1])
    shown = [(name if len(name) <= 24 else f"{name[:23]}…", count) for name, count in most[:MOST_CLASSES]]
    longest = max(len(name) for name, _ in shown)
    lines = []
    for name, count in shown:
        share = count / max(s.labelled, 1)
        lines.append(("", f"{name:<{longest}} {'█' * math.ceil(20 * share):<20} {count:,} ({_percent(share)})"))
    if len(most) > MOST_CLASSES:
        lines.append(("", f"and {len(most) - MOST_CLASSES:,} more classes, down to {most[-1][1]:,} labels"))
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
