"""All that can be typed: the options of each command, and which function does it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pprgnn.cli.group import Commands, Group, command
from pprgnn.cli.options import (
    PAGE,
    SWITCH,
    AtOnce,
    Json,
    NewGraph,
    Reading,
    RunArgument,
    Set,
    SummaryJson,
    TableDetails,
    Tables,
    What,
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
@command(data_app, "import", "data_import:import_graph", IMPORT)
@dataclass(frozen=True, kw_only=True)
class Import:
    """Read your own graph.

    Shows what it looks like, how each column was read and what was guessed, and keeps it in one file for training.
    """

    graph: Annotated[
        Path | None, typer.Argument(metavar="[GRAPH]", help="A GraphML, npz or prepared safetensors file.")
    ] = None
    tables: Tables
    details: TableDetails
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Keep the graph in this .safetensors file.")
    ] = None
    as_json: Json = False


@command(data_app, "list", "data:list_sets", "data list --json")
@dataclass(frozen=True, kw_only=True)
class ListSets:
    """List the known data sets, and which are here."""

    as_json: Json = False


@command(data_app, "info", "data:info", "data info PPI-GO")
@dataclass(frozen=True, kw_only=True)
class Info:
    """Tell all about one data set.

    Counts, split, origin, licence, and where each of its files is or belongs.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help=f"A data set, {NAMED}")]
    as_json: Json = False


@command(data_app, "fetch", "data_fetch:fetch_sets", "data fetch NCI1 PROTEINS")
@dataclass(frozen=True, kw_only=True)
class Fetch:
    """Download data sets.

    Files go into the folder that PPRGNN_DATA names, or else into the user's cache folder. They are checked, and a
    download that was cut off is resumed.
    """

    names: Annotated[list[str], typer.Argument(metavar="NAME", help=f"Data sets, {NAMED}")]
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Take files that have changed since they were described here.")
    ] = False


@command(data_app, "verify", "data:verify_sets", "data verify MUTAG NCI1")
@dataclass(frozen=True, kw_only=True)
class Verify:
    """Check files and counts.

    Compares every file with its SHA-256, then reads the data set and compares its counts.
    """

    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Data sets; without names, all that are ready.")
    ] = None


# -------------------------------------------------------------------------------------------------------- training
@command(
    app,
    "train",
    "train:train",
    "train cora --set model.hidden=32 -o runs/cora; several systems on the same splits: "
    "pprgnn train --edges edges.csv --nodes nodes.csv --target topic --model pprgnn,gcn,appnp",
)
@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model.

    On your own tables, on a known data set, or by a recipe. Every run is a folder; Ctrl-C saves, --resume goes on.
    """

    what: What = None
    tables: Tables
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME[,NAME...]",
            help="Which system; `pprgnn models` lists them. Several, as in pprgnn,gcn,appnp, are compared on the "
            "same splits.",
        ),
    ] = None
    changes: Set = None
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Of the run; runs/... by default.")
    ] = None
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Go on with this run; with --set epochs=N, also beyond its end."),
    ] = None
    folds: Annotated[
        str | None, typer.Option(metavar="N|all", help="Train once per split: 'all', or how many.")
    ] = None
    seeds: Annotated[int, typer.Option(help="Train once per seed.", min=1)] = 1
    ensemble: Annotated[bool, typer.Option("--ensemble", help="Score the seeds of a split together, too.")] = False
    nproc: Annotated[
        int | None,
        typer.Option(help="So many processes train together: parts of one graph, or many graphs.", min=1),
    ] = None
    restarts: Annotated[
        int, typer.Option(help="With --nproc: how often to go on by itself after a failure.", min=0)
    ] = 0
    at_once: AtOnce
    details: TableDetails
    as_json: SummaryJson = False
    report: Annotated[
        bool,
        typer.Option(
            "--report/--no-report", envvar=SWITCH, help=f"Write {PAGE} into the run's folder at the end."
        ),
    ] = True
    show_settings: Annotated[
        bool, typer.Option("--settings", help="List all settings with their defaults, and the recipes.")
    ] = False


@command(app, "evaluate", "evaluate:evaluate", "evaluate runs/cora")
@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Score a trained model.

    On the parts of its own data, or on everything that is labelled in new data.
    """

    run: RunArgument
    new: NewGraph
    as_json: Json = False


