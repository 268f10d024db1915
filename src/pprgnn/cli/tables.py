"""A user's own graph on the command line: reading it, and telling how its columns were read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from pprgnn.cli.options import TableDetails, Tables, spelled
from pprgnn.cli.output import cut, show_labelled, under
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.own.objects import from_graphml, from_npz
from pprgnn.data.own.tables import from_tables
from pprgnn.data.store import open_file
from pprgnn.errors import DataError
from pprgnn.training.errors import TrainingError

MOST_COLUMNS = 30  # of a table, shown one by one


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
            yield f"  {cut(alike[0])}{more}", f"{read}; {remark}" if remark else read
