"""Training labels as input: a network reads what is known about the nodes around, and no node reads its own label.

A label that is input while it is scored would be its own answer. So the training nodes are drawn into folds, anew
in each epoch (once, where hops are kept); each fold is scored in a step of its own, in which its labels are hidden
and those of all other training nodes are shown. Labels of other parts are never input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.power_series import hops_of
from pprgnn.data.dataset import GraphDataset
from pprgnn.nn.task_nets import LabelNet
from pprgnn.training.batches import Batch
from pprgnn.training.errors import TrainingError

KINDS = ("labels", "given+labels")  # of features
MOST_BYTES = 1 << 31  # of hops
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


# --------------------------------------------------------------------------------------------------- hops, kept
class HopBatches:
    """The same batches in every epoch, for a network whose state is a sum of hops: these are computed once.

    While ε and w are learned, the network may need more hops than are kept; then all are computed again. Where
    they would take too much memory, or more than ``max_depth``, the batches are what they were, and the network
    runs its recursion.

    Args:
        network: Says how many hops it needs.
        adj: The graph.
        sources: Each makes one of the batches.
    """

    def __init__(self, network: LabelNet, adj: Adjacency, sources: Sequence[Callable[[], Batch]]) -> None:
        self.network, self.adj, self.sources = network, adj, sources
        self.count = -1  # of hops that are kept
        self._kept: list[Batch] = []

    def __iter__(self) -> Iterator[Batch]:
        """Each batch, with as many hops as the network needs when it is its turn."""
        for number, source in enumerate(self.sources):
            needed = self.network.hops_needed(self.adj)
            if needed is not None and needed > self.count:
                self._compute(needed)
            if needed is None or not self._kept:
                yield source()
                continue
            kept = self._kept[number]
            assert kept.x is not None
            yield replace(kept, x=kept.x[:, : needed + 1])

    def _compute(self, needed: int) -> None:
        self.count, self._kept = needed + needed // 4, []
        batches: list[Batch] = []
        size = 0
        for source in self.sources:
            batch = source()
            assert batch.x is not None
            assert batch.rows is not None
            size += len(batch.rows) * (self.count + 1) * batch.x.size(1) * batch.x.element_size()
            if not self.adj.all_true(size <= MOST_BYTES):
                return
            hops = hops_of(batch.x, self.adj, batch.rows, self.count)
            batches.append(replace(batch, x=hops, edges=None, rows=None))
        self._kept = batches
