"""`pprgnn data`: what data sets there are, all about one of them, checking and fetching them. Without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from pprgnn.cli.main import Fetch, Info, ListSets, Verify
from pprgnn.cli.output import show, show_hint, show_json, show_labelled
from pprgnn.data.catalog import CATALOG, COUNTS, Card, find, handle
from pprgnn.data.download import fetch, verify
from pprgnn.data.registry import attributes_file, differences, folder_of, load, state
from pprgnn.data.roots import data_root
from pprgnn.errors import DataError
from pprgnn.training.recipes import find_recipe
from pprgnn.training.terminal import is_terminal, paragraph, state_word, styled, table, width
from pprgnn.wording import counted

SINGULAR = {key: key.removesuffix("s") for key in COUNTS} | {"classes": "class"}
SHORT = {"ready": "here", "needs download": "to fetch", "ready (inside grakel)": "in grakel"}  # for a table


# ------------------------------------------------------------------------------------------------------------ list
def list_sets(options: ListSets) -> None:
    """A row for each."""
    root = data_root()
    keys = ("name", "task", "metric", "graphs", "nodes", "edges", "classes")
    states = [state(card, root) for card in CATALOG]
    rows: list[dict[str, Any]] = [
        {key: getattr(card, key) for key in keys} | {"state": found.word}
        for card, found in zip(CATALOG, states, strict=True)
    ]
    if options.as_json:
        show_json(rows)
        return
    for row in rows:
        row["state"] = SHORT.get(row["state"], row["state"])
    show(table(rows, ("metric", "classes", "graphs", "task", "edges", "nodes"), width()))
    if is_terminal():
        ready = sum(found.ready for found in states)
        titles = "; ".join(card.title for card in CATALOG if card.qualifier)
        typer.echo()
        for text in (
            f"{ready} of {len(CATALOG)} are here or can be made; their files are in {root}",
            f"{titles}. `pprgnn data info NAME` tells more, `pprgnn data fetch NAME` downloads.",
        ):
            show_hint(paragraph("", text, width()))


# ------------------------------------------------------------------------------------------------------------ info
def info(options: Info) -> None:
    """Facts, then files."""
    root = data_root()
    card = find(options.name, root)
    found, files = state(card, root), _files(card, root)
    if options.as_json:
        facts = {key: value for key, value in asdict(card).items() if key != "sources"}
        show_json(facts | {"state": found.word, "root": str(root), "files": files})
        return
    show_labelled((_facts(card) | _numbers(card, root)).items())
    typer.echo(f"{'state':<9}" + state_word(found.word))
    for folder in dict.fromkeys(file["folder"] for file in files):
        typer.echo(f"\n{styled(folder, bold=True)}")
        inside = [file for file in files if file["folder"] == folder]
        longest = max(len(file["name"]) for file in inside)
        for file in inside:
            mark = " (optional)" if file["optional"] else ""
            typer.echo(f"  {file['name']:<{longest}}  {state_word(file['state'])}{mark}")
        for url in dict.fromkeys(file["url"] for file in inside):
            show_hint(f"  from {url}" if url else "  not to be had from the network")


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


def _numbers(card: Card, root: Path) -> dict[str, str]:
    """Which file has numbers of the nodes beside their labels, who reads it, and who does not and why."""
    file, name = attributes_file(card, root), handle(card)
    if not file:
        return {}
    if find_recipe(name) is not None:
        return {
            "unread": f"{file}: the recipe leaves it out, as PyG's TUDataset does, so that scores compare; "
            f"`--set options.node_attributes=true` of `pprgnn train` reads it, too"
        }
    return {
        "numbers": f"{file}: `pprgnn train {name}` reads it (`--set options.node_attributes=false`: not); "
        f"`pprgnn.data.load` does with node_attributes=True, otherwise it reads what PyG's TUDataset does"
    }


def _files(card: Card, root: Path) -> list[dict[str, Any]]:
    files = []
    for source in card.sources:
        folder = folder_of(card, source, root)
        for name in source.files:
            there = "ready" if (folder / name).is_file() else "missing"
            origin: dict[str, Any] = {"optional": source.optional, "url": source.url}
            files.append({"folder": str(folder), "name": name, "state": there} | origin)
    return files


# ---------------------------------------------------------------------------------------------------------- verify
def verify_sets(options: Verify) -> None:
    """A line for each, as it comes; in the end an error if one is not as described."""
    root = data_root()
    cards = [find(name, root) for name in options.names or ()] or [
        card for card in CATALOG if state(card, root).ready
    ]
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


def _examine(card: Card, root: Path) -> tuple[list[str], str]:
    """What is wrong with a set, and what was compared."""
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


# ----------------------------------------------------------------------------------------------------------- fetch
def fetch_sets(options: Fetch) -> None:
    """Download each set that has something to download."""
    root = data_root()
    for card in [find(name, root) for name in options.names]:
        found = state(card, root)
        if found.word in ("generated", "ready (inside grakel)"):
            typer.echo(f"{card.name}: {state_word(found.word)}, nothing to fetch")
            continue
        with _progress() as tell:
            new = fetch(card, root, tell, checked=not options.unchecked)
        files = counted(len(new), "new file") if new else "all files were there"
        typer.echo(f"{card.name}: {state_word('ready')}, {files} (in {root})")


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Who is told how much of which file has come, and of how much."""
    if not is_terminal():
        yield Lines()
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=20),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(compact=True),
    )
    with progress.Progress(*columns) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def tell(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name)
            bars.update(tasks[name], completed=done, total=total)

        yield tell


class Lines:
    """A line when a file begins."""

    def __init__(self) -> None:
        self.name = ""

    def __call__(self, name: str, done: int, total: int | None) -> None:
        if name != self.name:
            self.name = name
            typer.echo(f"Downloading {name}{'' if total is None else f' ({total:,} bytes)'} ...")
