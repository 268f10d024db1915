"""Carries the rows that other processes read: torch's ``all_to_all_single``, of just those rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

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
        self._room: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}
        self._received: Tensor | None = None
        self._work: Any = None

    def start(self, x: Tensor) -> None:
        """Send the rows of ``x`` that others read; theirs arrive while the caller computes."""
        rows, self._received = self._rooms(x)
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

    def _rooms(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Where rows are put to leave, and where they arrive: made once per width."""
        key = (x.size(1), x.dtype)
        if key not in self._room:
            self._room[key] = (
                x.new_empty(sum(self.send_counts), x.size(1)),
                x.new_empty(sum(self.receive_counts), x.size(1)),
            )
        return self._room[key]
