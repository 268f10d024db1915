"""Folds for graph classification: the paper's, the published nested ones, and seeded ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pprgnn.data.roots import data_root
from pprgnn.data.sampling import (
    OPTIMISTIC,
    Array,
    Sample,
    by_stratum,
    check_fraction,
    labelled,
    percent,
    strata_of,
    take,
)
from pprgnn.data.split import index_array
from pprgnn.errors import DataError

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset

NO_VALIDATION = "without a validation part, so nothing chooses the epoch"
NESTED = ("NCI1", "PROTEINS", "ENZYMES", "DD", "IMDB-BINARY")  # sets with published nested folds


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