@command(app, "predict", "predict:predict", "predict runs/cora -o predictions.csv")
@dataclass(frozen=True, kw_only=True)
class Predict:
    """Predict classes and probabilities.

    For the graph of the run, or for a new one, which the model has never seen. In a pipe, the rows alone go to the
    standard output, with tabs between their columns.
    """

    run: RunArgument
    edges: Annotated[Path | None, typer.Option(help="Edge table of a new graph.")] = None
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--nodes",
            help="Only these nodes, at the price of their neighbourhood: ids separated by commas, or @FILE with "
            "one per line; may be repeated. With --edges, a file is its node table, with columns as in training.",
        ),
    ] = None
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="Other data: a name or a .safetensors file.")
    ] = None
    reading: Reading
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a .csv, .tsv, .parquet or .xlsx file.")
    ] = None
    unlabelled: Annotated[bool, typer.Option("--unlabelled", help="Only what has no label yet.")] = False
    precision: Annotated[
        int | None,
        typer.Option(
            help=f"Significant digits of probabilities; {DIGITS} by default, all of them in Parquet and JSON.",
            min=1,
            max=17,
        ),
    ] = None
    as_json: Json = False


@command(app, "explain", "explain:explain", "explain runs/cora --node 17")
@dataclass(frozen=True, kw_only=True)
class Explain:
    """Explain one decision of a model.

    Shows from how far away the decision came, which nodes and features spoke for and against it, and how deep the
    network looked.
    """

    run: RunArgument
    node: Annotated[str | None, typer.Option(help="The node, as the source names it.")] = None
    graph: Annotated[
        int | None, typer.Option(help="Which graph, from 0, where there are several or graphs have the labels.")
    ] = None
    target: Annotated[
        str | None, typer.Option(metavar="CLASS", help="Explain this class; the most probable one by default.")
    ] = None
    top: Annotated[int, typer.Option(min=0, help="How many influential nodes and features to show.")] = 10
    features: Annotated[
        bool, typer.Option("--features", help="Which features decide in the mean over the test part.")
    ] = False
    sample: Annotated[
        int, typer.Option(min=1, help="With --features: over how many nodes or graphs of that part.")
    ] = 32
    new: NewGraph
    as_json: Json = False


@command(app, "explore", "explore:explore", "explore runs/cora")
@dataclass(frozen=True, kw_only=True)
class Explore:
    """Look at what a model decided, and why, in the browser.

    Serves a page on this machine alone: search a node, see which nodes decided about it, and watch the prediction
    form with depth. Several runs on the same data can be compared.
    """

    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs on the same data.")]
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port; 8471 or a free one by default.")] = None
    host: Annotated[str, typer.Option(help="Address of this machine that only itself can reach.")] = "127.0.0.1"
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = False
    new: NewGraph


@command(app, "report", "report:report", "report runs/cora -o report.html")
@dataclass(frozen=True, kw_only=True)
class Report:
    """Write a page about a run.

    Result, training, depth and its proof, reach, cost, classes and where it all comes from, in one HTML file that
    needs no network. Several runs are shown side by side.
    """

    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs, studies or comparisons; several are compared."),
    ]
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=f"The page; by default RUN/{PAGE}, or {PAGE} for several."),
    ] = None
    seconds: Annotated[
        float,
        typer.Option(min=1, help="About how long measuring a run may take; done once, or again with more time."),
    ] = 30.0
    again: Annotated[bool, typer.Option("--again", help="Measure anew what was measured before.")] = False


@command(app, "tune", "tune:tune", "tune cora --trials 30 -o tunings/cora")
@dataclass(frozen=True, kw_only=True)
class Tune:
    """Search for good settings.

    Many short trainings, compared by validation, never by test. The best settings become a recipe, best.toml.
    Ctrl-C saves, --resume goes on. Tables with unusual columns go through `pprgnn data import` first.
    """

    what: What = None
    tables: Tables
    trials: Annotated[int | None, typer.Option(help=f"How many trainings; {TRIALS} by default.", min=1)] = None
    search: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=RANGE",
            help="What to search instead of the usual: lr=0.001..0.1:log, dropout=0..0.8, hidden=32,64, or a "
            ".toml file of such lines. Repeatable.",
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", help="Which system; `pprgnn models` lists them."),
    ] = None
    changes: Set = None
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="tunings/... by default.")
    ] = None
    resume: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Go on with the tuning in this folder.")
    ] = None
    timeout: Annotated[float | None, typer.Option(metavar="MINUTES", help="Stop after this time.", min=0)] = None
    at_once: AtOnce
    as_json: SummaryJson = False


