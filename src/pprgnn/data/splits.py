"""How data sets are divided: as the paper does it, and honestly. What is drawn depends on data and seed alone.

====================================  ==================================================================
data set                              rule (``"paper"`` / ``"honest"``)
====================================  ==================================================================
`part` per graph (PPI, generated)     by `part` / the same; ``genes="disjoint"``: no gene in two parts
`part` per node (a split column)      by the column / 20 % of training validates if the column has none
graph classification                  10 folds, no validation part / published nested or seeded folds
`train_mask`, `val_mask`, ...         the published splits / the same
com-Amazon, com-DBLP                  a fraction of the labels, no validation part / with one
anything else                         60/20/20 of the labelled nodes / the same
====================================  ==================================================================
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pprgnn.data.catalog import Task
from pprgnn.data.sampling import (
    NESTED,
    OPTIMISTIC,
    Array,
    Sample,
    by_folds,
    check_fraction,
    labelled,
    percent,
    strata_of,
    take,
)
from pprgnn.data.split import Split
from pprgnn.errors import DataError

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset

__all__ = ["NESTED", "PROTOCOLS", "Split", "make_splits"]

PROTOCOLS = ("paper", "honest")
SNAP_TEST = 0.1  # of the labelled nodes
GENE_FRACTIONS = (0.6, 0.2, 0.2)  # training, validation, test
SMALL_CLASS = 3  # fewer cannot be in all three parts


def make_splits(dataset: GraphDataset, protocol: str = "honest", seed: int = 0, **options: Any) -> list[Split]:
    """All splits of a data set under a protocol, ``"honest"`` or ``"paper"``; the rule follows from the data.

    Options for graph classification: ``folds``, ``published``, ``val_fraction``; for PPI: ``genes``,
    ``gene_fractions``; for com-Amazon and com-DBLP: ``fraction``, ``val_fraction``; for a split column:
    ``val_fraction``; for other nodes: ``train_fraction``, ``val_fraction``.
    """
    name, rule = dataset.facts.name, _rule(dataset)
    if protocol not in PROTOCOLS:
        raise DataError(f"The protocol must be 'paper' or 'honest', not {protocol!r}.")
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise DataError(f"The seed must be a whole number from 0 on, not {seed!r}.")
    known = inspect.getfullargspec(rule).kwonlyargs
    for option in options:
        if option not in known:
            takes = f"the options {', '.join(known)}" if known else "no options"
            raise DataError(f"Splits of {name} take {takes}, but not {option!r}; leave it out.")
    drawn = rule(dataset, protocol == "honest", np.random.default_rng(seed), **options)
    return [
        Split.of(
            dataset,
            (each.train, each.val, each.test),
            unit=each.unit,
            protocol=protocol,
            seed=int(seed),
            index=index,
            count=len(drawn),
            description=each.description,
        )
        for index, each in enumerate(drawn)
    ]


def _rule(dataset: GraphDataset) -> Callable[..., list[Sample]]:
    data, facts = dataset._data, dataset.facts
    if "part" in data:
        length = len(dataset._all("part"))
        if len(dataset) > 1 and length == len(dataset):
            return _by_graph_part
        if facts.task == "node" and length == dataset.num_nodes:
            return _by_split_column
        raise DataError(f"`part` of {facts.name} must have one value per {facts.task}, but has {length} values.")
    if facts.task == "graph":
        return by_folds
    if "train_mask" in data and "test_mask" in data:
        return _by_masks
    if facts.multi_label and facts.schema is None and "labelled" in data:
        return _by_label_fraction
    return _by_shares


# -------------------------------------------------------------------------------------------------- given parts
def _by_graph_part(
    dataset: GraphDataset,
    honest: bool,
    rng: np.random.Generator,
    *,
    genes: Literal["shared", "disjoint"] = "shared",
    gene_fractions: Sequence[float] | None = None,
) -> list[Sample]:
    # PAPER: PPI as 18/2/2 of 22 graphs; there are 24, and all training graphs train.
    name, known = dataset.facts.name, "gene" in dataset._data
    if genes not in ("shared", "disjoint"):
        raise DataError(f"The option genes must be 'shared' or 'disjoint', not {genes!r}.")
    if genes == "disjoint" and not known:
        raise DataError(f"The genes of {name} are not known, so they cannot be kept apart; leave genes out.")
    if genes == "shared" and gene_fractions is not None:
        raise DataError(
            "The option gene_fractions needs genes='disjoint', but genes are shared; give both or none."
        )
    part = _given_part(dataset)
    if genes == "disjoint":
        return [_gene_disjoint(dataset, part, rng, GENE_FRACTIONS if gene_fractions is None else gene_fractions)]
    strata = strata_of(dataset) if dataset.facts.task == "graph" else np.zeros(len(part))
    drawn = _by_part(part, strata, "graph", honest, rng, "The data set's own graphs for each part")
    if known or name.upper().startswith("PPI"):
        text = drawn.description.removesuffix(".") + "; genes of the training part may recur in the others."
        drawn = drawn._replace(description=f"Usual (genes shared): {text[0].lower()}{text[1:]}")
    return [drawn]


def _gene_disjoint(
    dataset: GraphDataset, part: Array, rng: np.random.Generator, fractions: Sequence[float]
) -> Sample:
    """Rows of each part's graphs, of the genes that belong to this part: most genes occur in all graphs."""
    numeric = len(fractions) == 3 and all(isinstance(each, Real) and each > 0 for each in fractions)
    if not numeric or abs(sum(fractions) - 1) > 1e-6:
        raise DataError(f"The option gene_fractions must be three positive numbers with sum 1, not {fractions!r}.")
    gene = dataset._all("gene").numpy()
    names, gene, rows = np.unique(gene, return_inverse=True, return_counts=True)
    # Frequent and rare genes are dealt out alike, so that the parts get their share of rows, not only of genes.
    test, rest = take(np.arange(len(names)), rows, fractions[2], rng)
    val, _ = take(rest, rows, fractions[1] / (fractions[0] + fractions[1]), rng)
    gene_part = np.zeros(len(names), dtype=np.int64)
    gene_part[val], gene_part[test] = 1, 2
    gene_part[names < 0] = -1  # not known: might be any gene
    row_part = np.repeat(part, dataset.graph_sizes)
    usable = labelled(dataset) & (gene_part[gene] == row_part)
    train, val, test = (np.flatnonzero(usable & (row_part == number)) for number in range(3))
    text = (
        f"Genes apart: divided {'/'.join(f'{100 * each:g}' for each in fractions)}, and of each part's graphs the "
        f"rows of its genes: no gene that is scored has a label in training."
    )
    return Sample(train, val, test, "node", text)


