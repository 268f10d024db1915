"""The rows of a graph that are in this process, and what is asked of all rows, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pprgnn.core.backend.kernel import multiply
from pprgnn.core.solution import frobenius_norm


class StateSpace:
    """Norms and agreement over all rows of a state: here in one process; a graph over several has its own."""

    def norm(self, x: Tensor) -> float:
        """‖x‖_F of all rows."""
        return frobenius_norm(x)

    def max_abs(self, x: Tensor) -> float:
        """The largest entry of all rows, without sign."""
        return float(x.abs().max()) if x.numel() else 0.0

    def reduce(self, norm: float, largest: float) -> tuple[float, float]:
        """A norm and a largest entry, from those of the rows that are here."""
        return norm, largest

    def all_sum(self, x: Tensor) -> Tensor:
        """The sum of ``x`` over all processes."""
        return x

    def all_true(self, fact: bool) -> bool:
        """Whether this holds in all processes."""
        return fact

    def broadcast(self, value: float) -> float:
        """The number of the first process: depths must not differ between them."""
        return value


class Exchange(Protocol):
    """Fetches the rows that others hold, while the rest is computed."""

    def start(self, x: Tensor) -> None:
        """Send the rows of ``x`` that others need, and begin to receive theirs."""

    def wait(self) -> Tensor:
        """The rows of others; valid until the next start."""


@dataclass(frozen=True)
class PartRows:
    """Rows of a matrix; first the interior ones, which need nothing of others."""

    near: Tensor  # CSR (rows, rows): entries that read rows here
    far: Tensor  # CSR (rows - interior, rows of others)
    interior: int
    exchange: Exchange | None  # None: all rows are here

    @classmethod
    def whole(cls, matrix: Tensor) -> PartRows:
        """All rows of a matrix that is here."""
        return cls(matrix, matrix, matrix.size(0), None)

    def halves(self, x: Tensor) -> Iterator[Tensor | None]:
        """``None`` for what needs no rows of others, which travel meanwhile; then those rows, for the rest."""
        if self.exchange is None:
            yield None
            return
        self.exchange.start(x)
        yield None
        yield self.exchange.wait()

    def product(self, x: Tensor, out: Tensor) -> Tensor:
        """The rows of the matrix times all of x, of which these rows are here."""
        for halo in self.halves(x):
            if halo is None:
                multiply(self.near, x, out=out)
            elif self.far.values().numel():
                boundary = out[self.interior :]
                torch.addmm(boundary, self.far, halo, out=boundary)
        return out
