"""One division of a data set into training, validation and test part, as a value that can be kept in a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pprgnn.data.atomic_io import write_text
from pprgnn.data.catalog import Task
from pprgnn.errors import DataError

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset

FORMAT = "pprgnn split, version 1"
PARTS = ("train", "val", "test")


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Which nodes or graphs train, validate and test: sorted indices, checked when the split is made.

    Nodes are counted through all graphs of the data set, one after another; graphs by their position.
    """

    dataset: str
    protocol: str
    unit: Task  # what the indices count
    size: int  # how many units the data set has, in all parts and outside of them
    seed: int
    index: int  # this is number `index` (from 0) ...
    count: int  # ... of so many
    fingerprint: str  # of the graph sizes and labels it was made for
    description: str
    train: Tensor
    val: Tensor
    test: Tensor

    def __post_init__(self) -> None:
        if self.unit not in ("node", "graph"):
            raise DataError(f"A split of {self.dataset} must count by 'node' or 'graph', not by {self.unit!r}.")
        for name in PARTS:
            self._check_part(name, getattr(self, name))
        for one, other in combinations(PARTS, 2):
            both = np.intersect1d(getattr(self, one).numpy(), getattr(self, other).numpy(), assume_unique=True)
            if len(both):
                raise DataError(
                    f"The parts of a split of {self.dataset} must not overlap, but {one} and {other} share "
                    f"{self.unit} {both[0]}; make the split again."
                )

    def _check_part(self, name: str, part: Tensor) -> None:
        expected = f"The {name} part of a split of {self.dataset} must"
        if part.dtype != torch.int64 or part.dim() != 1:
            raise DataError(f"{expected} be one-dimensional int64, not {part.dim()}-dimensional {part.dtype}.")
        if not len(part) and name != "val":
            raise DataError(f"{expected} hold at least one {self.unit}, but is empty; divide differently.")
        if len(part) and (int(part.min()) < 0 or int(part.max()) >= self.size):
            raise DataError(
                f"{expected} lie between 0 and {self.size - 1}, the last {self.unit}, but reaches from "
                f"{int(part.min())} to {int(part.max())}."
            )
        if bool((part[1:] <= part[:-1]).any()):
            raise DataError(f"{expected} be sorted, with every {self.unit} once; make the split again.")

    @classmethod
    def of(
        cls,
        dataset: GraphDataset,
        parts: Sequence[NDArray[np.int64] | Tensor],
        *,
        unit: Task,
        protocol: str = "honest",
        seed: int = 0,
        index: int = 0,
        count: int = 1,
        description: str = "Chosen by hand.",
    ) -> Split:
        """Divide this data set: ``parts`` are the indices (in any order) for training, validation and test."""
        train, val, test = (torch.as_tensor(part).sort().values for part in parts)
        size, made_for = _size(dataset, unit), fingerprint(dataset)
        facts = (dataset.facts.name, protocol, unit, size, seed, index, count, made_for, description)
        return cls(*facts, train, val, test)

    @property
    def optimistic(self) -> bool:
        """Whether the test part also chooses the epoch, for want of a validation part: as the paper does it."""
        return self.protocol == "paper" and not len(self.val)

    # ------------------------------------------------------------------------------------------ with its data
    def check(self, dataset: GraphDataset) -> None:
        """Refuse a data set that this split was not made for."""
        name, size = dataset.facts.name, _size(dataset, self.unit)
        if self.unit == "node" and dataset.facts.task == "graph":
            raise DataError(f"{name} has one label per graph, but this split divides nodes; divide its graphs.")
        if self.size != size:
            raise DataError(
                f"This split of {self.dataset} is for {self.size} {self.unit}s, but {name} has {size}; "
                f"make a split for {name}."
            )
        if self.fingerprint != fingerprint(dataset):
            raise DataError(
                f"This split of {self.dataset} was made for other labels or graph sizes than {name} has now; "
                f"make it again for {name}."
            )
        if self.unit == dataset.facts.task:
            known = dataset.labelled()
            for part in PARTS:
                indices = getattr(self, part)
                if not bool(known[indices].all()):
                    first = int(indices[~known[indices]][0])
                    raise DataError(
                        f"The {part} part of this split of {self.dataset} holds {self.unit} {first}, which has no "
                        f"label; divide labelled {self.unit}s only."
                    )

    def masks(self, dataset: GraphDataset) -> dict[str, Tensor]:
        """For each part, which labels of the data set it holds: one bool per node, or per graph on a graph task.

        When whole graphs of a node task are divided, these are all their labelled nodes.
        """
        self.check(dataset)
        masks = {part: torch.zeros(self.size, dtype=torch.bool) for part in PARTS}
        for part, mask in masks.items():
            mask[getattr(self, part)] = True
        if self.unit == dataset.facts.task:
            return masks
        sizes, known = torch.tensor(dataset.graph_sizes), dataset.labelled()
        return {part: mask.repeat_interleave(sizes) & known for part, mask in masks.items()}

    def digest(self) -> str:
        """A short text that tells this division from others, also in another process."""
        found = hashlib.blake2b(self.unit.encode(), digest_size=8)
        for part in PARTS:
            indices: Tensor = getattr(self, part)
            found.update(len(indices).to_bytes(8, "little") + indices.numpy().tobytes())
        return found.hexdigest()

    # --------------------------------------------------------------------------------------------- as a file
    def save(self, path: Path | str) -> None:
        """Write the split as JSON; an existing file is replaced, or kept when this fails."""
        values = {"format": FORMAT} | vars(self) | {part: getattr(self, part).tolist() for part in PARTS}
        write_text(Path(path), json.dumps(values))

    @classmethod
    def load(cls, path: Path | str) -> Split:
        """Read what :meth:`save` wrote."""
        try:
            values: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
            if values.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT!r}")
            for name, value in values.items():
                kind = list if name in PARTS else int if name in ("size", "seed", "index", "count") else str
                if type(value) is not kind:
                    raise TypeError(f"{name!r} is not of type {kind.__name__}")
            return cls(**values | {part: index_array(values[part], part) for part in PARTS})
        except DataError as error:
            raise DataError(f"{path} holds no valid split: {error}") from error
        except (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise DataError(
                f"{path} must be a whole file as `Split.save` writes it, but cannot be read "
                f"({type(error).__name__}: {error}); save the split again."
            ) from error

    def __repr__(self) -> str:
        parts = ", ".join(f"{len(getattr(self, part))} {part}" for part in PARTS)
        which = f" {self.index + 1}/{self.count}" if self.count > 1 else ""
        return f"Split({self.dataset} {self.protocol}{which}: {parts} {self.unit}s, seed {self.seed})"


def index_array(values: object, name: str) -> Tensor:
    """A list from a JSON file as indices; nothing but whole numbers will do."""
    if not isinstance(values, list) or any(type(value) is not int or abs(value) >= 2**63 for value in values):
        raise TypeError(f"{name!r} is not a list of whole numbers")
    return torch.tensor(values, dtype=torch.int64)


def fingerprint(dataset: GraphDataset) -> str:
    """A short text that tells graph sizes and labels from others; edges and features do not matter."""
    y = dataset.labels()
    if y.dim() > 1:  # one number per row of labels, whole and so exact: the matrix itself takes long to hash
        y = y.float() @ torch.arange(1.0, y.shape[1] + 1)
    digest = hashlib.sha256(f"{dataset.facts.task} {dataset.num_classes} {dataset.graph_sizes}".encode())
    for values in (y.to(torch.int64), dataset.labelled()):
        digest.update(values.numpy().tobytes())
    return digest.hexdigest()[:16]


def _size(dataset: GraphDataset, unit: Task) -> int:
    return dataset.num_nodes if unit == "node" else len(dataset)
