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
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pprgnn.data.catalog import NESTED_FOLDS, Task
from pprgnn.data.roots import data_root
from pprgnn.data.split import Split, index_array
from pprgnn.errors import DataError
from pprgnn.wording import counted

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset

Array = NDArray[Any]
PROTOCOLS = ("paper", "honest")
OPTIMISTIC = "the test part also chooses the epoch, as in the paper, so its score is optimistic"
NO_VALIDATION = "without a validation part, so nothing chooses the epoch"
SNAP_TEST = 0.1  # of the labelled nodes
GENE_FRACTIONS = (0.6, 0.2, 0.2)  # training, validation, test
SMALL_CLASS = 3  # fewer cannot be in all three parts


class Sample(NamedTuple):
    """What a rule gives; `make_splits` adds the rest."""

    train: Array
    val: Array
    test: Array
    unit: Task
    description: str


def make_splits(dataset: GraphDataset, protocol: str = "honest", seed: int = 0, **options: Any) -> list[Split]:
    """All splits of a data set under a protocol, ``"honest"`` or ``"paper"``; the rule follows from the data.

    Options for graph classification: ``folds``, ``published``, ``val_fraction``; for PPI: ``genes``,
    ``gene_fractions``; for com-Amazon and com-DBLP: ``fraction``, ``val_fraction``; for a split column:
    ``val_fraction``; for other nodes: ``train_fraction``, ``val_fraction``.
    """
    if protocol not in PROTOCOLS:
        raise DataError(f"The protocol must be 'paper' or 'honest', not {protocol!r}.")
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise DataError(f"The seed must be a whole number from 0 on, not {seed!r}.")
    rule = _Rules(dataset, protocol == "honest", np.random.default_rng(seed)).choose()
    known = inspect.getfullargspec(rule).kwonlyargs
    for option in options:
        if option not in known:
            takes = f"the options {', '.join(known)}" if known else "no options"
            raise DataError(f"Splits of {dataset.facts.name} take {takes}, but not {option!r}; leave it out.")
    drawn = rule(**options)
    about: dict[str, Any] = {"protocol": protocol, "seed": int(seed), "count": len(drawn)}
    return [
        Split.of(dataset, parts, unit=unit, index=index, description=text, **about)
        for index, (*parts, unit, text) in enumerate(drawn)
    ]


# -------------------------------------------------------------------------------------------------- even sampling
def by_stratum(strata: Array, rng: np.random.Generator) -> Array:
    """An order in which equal strata lie together, shuffled within each."""
    shuffled = rng.permutation(len(strata))
    order: Array = shuffled[np.argsort(strata[shuffled], kind="stable")]
    return order


def strata_of(dataset: GraphDataset) -> Array:
    """What must be spread evenly: the classes, if each node or graph has one."""
    y = dataset.labels().numpy()
    return y if y.ndim == 1 else np.zeros(len(y), dtype=np.int64)


def _check_fraction(name: str, value: float, most: float = 0.5) -> None:
    if not (isinstance(value, Real) and 0 < value <= most):
        raise DataError(f"The option {name} must be a number above 0 and at most {most:g}, not {value!r}.")


def _percent(fraction: float) -> str:
    return f"{100 * fraction:g} %"


