"""The page of all results, made of the kept lines and the paper's numbers alone: same lines, same bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pprgnn.data.atomic_io import write_text
from pprgnn.errors import DataError
from pprgnn.experiments import EXPERIMENTS
from pprgnn.experiments.cell import Group, group_of
from pprgnn.experiments.figures import Pictures
from pprgnn.experiments.page_curves import amazon, chains, depth
from pprgnn.experiments.page_tables import ablations, convolutions, graphs, heterophily, ppi
from pprgnn.experiments.page_timing import timing
from pprgnn.experiments.standing import ABOUT, in_short
from pprgnn.experiments.store import Line, Store
from pprgnn.experiments.summary import Entry, Results
from pprgnn.experiments.tables import duration, percent, table
from pprgnn.wording import counted, noun

SECTIONS: dict[str, Callable[[Results, Pictures], list[str]]] = {
    "graphs": graphs,
    "ppi": ppi,
    "amazon": amazon,
    "timing": timing,
    "depth": depth,
    "chains": chains,
    "heterophily": heterophily,
    "convolutions": convolutions,
    "ablations": ablations,
}
IN_SHORT = """# Results

Where our model wins, ties and loses against the strongest other system of each column, in percent (ours / the
other), under the honest protocol. {about} *so far*: some of the other
systems are missing. *not complete*: cells of ours, or of every other system, are missing.
"""
INTRODUCTION = """What this library and the systems it is compared with achieve on the tables and figures of the
paper, and on some more. This page is made of the files `NAME.jsonl` in `{folder}`, a line per training, and of the
paper's numbers in `pprgnn.experiments.paper`; nothing on it was typed by hand. `pprgnn reproduce all` runs what
is missing and makes the page again, `pprgnn reproduce NAME` does so for one experiment, `pprgnn reproduce report`
makes the page alone.

A cell is one training: a system on one split with one seed. Values are percent of the test part, mean ± population
standard deviation; *(4 of 10)*: so many of the cells behind a value were run."""
NO_PICTURES = "Pictures are missing, because matplotlib is; install it with `pip install 'pprgnn[report]'`."


def write_page(store: Store, path: Path, figures: Path) -> None:
    """Write the page, and its pictures if matplotlib is here.

    Args:
        store: The results.
        path: The page, usually ``RESULTS.md``.
        figures: The folder of its pictures.
    """
    all_results = [Results.read(experiment, store) for experiment in EXPERIMENTS.values()]
    try:
        pictures = Pictures(path, figures)
        blocks = [IN_SHORT.format(about=ABOUT).strip(), in_short(all_results)]
        blocks += [INTRODUCTION.format(folder=store.folder.name)]
        blocks += _overview(all_results)
        if not pictures.can_draw:
            blocks.append(NO_PICTURES)
        for results in all_results:
            blocks += _section(results, pictures)
        write_text(path, "\n\n".join(block for block in blocks if block) + "\n")
    except OSError as error:
        raise DataError(
            f"The page {path} or a picture in {figures} cannot be written ({error.strerror or error}); make room "
            f"or choose another place."
        ) from error


def _overview(all_results: Sequence[Results]) -> list[str]:
    """What is done, where and when."""
    rows = [
        [
            f"[{each.experiment.name}](#{_anchor(each.experiment.title)})",
            f"{len(each.lines):,}",
            f"{len(each.cells):,}",
            f"{len(each.cells) - len(each.lines):,}",
            f"{each.failed:,}",
            f"{each.seconds / 3600:.1f}",
        ]
        for each in all_results
    ]
    header = ["experiment", "cells run", "of", "not run", "failed", "hours of training so far"]
    lines = [line for results in all_results for line in results.lines]
    return [table(header, rows), _circumstances(lines)]


def _circumstances(lines: Sequence[Line]) -> str:
    """Machines, versions and dates."""
    if not lines:
        return ""
    machines = sorted({f"{line.get('cpu') or 'unknown'} ({_threads(line)})" for line in lines})
    days = sorted({str(line["date"])[:10] for line in lines if line.get("date")})
    facts = [f"Machines: {'; '.join(machines)}.", f"Commits (\\*: with changes): {_commits(lines)}."]
    if days:
        facts.append(f"Dates: {days[0]}." if len(days) == 1 else f"Dates: {days[0]} to {days[-1]}.")
    return " ".join(facts)


def _threads(line: Line) -> str:
    threads = line.get("threads")
    return "threads unknown" if threads is None else counted(threads, "thread")


def _commits(lines: Sequence[Line]) -> str:
    """Short; with an asterisk when files had been changed since."""
    found = set()
    for line in lines:
        commit, changed, _ = (line.get("commit") or "").partition("-dirty")
        found.add((commit[:7] or f"version {line.get('version')}") + ("\\*" if changed else ""))
    return ", ".join(sorted(found))


def _section(results: Results, pictures: Pictures) -> list[str]:
    experiment = results.experiment
    return [
        f"## {experiment.title}",
        experiment.about,
        _facts(results),
        *SECTIONS[experiment.name](results, pictures),
        *_earlier(results),
    ]


def _facts(results: Results) -> str:
    """The command, and what stands behind the tables."""
    lines, facts = results.lines, [f"`pprgnn reproduce {results.experiment.name}`"]
    if lines:
        folds, seeds = len({line["fold"] for line in lines}), sorted({line["seed"] for line in lines})
        facts += [
            f"{len(lines):,} of {len(results.cells):,} cells run",
            *([f"{results.failed:,} failed"] if results.failed else []),
            *([f"{folds} folds"] if folds > 1 else []),
            f"{noun(len(seeds), 'seed')} {', '.join(map(str, seeds))}",
            duration(results.seconds),
            f"commits {_commits(lines)}",
        ]
    warned = sum(bool(line.get("warnings")) for line in lines)
    sentences = [" · ".join(facts) + "."]
    if warned:
        sentences.append(f"{warned:,} trainings had warnings (`warnings` of their lines).")
    return " ".join(sentences)


def _earlier(results: Results) -> list[str]:
    """What other settings gave before: listed, so that nothing is hidden, and compared with nothing."""
    groups: dict[Group, list[Line]] = {}
    for line in results.earlier:
        groups.setdefault(group_of(line), []).append(line)
    rows = [
        [
            " ".join(filter(None, (data, system, variant, protocol, "" if place == "{}" else place))),
            percent(Entry(lines, len(lines), len(lines))),
            str(len(lines)),
            _commits(lines),
        ]
        for (data, system, variant, protocol, place), lines in groups.items()
    ]
    if not rows:
        return []
    count = f"{counted(len(results.earlier), 'line')} of earlier settings"
    listed = table(["cells", "score", "lines", "commits"], rows)
    return [f"<details><summary>{count}, compared with nothing</summary>", listed, "</details>"]


def _anchor(heading: str) -> str:
    """What GitHub calls a heading."""
    kept = "".join(each for each in heading.lower() if each.isalnum() or each in " -_")
    return kept.replace(" ", "-")
