"""The processes that work on one thing together; alone where there is no process group."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells each process


def is_launched() -> bool:
    """Whether torchrun (or who speaks as it does) has started this process as one of several."""
    return all(name in os.environ for name in LAUNCHED)


class Team:
    """What the members of a process group have to settle with each other; every method is called by all of them.

    Args:
        group: A process group, by default the one of the whole job; without one the team has a single member.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.joined = dist.is_available() and dist.is_initialized()
        self.group = (group or dist.group.WORLD) if self.joined else None
        self.rank = dist.get_rank(self.group) if self.joined else 0
        self.size = dist.get_world_size(self.group) if self.joined else 1
        cuda = self.joined and dist.get_backend(self.group) == "nccl"  # which sends from GPUs alone
        self.device = torch.device("cuda" if cuda else "cpu")

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.rank == 0

    # ------------------------------------------------------------------------------------------------- numbers
    def sum(self, x: Tensor) -> Tensor:
        """Add up in place, entry by entry."""
        if self.size > 1:
            dist.all_reduce(x, group=self.group)
        return x

    def total(self, *values: float) -> list[float]:
        """The sum of each."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def largest(self, value: float) -> float:
        """The largest; NaN if there is one."""
        return self._reduced([value], dist.ReduceOp.MAX)[0]

    def everywhere(self, fact: bool) -> bool:
        """Whether all say so."""
        return not self.largest(float(not fact))

    def agreed(self, value: float) -> float:
        """What the first process has: rounding may differ between machines, decisions must not."""
        if self.size == 1:
            return value
        number = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.broadcast(number, 0, group=self.group)
        return float(number)

    def _reduced(self, values: Any, operation: Any) -> list[float]:
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(numbers, operation, group=self.group)
        result: list[float] = numbers.tolist()
        return result

    # -------------------------------------------------------------------------------------------- rows and things
    def rows(self, x: Tensor) -> Tensor:
        """The rows of all, one member's after the other's."""
        if self.size == 1:
            return x
        counts = [int(count) for count in self.told(x.size(0))]
        room = [x.new_empty(count, *x.shape[1:]) for count in counts]
        # Backends gather tensors of one size only, so each member in turn sends its rows to all.
        for sender, rows in enumerate(room):
            if sender == self.rank:
                rows.copy_(x)
            if rows.numel():
                dist.broadcast(rows, sender, group=self.group)
        return torch.cat(room)

    def told(self, thing: Any) -> list[Any]:
        """What each member says: plain values, not tensors."""
        if self.size == 1:
            return [thing]
        said: list[Any] = [None] * self.size
        dist.all_gather_object(said, thing, group=self.group)
        return said

    def wait(self) -> None:
        """Until all are here."""
        self.everywhere(True)
