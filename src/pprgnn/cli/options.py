"""How commands and their options are declared, and options that several commands share.

Nothing that takes time is imported here, so that `--help` is quick.
"""

import os
import traceback
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from pprgnn.errors import DataError
from pprgnn.training.terminal import styled

TYPED = "typed"  # what typer knows about a field, in its metadata
PAGE = "report.html"
SWITCH = "PPRGNN_REPORT"  # whether pages are written without being asked for
SEVERAL = ("label", "features", "ignore", "categorical")  # columns, separated by commas
DEBUG = "PPRGNN_DEBUG"
STOPPED = 130  # what a shell reports for Ctrl-C
VALUES = {"int": "N", "float": "X", "path": "FILE"}
Options = TypeVar("Options")


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
@dataclass(frozen=True, kw_only=True)
class Columns:
    """The fields of `data.own.schema.Columns`, by their names there."""

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
class Reading:
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
        said |= given(self.columns) | given(self.reading)
        return {key: _words(value) if key in SEVERAL else value for key, value in said.items()}


def given(texts: Columns | Reading) -> dict[str, Any]:
    """Those options that were typed, by name."""
    return {name: text for name, text in vars(texts).items() if text is not None}


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
        return self.edges is not None or self.data is not None


@dataclass(frozen=True, kw_only=True)
class AtOnce:
    """How many trainings at once, and where."""

    jobs: int | None = option("Trainings at once, one CPU thread each.", min=1)
    workers: int | None = option("", hidden=True, min=1)
    backend: str | None = option("Where: loky (this machine), dask or ray.", metavar="NAME")
    address: str | None = option("Of the Dask or Ray cluster.", metavar="HOST:PORT")


# -------------------------------------------------------------------------------------------------------- commands
def command(app: typer.Typer, name: str, example: str, does: str = "") -> Callable[[type[Options]], type[Options]]:
    """Give ``app`` a command whose options are the fields of a dataclass, and whose help is its docstring.

    ``does`` is ``module:function`` in this package, by default both called as the command: imported when the
    command is called, and given the options. So that module may import what it likes at its top, and ``--help`` is
    quick. A field that is itself such a dataclass stands for the options in it.
    """

    def add(options: type[Options]) -> type[Options]:
        def called(**values: Any) -> None:
            module, _, function = (does or f"{name}:{name}").partition(":")
            getattr(import_module(f"pprgnn.cli.{module}"), function)(_filled(options, values))

        parameters = list(_parameters(options))
        called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        called.__doc__ = options.__doc__
        app.command(name, epilog=f"Example: pprgnn {example}")(called)
        return options

    return add


def _parameters(options: Any) -> Iterator[Parameter]:
    for each in fields(options):
        if is_dataclass(each.type):
            yield from _parameters(each.type)
        else:
            default = Parameter.empty if each.default is MISSING else each.default
            typed = Annotated[each.type, each.metadata[TYPED]]  # type: ignore[name-defined]
            yield Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=typed)


def _filled(options: Any, values: dict[str, Any]) -> Any:
    given = {
        each.name: _filled(each.type, values) if is_dataclass(each.type) else values[each.name]
        for each in fields(options)
    }
    return options(**given)


# ---------------------------------------------------------------------------------------------------------- groups
class Group(TyperGroup):
    """Names values in the help by what they are."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        for parameter in found.params if found is not None else ():
            _name_values(parameter, ctx)
        return found


class Commands(Group):
    """Ends an expected error with one sentence instead of a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        """First where data come from; typer puts groups last."""
        return sorted(super().list_commands(ctx), key=lambda name: name != "data")

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader of the output has seen enough; typer ends quietly
        except (DataError, OSError) as error:
            _report("Error", "red", error)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            _report("Stopped", "yellow", error)
            raise typer.Exit(STOPPED) from error


def _report(word: str, colour: str, error: BaseException) -> None:
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    head = styled(f"{word}:" if str(error) else f"{word}.", error=True, fg=colour, bold=True)
    typer.echo(f"{head} {error}", err=True)


def _name_values(parameter: Any, ctx: Any) -> None:
    """In the help, what a value is instead of its type: `--jobs N`, not `--jobs <int range>  [x>=1]`."""
    if not hasattr(parameter, "display_type"):
        return  # another version of typer
    if parameter.param_type_name == "argument":
        name = parameter.metavar or parameter.name.upper()
        if parameter.nargs != 1 and "..." not in name:
            name = f"{name.removesuffix(']')}...{']' * name.endswith(']')}"
        parameter.metavar = name
        parameter._usage_display_name = lambda: name
        parameter.display_type_rich = lambda ctx: None
    elif parameter.metavar is None and not parameter.is_flag:
        kind = parameter.display_type(ctx)
        parameter.metavar = next((name for word, name in VALUES.items() if word in kind), "TEXT")
    parameter._get_number_range_help_str = lambda: None
