"""The command `pprgnn`: all that can be typed, which function does it, and where it starts."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pprgnn import __version__
from pprgnn.cli.options import (
    DEBUG,
    PAGE,
    STOPPED,
    SWITCH,
    AtOnce,
    Commands,
    Group,
    NewGraph,
    Reading,
    TableDetails,
    Tables,
    argument,
    command,
    flag,
    json_flag,
    option,
    set_option,
    what_argument,
)

DIGITS = 4  # of probabilities
TRIALS = 30  # of a tuning
ABOUT_DATA = "Your own tables and known data sets: import, list, fetch, check"
IMPORT = "data import --edges edges.csv --nodes nodes.csv --target topic -o graph.safetensors"
NAMED = "as `pprgnn data list` names them; TU/NAME and SNAP/com-NAME for others of these collections."

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
data_app = typer.Typer(cls=Group, help=ABOUT_DATA, epilog=f"Example: pprgnn {IMPORT}", no_args_is_help=True)


app.add_typer(data_app, name="data", short_help=ABOUT_DATA)


# ------------------------------------------------------------------------------------------------------------ data
@command(data_app, "import", IMPORT, "data_import:import_graph")
@dataclass(frozen=True, kw_only=True)
class Import:
    """Read your own graph.

    Shows what it looks like, how each column was read and what was guessed, and keeps it in one file for training.
    """

    graph: Path | None = argument("A GraphML, npz or prepared safetensors file.", "[GRAPH]", default=None)
    tables: Tables
    details: TableDetails
    output: Path | None = option("Keep the graph in this .safetensors file.", "--output", "-o")
    as_json: bool = json_flag()


@command(data_app, "list", "data list --json", "data:list_sets")
@dataclass(frozen=True, kw_only=True)
class ListSets:
    """List the known data sets, and which are here."""

    as_json: bool = json_flag()


@command(data_app, "info", "data info PPI-GO", "data:info")
@dataclass(frozen=True, kw_only=True)
class Info:
    """Tell all about one data set.

    Counts, split, origin, licence, and where each of its files is or belongs.
    """

    name: str = argument(f"A data set, {NAMED}", "NAME")
    as_json: bool = json_flag()


@command(data_app, "fetch", "data fetch NCI1 PROTEINS", "data:fetch_sets")
@dataclass(frozen=True, kw_only=True)
class Fetch:
    """Download data sets.

    Files go into the folder that PPRGNN_DATA names, or else into the user's cache folder. They are checked, and a
    download that was cut off is resumed.
    """

    names: list[str] = argument(f"Data sets, {NAMED}", "NAME")
    unchecked: bool = flag("Take files that have changed since they were described here.", "--unchecked")


@command(data_app, "verify", "data verify MUTAG NCI1", "data:verify_sets")
@dataclass(frozen=True, kw_only=True)
class Verify:
    """Check files and counts.

    Compares every file with its SHA-256, then reads the data set and compares its counts.
    """

    names: list[str] | None = argument("Data sets; without names, all that are ready.", "NAME", default=None)


# -------------------------------------------------------------------------------------------------------- training
@command(
    app,
    "train",
    "train cora --set model.hidden=32 -o runs/cora; several systems on the same splits: "
    "pprgnn train --edges edges.csv --nodes nodes.csv --target topic --model pprgnn,gcn,appnp",
)
@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model.

    On your own tables, on a known data set, or by a recipe. Every run is a folder; Ctrl-C saves, --resume goes on.
    """

    what: str | None = what_argument()
    tables: Tables
    model: str | None = option(
        "Which system; `pprgnn models` lists them. Several, as in pprgnn,gcn,appnp, are compared "
        "on the same splits.",
        "--model",
        "-m",
        metavar="NAME[,NAME...]",
    )
    changes: list[str] | None = set_option()
    output: Path | None = option("Of the run; runs/... by default.", "--output", "-o", metavar="FOLDER")
    resume: Path | None = option("Go on with this run; with --set epochs=N, also beyond its end.", metavar="RUN")
    folds: str | None = option("Train once per split: 'all', or how many.", metavar="N|all")
    seeds: int = option("Train once per seed.", default=1, min=1)
    ensemble: bool = flag("Score the seeds of a split together, too.", "--ensemble")
    nproc: int | None = option("So many processes train together: parts of one graph, or many graphs.", min=1)
    restarts: int = option("With --nproc: how often to go on by itself after a failure.", default=0, min=0)
    at_once: AtOnce
    details: TableDetails
    as_json: bool = json_flag("The summary as JSON, for programs; no progress.")
    report: bool = option(
        f"Write {PAGE} into the run's folder at the end.", "--report/--no-report", default=True, envvar=SWITCH
    )
    show_settings: bool = flag("List all settings with their defaults, and the recipes.", "--settings")


