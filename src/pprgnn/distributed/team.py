"""The processes that work on one thing together; alone where there is no process group."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

import pprgnn
from pprgnn.errors import DataError

# Until the next version, with a warning.
OLD_NAMES = {
    "leads": "is_main",
    "neighbours": "local_size",
    "sum": "all_reduce",
    "total": "all_sum",
    "largest": "all_max",
    "everywhere": "all_true",
    "agreed": "broadcast_number",
    "rows": "gather_rows",
    "told": "all_gather",
    "shared": "broadcast",
    "shared_tensors": "broadcast_tensors",
    "one_by_one": "main_first",
}


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

    @classmethod
    def alone(cls) -> Team:
        """One process by itself, whether there is a group or not."""
        team = cls.__new__(cls)
        team.joined, team.group, team.rank, team.size = False, None, 0, 1
        team.device = torch.device("cpu")
        return team

    if not TYPE_CHECKING:  # checkers know the new names alone

        def __getattr__(self, name: str) -> Any:
            if name not in OLD_NAMES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            new = OLD_NAMES[name]
            warnings.warn(f"Team.{name} is now called Team.{new}; use that.", DeprecationWarning, stacklevel=2)
            return getattr(self, new)

    @property
    def local_size(self) -> int:
        """How many members share this machine, as torchrun tells; itself counts."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if self.size > 1 else 1

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.rank == 0

    # ------------------------------------------------------------------------------------------------- numbers
    def all_reduce(self, x: Tensor) -> Tensor:
        """Add up in place, entry by entry."""
        if self.size > 1:
            dist.all_reduce(x, group=self.group)
        return x

    def all_sum(self, *values: float) -> list[float]:
        """The sum of each."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def all_max(self, value: float) -> float:
        """The largest; NaN if there is one."""
        # Backends differ in what the maximum of NaN and a number is.
        unknown = math.isnan(value)
        largest, some = self._reduced([-math.inf if unknown else value, float(unknown)], dist.ReduceOp.MAX)
        return math.nan if some else largest

    def all_true(self, fact: bool) -> bool:
        """Whether all say so."""
        return not self.all_max(float(not fact))

    def broadcast_number(self, value: float) -> float:
        """What the first process has: rounding may differ between machines, decisions must not."""
        if self.size == 1:
            return value
        number = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.broadcast(number, group=self.group, group_src=0)
        return float(number)

    def _reduced(self, values: Any, operation: Any) -> list[float]:
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(numbers, operation, group=self.group)
        result: list[float] = numbers.tolist()
        return result

    # -------------------------------------------------------------------------------------------- rows and things
    def gather_rows(self, x: Tensor) -> Tensor | None:
        """For the first process the rows of all, one member's after the other's; ``None`` for the others."""
        if self.size == 1:
            return x
        counts = [int(count) for count in self.all_gather(x.size(0))]
        if not self.is_main:
            if len(x):
                dist.send(x.contiguous(), group=self.group, group_dst=0)
            return None
        whole = x.new_empty(sum(counts), *x.shape[1:])
        for member, room in enumerate(torch.split(whole, counts)):
            if member == self.rank:
                room.copy_(x)
            elif len(room):
                dist.recv(room, group=self.group, group_src=member)
        return whole

    def all_gather(self, thing: Any) -> list[Any]:
        """What each member says: plain values, not tensors."""
        if self.size == 1:
            return [thing]
        said: list[Any] = [None] * self.size
        dist.all_gather_object(said, thing, group=self.group)
        return said

    def broadcast(self, thing: Any) -> Any:
        """What the first process says: plain values, not tensors."""
        if self.size == 1:
            return thing
        said = [thing]
        dist.broadcast_object_list(said, group=self.group, group_src=0)
        return said[0]

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """The tensors of the first process, one by one: they may be large."""
        if self.size == 1:
            yield from tensors.items()
            return
        kinds = self.broadcast([(name, tuple(each.shape), each.dtype) for name, each in tensors.items()])
        for name, shape, dtype in kinds:
            tensor = torch.empty(shape, dtype=dtype, device=self.device)
            if self.is_main:
                tensor.copy_(tensors[name])
            if tensor.numel():
                dist.broadcast(tensor, group=self.group, group_src=0)
            yield name, tensor

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """First the first process, then the others: what it prepares on disk, they find there."""
        if not self.is_main:
            self.all_true(True)  # as soon as the first one is through
        yield
        if self.is_main:
            self.all_true(True)


@cache
def code_digest() -> str:
    """A short text that tells this version of the package from others."""
    found = hashlib.blake2b(torch.__version__.encode(), digest_size=8)
    package = Path(pprgnn.__file__).parent
    for path in sorted(package.rglob("*.py")):
        found.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return found.hexdigest()


def check_consistency(team: Team, facts: Mapping[str, str]) -> None:
    """Raise in all processes if one of them has other facts, or other code, than the first."""
    if team.size == 1:
        return
    found = team.all_gather({"code": code_digest(), **facts, "host": platform.node()})
    for rank, theirs in enumerate(found):
        for name, value in found[0].items():
            if name != "host" and theirs.get(name) != value:
                raise DataError(
                    f"All processes must have the same {name}, but that of process {rank} (on {theirs['host']}) "
                    f"differs from that of process 0 (on {found[0]['host']}); bring all machines to the same "
                    f"state, then start again."
                )
