"""A group of commands that starts fast."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


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
        return command


def _known(option: Any) -> Any:
    if option is not None and option.default is None:
        option.default = False
    return option
