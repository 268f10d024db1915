"""`pprgnn data import`: a user's own graph, looked at before anything is trained on it, and kept in one file."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pprgnn.cli.tables import (
    COLUMNS,
    READING,
    Directed,
    Edges,
    Header,
    Name,
    Nodes,
    Target,
    aligned_columns,
    named_columns,
    read_graph,
    takes,
)
from pprgnn.errors import DataError
from pprgnn.training.terminal import is_terminal, paragraph, styled, width

if TYPE_CHECKING:
    from pprgnn.data.summary import Summary

MOST_CLASSES = 12  # shown one by one


@takes("given", COLUMNS | READING)
def import_command(
    graph: Annotated[
        Path | None, typer.Argument(metavar="[GRAPH]", help="A GraphML, npz or prepared safetensors file.")
    ] = None,
    edges: Edges = None,
    nodes: Nodes = None,
    target: Target = None,
    given: Any = None,
    directed: Directed = False,
    header: Header = None,
    name: Name = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Keep the graph in this .safetensors file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Read your own graph.

    Shows what it looks like, how each column was read and what was guessed, and keeps it in one file for training.
    """
    if (graph is None) == (edges is None):
        raise DataError("Expected either one GRAPH file or --edges FILE (with --nodes FILE); see --help.")
    if output is not None and output.suffix != ".safetensors":
        raise DataError(f"The output must be a .safetensors file, but is {output}; try {output}.safetensors.")
    named = named_columns(given, target)
    if is_terminal() and not as_json:
        files = [str(path) for path in (graph, edges, nodes) if path is not None]
        typer.echo(styled(f"Reading {' and '.join(files)} ...", dim=True))
    dataset = read_graph(graph, edges, nodes, name, header, directed, named)
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
        typer.echo(f"\nKept in {output}; train on it with `pprgnn train {shlex.quote(str(output))}`.")
    else:
        typer.echo()
        typer.echo(styled("Nothing was kept; add -o FILE.safetensors to keep the graph.", dim=True))


def _lines(s: Summary) -> list[tuple[str, str]]:
    kind = ("directed" if s.directed else "undirected") + (", weighted" if s.weighted else "")
    lines = [("graph", f"{s.name}, {kind}" + (f", {s.graphs:,} graphs" if s.graphs > 1 else ""))]
    lines.append(("nodes", f"{s.nodes:,}" + (f", {s.isolated:,} of them isolated" if s.isolated else "")))
    loops = f", {s.self_loops:,} of them from a node to itself" if s.self_loops else ""
    once = "" if s.directed else ", both directions counted as one"
    lines.append(("edges", f"{s.edges:,}{once}{loops}"))
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
    columns = aligned_columns([tuple(each.values()) for each in s.columns])
    lines += [("columns" if i == 0 else "", line) for i, line in enumerate(columns)]
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
