"""Columns of numbers, such as the attributes of nodes: to mean 0 and deviation 1 over the training part."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pprgnn.data.dataset import GraphDataset
from pprgnn.data.sparse_features import is_sparse
from pprgnn.wording import counted

GIVEN = ("given", "given+degree", "edges", "given+labels")  # kinds of features that begin with the given columns


@dataclass(frozen=True)
class Scaling:
    """A shift and a factor for each of the given columns; those of zeros and ones stay as they are."""

    mean: tuple[float, ...]
    scale: tuple[float, ...]

    @classmethod
    def of(cls, dataset: GraphDataset, kind: str, train: Tensor) -> Scaling | None:
        """From the nodes of the training part (one bool per label) alone; ``None``: no column is to be scaled.

        Neither is a column that hardly varies there, nor one of a sparse matrix, which would become dense.
        """
        if kind not in GIVEN or "x" not in dataset._data or is_sparse(dataset._all("x")):
            return None
        if dataset.facts.task == "graph":
            train = torch.repeat_interleave(train, torch.tensor(dataset.graph_sizes))
        x = dataset._all("x")[train].double()
        mean, scale = x.mean(0), x.std(0, unbiased=False)
        kept = ((x == 0) | (x == 1)).all(0) | (scale <= 1e-6 * x.abs().amax(0))
        if bool(kept.all()):
            return None
        mean, scale = mean.masked_fill(kept, 0.0), scale.masked_fill(kept, 1.0)
        return cls(tuple(mean.tolist()), tuple(scale.tolist()))

    def describe(self) -> str:
        """What happens, in words."""
        columns = sum(pair != (0.0, 1.0) for pair in zip(self.mean, self.scale, strict=True))
        return f"{counted(columns, 'column')} of numbers, standardised by the training part"

    def __call__(self, x: Tensor) -> Tensor:
        """The features, of which the given columns come first."""
        given, rest = x[:, : len(self.mean)], x[:, len(self.mean) :]
        mean, scale = (torch.tensor(each, dtype=torch.double) for each in (self.mean, self.scale))
        return torch.cat([((given.double() - mean) / scale).to(x.dtype), rest], dim=1)
