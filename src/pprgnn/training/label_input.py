"""Training labels as input: a network reads what is known about the nodes around, and no node reads its own label.

A label that is input while it is scored would be its own answer. So the training nodes are drawn into folds, anew
in each epoch; each fold is scored in a step of its own, in which its labels are hidden and those of all other
training nodes are shown. Labels of other parts are never input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pprgnn.data.dataset import GraphDataset
from pprgnn.training.errors import TrainingError

KINDS = ("labels", "given+labels")  # of features
FOLDS = 5  # few labels are hidden at a time, so that the graph looks as it does in evaluation


@dataclass(frozen=True)
class VisibleLabels:
    """The labels that a network reads; they belong to a model as its weights do.

    Attributes:
        nodes: Whose they are: the training nodes, sorted.
        rows: The labels, a row of zeros and ones for each of these nodes.
    """

    nodes: Tensor
    rows: Tensor

    @classmethod
    def of(cls, dataset: GraphDataset, train: Tensor, kind: str) -> VisibleLabels | None:
        """The labels under a mask with one bool per node; ``None`` if this kind of features has none."""
        if kind not in KINDS:
            return None
        y = dataset.labels()[train]
        rows = one_hot(y, dataset.num_classes) if y.dim() == 1 else y
        return cls(train.nonzero().flatten(), rows.to(torch.uint8))

    def columns(self, num_nodes: int) -> Tensor:
        """A row per node: its label and a one if it is visible, otherwise zeros."""
        columns = torch.zeros(num_nodes, self.width)
        columns[self.nodes] = torch.cat([self.rows, torch.ones_like(self.rows[:, :1])], dim=1).float()
        return columns

    @property
    def width(self) -> int:
        return self.rows.size(1) + 1

    @property
    def num_folds(self) -> int:
        """Five, unless there are fewer nodes."""
        return min(FOLDS, len(self.nodes))

    def folds(self, num_nodes: int, order: torch.Generator) -> Iterator[Tensor]:
        """Masks over all nodes: each of these nodes is in one, whatever its label is."""
        shuffled = self.nodes[torch.randperm(len(self.nodes), generator=order)]
        for nodes in torch.tensor_split(shuffled, self.num_folds):
            mask = torch.zeros(num_nodes, dtype=torch.bool)
            mask[nodes] = True
            yield mask

    def check(self, dataset: GraphDataset) -> None:
        """Raise unless these nodes are there, with the same labels or without."""
        if int(self.nodes[-1]) >= dataset.num_nodes:
            raise TrainingError(
                f"This model reads the labels of nodes up to {int(self.nodes[-1])}, but {dataset.facts.name} has "
                f"{dataset.num_nodes:,} nodes; use the graph it was trained on."
            )
        if "y" not in dataset._data:
            return
        known, y = dataset.labelled()[self.nodes], dataset.labels()[self.nodes]
        same = self.rows.argmax(1) == y if y.dim() == 1 else (self.rows == y).all(1)
        if bool((known & ~same).any()):
            raise TrainingError(
                f"This model reads the labels of its training nodes, but that of node "
                f"{int(self.nodes[known & ~same][0])} of {dataset.facts.name} is another one now; bring the old "
                f"one back, or train again."
            )

    # --------------------------------------------------------------------------------------------------- in a file
    def tensors(self) -> dict[str, Tensor]:
        """For the file of a model."""
        return {"visible/nodes": self.nodes, "visible/labels": self.rows}

    @classmethod
    def taken_from(cls, tensors: dict[str, Tensor]) -> VisibleLabels:
        """Take what :meth:`tensors` gave out of the tensors of a file."""
        return cls(tensors.pop("visible/nodes"), tensors.pop("visible/labels"))
