"""The sections of the page that are tables: graphs, PPI, heterophilous graphs, convolutions, ablations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean

from pprgnn.experiments import paper
from pprgnn.experiments.ablations import CHANGES, KINDS
from pprgnn.experiments.convolutions import AXES, CONVS
from pprgnn.experiments.experiment import OURS
from pprgnn.experiments.figures import Pictures
from pprgnn.experiments.standing import ABOUT, standing
from pprgnn.experiments.summary import Entry, Results
from pprgnn.experiments.tables import (
    BREAK,
    NOTHING,
    depth_text,
    difference,
    duration,
    failures,
    percent,
    points,
    published,
    table,
    title,
    verdict,
    with_best_in_bold,
    without_empty_rows,
)

BOLD = "Bold: the best of a column among those of which every cell was run."
Rows = list[list[str]]


# ----------------------------------------------------------------------------------------------------------- rows
def by_system(results: Results, text: Callable[[str, str, str], str], only: str = "") -> Rows:
    """A row for each system with its variant, a column for each data set; ``text`` of data, system and variant."""
    return [
        [title(system, variant), *(text(data, system, variant) for data in results.data)]
        for system, variant in results.systems
        if only in ("", system)
    ]


def best_in_bold(results: Results) -> Callable[[str, str, str], str]:
    """The values under the honest protocol, for :func:`by_system`."""
    columns = {
        data: with_best_in_bold({key: results.entry(data, *key) for key in results.systems})
        for data in results.data
    }
    return lambda data, system, variant: columns[data][system, variant]


def trivial_row(results: Results) -> list[str]:
    """The levels of predictors that learn nothing from a graph, on the same test parts."""
    row = ["*trivial*"]
    for data in results.data:
        levels: dict[str, list[float]] = {}
        for group, entry in results.groups.items():
            for line in entry.good if (group.data, group.protocol) == (data, "honest") else ():
                for name, value in (line.get("trivial") or {}).items():
                    if value is not None:
                        levels.setdefault(name, []).append(100 * value)
        row.append(BREAK.join(f"{fmean(values):.1f} {name}" for name, values in levels.items()) or NOTHING)
    return row


def standing_row(results: Results) -> list[str]:
    """How far ours is from the strongest other system."""
    found = [standing(results, data) for data in results.data]
    return [f"{title(OURS)}: difference", *(NOTHING if each is None else each.short for each in found)]


# --------------------------------------------------------------------------------------------------------- graphs
def graphs(results: Results, _: Pictures) -> list[str]:
    """Both protocols, and how deep ours is."""
    depths = [
        [f"{title(OURS, variant)}, {protocol}"]
        + [depth_text(results.entry(data, OURS, variant, protocol)) for data in results.data]
        for system, variant in results.systems
        if system == OURS
        for protocol in ("paper", "honest")
    ]
    return [
        "### Paper's protocol (optimistic: the test part chose the epoch)",
        "Below each value the paper's, from other splits. *above*: its mean; *within σ*: below it by no more than "
        "its standard deviation (ours, where it prints none); *below*: by more.",
        *_paper_graphs(results),
        failures(results, "paper"),
        "### Honest protocol",
        f"{BOLD} Below ours: the difference to the strongest other system. {ABOUT} Published figures for the same "
        f"splits: Errica et al. 2020. *majority*: the level of a model that always says the most frequent class.",
        *_honest_graphs(results),
        failures(results, "honest"),
        "### Effective depth of ours",
        f"Hops of the deepest solve of a fold, summed over the layers (each layer behind it), mean over folds. "
        f"The paper: {paper.GRAPHS_DEPTH[0]} to {paper.GRAPHS_DEPTH[1]}, depending on the data set.",
        table(["settings and protocol", *results.data], depths),
    ]


def _paper_graphs(results: Results) -> tuple[str, str]:
    def text(data: str, system: str, variant: str) -> str:
        entry, known = results.entry(data, system, variant, "paper"), paper.GRAPHS.get(system, {}).get(data)
        judged = f", {verdict(entry, known)}" if known and entry.count else ""
        return f"{percent(entry)}{BREAK}paper: {published(known)}{judged}"

    rows, absent = without_empty_rows(by_system(results, text))
    return table(["system", *results.data], rows), absent


def _honest_graphs(results: Results) -> tuple[str, str]:
    value, known_row = best_in_bold(results), ["*published*"]
    found = {data: standing(results, data) for data in results.data}
    for data in results.data:
        whose, known = paper.HONEST_GRAPHS.get(data, ("", None))
        known_row.append(f"{published(known)}{BREAK}{whose}" if known else NOTHING)

    def text(data: str, system: str, variant: str) -> str:
        ours = found[data]
        compared = ours is not None and system == OURS and ours.ours == results.entry(data, system, variant)
        return value(data, system, variant) + (f"{BREAK}{ours.short}" if ours and compared else "")

    rows, absent = without_empty_rows(by_system(results, text))
    return table(["system", *results.data], [*rows, trivial_row(results), known_row]), absent


# ------------------------------------------------------------------------------------------- PPI and heterophily
def ppi(results: Results, _: Pictures) -> list[str]:
    """The paper's values beside ours, and what each cost."""

    def text(data: str, system: str, variant: str) -> str:
        entry = results.entry(data, system, variant)
        cost = entry.average("cpu_seconds")
        return percent(entry) + (f"{BREAK}{duration(cost)}" if cost else "")

    known = [*(published(paper.PPI.get(system)) for system, _ in results.systems), NOTHING, NOTHING]
    rows = [*by_system(results, text), trivial_row(results), standing_row(results)]
    depths = by_system(results, lambda data, *key: depth_text(results.entry(data, *key)), OURS)
    header = ["system", "paper (PPI)", *results.data]
    return [
        f"Below each value: CPU time of a training. {ABOUT}",
        table(header, [[name, value, *row] for value, (name, *row) in zip(known, rows, strict=True)]),
        failures(results),
        "Hops of ours in testing, summed over the layers (each layer behind it); the paper counts message "
        "passing iterations on PPI.",
        table(header, [[name, str(paper.PPI_ITERATIONS), *row] for name, *row in depths]),
    ]


