"""A user's own graph on the command line: the options that say how its tables are read, and reading it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pprgnn.errors import DataError

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset

MOST_COLUMNS = 30  # of a table, shown one by one
LONGEST = 30  # letters of their names
Command = Callable[..., None]

Edges = Annotated[Path | None, typer.Option(help="Edge table: CSV, TSV, Parquet or Excel.")]
Nodes = Annotated[Path | None, typer.Option(help="Node table: CSV, TSV, Parquet or Excel.")]
Directed = Annotated[bool, typer.Option("--directed", help="Edges have a direction.")]
Header = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether tables start with column names.")
]
Name = Annotated[str | None, typer.Option(metavar="NAME", help="What to call the graph.")]
Target = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column of the label; several, separated by commas, hold 0 or 1 each."),
]


def _option(metavar: str, text: str, *names: str) -> Any:
    return Annotated[str | None, typer.Option(*names, metavar=metavar, help=text)]


# The fields of `data.own.schema.Columns`, by their names there.
COLUMNS = {
    "source": _option("COLUMN", "Where an edge starts."),
    "destination": _option("COLUMN", "Where it ends."),
    "weight": _option("COLUMN", "Weight of the edge."),
    "id": _option("COLUMN", "Id of the node.", "--id"),
    "split": _option("COLUMN", "Says train, val, test or nothing."),
    "features": _option("COLUMN,COLUMN", "Feature columns, separated by commas; all others by default."),
    "ignore": _option("COLUMN,COLUMN", "Columns that are no features."),
    "categorical": _option("COLUMN,COLUMN", "Columns whose numbers are categories."),
    "label_separator": _option("MARK", "Separates several classes in the label column; '' means never."),
}
READING = {
    "encoding": _option("NAME", "Of text files: utf-8 (default), cp1252, latin1, utf-16, ..."),
    "decimal": _option("MARK", "Decimal mark, . or , (found out for each column by default)."),
    "thousands": _option("MARK", "Mark between thousands: , . ' or a blank."),
    "date": _option("ORDER", "Order in dates such as 03/04/2020: dmy, mdy or ymd."),
    "unknown_nodes": _option("error|drop|add", "Edges to nodes without a row; error by default."),
    "duplicates": _option("error|first|last", "Rows with the same node id; error by default."),
    "empty_ids": _option("error|drop", "Rows without a node id; error by default."),
    "empty_edges": _option("error|allow", "No edges at all; error by default."),
}
SEVERAL = ("label", "features", "ignore", "categorical")


def takes(name: str, options: Mapping[str, Any]) -> Callable[[Command], Command]:
    """A command with more options; it gets those that were given together, as its argument ``name``."""

    def with_options(command: Command) -> Command:
        @functools.wraps(command)
        def called(**values: Any) -> None:
            given = {key: values.pop(key, None) for key in options}
            command(**values, **{name: {key: value for key, value in given.items() if value is not None}})

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            more = [parameter.replace(name=key, default=None, annotation=each) for key, each in options.items()]
            parameters += more if parameter.name == name else [parameter]
        called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return called

    return with_options


def named_columns(given: Mapping[str, Any], target: str | None) -> dict[str, Any]:
    """What was said about the tables, as `from_tables` takes it."""
    named = dict(given) if target is None else {"label": target, **given}
    return {key: _several(value) if key in SEVERAL else value for key, value in named.items()}


def spelled(key: str) -> str:
    """How an option is typed."""
    return "--" + {"label": "target"}.get(key, key).replace("_", "-")


def _several(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


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
            name = alike[0] if len(alike[0]) <= LONGEST else f"{alike[0][: LONGEST - 1]}…"
            more = f" and {len(alike) - 1:,} more" if len(alike) > 1 else ""
            yield f"  {name}{more}", f"{read}; {remark}" if remark else read


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
    for option, value in (("nodes", nodes), ("header", header), ("encoding", named.get("encoding"))):
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
        option = spelled(next(iter(named)))
        raise DataError(f"{graph} has no named columns, so {option} cannot be used with it; drop it.")
    if kind == ".npz":
        from pprgnn.data.own.npz import from_npz

        return from_npz(graph, name=name, directed=directed)
    if kind == ".safetensors":
        from pprgnn.data.store import open_file

        if directed:
            raise DataError(f"{graph} already says whether it is directed; drop --directed.")
        return open_file(graph) if name is None else open_file(graph).rename(name)
    raise DataError(f"{graph} must be a .graphml, .npz or .safetensors file; tables go to --edges and --nodes.")
