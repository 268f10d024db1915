"""The command `pprgnn`: options that hold for all of it, and where it starts."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from pprgnn import __version__
from pprgnn.cli.commands import app
from pprgnn.cli.group import DEBUG, STOPPED


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pprgnn {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[
        bool, typer.Option("--debug", envvar=DEBUG, help="Show where in the code an error came from.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Keep the options that hold for all commands."""
    if debug:
        os.environ[DEBUG] = "1"


def run() -> None:
    """Run the command line; what the console script calls."""
    try:
        app(prog_name="pprgnn")
    except KeyboardInterrupt:  # before or after a command
        sys.exit(STOPPED)
