"""`pprgnn data`: a user's own tables, what data sets there are, getting them, and checking them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pprgnn.cli.data_import import import_command
from pprgnn.cli.group import Group
from pprgnn.data.card import COUNTS, Card
from pprgnn.data.catalog import CATALOG, find, handle
from pprgnn.data.registry import differences, folder_of, load, state
from pprgnn.data.roots import data_root
from pprgnn.errors import DataError
from pprgnn.training.terminal import is_terminal, paragraph, state_word, styled, table, width
from pprgnn.wording import counted

ABOUT = "Your own tables and known data sets: import, list, fetch, check"
app = typer.Typer(
    cls=Group,
    help=ABOUT,
    epilog="Example: pprgnn data import --edges edges.csv --nodes nodes.csv --target topic -o graph.safetensors",
    no_args_is_help=True,
)
Json = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
SINGULAR = {key: key.removesuffix("s") for key in COUNTS} | {"classes": "class"}
SHORT = {"ready": "here", "needs download": "to fetch", "ready (inside grakel)": "in grakel"}  # for a table
app.command(
    "import",
    epilog="Example: pprgnn data import --edges edges.csv --nodes nodes.csv --target topic -o graph.safetensors",
)(import_command)
NAMED = "as `pprgnn data list` names them; TU/NAME and SNAP/com-NAME for others of these collections."


@app.command("list", epilog="Example: pprgnn data list --json")
def list_command(as_json: Json = False) -> None:
    """List the known data sets, and which are here."""
    root = data_root()
    keys = ("name", "task", "metric", "graphs", "nodes", "edges", "classes")
    states = [state(card, root) for card in CATALOG]
    rows: list[dict[str, Any]] = [
        {key: getattr(card, key) for key in keys} | {"state": found.word}
        for card, found in zip(CATALOG, states, strict=True)
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        row["state"] = SHORT.get(row["state"], row["state"])
    for line in table(rows, ("metric", "classes", "graphs", "task", "edges", "nodes"), width()):
        typer.echo(line)
    if is_terminal():
        ready = sum(found.ready for found in states)
        typer.echo()
        where = f"{ready} of {len(CATALOG)} are here or can be made; their files are in {root}"
        titles = "; ".join(card.title for card in CATALOG if card.qualifier)
        more = f"{titles}. `pprgnn data info NAME` tells more, `pprgnn data fetch NAME` downloads."
        for text in (where, more):
            typer.echo(styled(paragraph("", text, width()), dim=True))


@app.command(epilog="Example: pprgnn data info PPI-GO")
def info(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"A data set, {NAMED}")],
    as_json: Json = False,
) -> None:
    """Tell all about one data set.

    Counts, split, origin, licence, and where each of its files is or belongs.
    """
    root = data_root()
    card = find(name, root)
    found, files = state(card, root), _files(card, root)
    if as_json:
        facts = {key: value for key, value in asdict(card).items() if key != "sources"}
        typer.echo(json.dumps(facts | {"state": found.word, "root": str(root), "files": files}, indent=2))
        return
    for key, value in (_facts(card) | _unread(card, root)).items():
        typer.echo(paragraph(f"{key:<9}", value, width()))
    typer.echo(f"{'state':<9}" + state_word(found.word))
    for folder in dict.fromkeys(file["folder"] for file in files):
        typer.echo(f"\n{styled(folder, bold=True)}")
        inside = [file for file in files if file["folder"] == folder]
        longest = max(len(file["name"]) for file in inside)
        for file in inside:
            mark = " (optional)" if file["optional"] else ""
            typer.echo(f"  {file['name']:<{longest}}  {state_word(file['state'])}{mark}")
        for url in dict.fromkeys(file["url"] for file in inside):
            typer.echo(styled(f"  from {url}" if url else "  not to be had from the network", dim=True))


@app.command("fetch", epilog="Example: pprgnn data fetch NCI1 PROTEINS")
def fetch_command(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help=f"Data sets, {NAMED}")],
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Take files that have changed since they were described here.")
    ] = False,
) -> None:
    """Download data sets.

    Files go into the folder that PPRGNN_DATA names, or else into the user's cache folder. They are checked, and a
    download that was cut off is resumed.
    """
    from pprgnn.cli.progress import Bars, Lines
    from pprgnn.data.fetch import fetch

    root = data_root()
    for card in [find(name, root) for name in names]:
        found = state(card, root)
        if found.word in ("generated", "ready (inside grakel)"):
            typer.echo(f"{card.name}: {state_word(found.word)}, nothing to fetch")
            continue
        with Bars() if is_terminal() else Lines() as progress:
            new = fetch(card, root, progress, checked=not unchecked)
        files = counted(len(new), "new file") if new else "all files were there"
        typer.echo(f"{card.name}: {state_word('ready')}, {files} (in {root})")


@app.command("verify", epilog="Example: pprgnn data verify MUTAG NCI1")
def verify_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Data sets; without names, all that are ready.")
    ] = None,
) -> None:
    """Check files and counts.

    Compares every file with its SHA-256, then reads the data set and compares its counts.
    """
    root = data_root()
    cards = [find(name, root) for name in names or ()] or [card for card in CATALOG if state(card, root).ready]
    wrong = 0
    for card in cards:
        if is_terminal():
            typer.echo(f"{card.name} ...", nl=False)
        problems, summary = _examine(card, root)
        wrong += bool(problems)
        verdict = state_word("bad") if problems else state_word("ok") + " "
        line = f"{card.name:<19}{verdict}  {'; '.join(problems) or summary}"
        typer.echo(f"\r{line}" if is_terminal() else line)
    if wrong:
        raise DataError(f"{wrong} of {len(cards)} data sets are not as described.")


def _facts(card: Card) -> dict[str, str]:
    known = [counted(count, SINGULAR[key], key) for key in COUNTS if (count := getattr(card, key)) is not None]
    labels = "any number of classes" if card.multi_label else "one class"
    facts = {
        "name": card.title,
        "task": f"{labels} for every {card.task}, scored by {card.metric}",
        "counts": ", ".join(known) + "; both directions of an edge count as one" * (card.edges is not None),
        "split": card.split,
        "source": card.source,
        "licence": card.licence,
        "note": card.note,
    }
    return {key: value for key, value in facts.items() if value}


def _unread(card: Card, root: Path) -> dict[str, str]:
    """Which numbers of the nodes are not read unless one asks for them, and how one does."""
    for source in card.sources:
        folder = folder_of(card, source, root)
        for name in (*source.files, *source.extra):
            if name.endswith("_node_attributes.txt") and (name in source.files or (folder / name).is_file()):
                return {
                    "unread": f"{name}, left out by default as in PyG's TUDataset, so that scores compare; "
                    f"`--set options.node_attributes=true` of `pprgnn train` reads it, too"
                }
    return {}


def _files(card: Card, root: Path) -> list[dict[str, Any]]:
    files = []
    for source in card.sources:
        folder = folder_of(card, source, root)
        for name in source.files:
            there = "ready" if (folder / name).is_file() else "missing"
            origin: dict[str, Any] = {"optional": source.optional, "url": source.url}
            files.append({"folder": str(folder), "name": name, "state": there} | origin)
    return files


def _examine(card: Card, root: Path) -> tuple[list[str], str]:
    """What is wrong with a set, and what was compared."""
    from pprgnn.data.fetch import verify

    verdicts = verify(card, root)
    says = {"bad": "does not have its SHA-256", "missing": "is missing"}
    problems = [f"{path} {says[verdict]}" for path, verdict in verdicts if verdict in says]
    if problems:
        return problems, ""
    known = sum(verdict == "ok" for _, verdict in verdicts)
    try:
        dataset = load(handle(card), root, cache=False)  # from the files themselves
    except DataError as error:
        return [str(error)], ""
    counts = sum(getattr(card, key) is not None for key in COUNTS)
    return differences(card, dataset), f"{known} of {len(verdicts)} files by SHA-256, {counts} counts"
