"""A user's own graph on the command line: the options that name its columns, and reading it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pprgnn.data.errors import DataError

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset

Edges = Annotated[Path | None, typer.Option(help="Edge table: CSV, TSV or Parquet.")]
Nodes = Annotated[Path | None, typer.Option(help="Node table: CSV, TSV or Parquet.")]
Target = Annotated[
    str | None, typer.Option(help="Column of the label; several, separated by commas, hold 0 or 1 each.")
]
Source = Annotated[str | None, typer.Option(help="Where an edge starts.")]
Destination = Annotated[str | None, typer.Option(help="Where it ends.")]
Weight = Annotated[str | None, typer.Option(help="Weight of the edge.")]
NodeId = Annotated[str | None, typer.Option("--id", help="Id of the node.")]
Split = Annotated[str | None, typer.Option(help="Says train, val, test or nothing.")]
Features = Annotated[
    str | None, typer.Option(help="Feature columns, separated by commas; all others by default.")
]
Ignore = Annotated[str | None, typer.Option(help="Columns that are no features.")]
Categorical = Annotated[str | None, typer.Option(help="Columns whose numbers are categories.")]
LabelSeparator = Annotated[
    str | None, typer.Option(help="Separates several classes in the label column; '' means never.")
]
Directed = Annotated[bool, typer.Option("--directed", help="Edges have a direction.")]
Header = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether text files start with column names.")
]
Name = Annotated[str | None, typer.Option(help="What to call the graph.")]


def named_columns(**given: Any) -> dict[str, Any]:
    """The columns that were named, as `from_tables` takes them."""
    several = ("label", "features", "ignore", "categorical")
    return {
        key: _several(value) if key in several else value for key, value in given.items() if value is not None
    }


def _several(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def read_graph(
    graph: Path | None,
    edges: Path | None,
    nodes: Path | None,
    name: str | None,
    header: bool | None,
    directed: bool,
    named: dict[str, Any],
) -> GraphDataset:
    """The graph of one file, or of two tables."""
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