@command(app, "evaluate", "evaluate runs/cora", "saved_run:evaluate")
@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Score a trained model.

    On the parts of its own data, or on everything that is labelled in new data.
    """

    run: Path = argument("Folder of a run, or a model's file.", "RUN")
    new: NewGraph
    as_json: bool = json_flag()


@command(app, "predict", "predict runs/cora -o predictions.csv", "saved_run:predict")
@dataclass(frozen=True, kw_only=True)
class Predict:
    """Predict classes and probabilities.

    For the graph of the run, or for a new one, which the model has never seen. In a pipe, the rows alone go to the
    standard output, with tabs between their columns.
    """

    run: Path = argument("Folder of a run, or a model's file.", "RUN")
    edges: Path | None = option("Edge table of a new graph.")
    nodes: list[str] | None = option(
        "Only these nodes, at the price of their neighbourhood: ids separated by commas, or @FILE with "
        "one per line; may be repeated. With --edges, a file is its "
        "node table, with columns as in training.",
        "--nodes",
    )
    data: str | None = option("Other data: a name or a .safetensors file.", metavar="NAME")
    reading: Reading
    output: Path | None = option("Write a .csv, .tsv, .parquet or .xlsx file.", "--output", "-o")
    unlabelled: bool = flag("Only what has no label yet.", "--unlabelled")
    precision: int | None = option(
        f"Significant digits of probabilities; {DIGITS} by default, all of them in Parquet and JSON.",
        min=1,
        max=17,
    )
    safe_csv: bool = option(
        "In .csv, .tsv and .xlsx, put an apostrophe before text that a spreadsheet would run as a formula.",
        "--safe-csv/--no-safe-csv",
        default=True,
    )
    as_json: bool = json_flag()


@command(app, "explain", "explain runs/cora --node 17")
@dataclass(frozen=True, kw_only=True)
class Explain:
    """Explain one decision of a model.

    Shows from how far away the decision came, which nodes and features spoke for and against it, and how deep the
    network looked.
    """

    run: Path = argument("Folder of a run, or a model's file.", "RUN")
    node: str | None = option("The node, as the source names it.")
    graph: int | None = option("Which graph, from 0, where there are several or graphs have the labels.")
    target: str | None = option("Explain this class; the most probable one by default.", metavar="CLASS")
    top: int = option("How many influential nodes and features to show.", default=10, min=0)
    features: bool = flag("Which features decide in the mean over the test part.", "--features")
    sample: int = option("With --features: over how many nodes or graphs of that part.", default=32, min=1)
    new: NewGraph
    as_json: bool = json_flag()


@command(app, "explore", "explore runs/cora")
@dataclass(frozen=True, kw_only=True)
class Explore:
    """Look at what a model decided, and why, in the browser.

    Serves a page on this machine alone: search a node, see which nodes decided about it, and watch the prediction
    form with depth. Several runs on the same data can be compared.
    """

    runs: list[Path] = argument("Folders of runs on the same data.", "RUN")
    port: int | None = option("Port; 8471 or a free one by default.", min=1, max=65535)
    host: str = option("Address of this machine that only itself can reach.", default="127.0.0.1")
    open_page: bool = option("Open the page in the browser.", "--open/--no-open", default=False)
    new: NewGraph


@command(app, "report", "report runs/cora -o report.html")
@dataclass(frozen=True, kw_only=True)
class Report:
    """Write a page about a run.

    Result, training, depth and its proof, reach, cost, classes and where it all comes from, in one HTML file that
    needs no network. Several runs are shown side by side.
    """

    runs: list[Path] = argument("Folders of runs, studies or comparisons; several are compared.", "RUN...")
    output: Path | None = option(f"The page; by default RUN/{PAGE}, or {PAGE} for several.", "--output", "-o")
    seconds: float = option(
        "About how long measuring a run may take; done once, or again with more time.", default=30.0, min=1
    )
    again: bool = flag("Measure anew what was measured before.", "--again")


@command(app, "tune", "tune cora --trials 30 -o tunings/cora")
@dataclass(frozen=True, kw_only=True)
class Tune:
    """Search for good settings.

    Many short trainings, compared by validation, never by test. The best settings become a recipe, best.toml.
    Ctrl-C saves, --resume goes on. Tables with unusual columns go through `pprgnn data import` first.
    """

    what: str | None = what_argument()
    tables: Tables
    trials: int | None = option(f"How many trainings; {TRIALS} by default.", min=1)
    search: list[str] | None = option(
        "What to search instead of the usual: lr=0.001..0.1:log, dropout=0..0.8, hidden=32,64, or a "
        ".toml file of such lines. Repeatable.",
        metavar="KEY=RANGE",
    )
    model: str | None = option("Which system; `pprgnn models` lists them.", "--model", "-m", metavar="NAME")
    changes: list[str] | None = set_option()
    output: Path | None = option("tunings/... by default.", "--output", "-o", metavar="FOLDER")
    resume: Path | None = option("Go on with the tuning in this folder.", metavar="FOLDER")
    timeout: float | None = option("Stop after this time.", metavar="MINUTES", min=0)
    at_once: AtOnce
    as_json: bool = json_flag("The summary as JSON, for programs; no progress.")


# ---------------------------------------------------------------------------------------------------- all the rest
@command(app, "reproduce", "reproduce graphs --models gcn,gin --jobs 2")
@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Run the experiments of the paper, and more.

    Every result is kept as a line of results/NAME.jsonl and shown in RESULTS.md. Ctrl-C stops; the same command
    goes on, and runs nothing twice.
    """

    names: list[str] = argument(
        "graphs, ppi, amazon, timing, depth, chains, heterophily, convolutions, ablations, or all of "
        "them; report: only the page.",
        "NAME...",
    )
    models: list[str] | None = option("Only these systems. Repeatable.", metavar="NAME,NAME")
    data: list[str] | None = option("Only these data sets. Repeatable.", metavar="NAME,NAME")
    only: list[str] | None = option(
        "Only cells whose name, as it is shown, contains this: 'labels as input', 'fraction 0.05'. Repeatable.",
        metavar="TEXT",
    )
    protocol: str = option("paper, honest or both.", default="both", metavar="NAME")
    folds: int | None = option("Only so many splits.", min=1)
    seeds: int | None = option("So many seeds.", min=1)
    smoke: bool = flag("Try it: tiny networks, two epochs; kept apart, in runs/smoke.", "--smoke")
    jobs: int | None = option(
        "Cells at once, one CPU thread each; by default as many as cores for graphs, otherwise 1.", min=1
    )
    backend: str = option("Where: loky (this machine), dask or ray.", default="loky", metavar="NAME")
    address: str = option("Of the Dask or Ray cluster.", default="", metavar="HOST:PORT")
    plan: bool = flag("Only tell what would run, and how long it may take.", "--plan")
    verbose: bool = flag("With --plan: every system and data set of all experiments.", "--verbose")
    retry: bool = flag("Run again what failed.", "--retry")
    results: Path | None = option("Of the results; results by default.", metavar="FOLDER")
    page: Path | None = option("The page; RESULTS.md by default.")
    as_json: bool = flag("With --plan: as JSON, for programs.", "--json")
    html: bool = option(
        f"Write the page as {PAGE}, too, with the results.", "--report/--no-report", default=True, envvar=SWITCH
    )


