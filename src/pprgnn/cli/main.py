"""The command `pprgnn`: its groups, and how errors end it."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Any

import typer

from pprgnn import __version__
from pprgnn.cli.data import ABOUT as ABOUT_DATA
from pprgnn.cli.data import app as data_app
from pprgnn.cli.doctor import doctor
from pprgnn.cli.evaluate import evaluate_command
from pprgnn.cli.explain import explain
from pprgnn.cli.explore import explore
from pprgnn.cli.group import Group
from pprgnn.cli.models import models
from pprgnn.cli.partition import partition_command
from pprgnn.cli.predict import predict_command
from pprgnn.cli.report import report_command
from pprgnn.cli.reproduce import reproduce_command
from pprgnn.cli.train import train_command
from pprgnn.cli.tune import tune_command
from pprgnn.errors import DataError
from pprgnn.training.terminal import styled

DEBUG = "PPRGNN_DEBUG"
STOPPED = 130  # what a shell reports for Ctrl-C


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


app = typer.Typer(
    cls=Commands,
    name="pprgnn",
    help="Infinite-depth graph neural networks: exact, certified and fast.",
    epilog="Example: pprgnn train --edges edges.csv --nodes nodes.csv --target topic; or: pprgnn train cora",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: half the time, and it can be copied
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_app, name="data", short_help=ABOUT_DATA)
app.command(
    "train",
    epilog="Example: pprgnn train cora --set model.hidden=32 -o runs/cora; several systems on the same splits: "
    "pprgnn train --edges edges.csv --nodes nodes.csv --target topic --model pprgnn,gcn,appnp",
)(train_command)
app.command("evaluate", epilog="Example: pprgnn evaluate runs/cora")(evaluate_command)
app.command("predict", epilog="Example: pprgnn predict runs/cora -o predictions.csv")(predict_command)
app.command("explain", epilog="Example: pprgnn explain runs/cora --node 17")(explain)
app.command("explore", epilog="Example: pprgnn explore runs/cora")(explore)
app.command("report", epilog="Example: pprgnn report runs/cora -o report.html")(report_command)
app.command("tune", epilog="Example: pprgnn tune cora --trials 30 -o tunings/cora")(tune_command)
app.command("reproduce", epilog="Example: pprgnn reproduce graphs --models gcn,gin --jobs 2")(reproduce_command)
app.command("partition", epilog="Example: pprgnn partition com-DBLP --parts 8")(partition_command)
app.command("models", epilog="Example: pprgnn models gat")(models)
app.command("doctor", epilog="Example: pprgnn doctor --json")(doctor)


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
