"""A group of commands that starts fast."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

VALUES = {"int": "N", "float": "X", "path": "FILE"}


class Group(TyperGroup):
    """Knows that `--help` is False when it is not given.

    Left unknown, typer loads pydantic to find that out, in every group and command: a tenth of a second or more.
    """

    def get_help_option(self, ctx: Any) -> Any:
        """The option `--help` of the group itself."""
        return _known(super().get_help_option(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command of the group; its help option is made once and kept by the command."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _known(command.get_help_option(ctx))
            for parameter in command.params:
                _name_values(parameter, ctx)
                if hasattr(parameter, "_runtime_param") and hasattr(parameter, "type_descriptor"):
                    parameter._runtime_param = _AsTyped()
        return command


class _AsTyped:
    """What was typed, as text or not at all, needs no converting; for anything else typer loads pydantic."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if param.type_descriptor.annotation is str and isinstance(value, str):
            return value
        if param.type_descriptor.annotation == list[str] and isinstance(value, list | tuple):
            return list(value)
        from typer._coercion import build_runtime_param

        return build_runtime_param(param.type_descriptor).coerce(value, param=param, ctx=ctx)


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


def _known(option: Any) -> Any:
    if option is not None and option.default is None:
        option.default = False
    return option