# ------------------------------------------------------------------------------------------------------- the rules
@dataclass
class _Rules:
    """One for each kind of data set; their keywords are the options of `make_splits`."""

    dataset: GraphDataset
    honest: bool
    rng: np.random.Generator

    def choose(self) -> Callable[..., list[Sample]]:
        """The rule for this data set."""
        data, facts = self.dataset._data, self.dataset.facts
        if "part" in data:
            length = len(self.dataset._all("part"))
            if len(self.dataset) > 1 and length == len(self.dataset):
                return self.by_graph_part
            if facts.task == "node" and length == self.dataset.num_nodes:
                return self.by_split_column
            raise DataError(
                f"`part` of {facts.name} must have one value per {facts.task}, but has {length} values."
            )
        if facts.task == "graph":
            return self.by_folds
        if "train_mask" in data and "test_mask" in data:
            return self.by_masks
        if facts.multi_label and facts.schema is None and "labelled" in data:
            return self.by_label_fraction
        return self.by_shares

    @property
    def name(self) -> str:
        return self.dataset.facts.name

    @cached_property
    def strata(self) -> Array:
        return strata_of(self.dataset)

    @cached_property
    def labelled(self) -> Array:
        """Whether each node, or graph on a graph task, has a label."""
        labelled: Array = self.dataset.labelled().numpy()
        return labelled

    def take(self, units: Array, fraction: float, strata: Array | None = None) -> tuple[Array, Array]:
        """A fraction of the units (at least one) and the rest; a stratum gives its share, to within one unit."""
        strata, total = self.strata if strata is None else strata, len(units)
        count = min(total, max(1, round(fraction * total)))
        # Evenly spaced places in an order by stratum, from a random start so that no stratum is preferred.
        places = (np.arange(count) * total + self.rng.integers(max(total, 1))) // max(count, 1)
        chosen = np.zeros(total, dtype=bool)
        chosen[by_stratum(strata[units], self.rng)[places]] = True
        return units[chosen], units[~chosen]

    # ------------------------------------------------------------------------------------------------- given parts
    def by_graph_part(
        self,
        *,
        genes: Literal["shared", "disjoint"] = "shared",
        gene_fractions: Sequence[float] | None = None,
    ) -> list[Sample]:
        # PAPER: PPI as 18/2/2 of 22 graphs; there are 24, and all training graphs train.
        name, known = self.name, "gene" in self.dataset._data
        if genes not in ("shared", "disjoint"):
            raise DataError(f"The option genes must be 'shared' or 'disjoint', not {genes!r}.")
        if genes == "disjoint" and not known:
            raise DataError(f"The genes of {name} are not known, so they cannot be kept apart; leave genes out.")
        if genes == "shared" and gene_fractions is not None:
            raise DataError(
                "The option gene_fractions needs genes='disjoint', but genes are shared; give both or none."
            )
        part = self.given_part()
        if genes == "disjoint":
            return [self.gene_disjoint(part, GENE_FRACTIONS if gene_fractions is None else gene_fractions)]
        drawn = self.by_part(part, "graph", "The data set's own graphs for each part")
        if known or name.upper().startswith("PPI"):
            text = drawn.description.removesuffix(".") + "; genes of the training part may recur in the others."
            drawn = drawn._replace(description=f"Usual (genes shared): {text[0].lower()}{text[1:]}")
        return [drawn]

    def gene_disjoint(self, part: Array, fractions: Sequence[float]) -> Sample:
        """Rows of each part's graphs, of the genes that belong to this part: most genes occur in all graphs."""
        numeric = len(fractions) == 3 and all(isinstance(each, Real) and each > 0 for each in fractions)
        if not numeric or abs(sum(fractions) - 1) > 1e-6:
            raise DataError(
                f"The option gene_fractions must be three positive numbers with sum 1, not {fractions!r}."
            )
        names, gene, rows = np.unique(self.dataset._all("gene").numpy(), return_inverse=True, return_counts=True)
        # Frequent and rare genes are dealt out alike: the parts get their share of rows, not only of genes.
        test, rest = self.take(np.arange(len(names)), fractions[2], rows)
        val, _ = self.take(rest, fractions[1] / (fractions[0] + fractions[1]), rows)
        gene_part = np.zeros(len(names), dtype=np.int64)
        gene_part[val], gene_part[test] = 1, 2
        gene_part[names < 0] = -1  # not known: might be any gene
        row_part = np.repeat(part, self.dataset.graph_sizes)
        usable = self.labelled & (gene_part[gene] == row_part)
        train, val, test = (np.flatnonzero(usable & (row_part == number)) for number in range(3))
        text = (
            f"Genes apart: divided {'/'.join(f'{100 * each:g}' for each in fractions)}, and of each part's graphs "
            f"the rows of its genes: no gene that is scored has a label in training."
        )
        return Sample(train, val, test, "node", text)

    def by_split_column(self, *, val_fraction: float = 0.2) -> list[Sample]:
        part = np.where(self.labelled, self.given_part(), -1)
        return [self.by_part(part, "node", "By the split column", val_fraction)]

    def by_masks(self) -> list[Sample]:
        """One split per column; a mask without columns serves all of them."""
        names = [f"{part}_mask" for part in ("train", "val", "test")]
        masks = [self.dataset._all(name).bool().numpy() for name in names if name in self.dataset._data]
        if len(masks) == 2:
            masks.insert(1, np.zeros_like(masks[0]))
        columns = np.stack(np.broadcast_arrays(*(mask.reshape(len(mask), -1) for mask in masks)))
        if (columns.sum(0) > 1).any():
            raise DataError(f"The masks of {self.name} must not overlap, but do; read the data set again.")
        parts = np.where(columns.any(0) & self.labelled[:, None], columns.argmax(0), -1)
        count, drawn = parts.shape[1], []
        for number, part in enumerate(parts.T, start=1):
            text = f"Published split {number} of {count}" if count > 1 else "The published split"
            drawn.append(self.by_part(part, "node", text))
        return drawn

    def given_part(self) -> Array:
        part: Array = self.dataset._all("part").numpy()
        if not (part.min() >= -1 and part.max() <= 2):
            raise DataError(
                f"`part` of {self.name} must be 0 (train), 1 (validation), 2 (test) or -1 (none), but "
                f"reaches from {part.min()} to {part.max()}."
            )
        return part

    def by_part(self, part: Array, unit: Task, text: str, val_fraction: float = 0.2) -> Sample:
        """0 trains, 1 validates, 2 tests, -1 does nothing; without any 1, some of the training part validates."""
        _check_fraction("val_fraction", val_fraction)
        train, val, test = (np.flatnonzero(part == number) for number in range(3))
        if not len(val) and self.honest:
            labelled = unit == self.dataset.facts.task  # otherwise graphs of labelled nodes, which are all alike
            val, train = self.take(train, val_fraction, None if labelled else np.zeros(len(part)))
            text += f", where {_percent(val_fraction)} of the training {unit}s validate, since none were set apart"
        elif not len(val):
            text += f"; without validation {unit}s {OPTIMISTIC}"
        return Sample(train, val, test, unit, f"{text}.")

    # ------------------------------------------------------------------------------------------------------- folds
    def by_folds(
        self, *, folds: int = 10, published: bool | None = None, val_fraction: float = 0.1
    ) -> list[Sample]:
        """Every graph tests in one fold; ``published`` ones where they exist and nothing else is asked for."""
        if published is None:  # asking for other folds than the published ones is an answer, too
            nested = self.name in NESTED_FOLDS and folds == 10 and val_fraction in (0, 0.1)
            published = self.honest and nested
        if published:
            if not self.honest:
                raise DataError("Published folds have validation parts, so they belong to the protocol 'honest'.")
            return self.published_folds(folds, validates=val_fraction != 0)
        if val_fraction != 0:
            _check_fraction("val_fraction", val_fraction)
        graphs = np.flatnonzero(self.labelled)
        if not isinstance(folds, int) or not 2 <= folds <= len(graphs):
            raise DataError(
                f"The number of folds of {self.name} must be a whole number from 2 to {len(graphs)}, the "
                f"number of its labelled graphs, not {folds!r}."
            )
        # PAPER: its folds are "stratified" by labels in another order than the graphs; here by the graphs' own.
        fold = np.empty(len(graphs), dtype=np.int64)
        fold[by_stratum(self.strata[graphs], self.rng)] = np.arange(len(graphs)) % folds
        drawn = []
        for number in range(folds):
            train, val, test = graphs[fold != number], graphs[:0], graphs[fold == number]
            text = f"Fold {number + 1} of {folds}, stratified by class"
            if self.honest and not val_fraction:
                text += f"; {NO_VALIDATION}."
            elif self.honest:
                val, train = self.take(train, val_fraction)
                text += f", with {_percent(val_fraction)} of the training part for validation."
            else:  # PAPER: reports the best test epoch of each fold; kept under its own name.
                text += f"; {OPTIMISTIC}."
            drawn.append(Sample(train, val, test, "graph", text))
        return drawn

    def published_folds(self, folds: int, validates: bool) -> list[Sample]:
        """The nested folds of Errica et al. 2020, from their file; if none ``validates``, its part trains."""
        name, size = self.name, len(self.dataset)
        path = (self.dataset.home or data_root()) / "splits" / f"{name}.json"
        if not path.is_file():
            raise DataError(
                f"The published splits of {name} (Errica et al. 2020) are missing: run `pprgnn data fetch {name}`"
                f", put their file at {path}, or choose published=False for seeded folds."
            )
        drawn = []
        for number, (train, val, test) in enumerate(_read_nested(path, folds), start=1):
            _check_covering(path, f"fold {number}", [train, val, test], size)
            text = f"Published nested fold {number} of {folds} (Errica et al. 2020)"
            text += ", with its own validation part." if validates else f"; {NO_VALIDATION}."
            if not validates:
                train, val = np.union1d(train, val), val[:0]
            drawn.append(Sample(train, val, test, "graph", text))
        _check_covering(path, "the test parts of all folds", [each.test for each in drawn], size)
        return drawn

    # ---------------------------------------------------------------------------------------- drawn from one graph
    def by_label_fraction(self, *, fraction: float = 0.05, val_fraction: float = 0.05) -> list[Sample]:
        """One order of the labelled nodes: test nodes first, then validation, then training.

        So a larger fraction adds training nodes and changes nothing else.
        """
        _check_fraction("fraction", fraction)
        _check_fraction("val_fraction", val_fraction, most=0.4)
        nodes = self.rng.permutation(np.flatnonzero(self.labelled))
        counts = [max(1, round(share * len(nodes))) for share in (SNAP_TEST, val_fraction, fraction)]
        test, val, train, _ = np.split(nodes, np.cumsum(counts))
        text = f"{_percent(fraction)} of the labelled nodes train and {_percent(SNAP_TEST)} test"
        if self.honest:
            return [Sample(train, val, test, "node", f"{text}; other {_percent(val_fraction)} validate.")]
        # PAPER: the test nodes also choose the epoch.
        return [Sample(train, val[:0], test, "node", f"{text}; {OPTIMISTIC}.")]

    def by_shares(self, *, train_fraction: float = 0.6, val_fraction: float = 0.2) -> list[Sample]:
        _check_fraction("train_fraction", train_fraction, most=1.0)
        _check_fraction("val_fraction", val_fraction)
        test_fraction = 1 - train_fraction - val_fraction
        if test_fraction < 1e-6:
            raise DataError("The options train_fraction and val_fraction must leave a test part, so sum below 1.")
        nodes = np.flatnonzero(self.labelled)
        _, class_of, counts = np.unique(self.strata[nodes], return_inverse=True, return_counts=True)
        small = counts[class_of] < SMALL_CLASS
        if small.all():
            raise DataError(
                f"To divide {self.name}, at least one class must have {SMALL_CLASS} labelled nodes, but none "
                f"has; label more nodes or give a split column."
            )
        test, rest = self.take(nodes[~small], test_fraction)
        val, train = self.take(rest, val_fraction / (train_fraction + val_fraction))
        shares = "/".join(f"{100 * share:g}" for share in (train_fraction, val_fraction, round(test_fraction, 9)))
        text = f"{shares} of the labelled nodes"
        text += "" if self.dataset.facts.multi_label else ", stratified by class"
        if small.any():
            few = counted(int((counts < SMALL_CLASS).sum()), "class", "classes")
            text += f"; all nodes of {few} with fewer than {SMALL_CLASS} labelled nodes train"
        return [Sample(np.concatenate([train, nodes[small]]), val, test, "node", f"{text}.")]


# ------------------------------------------------------------------------------------- the file of nested folds
def _read_nested(path: Path, folds: int) -> list[list[Array]]:
    try:
        published = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(published, list) or len(published) != folds:
            raise ValueError(f"there are not {folds} folds")
        parts = []
        for fold in published:
            inner = fold["model_selection"][0]
            named = {"train": inner["train"], "validation": inner["validation"], "test": fold["test"]}
            parts.append([index_array(values, part).numpy() for part, values in named.items()])
        return parts
    except (OSError, KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path} must be a list of {folds} folds {{test, model_selection: [{{train, validation}}]}}, but is "
            f"not ({type(error).__name__}: {error}); copy it again, or choose published=False for seeded folds."
        ) from error


def _check_covering(path: Path, what: str, parts: Sequence[Array], size: int) -> None:
    if not np.array_equal(np.sort(np.concatenate(parts)), np.arange(size)):
        raise DataError(
            f"{path}: {what} must name each of the {size} graphs exactly once, but does not; copy the file that "
            f"belongs to this data set, or choose published=False for seeded folds."
        )