@command(app, "partition", "partition com-DBLP --parts 8")
@dataclass(frozen=True, kw_only=True)
class Partition:
    """Partition a graph.

    Shows what is cut and what a process reads from others, and predicts how long a step takes on such a network:
    computing times are measured here, on the real parts; the network is a model.
    """

    what: str = argument("A data set, a recipe, or a .safetensors graph.", "NAME")
    parts: int = option("How many: one per process.", "--parts", "-p", default=2)
    method: str = option("metis, range, random, or auto: metis where it is installed.", default="auto")
    seed: int = option("Of metis and random.", default=0)
    channels: int | None = option("Channels of the state; by default those of the recipe.", "--width")
    network: str = option(
        "loopback (measured here), 10gbit, 100gbit or infiniband (typical figures).", default="10gbit"
    )
    latency: float | None = option("Of the network instead, in seconds.")
    bandwidth: float | None = option("Of the network instead, in bytes per second.")
    threads: int = option("Of each process.", default=1)
    also: str | None = option("Predict these numbers of parts as well.", "--simulate", metavar="P,P,...")
    output: Path | None = option("Keep the part of each node (.safetensors).", "--output", "-o")
    as_json: bool = json_flag()


@command(app, "models", "models gat")
@dataclass(frozen=True, kw_only=True)
class Models:
    """List the systems that can be trained.

    Ours and those it is compared with: what each can do, its settings, and its size on some data.
    """

    names: list[str] | None = argument("Tell all about these.", "[NAME]", default=None)
    data: str | None = option("How many parameters they have on this data set.", metavar="DATA")
    as_json: bool = json_flag()


@command(app, "doctor", "doctor --json")
@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Check this installation.

    Shows machine, libraries and data sets, solves a small problem both with and without the package, and advises.
    Ends with 1 if something is broken, otherwise with 0.
    """

    as_json: bool = json_flag()


# ------------------------------------------------------------------------------------------------- where it starts
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