def _by_split_column(
    dataset: GraphDataset, honest: bool, rng: np.random.Generator, *, val_fraction: float = 0.2
) -> list[Sample]:
    part = np.where(labelled(dataset), _given_part(dataset), -1)
    return [_by_part(part, strata_of(dataset), "node", honest, rng, "By the split column", val_fraction)]


def _by_masks(dataset: GraphDataset, honest: bool, rng: np.random.Generator) -> list[Sample]:
    """One split per column; a mask without columns serves all of them."""
    names = [f"{part}_mask" for part in ("train", "val", "test")]
    masks = [dataset._all(name).bool().numpy() for name in names if name in dataset._data]
    if len(masks) == 2:
        masks.insert(1, np.zeros_like(masks[0]))
    columns = np.stack(np.broadcast_arrays(*(mask.reshape(len(mask), -1) for mask in masks)))
    if (columns.sum(0) > 1).any():
        raise DataError(f"The masks of {dataset.facts.name} must not overlap, but do; read the data set again.")
    parts = np.where(columns.any(0) & labelled(dataset)[:, None], columns.argmax(0), -1)
    count, drawn = parts.shape[1], []
    for number, part in enumerate(parts.T, start=1):
        text = f"Published split {number} of {count}" if count > 1 else "The published split"
        drawn.append(_by_part(part, strata_of(dataset), "node", honest, rng, text))
    return drawn


