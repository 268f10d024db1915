"""`pprgnn data import`: a user's own graph, looked at before anything is trained on it, and kept in one file."""

from __future__ import annotations

import math
import shlex

import typer

from pprgnn.cli.commands import Import
from pprgnn.cli.output import Labelled, show_hint, show_json, show_labelled, under
from pprgnn.cli.tables import aligned_columns, read_graph
from pprgnn.data.store import save
from pprgnn.data.summary import Summary, summarise
from pprgnn.errors import DataError
from pprgnn.training.terminal import is_terminal
from pprgnn.wording import percent

MOST_CLASSES = 12  # shown one by one


def import_graph(options: Import) -> None:
    """Read, look, keep."""
    graph, tables, output = options.graph, options.tables, options.output
    if (graph is None) == (tables.edges is None):
        raise DataError("Expected either one GRAPH file or --edges FILE (with --nodes FILE); see --help.")
    if output is not None and output.suffix != ".safetensors":
        raise DataError(f"The output must be a .safetensors file, but is {output}; try {output}.safetensors.")
    if is_terminal() and not options.as_json:
        files = [str(path) for path in (graph, tables.edges, tables.nodes) if path is not None]
        show_hint(f"Reading {' and '.join(files)} ...")
    dataset = read_graph(graph, tables, options.details)
    summary = summarise(dataset)
    if output is not None:
        save(dataset, output)
    if options.as_json:
        show_json(summary.to_dict() | {"file": None if output is None else str(output)})
        return
    show_labelled(_lines(summary), 13)
    typer.echo()
    if output is not None:
        typer.echo(f"Kept in {output}; train on it with `pprgnn train {shlex.quote(str(output))}`.")
    else:
        show_hint("Nothing was kept; add -o FILE.safetensors to keep the graph.")


def _lines(s: Summary) -> list[Labelled]:
    kind = ("directed" if s.directed else "undirected") + (", weighted" if s.weighted else "")
    lines = [("graph", f"{s.name}, {kind}" + (f", {s.graphs:,} graphs" if s.graphs > 1 else ""))]
    lines.append(("nodes", f"{s.nodes:,}" + (f", {s.isolated:,} of them isolated" if s.isolated else "")))
    loops = f", {s.self_loops:,} of them from a node to itself" if s.self_loops else ""
    once = "" if s.directed else ", both directions counted as one"
    lines.append(("edges", f"{s.edges:,}{once}{loops}"))
    share = s.largest_component / s.nodes
    lines.append(("components", f"{s.components:,}, the largest has {percent(share)} of the nodes"))
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
        lines.append(("homophily", f"{percent(s.homophily)} {alike}"))
    if any(s.parts.values()):
        lines.append(("split", ", ".join(f"{count:,} {part}" for part, count in s.parts.items())))
    columns = aligned_columns([tuple(each.values()) for each in s.columns])
    return [*lines, *under("columns", columns), *under("guessed", s.guessed)]


def _class_lines(s: Summary) -> list[Labelled]:
    most = sorted(s.classes.items(), key=lambda item: -item[1])
    shown = [(name if len(name) <= 24 else f"{name[:23]}…", count) for name, count in most[:MOST_CLASSES]]
    longest = max(len(name) for name, _ in shown)
    lines = []
    for name, count in shown:
        share = count / max(s.labelled, 1)
        lines.append(("", f"{name:<{longest}} {'█' * math.ceil(20 * share):<20} {count:,} ({percent(share)})"))
    if len(most) > MOST_CLASSES:
        lines.append(("", f"and {len(most) - MOST_CLASSES:,} more classes, down to {most[-1][1]:,} labels"))
    return lines
