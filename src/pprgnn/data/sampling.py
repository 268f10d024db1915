"""Parts of a data set sampled evenly over its classes; folds: the paper's, published nested ones, seeded ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pprgnn.data.catalog import Task
from pprgnn.data.roots import data_root
from pprgnn.data.split import index_array
from pprgnn.errors import DataError

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset

Array = NDArray[Any]
OPTIMISTIC = "the test part also chooses the epoch, as in the paper, so its score is optimistic"
NO_VALIDATION = "without a validation part, so nothing chooses the epoch"
NESTED = ("NCI1", "PROTEINS", "ENZYMES", "DD", "IMDB-BINARY")  # sets with published nested folds


class Sample(NamedTuple):
    """What a rule gives; `make_splits` adds the rest."""

    train: Array
    val: Array
    test: Array
    unit: Task
    description: str


def by_stratum(strata: Array, rng: np.random.Generator) -> Array:
    """An order in which equal strata lie together, shuffled within each."""
    shuffled = rng.permutation(len(strata))
    order: Array = shuffled[np.argsort(strata[shuffled], kind="stable")]
    return order


def take(units: Array, strata: Array, fraction: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """A fraction of the units (at least one) and the rest; each stratum gives its share, to within one unit."""
    total = len(units)
    count = min(total, max(1, round(fraction * total)))
    # Evenly spaced places in an order by stratum, from a random start so that no stratum is preferred.
    places = (np.arange(count) * total + rng.integers(max(total, 1))) // max(count, 1)
    chosen = np.zeros(total, dtype=bool)
    chosen[by_stratum(strata[units], rng)[places]] = True
    return units[chosen], units[~chosen]


def labelled(dataset: GraphDataset) -> Array:
    """Which nodes, or graphs on a graph task, have a label."""
    known: Array = dataset.labelled().numpy()
    return known


def strata_of(dataset: GraphDataset) -> Array:
    """What must be spread evenly: the classes, if each node or graph has one."""
    y = dataset.labels().numpy()
    return y if y.ndim == 1 else np.zeros(len(y), dtype=np.int64)


def check_fraction(name: str, value: float, most: float = 0.5) -> None:
    """Refuse what is not a share of something."""
    if not (isinstance(value, Real) and 0 < value <= most):
        raise DataError(f"The option {name} must be a number above 0 and at most {most:g}, not {value!r}.")


def percent(fraction: float) -> str:
    """The fraction, for reading."""
    return f"{100 * fraction:g} %"


# ----------------------------------------------------------------------------------------------------------- folds
def by_folds(
    dataset: GraphDataset,
    honest: bool,
    rng: np.random.Generator,
    *,
    folds: int = 10,
    published: bool | None = None,
    val_fraction: float = 0.1,
) -> list[Sample]:
    """Every graph tests in one fold; ``published`` ones where they exist and nothing else is asked for."""
    if published is None:  # asking for other folds than the published ones is an answer, too
        published = honest and dataset.facts.name in NESTED and folds == 10 and val_fraction in (0, 0.1)
    if published:
        if not honest:
            raise DataError("Published folds have validation parts, so they belong to the protocol 'honest'.")
        return _published_folds(dataset, folds, validates=val_fraction != 0)
    if val_fraction != 0:
        check_fraction("val_fraction", val_fraction)
    graphs = labelled(dataset).nonzero()[0]
    if not isinstance(folds, int) or not 2 <= folds <= len(graphs):
        raise DataError(
            f"The number of folds of {dataset.facts.name} must be a whole number from 2 to {len(graphs)}, the "
            f"number of its labelled graphs, not {folds!r}."
        )
    strata = strata_of(dataset)
    # PAPER: its folds are "stratified" by labels in another order than the graphs; here by the graphs' own.
    fold = np.empty(len(graphs), dtype=np.int64)
    fold[by_stratum(strata[graphs], rng)] = np.arange(len(graphs)) % folds
    drawn = []
    for number in range(folds):
        train, val, test = graphs[fold != number], graphs[:0], graphs[fold == number]
        text = f"Fold {number + 1} of {folds}, stratified by class"
        if honest and not val_fraction:
            text += f"; {NO_VALIDATION}."
        elif honest:
            val, train = take(train, strata, val_fraction, rng)
            text += f", with {percent(val_fraction)} of the training part for validation."
        else:  # PAPER: reports the best test epoch of each fold; kept under its own name.
            text += f"; {OPTIMISTIC}."
        drawn.append(Sample(train, val, test, "graph", text))
    return drawn


def _published_folds(dataset: GraphDataset, folds: int, validates: bool) -> list[Sample]:
    """The nested folds of Errica et al. 2020, from their file; if none ``validates``, its part trains."""
    name = dataset.facts.name
    path = (dataset.home or data_root()) / "splits" / f"{name}.json"
    if not path.is_file():
        raise DataError(
            f"The published splits of {name} (Errica et al. 2020) are missing: run `pprgnn data fetch {name}`, "
            f"put their file at {path}, or choose published=False for seeded folds."
        )
    drawn = []
    for number, (train, val, test) in enumerate(_read_nested(path, folds), start=1):
        _check_covering(path, f"fold {number}", [train, val, test], len(dataset))
        text = f"Published nested fold {number} of {folds} (Errica et al. 2020)"
        text += ", with its own validation part." if validates else f"; {NO_VALIDATION}."
        if not validates:
            train, val = np.union1d(train, val), val[:0]
        drawn.append(Sample(train, val, test, "graph", text))
    _check_covering(path, "the test parts of all folds", [each.test for each in drawn], len(dataset))
    return drawn


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
