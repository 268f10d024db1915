"""The sections of the page that are tables: graphs, PPI, heterophilous graphs, ablations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

from pprgnn.experiments import paper
from pprgnn.experiments.ablations import CHANGES
from pprgnn.experiments.convolutions import CONVS, FINITE, INFINITE, LAYERS, RATES
from pprgnn.experiments.experiment import OURS
from pprgnn.experiments.figures import Pictures
from pprgnn.experiments.standing import ABOUT, Standing, standing
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


def graphs(results: Results, _: Pictures) -> list[str]:
    """Both protocols, and how deep ours is."""
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
        _graphs_depth(results),
    ]


def _paper_graphs(results: Results) -> tuple[str, str]:
    rows = []
    for system, variant in results.systems:
        row = [title(system, variant)]
        for data in results.data:
            entry, known = results.entry(data, system, variant, "paper"), paper.GRAPHS.get(system, {}).get(data)
            judged = f", {verdict(entry, known)}" if known and entry.count else ""
            row.append(f"{percent(entry)}{BREAK}paper: {published(known)}{judged}")
        rows.append(row)
    rows, absent = without_empty_rows(rows)
    return table(["system", *results.data], rows), absent


def _honest_graphs(results: Results) -> tuple[str, str]:
    columns, known_row = [], ["*published*"]
    for data in results.data:
        column, (whose, known) = _column(results, data), paper.HONEST_GRAPHS.get(data, ("", None))
        found = standing(results, data)
        for system, variant in results.systems:
            entry = results.entry(data, system, variant)
            if system == OURS and found is not None and found.ours == entry:
                column[title(system, variant)] += f"{BREAK}{found.short}"
        columns.append(column)
        known_row.append(f"{published(known)}{BREAK}{whose}" if known else NOTHING)
    rows, absent = without_empty_rows([[row, *(column[row] for column in columns)] for row in _titles(results)])
    return table(["system", *results.data], [*rows, trivial_row(results), known_row]), absent


def _graphs_depth(results: Results) -> str:
    rows = [
        [
            f"{title(system, variant)}, {protocol}",
            *(depth_text(results.entry(data, system, variant, protocol)) for data in results.data),
        ]
        for system, variant in results.systems
        if system == OURS
        for protocol in ("paper", "honest")
    ]
    return table(["settings and protocol", *results.data], rows)


def ppi(results: Results, _: Pictures) -> list[str]:
    """The paper's values beside ours, and what each cost."""
    rows = []
    for system, variant in results.systems:
        row = [title(system, variant), published(paper.PPI.get(system))]
        for data in results.data:
            entry = results.entry(data, system, variant)
            cost = entry.average("cpu_seconds")
            row.append(percent(entry) + (f"{BREAK}{duration(cost)}" if cost else ""))
        rows.append(row)
    rows.append([*trivial_row(results)[:1], NOTHING, *trivial_row(results)[1:]])
    standings = [_short(standing(results, data)) for data in results.data]
    rows.append([f"{title(OURS)}: difference", NOTHING, *standings])
    depths = [
        [
            title(*each),
            str(paper.PPI_ITERATIONS),
            *(depth_text(results.entry(data, *each)) for data in results.data),
        ]
        for each in results.systems
        if each[0] == OURS
    ]
    return [
        f"Below each value: CPU time of a training. {ABOUT}",
        table(["system", "paper (PPI)", *results.data], rows),
        failures(results),
        "Hops of ours in testing, summed over the layers (each layer behind it); the paper counts message "
        "passing iterations on PPI.",
        table(["system", "paper (PPI)", *results.data], depths),
    ]


def heterophily(results: Results, _: Pictures) -> list[str]:
    """All systems on all sets."""
    columns = [_column(results, data) for data in results.data]
    rows = [[row, *(column[row] for column in columns)] for row in _titles(results)]
    standings = [f"{title(OURS)}: difference", *(_short(standing(results, data)) for data in results.data)]
    return [
        f"{BOLD} {ABOUT}",
        table(["system", *results.data], [*rows, trivial_row(results), standings]),
        failures(results),
    ]


# -------------------------------------------------------------------------------------------------- convolutions
def convolutions(results: Results, _: Pictures) -> list[str]:
    """For each convolution the best stack and the best infinite layer, as validation chose them."""
    rows = []
    for conv in CONVS:
        for system, axis, places in ((FINITE, "layers", LAYERS), (INFINITE, "eps", RATES)):
            row = [f"{conv}, {'stack' if system == FINITE else 'infinite'}"]
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
    common = {
        at: replace(entry, lines=[line for line in entry.good if (line["fold"], line["seed"]) in splits])
        for at, entry in entries.items()
    }
    if not splits:
        return "not run"
    validated = {at: 100 * (entry.average("val") or 0.0) for at, entry in common.items()}
    best = max(validated, key=lambda at: validated[at])
    facts = [f"{axis} {best:g}", f"validation {validated[best]:.1f}"]
    facts += [f"depth {sum(common[best].depths):.0f}"] if common[best].depths else []
    return f"{percent(common[best])}{BREAK}{', '.join(facts)}"


# ----------------------------------------------------------------------------------------------------- ablations
KINDS = {
    "model.eps": "decay rate",
    "model.learn_eps": "decay rate",
    "model.grad_terms": "terms of the gradient",
    "model.depth": "rule of depth",
    "model.self_loops": "self-loops",
}


def ablations(results: Results, _: Pictures) -> list[str]:
    """What each change does, by kind of change."""
    rows, last = [], ""
    for system, variant in results.systems:
        kind = next((KINDS[key] for key in CHANGES.get(variant, {}) if key in KINDS), last)
        if kind != last:
            rows.append([f"**{kind}**", *[""] * len(results.data)])
        last = kind
        rows.append([variant, *(_ablated(results, data, system, variant) for data in results.data)])
    return [
        "Below each value: the difference to *as it is* in points, over the folds and seeds that both have; the "
        "mean depth, summed over the layers; the mean time of a training.",
        table(["change", *results.data], rows),
        failures(results),
    ]


def _ablated(results: Results, data: str, system: str, variant: str) -> str:
    entry, base = results.entry(data, system, variant), results.entry(data, system, next(iter(CHANGES)))
    change, seconds = difference(entry, base), entry.average("seconds")
    facts = [
        *([points(change)] if change is not None and entry != base else []),
        *([f"depth {sum(entry.depths):.0f}"] if entry.depths else []),
        *([duration(seconds)] if seconds is not None else []),
    ]
    return percent(entry) + (BREAK + ", ".join(facts) if facts else "")


# --------------------------------------------------------------------------------------------------------- parts
def _short(found: Standing | None) -> str:
    return NOTHING if found is None else found.short


def trivial_row(results: Results) -> list[str]:
    """The levels of predictors that learn nothing from a graph, on the same test parts."""
    row = ["*trivial*"]
    for data in results.data:
        levels: dict[str, list[float]] = {}
        for group, entry in results.groups.items():
            if group[0] == data and group[3] == "honest":
                for line in entry.good:
                    for name, value in (line.get("trivial") or {}).items():
                        if value is not None:
                            levels.setdefault(name, []).append(100 * value)
        row.append(BREAK.join(f"{fmean(values):.1f} {name}" for name, values in levels.items()) or NOTHING)
    return row


def _titles(results: Results) -> list[str]:
    return [title(system, variant) for system, variant in results.systems]


def _column(results: Results, data: str) -> dict[str, str]:
    return with_best_in_bold(
        {title(system, variant): results.entry(data, system, variant) for system, variant in results.systems}
    )
