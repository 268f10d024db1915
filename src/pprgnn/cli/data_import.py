"""A user's own graph on the command line: reading it, and telling how its columns were read."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from pprgnn.cli.main import Import
from pprgnn.cli.options import TableDetails, Tables, spelled
from pprgnn.cli.output import Labelled, show_hint, show_json, show_labelled, under
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.own.objects import from_graphml, from_npz
from pprgnn.data.own.tables import from_tables
from pprgnn.data.store import open_file, save
from pprgnn.data.summary import Summary, summarise
from pprgnn.errors import DataError
from pprgnn.training.errors import TrainingError
from pprgnn.training.terminal import is_terminal
from pprgnn.wording import cut, percent

MOST_COLUMNS = 30  # of a table, shown one by one
LONGEST = 30  # letters of a name
MOST_CLASSES = 12  # shown one by one


# --------------------------------------------------------------------------------------------------------- reading
def read_graph(graph: Path | None, tables: Tables, details: TableDetails) -> GraphDataset:
    """The graph of one file, or of two tables."""
    name, directed, named = details.name, details.directed, details.named(tables.target)
    if tables.edges is not None:
        return from_tables(
            tables.edges, tables.nodes, name=name, header=details.header, directed=directed, **named
        )
    assert graph is not None
    kind = graph.suffix.lower()
    only_tables = {"nodes": tables.nodes, "header": details.header, "encoding": details.reading.encoding}
    for option, value in only_tables.items():
        if value is not None:
            raise DataError(
                f"--{option} goes with --edges, but {graph} was given as a whole graph; drop one of them."
            )
    if kind == ".graphml":
        direction: dict[str, Any] = {"directed": True} if directed else {}
        return from_graphml(graph, name=name, **named, **direction)
    if named:
        option = spelled(next(iter(named)))
        raise DataError(f"{graph} has no named columns, so {option} cannot be used with it; drop it.")
    if kind == ".npz":
        return from_npz(graph, name=name, directed=directed)
    if kind == ".safetensors":
        if directed:
            raise DataError(f"{graph} already says whether it is directed; drop --directed.")
        return open_file(graph) if name is None else open_file(graph).rename(name)
    raise DataError(f"{graph} must be a .graphml, .npz or .safetensors file; tables go to --edges and --nodes.")


def labelled_graph(tables: Tables, details: TableDetails, quiet: bool) -> GraphDataset:
    """The graph of two tables, to learn from; tells what was guessed unless ``quiet``."""
    dataset = read_graph(None, tables, details)
    if not dataset.facts.class_names:
        raise TrainingError("There is nothing to learn: name the column of the label with --target.")
    if not quiet:
        show_labelled(under("columns", aligned_columns(dataset.facts.columns)))
        show_labelled(under("guessed", dataset.facts.guessed))
    return dataset


def aligned_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """How each column was read, one under the other, under the name of its table."""
    lines = list(_columns(rows))
    longest = max((len(name) for name, words in lines if words), default=0)
    return [f"{name:<{longest}}  {words}" if words else name for name, words in lines]


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Tables (without words) and how their columns were read; of many columns, those alike share a line."""
    for table, members in groupby(rows, key=lambda row: row[0]):
        yield table, ""
        names: dict[tuple[Any, ...], list[str]] = {}
        columns = list(members)
        for number, (_, column, *words) in enumerate(columns):
            alone = (number,) if len(columns) <= MOST_COLUMNS else ()
            names.setdefault((*words, *alone), []).append(column)
        for (read, remark, *_), alike in names.items():
            more = f" and {len(alike) - 1:,} more" if len(alike) > 1 else ""
            yield f"  {cut(alike[0], LONGEST)}{more}", f"{read}; {remark}" if remark else read


# ----------------------------------------------------------------------------------------------------- the command
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
    shown = [(cut(name, 24), count) for name, count in most[:MOST_CLASSES]]
    longest = max(len(name) for name, _ in shown)
    lines = []
    for name, count in shown:
        share = count / max(s.labelled, 1)
        lines.append(("", f"{name:<{longest}} {'█' * math.ceil(20 * share):<20} {count:,} ({percent(share)})"))
    if len(most) > MOST_CLASSES:
        lines.append(("", f"and {len(most) - MOST_CLASSES:,} more classes, down to {most[-1][1]:,} labels"))
    return lines
