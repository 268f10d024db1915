"""Parts of a data set sampled by chance, evenly over its classes."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pprgnn.data.card import Task
from pprgnn.errors import DataError

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset

Array = NDArray[Any]
OPTIMISTIC = "the test part also chooses the epoch, as in the paper, so its score is optimistic"


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
