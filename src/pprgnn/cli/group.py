"""Groups of commands: each is declared by its options alone, and what it does is imported when it is called."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from inspect import Parameter, Signature
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from pprgnn.cli.options import TYPED
from pprgnn.errors import DataError
from pprgnn.training.terminal import styled

DEBUG = "PPRGNN_DEBUG"
STOPPED = 130  # what a shell reports for Ctrl-C
VALUES = {"int": "N", "float": "X", "path": "FILE"}
Options = TypeVar("Options")


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
        """A command of the group."""
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
