"""One process's part of a graph: its rows of Ã, and whose rows they read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.kernel import Exchange, PartRows
from pprgnn.core.csr import csr_tensor, ranges, sort_entries
from pprgnn.core.solution import frobenius_norm
from pprgnn.distributed.exchange import HaloExchange
from pprgnn.distributed.team import Team

MakeExchange = Callable[[Tensor, Sequence[int], Sequence[int], Team], Exchange]


class GraphPart(Adjacency):
    """One process's rows of Ã: an :class:`pprgnn.Adjacency` whose owners solve and learn together.

    A state has a row for each node of the part: first for the interior ones, which read no rows of others. Made by
    :func:`cut`.

    Attributes:
        nodes: The caller's number of the node of each row.
        interior: So many rows, the first, read no rows of others.
        halo_rows: How many rows of others a product with Ã reads.
        team: The processes.
    """

    nodes: Tensor
    rows: PartRows
    rows_t: PartRows
    team: Team

    def __init__(self, whole: Adjacency, nodes: Tensor, rows: PartRows, rows_t: PartRows, team: Team) -> None:
        near = rows.near
        super().__init__(near.crow_indices(), near.col_indices(), near.values(), normalize=whole.normalize)
        self.matrix, self._matrix_t = near, rows_t.near
        self._norm_bound, self._identity = whole.norm_bound, whole.identity
        self.longest_row = whole.longest_row
        self.nodes, self.rows, self.rows_t, self.team = nodes, rows, rows_t, team
        self.interior, self.halo_rows = rows.interior, rows.far.size(1)

    @property
    def identity(self) -> tuple[int, int, int]:
        """Of the whole graph, so that it does not matter how it is cut."""
        return self._identity

    @cached_property
    def fingerprint(self) -> int:
        """Of the whole graph."""
        return self._identity[2]

    def product(self, x: Tensor, out: Tensor, transposed: bool = False) -> Tensor:
        """The rows of Ã x or Ãᵀ x."""
        return (self.rows_t if transposed else self.rows).product(x, out)

    def norm(self, x: Tensor) -> float:
        """‖x‖_F of the rows of all processes."""
        return math.sqrt(self.team.all_sum(frobenius_norm(x) ** 2)[0])

    def reduce(self, norm: float, largest: float) -> tuple[float, float]:
        """The same of the rows of all processes."""
        return math.sqrt(self.team.all_sum(norm**2)[0]), self.team.all_max(largest)

    def max_abs(self, x: Tensor) -> float:
        """The largest entry of the rows of all processes."""
        return self.team.all_max(super().max_abs(x))

    def broadcast(self, value: float) -> float:
        """That of the first process."""
        return self.team.broadcast_number(value)

    def all_sum(self, x: Tensor) -> Tensor:
        """The sum over all processes."""
        return self.team.all_reduce(x)

    def local_rows(self, per_node: Tensor) -> Tensor:
        """The rows of the nodes of this part."""
        return per_node[self.nodes]

    def all_true(self, fact: bool) -> bool:
        """Whether it holds in all processes."""
        return self.team.all_true(fact)

    def edge_gradient(self, left: Tensor, right: Tensor) -> Tensor:
        """Not in parts."""
        raise ValueError("The edge weights of a graph over several processes cannot be learned; use one process.")

    def to(self, target: Any) -> Adjacency:
        """Itself, where it is already; a part is cut from a graph of the right type, on the right device."""
        same = target == self.dtype if isinstance(target, torch.dtype) else torch.device(target) == self.device
        if not same:
            raise ValueError(f"A part is {self.dtype} on {self.device}; convert the graph and cut it anew.")
        return self

    def __repr__(self) -> str:
        return (
            f"GraphPart({self.team.rank + 1} of {self.team.size}, rows={self.num_nodes}, "
            f"interior={self.interior}, halo_rows={self.halo_rows}, normalize={self.normalize!r})"
        )


def cut(
    adj: Adjacency, owner: Tensor, team: Team, *, rank: int | None = None, exchange: MakeExchange = HaloExchange
) -> GraphPart:
    """The part of a graph that this process holds.

    Args:
        adj: The whole graph.
        owner: The part of each node, in the caller's order, from 0 to ``team.size - 1``; parts may be empty.
        team: The processes; each gets the part of its rank.
        rank: Another part than that.
        exchange: What carries the rows of others, made of the arguments of :class:`HaloExchange`.
    """
    owner = adj.permute(_checked(adj, owner, team.size))  # by inner position from here on
    rank = team.rank if rank is None else rank
    own = (owner == rank).nonzero().flatten()
    there = _Entries.of(adj.matrix, own, owner, rank)
    back = there if adj.is_symmetric else _Entries.of(adj.matrix_t, own, owner, rank)
    boundary = torch.zeros(len(own), dtype=torch.bool, device=own.device)
    boundary[there.row[there.far]] = boundary[back.row[back.far]] = True
    interior = len(own) - int(boundary.sum())
    first = torch.argsort(boundary.to(torch.uint8), stable=True)  # interior rows first
    local = torch.empty_like(first)
    local[first] = torch.arange(len(first), device=first.device)
    cutter = _Cutter(own, owner, local, interior, team, exchange)
    rows = cutter.rows(there, back)
    rows_t = rows if back is there else cutter.rows(back, there)
    nodes = own[first] if adj.order is None else adj.order[own[first]]
    return GraphPart(adj, nodes, rows, rows_t, team)


def _checked(adj: Adjacency, owner: Tensor, parts: int) -> Tensor:
    if adj.value.requires_grad:
        raise ValueError("The edge weights of a graph over several processes cannot be learned; use one process.")
    if owner.shape != (adj.num_nodes,) or owner.is_floating_point():
        raise ValueError(
            f"owner must hold one whole number for each of the {adj.num_nodes} nodes, but has shape "
            f"{tuple(owner.shape)} and dtype {owner.dtype}."
        )
    if owner.numel() and not 0 <= int(owner.min()) <= int(owner.max()) < parts:
        raise ValueError(
            f"owner must be from 0 to {parts - 1}, one number per process, but runs from {int(owner.min())} to "
            f"{int(owner.max())}; partition the graph into {parts} parts."
        )
    return owner.to(adj.device, torch.long)


class _Entries(NamedTuple):
    """The entries of the rows of one process in a matrix; ``row`` counts those rows."""

    row: Tensor
    col: Tensor
    value: Tensor
    far: Tensor  # whether an entry reads a row of another process

    @classmethod
    def of(cls, matrix: Tensor, own: Tensor, owner: Tensor, rank: int) -> _Entries:
        crow = matrix.crow_indices()
        starts, counts = crow[own].long(), (crow[own + 1] - crow[own]).long()
        chosen = ranges(starts, counts)
        row = torch.repeat_interleave(torch.arange(len(own), device=own.device), counts)
        col = matrix.col_indices()[chosen].long()
        return cls(row, col, matrix.values()[chosen], owner[col] != rank)


class _Cutter(NamedTuple):
    own: Tensor  # inner positions of the nodes here, ascending
    owner: Tensor  # by inner position
    local: Tensor  # the row of each of ``own``
    interior: int
    team: Team
    exchange: MakeExchange

    def rows(self, entries: _Entries, reverse: _Entries) -> PartRows:
        """The rows of a matrix, given the entries of its transpose as well: these tell who reads our rows."""
        size, total = self.team.size, len(self.owner)
        near, far = ~entries.far, entries.far
        place = torch.empty(total, dtype=torch.long, device=self.own.device)
        place[self.own] = self.local
        row, col = self.local[entries.row[near]], place[entries.col[near]]
        crow, col, source = sort_entries(row, col, len(self.own))
        here = csr_tensor(crow, col, entries.value[near][source])
        # Both sides order the rows between two processes by inner position, so nothing else must be agreed upon.
        keys = self.owner[entries.col[far]] * total + entries.col[far]
        halo, column = torch.unique(keys, return_inverse=True)
        elsewhere = self._far_matrix(self.local[entries.row[far]], column, entries.value[far], len(halo))
        readers = self.owner[reverse.col[reverse.far]]
        sent: Tensor = torch.unique(readers * total + self.own[reverse.row[reverse.far]])
        send = place[sent % total]
        gives, takes = (torch.bincount(keys // total, minlength=size).tolist() for keys in (sent, halo))
        return PartRows(here, elsewhere, self.interior, self.exchange(send, gives, takes, self.team))

    def _far_matrix(self, row: Tensor, column: Tensor, value: Tensor, halo: int) -> Tensor:
        """Boundary rows by rows of others."""
        boundary = len(self.own) - self.interior
        order = torch.argsort((row - self.interior) * max(halo, 1) + column, stable=True)
        crow = torch.zeros(boundary + 1, dtype=torch.long, device=row.device)
        torch.cumsum(torch.bincount(row - self.interior, minlength=boundary), 0, out=crow[1:])
        return csr_tensor(crow.int(), column[order].int(), value[order], columns=halo)