def _given_part(dataset: GraphDataset) -> Array:
    part: Array = dataset._all("part").numpy()
    if not (part.min() >= -1 and part.max() <= 2):
        raise DataError(
            f"`part` of {dataset.facts.name} must be 0 (train), 1 (validation), 2 (test) or -1 (none), but "
            f"reaches from {part.min()} to {part.max()}."
        )
    return part


def _by_part(
    part: Array,
    strata: Array,
    unit: Task,
    honest: bool,
    rng: np.random.Generator,
    text: str,
    val_fraction: float = 0.2,
) -> Sample:
    """0 trains, 1 validates, 2 tests, -1 does nothing; without any 1, some of the training part validates."""
    check_fraction("val_fraction", val_fraction)
    train, val, test = (np.flatnonzero(part == number) for number in range(3))
    if not len(val) and honest:
        val, train = take(train, strata, val_fraction, rng)
        text += f", where {percent(val_fraction)} of the training {unit}s validate, since none were set apart"
    elif not len(val):
        text += f"; without validation {unit}s {OPTIMISTIC}"
    return Sample(train, val, test, unit, f"{text}.")


# ------------------------------------------------------------------------------------------- drawn from one graph
def _by_label_fraction(
    dataset: GraphDataset,
    honest: bool,
    rng: np.random.Generator,
    *,
    fraction: float = 0.05,
    val_fraction: float = 0.05,
) -> list[Sample]:
    """One order of the labelled nodes: test nodes first, then validation, then training.

    So a larger fraction adds training nodes and changes nothing else.
    """
    check_fraction("fraction", fraction)
    check_fraction("val_fraction", val_fraction, most=0.4)
    nodes = rng.permutation(labelled(dataset).nonzero()[0])
    counts = [max(1, round(share * len(nodes))) for share in (SNAP_TEST, val_fraction, fraction)]
    test, val, train, _ = np.split(nodes, np.cumsum(counts))
    text = f"{percent(fraction)} of the labelled nodes train and {percent(SNAP_TEST)} test"
    if honest:
        return [Sample(train, val, test, "node", f"{text}; other {percent(val_fraction)} validate.")]
    # PAPER: the test nodes also choose the epoch.
    return [Sample(train, val[:0], test, "node", f"{text}; {OPTIMISTIC}.")]


def _by_shares(
    dataset: GraphDataset,
    honest: bool,
    rng: np.random.Generator,
    *,
    train_fraction: float = 0.6,
    val_fraction: float = 0.2,
) -> list[Sample]:
    check_fraction("train_fraction", train_fraction, most=1.0)
    check_fraction("val_fraction", val_fraction)
    test_fraction = 1 - train_fraction - val_fraction
    if test_fraction < 1e-6:
        raise DataError("The options train_fraction and val_fraction must leave a test part, so sum below 1.")
    strata, nodes = strata_of(dataset), labelled(dataset).nonzero()[0]
    _, class_of, counts = np.unique(strata[nodes], return_inverse=True, return_counts=True)
    small = counts[class_of] < SMALL_CLASS
    if small.all():
        raise DataError(
            f"To divide {dataset.facts.name}, at least one class must have {SMALL_CLASS} labelled nodes, but none "
            f"has; label more nodes or give a split column."
        )
    test, rest = take(nodes[~small], strata, test_fraction, rng)
    val, train = take(rest, strata, val_fraction / (train_fraction + val_fraction), rng)
    shares = "/".join(f"{100 * share:g}" for share in (train_fraction, val_fraction, round(test_fraction, 9)))
    text = f"{shares} of the labelled nodes" + ("" if dataset.facts.multi_label else ", stratified by class")
    if small.any():
        few = int((counts < SMALL_CLASS).sum())
        text += f"; all nodes of {few} class{'es' * (few > 1)} with fewer than {SMALL_CLASS} labelled nodes train"
    return [Sample(np.concatenate([train, nodes[small]]), val, test, "node", f"{text}.")]