def heterophily(results: Results, _: Pictures) -> list[str]:
    """All systems on all sets."""
    rows = [*by_system(results, best_in_bold(results)), trivial_row(results), standing_row(results)]
    return [f"{BOLD} {ABOUT}", table(["system", *results.data], rows), failures(results)]


# --------------------------------------------------------------------------------------------------- convolutions
def convolutions(results: Results, _: Pictures) -> list[str]:
    """For each convolution the best stack and the best infinite layer, as validation chose them."""
    rows = []
    for conv in CONVS:
        for system, (axis, places) in AXES.items():
            row = [f"{conv}, {system}"]
            for data in results.data:
                entries = {each: results.entry(data, system, conv, at={axis: each}) for each in places}
                row.append(_chosen(entries, axis))
            rows.append(row)
    return [
        "Below each value: what validation chose, the score there, and for the infinite ones the mean depth.",
        table(["convolution", *results.data], rows),
        failures(results),
    ]


def _chosen(entries: Mapping[float, Entry], axis: str) -> str:
    """The entry with the best validation score, over the folds and seeds that all have."""
    splits = set.intersection(*(set(entry.by_split) for entry in entries.values()))
    if not splits:
        return "not run"
    common = {
        at: replace(entry, lines=[line for line in entry.good if (line["fold"], line["seed"]) in splits])
        for at, entry in entries.items()
    }
    validated = {at: 100 * (entry.average("val") or 0.0) for at, entry in common.items()}
    best = max(validated, key=lambda at: validated[at])
    facts = [f"{axis} {best:g}", f"validation {validated[best]:.1f}"]
    facts += [f"depth {sum(common[best].depths):.0f}"] if common[best].depths else []
    return f"{percent(common[best])}{BREAK}{', '.join(facts)}"


# ------------------------------------------------------------------------------------------------------ ablations
def ablations(results: Results, _: Pictures) -> list[str]:
    """What each change does, by kind of change."""

    def text(data: str, system: str, variant: str) -> str:
        entry, base = results.entry(data, system, variant), results.entry(data, system, next(iter(CHANGES)))
        change, seconds = difference(entry, base), entry.average("seconds")
        facts = [
            *([points(change)] if change is not None and entry != base else []),
            *([f"depth {sum(entry.depths):.0f}"] if entry.depths else []),
            *([duration(seconds)] if seconds is not None else []),
        ]
        return percent(entry) + (BREAK + ", ".join(facts) if facts else "")

    rows, last = [], ""
    for (_name, variant), row in zip(results.systems, by_system(results, text), strict=True):
        kind = next((KINDS[key] for key in CHANGES.get(variant, {}) if key in KINDS), last)
        if kind != last:
            rows.append([f"**{kind}**", *[""] * len(results.data)])
        last = kind
        rows.append([variant, *row[1:]])
    return [
        "Below each value: the difference to *as it is* in points, over the folds and seeds that both have; the "
        "mean depth, summed over the layers; the mean time of a training.",
        table(["change", *results.data], rows),
        failures(results),
    ]
