"""Some rows of Ã, whose entries read rows of the state here and rows that others hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pprgnn.core.kernel import multiply


class Exchange(Protocol):
    """Fetches the rows that others hold, while the rest is computed."""

    def start(self, x: Tensor) -> None:
        """Send the rows of ``x`` that others need, and begin to receive theirs."""

    def wait(self) -> Tensor:
        """The rows of others; valid until the next start."""


class Nobody:
    """No other holds any rows."""

    def start(self, x: Tensor) -> None:
        """Nothing is sent."""

    def wait(self) -> Tensor:
        """Nothing comes."""
        return torch.empty(0)


@dataclass(frozen=True)
class PartRows:
    """Rows of a matrix; first the interior ones, which need nothing of others."""

    near: Tensor  # CSR (rows, rows): entries that read rows here
    far: Tensor  # CSR (rows - interior, rows of others)
    interior: int
    exchange: Exchange

    @classmethod
    def whole(cls, matrix: Tensor) -> PartRows:
        """All rows of a matrix that is here."""
        return cls(matrix, matrix, matrix.size(0), Nobody())

    def product(self, x: Tensor, out: Tensor) -> Tensor:
        """The rows of the matrix times all of x, of which these rows are here."""
        self.exchange.start(x)
        multiply(self.near, x, out=out)
        halo, boundary = self.exchange.wait(), out[self.interior :]
        if self.far.values().numel():
            torch.addmm(boundary, self.far, halo, out=boundary)
        return out
