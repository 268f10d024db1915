"""Options that several commands share. Nothing that takes time is imported here, so that `--help` is quick."""

from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

import typer

TYPED = "typed"  # what typer knows about a field, in its metadata
PAGE = "report.html"
SWITCH = "PPRGNN_REPORT"  # whether pages are written without being asked for
SEVERAL = ("label", "features", "ignore", "categorical")  # columns, separated by commas


# ----------------------------------------------------------------------------------------------- how they are made
def option(text: str, *names: str, default: Any = None, **more: Any) -> Any:
    """A field that is an option, with its help; by default it is called as the field."""
    return field(default=default, metadata={TYPED: typer.Option(*names, help=text, **more)})


def flag(text: str, name: str) -> Any:
    """An option without a value."""
    return option(text, name, default=False)


def argument(text: str, name: str, default: Any = MISSING) -> Any:
    """A field that is typed without a name; it must be unless it has a default."""
    return field(default=default, metadata={TYPED: typer.Argument(metavar=name, help=text)})


def json_flag(text: str = "As JSON, for programs.") -> Any:
    """What programs read."""
    return flag(text, "--json")


def what_argument() -> Any:
    """What to train on."""
    text = "A .safetensors graph, a known data set, or a recipe (.toml or a name)."
    return argument(text, "[WHAT]", default=None)


def set_option() -> Any:
    """Changed settings."""
    text = "Change a setting; --settings lists them. Repeatable."
    return option(text, "--set", "-s", metavar="KEY=VALUE")


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
    """The fields of `data.own.tables.Columns`, by their names there."""

    source: str | None = option("Where an edge starts.", metavar="COLUMN")
    destination: str | None = option("Where it ends.", metavar="COLUMN")
    weight: str | None = option("Weight of the edge.", metavar="COLUMN")
    id: str | None = option("Id of the node.", "--id", metavar="COLUMN")
    split: str | None = option("Says train, val, test or nothing.", metavar="COLUMN")
    features: str | None = option(
        "Feature columns, separated by commas; all others by default.", metavar="COLUMN,COLUMN"
    )
    ignore: str | None = option("Columns that are no features.", metavar="COLUMN,COLUMN")
    categorical: str | None = option("Columns whose numbers are categories.", metavar="COLUMN,COLUMN")
    label_separator: str | None = option(
        "Separates several classes in the label column; '' means never.", metavar="MARK"
    )


@dataclass(frozen=True, kw_only=True)
class Reading(_Texts):
    """How files are read."""

    encoding: str | None = option("Of text files: utf-8 (default), cp1252, latin1, utf-16, ...", metavar="NAME")
    decimal: str | None = option("Decimal mark, . or , (found out for each column by default).", metavar="MARK")
    thousands: str | None = option("Mark between thousands: , . ' or a blank.", metavar="MARK")
    date: str | None = option("Order in dates such as 03/04/2020: dmy, mdy or ymd.", metavar="ORDER")
    unknown_nodes: str | None = option("Edges to nodes without a row; error by default.", metavar="error|drop|add")
    duplicates: str | None = option("Rows with the same node id; error by default.", metavar="error|first|last")
    empty_ids: str | None = option("Rows without a node id; error by default.", metavar="error|drop")
    empty_edges: str | None = option("No edges at all; error by default.", metavar="error|allow")


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The tables of a user's own graph, and what is to be learned of it."""

    edges: Path | None = option("Edge table: CSV, TSV, Parquet or Excel.")
    nodes: Path | None = option("Node table: CSV, TSV, Parquet or Excel.")
    target: str | None = option(
        "Column of the label; several, separated by commas, hold 0 or 1 each.", metavar="COLUMN"
    )


@dataclass(frozen=True, kw_only=True)
class TableDetails:
    """All that can be said about such tables."""

    columns: Columns = Columns()
    reading: Reading = Reading()
    directed: bool = flag("Edges have a direction.", "--directed")
    header: bool | None = option("Whether tables start with column names.", "--header/--no-header")
    name: str | None = option("What to call the graph.", metavar="NAME")

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

    edges: Path | None = option("Edge table of a new graph.")
    nodes: Path | None = option("Its node table, with the columns as in training.")
    data: str | None = option("Other data: a name or a .safetensors file.", metavar="NAME")
    reading: Reading = Reading()

    @property
    def is_given(self) -> bool:
        """Whether there is one."""
        return self.edges is not None or self.data is not None


@dataclass(frozen=True, kw_only=True)
class AtOnce:
    """How many trainings at once, and where."""

    jobs: int | None = option("Trainings at once, one CPU thread each.", min=1)
    workers: int | None = option("", hidden=True, min=1)
    backend: str | None = option("Where: loky (this machine), dask or ray.", metavar="NAME")
    address: str | None = option("Of the Dask or Ray cluster.", metavar="HOST:PORT")
