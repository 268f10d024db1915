"""Options that several commands share. Nothing that takes time is imported here, so that `--help` is quick."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

PAGE = "report.html"
SWITCH = "PPRGNN_REPORT"  # whether pages are written without being asked for
SEVERAL = ("label", "features", "ignore", "categorical")  # columns, separated by commas

Json = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
SummaryJson = Annotated[bool, typer.Option("--json", help="The summary as JSON, for programs; no progress.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, or a model's file.")]
What = Annotated[
    str | None,
    typer.Argument(
        metavar="[WHAT]", help="A .safetensors graph, a known data set, or a recipe (.toml or a name)."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change a setting; --settings lists them. Repeatable."),
]


# ------------------------------------------------------------------------------------------------- a user's tables
class _Texts:
    """Options that hold text, or nothing."""

    @property
    def given(self) -> dict[str, Any]:
        """Those that were typed, by name."""
        texts = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        return {name: text for name, text in texts.items() if text is not None}


@dataclass(frozen=True, kw_only=True)
class Columns(_Texts):
    """The fields of `data.own.schema.Columns`, by their names there."""

    source: Annotated[str | None, typer.Option(metavar="COLUMN", help="Where an edge starts.")] = None
    destination: Annotated[str | None, typer.Option(metavar="COLUMN", help="Where it ends.")] = None
    weight: Annotated[str | None, typer.Option(metavar="COLUMN", help="Weight of the edge.")] = None
    id: Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="Id of the node.")] = None
    split: Annotated[str | None, typer.Option(metavar="COLUMN", help="Says train, val, test or nothing.")] = None
    features: Annotated[
        str | None,
        typer.Option(metavar="COLUMN,COLUMN", help="Feature columns, separated by commas; all others by default."),
    ] = None
    ignore: Annotated[str | None, typer.Option(metavar="COLUMN,COLUMN", help="Columns that are no features.")] = (
        None
    )
    categorical: Annotated[
        str | None, typer.Option(metavar="COLUMN,COLUMN", help="Columns whose numbers are categories.")
    ] = None
    label_separator: Annotated[
        str | None,
        typer.Option(metavar="MARK", help="Separates several classes in the label column; '' means never."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Reading(_Texts):
    """How files are read."""

    encoding: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of text files: utf-8 (default), cp1252, latin1, utf-16, ..."),
    ] = None
    decimal: Annotated[
        str | None,
        typer.Option(metavar="MARK", help="Decimal mark, . or , (found out for each column by default)."),
    ] = None
    thousands: Annotated[
        str | None, typer.Option(metavar="MARK", help="Mark between thousands: , . ' or a blank.")
    ] = None
    date: Annotated[
        str | None,
        typer.Option(metavar="ORDER", help="Order in dates such as 03/04/2020: dmy, mdy or ymd."),
    ] = None
    unknown_nodes: Annotated[
        str | None,
        typer.Option(metavar="error|drop|add", help="Edges to nodes without a row; error by default."),
    ] = None
    duplicates: Annotated[
        str | None,
        typer.Option(metavar="error|first|last", help="Rows with the same node id; error by default."),
    ] = None
    empty_ids: Annotated[
        str | None, typer.Option(metavar="error|drop", help="Rows without a node id; error by default.")
    ] = None
    empty_edges: Annotated[
        str | None, typer.Option(metavar="error|allow", help="No edges at all; error by default.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The tables of a user's own graph, and what is to be learned of it."""

    edges: Annotated[Path | None, typer.Option(help="Edge table: CSV, TSV, Parquet or Excel.")] = None
    nodes: Annotated[Path | None, typer.Option(help="Node table: CSV, TSV, Parquet or Excel.")] = None
    target: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column of the label; several, separated by commas, hold 0 or 1 each."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TableDetails:
    """All that can be said about such tables."""

    columns: Columns = Columns()
    reading: Reading = Reading()
    directed: Annotated[bool, typer.Option("--directed", help="Edges have a direction.")] = False
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether tables start with column names.")
    ] = None
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What to call the graph.")] = None

    def named(self, target: str | None) -> dict[str, Any]:
        """What was said about columns and reading, as `from_tables` takes it."""
        said = {} if target is None else {"label": target}
        said |= self.columns.given | self.reading.given
        return {key: _words(value) if key in SEVERAL else value for key, value in said.items()}


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def spelled(key: str) -> str:
    """How an option is typed."""
    return "--" + {"label": "target"}.get(key, key).replace("_", "-")


# ---------------------------------------------------------------------------------------------------------- others
@dataclass(frozen=True, kw_only=True)
class NewGraph:
    """Another graph than the one that a run was trained on."""

    edges: Annotated[Path | None, typer.Option(help="Edge table of a new graph.")] = None
    nodes: Annotated[Path | None, typer.Option(help="Its node table, with the columns as in training.")] = None
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="Other data: a name or a .safetensors file.")
    ] = None
    reading: Reading = Reading()

    @property
    def is_given(self) -> bool:
        """Whether there is one."""
        return self.edges is not None or self.data is not None


@dataclass(frozen=True, kw_only=True)
class AtOnce:
    """How many trainings at once, and where."""

    jobs: Annotated[int | None, typer.Option(help="Trainings at once, one CPU thread each.", min=1)] = None
    workers: Annotated[int | None, typer.Option(hidden=True, min=1)] = None  # as --jobs was called before
    backend: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where: loky (this machine), dask or ray.")
    ] = None
    address: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Of the Dask or Ray cluster.")] = None