# ---------------------------------------------------------------------------------------------------- all the rest
@command(app, "reproduce", "reproduce:reproduce", "reproduce graphs --models gcn,gin --jobs 2")
@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Run the experiments of the paper, and more.

    Every result is kept as a line of results/NAME.jsonl and shown in RESULTS.md. Ctrl-C stops; the same command
    goes on, and runs nothing twice.
    """

    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="graphs, ppi, amazon, timing, depth, chains, heterophily, convolutions, ablations, or all of "
            "them; report: only the page.",
        ),
    ]
    models: Annotated[
        list[str] | None, typer.Option(metavar="NAME,NAME", help="Only these systems. Repeatable.")
    ] = None
    data: Annotated[
        list[str] | None, typer.Option(metavar="NAME,NAME", help="Only these data sets. Repeatable.")
    ] = None
    protocol: Annotated[str, typer.Option(metavar="NAME", help="paper, honest or both.")] = "both"
    folds: Annotated[int | None, typer.Option(help="Only so many splits.", min=1)] = None
    seeds: Annotated[int | None, typer.Option(help="So many seeds.", min=1)] = None
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Try it: tiny networks, two epochs; kept apart, in runs/smoke.")
    ] = False
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Cells at once, one CPU thread each; by default as many as cores for graphs, otherwise 1.", min=1
        ),
    ] = None
    backend: Annotated[str, typer.Option(metavar="NAME", help="Where: loky (this machine), dask or ray.")] = "loky"
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Of the Dask or Ray cluster.")] = ""
    plan: Annotated[bool, typer.Option("--plan", help="Only tell what would run, and how long it may take.")] = (
        False
    )
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --plan: every system and data set of all experiments.")
    ] = False
    retry: Annotated[bool, typer.Option("--retry", help="Run again what failed.")] = False
    results: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Of the results; results by default.")] = (
        None
    )
    page: Annotated[Path | None, typer.Option(help="The page; RESULTS.md by default.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="With --plan: as JSON, for programs.")] = False
    html: Annotated[
        bool,
        typer.Option(
            "--report/--no-report", envvar=SWITCH, help=f"Write the page as {PAGE}, too, with the results."
        ),
    ] = True


@command(app, "partition", "partition:partition", "partition com-DBLP --parts 8")
@dataclass(frozen=True, kw_only=True)
class Partition:
    """Partition a graph.

    Shows what is cut and what a process reads from others, and predicts how long a step takes on such a network:
    computing times are measured here, on the real parts; the network is a model.
    """

    what: Annotated[str, typer.Argument(metavar="NAME", help="A data set, a recipe, or a .safetensors graph.")]
    parts: Annotated[int, typer.Option("--parts", "-p", help="How many: one per process.")] = 2
    method: Annotated[str, typer.Option(help="metis, range, random, or auto: metis where it is installed.")] = (
        "auto"
    )
    seed: Annotated[int, typer.Option(help="Of metis and random.")] = 0
    channels: Annotated[
        int | None, typer.Option("--width", help="Channels of the state; by default those of the recipe.")
    ] = None
    network: Annotated[
        str, typer.Option(help="loopback (measured here), 10gbit, 100gbit or infiniband (typical figures).")
    ] = "10gbit"
    latency: Annotated[float | None, typer.Option(help="Of the network instead, in seconds.")] = None
    bandwidth: Annotated[float | None, typer.Option(help="Of the network instead, in bytes per second.")] = None
    threads: Annotated[int, typer.Option(help="Of each process.")] = 1
    also: Annotated[
        str | None, typer.Option("--simulate", metavar="P,P,...", help="Predict these numbers of parts as well.")
    ] = None
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Keep the part of each node (.safetensors).")
    ] = None
    as_json: Json = False


@command(app, "models", "models:models", "models gat")
@dataclass(frozen=True, kw_only=True)
class Models:
    """List the systems that can be trained.

    Ours and those it is compared with: what each can do, its settings, and its size on some data.
    """

    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]", help="Tell all about these.")] = None
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help="How many parameters they have on this data set.")
    ] = None
    as_json: Json = False


@command(app, "doctor", "doctor:doctor", "doctor --json")
@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Check this installation.

    Shows machine, libraries and data sets, solves a small problem both with and without the package, and advises.
    Ends with 1 if something is broken, otherwise with 0.
    """

    as_json: Json = False
