"""One process's part of a graph: its rows of Ã, and the exchange of rows with those who read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.kernel import PartRows
from pprgnn.core.csr import csr_tensor, ranges, sort_entries
from pprgnn.core.solution import frobenius_norm
from pprgnn.distributed.partitions import check_owner
from pprgnn.distributed.team import Team


class HaloExchange:
    """Sends rows of a state to those who read them, and receives those that are read here.

    Args:
        send: Which rows go out: first those for the first process, and so on.
        send_counts: How many of them each process gets.
        receive_counts: How many rows each process has for us.
        team: The processes.
    """

    def __init__(
        self, send: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], team: Team
    ) -> None:
        self.send, self.team = send, team
        self.send_counts, self.receive_counts = list(send_counts), list(receive_counts)
        self.bytes_sent = 0  # by this process since it was made
        # By width: where rows are put to leave, and where they arrive.
        self._room: dict[tuple[int, torch.dtype], list[Tensor]] = {}
        self._received: Tensor | None = None
        self._work: Any = None

    def start(self, x: Tensor) -> None:
        """Send the rows of ``x`` that others read; theirs arrive while the caller computes."""
        key = (x.size(1), x.dtype)
        if key not in self._room:
            counts = (self.send_counts, self.receive_counts)
            self._room[key] = [x.new_empty(sum(each), x.size(1)) for each in counts]
        rows, self._received = self._room[key]
        torch.index_select(x, 0, self.send, out=rows)
        if self.team.size > 1:
            self._work = dist.all_to_all_single(
                self._received, rows, self.receive_counts, self.send_counts, group=self.team.group, async_op=True
            )
        self.bytes_sent += rows.numel() * rows.element_size()

    def wait(self) -> Tensor:
        """The rows of others; valid until the next start."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        assert self._received is not None
        return self._received


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
        return (self.rows_t if transposed else self.rows).product(x, out)

    def norm(self, x: Tensor) -> float:
        return math.sqrt(self.team.all_sum(frobenius_norm(x) ** 2)[0])

    def reduce(self, norm: float, largest: float) -> tuple[float, float]:
        return math.sqrt(self.team.all_sum(norm**2)[0]), self.team.all_max(largest)

    def max_abs(self, x: Tensor) -> float:
        return self.team.all_max(super().max_abs(x))

    def broadcast(self, value: float) -> float:
        return self.team.broadcast_number(value)

    def all_sum(self, x: Tensor) -> Tensor:
        return self.team.all_reduce(x)

    def local_rows(self, per_node: Tensor) -> Tensor:
        return per_node[self.nodes]

    def all_true(self, fact: bool) -> bool:
        return self.team.all_true(fact)

    def edge_gradient(self, left: Tensor, right: Tensor) -> Tensor:
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
    adj: Adjacency,
    owner: Tensor,
    team: Team,
    *,
    rank: int | None = None,
    exchange: type[HaloExchange] = HaloExchange,
) -> GraphPart:
    """The part of a graph that this process holds.

    Args:
        adj: The whole graph.
        owner: The part of each node, in the caller's order, from 0 to ``team.size - 1``; parts may be empty.
        team: The processes; each gets the part of its rank.
        rank: Another part than that.
        exchange: What carries the rows of others.
    """
    if adj.value.requires_grad:
        raise ValueError("The edge weights of a graph over several processes cannot be learned; use one process.")
    owner = check_owner(adj, owner, team.size)  # by inner position from here on
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
    exchange: type[HaloExchange]

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
        row, boundary = self.local[entries.row[far]] - self.interior, len(self.own) - self.interior
        order = torch.argsort(row * max(len(halo), 1) + column, stable=True)
        ends = torch.bincount(row, minlength=boundary).cumsum(0)
        crow = torch.cat([ends.new_zeros(1), ends])
        elsewhere = csr_tensor(crow.int(), column[order].int(), entries.value[far][order], columns=len(halo))
        readers = self.owner[reverse.col[reverse.far]]
        sent: Tensor = torch.unique(readers * total + self.own[reverse.row[reverse.far]])
        send = place[sent % total]
        gives, takes = (torch.bincount(keys // total, minlength=size).tolist() for keys in (sent, halo))
        return PartRows(here, elsewhere, self.interior, self.exchange(send, gives, takes, self.team))
