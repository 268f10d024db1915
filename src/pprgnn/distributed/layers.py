"""Layers of a network over several processes: batch norm over the rows of all, and dropout by nodes.

Masks of dropout belong to the nodes, not to the rows: the same however a graph is cut into parts. Whether an entry
is kept follows from a hash of seed, module, call, node, column: nothing is drawn in order. The backward pass
computes the mask once more instead of keeping it.
"""

from __future__ import annotations

import math
from collections import Counter
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import BatchNorm

from pprgnn.data.sparse_features import is_sparse, on_values, row_of_entries
from pprgnn.distributed.team import Team
from pprgnn.nn.features import Dropout, TorchDropout

WORD = 1 << 32
# Entries hashed at once: on the CPU what fits into a core's cache, elsewhere enough to keep the device busy.
BLOCK = {"cpu": 1 << 16}
LARGE_BLOCK = 1 << 24


class TeamBatchNorm(torch.nn.BatchNorm1d):
    """As :class:`torch.nn.BatchNorm1d`, with mean and variance of the rows of all; see :func:`share_batch_norm`.

    ``torch.nn.SyncBatchNorm`` does so on GPUs alone.
    """

    team: Team
    allows_single = False  # whether a single row is normalised by what was seen before

    def forward(self, x: Tensor) -> Tensor:
        """Normalise; some may have no rows."""
        uses_batch = self.training or self.running_mean is None
        if not uses_batch or self.team.size == 1:
            return super().forward(x)
        self._check_input_dim(x)
        rows = x.transpose(1, 2).flatten(0, 1) if x.dim() == 3 else x
        return self._normalised(rows).to(x.dtype).view_as(x.transpose(1, -1)).transpose(1, -1)

    def _normalised(self, rows: Tensor) -> Tensor:
        if rows.dtype not in (torch.float32, torch.float64):
            rows = rows.float()
        # Two passes over the rows: Σx² - (Σx)²/n would lose the digits that the mean takes.
        own = torch.cat([rows.sum(0).double(), rows.new_tensor([len(rows)], dtype=torch.float64)])
        total = self._sum(own)
        count = total[-1].detach()
        if count <= 1 and self.allows_single:
            return torch.nn.functional.batch_norm(
                rows, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        if count <= 1:
            raise ValueError(
                f"Batch normalisation in training needs at least 2 rows over all processes, but there are "
                f"{int(count)}; use evaluation mode or another norm."
            )
        mean = total[:-1] / count
        centred = rows - mean.to(rows.dtype)
        variance = self._sum(centred.square().sum(0).double()) / count
        if self.training:
            self._track(mean.detach(), variance.detach() * count / (count - 1))
        factor = torch.rsqrt(variance + self.eps).to(rows.dtype)
        if self.affine:
            return torch.addcmul(self.bias, centred, factor * self.weight)
        return centred.mul(factor)

    def _sum(self, x: Tensor) -> Tensor:
        total: Tensor = _Sum.apply(x, self.team)  # type: ignore[no-untyped-call]
        return total

    @torch.no_grad()
    def _track(self, mean: Tensor, unbiased: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)

    def __deepcopy__(self, memo: dict[int, Any]) -> TeamBatchNorm:
        """A copy that works in the same team: processes are not copied."""
        memo[id(self.team)] = self.team
        copy = type(self).__new__(type(self))
        memo[id(self)] = copy
        copy.__dict__.update(deepcopy(self.__dict__, memo))
        return copy


def share_batch_norm(network: torch.nn.Module, team: Team) -> None:
    """Turn every :class:`torch.nn.BatchNorm1d` of a network into a :class:`TeamBatchNorm`, in place."""
    for module in network.modules():
        if type(module) in (torch.nn.BatchNorm1d, TeamBatchNorm):
            module.__class__ = TeamBatchNorm
            module.team = team  # type: ignore[assignment]
    for module in network.modules():
        if isinstance(module, BatchNorm) and module.allow_single_element and team.size > 1:
            module.module.allows_single = True
            module.allow_single_element = False  # it would look at the rows of one process


class _Sum(torch.autograd.Function):
    """The sum over all, on which the losses of all depend: so their gradients are summed as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, team: Team) -> Tensor:
        ctx.team = team
        return team.all_reduce(x.clone())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.team.all_reduce(grad.clone()), None


class RowNumbers:
    """Which nodes the rows belong to, for all dropouts of a network.

    Attributes:
        nodes: The caller's numbers of the rows that come next; ``None``: 0, 1, 2, ...
        seed: Of all masks.
    """

    def __init__(self) -> None:
        self.nodes: Tensor | None = None
        self.restart(0)

    def restart(self, seed: int) -> None:
        """Begin anew, for example an epoch: the masks that follow depend on this seed only."""
        self.seed, self._calls = seed, Counter[int]()

    def next_key(self, module: int) -> int:
        """A number for one call of a module, not seen before."""
        self._calls[module] += 1
        key = 0
        for number in (self.seed, module, self._calls[module]):
            key = _mix_number(key ^ number)
        return key

    def of(self, x: Tensor) -> Tensor:
        """The node of each row."""
        if self.nodes is None:
            return torch.arange(x.size(0), device=x.device)
        if self.nodes.shape != x.shape[:1]:
            raise ValueError(
                f"Dropout by nodes needs a node for each row, but {x.size(0)} rows came for {self.nodes.numel()} "
                f"nodes; set RowNumbers.nodes to the nodes of these rows."
            )
        return self.nodes.to(x.device, torch.long)


class RowDropout(torch.nn.Dropout):
    """As :class:`torch.nn.Dropout`, with masks by :class:`RowNumbers`; made by :func:`use_row_dropout`."""

    numbers: RowNumbers
    number: int  # of this module

    def forward(self, x: Tensor) -> Tensor:
        """Drop entries in training, with the rate rounded to the next of 2^32 steps; the mean is exact."""
        dropped = round(self.p * WORD)
        if not self.training or dropped in (0, WORD):
            return on_values(super().forward, x)
        key = self.numbers.next_key(self.number)  # counted also where there are no rows: all count alike
        if x.dim() == 0:
            raise ValueError("Dropout by nodes needs rows, but a single number came.")
        if is_sparse(x):
            return _drop_stored(x, self.numbers.of(x), key, dropped)
        y: Tensor = _Drop.apply(x, self.numbers.of(x), key, dropped)  # type: ignore[no-untyped-call]
        return x.copy_(y) if self.inplace else y


KINDS = (torch.nn.Dropout, TorchDropout, Dropout, RowDropout)


def use_row_dropout(network: torch.nn.Module) -> RowNumbers:
    """Turn every plain dropout of a network, torch's or ours, into a :class:`RowDropout`, in place."""
    numbers = RowNumbers()
    modules = [each for each in network.modules() if type(each) in KINDS]
    for number, module in enumerate(modules):
        module.__class__ = RowDropout
        module.numbers, module.number = numbers, number  # type: ignore[assignment]
    return numbers


class _Drop(torch.autograd.Function):
    """Linear, so that its gradient is the same function of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, nodes: Tensor, key: int, dropped: int) -> Tensor:
        ctx.save_for_backward(nodes)
        ctx.key, ctx.dropped = key, dropped
        return _drop(x, nodes, key, dropped)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (nodes,) = ctx.saved_tensors
        return _Drop.apply(grad, nodes, ctx.key, ctx.dropped), None, None, None  # type: ignore[no-untyped-call]


def _drop(x: Tensor, nodes: Tensor, key: int, dropped: int) -> Tensor:
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    columns = math.prod(x.shape[1:])
    if not out.numel():
        return out
    row_keys, column_keys = _keys(nodes, columns, key)
    scale, threshold = WORD / (WORD - dropped), dropped - WORD // 2
    step = max(1, BLOCK.get(x.device.type, LARGE_BLOCK) // columns)
    room = torch.empty(2, min(step, len(nodes)), columns, dtype=torch.int32, device=x.device)
    flat = out.view(len(nodes), columns)
    for start in range(0, len(nodes), step):
        rows = slice(start, start + step)
        hashed = _hash(row_keys[rows], column_keys, room)
        part = torch.mul(x[rows].reshape(-1, columns), scale, out=flat[rows])
        part.masked_fill_(hashed < threshold, 0)
    return out


def _drop_stored(x: Tensor, nodes: Tensor, key: int, dropped: int) -> Tensor:
    """The same of a CSR matrix: what is stored is dropped where it would be among zeros."""
    row_keys, column_keys = _keys(nodes, x.size(1), key)
    row_keys, column_keys = row_keys[row_of_entries(x)], column_keys[x.col_indices()].unsqueeze(1)
    hashed = _hash(row_keys, column_keys, torch.empty(2, len(row_keys), 1, dtype=torch.int32, device=x.device))
    gone, scale = hashed.flatten() < dropped - WORD // 2, WORD / (WORD - dropped)
    return on_values(lambda value: (value * scale).masked_fill_(gone, 0), x)


def _keys(nodes: Tensor, columns: int, key: int) -> tuple[Tensor, Tensor]:
    """Two halves for each row, one number for each column."""
    column_keys = _mix(torch.arange(columns, device=nodes.device), ~key).view(torch.int32)[::2].contiguous()
    return _mix(nodes, key).view(torch.int32).view(-1, 2), column_keys


def _hash(row_keys: Tensor, column_keys: Tensor, room: Tensor) -> Tensor:
    """32 bits for each row and column: both halves of the row's key go in, one before each multiplication."""
    h: Tensor = room[0, : len(row_keys)]
    shifted = room[1, : len(row_keys)]
    torch.bitwise_xor(row_keys[:, :1], column_keys, out=h)
    for by, factor, addend in ((16, 0x7FEB352D, row_keys[:, 1:]), (15, -0x7B935975, None)):
        torch.bitwise_right_shift(h, by, out=shifted)
        shifted.bitwise_and_((1 << (32 - by)) - 1)  # shifting copies the sign, which is a bit like others here
        h.bitwise_xor_(shifted).mul_(factor)  # multiplications wrap around
        if addend is not None:
            h.add_(addend)
    return h


def _mix(numbers: Tensor, key: int) -> Tensor:
    """64 bits for each number, as :func:`_mix_number` makes them."""
    h: Tensor = numbers * _signed(0x9E3779B97F4A7C15) + _signed(key)
    for by, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        h.bitwise_xor_((h >> by) & ((1 << (64 - by)) - 1)).mul_(_signed(factor))
    return h


def _mix_number(number: int) -> int:
    """64 bits of which each depends on every bit of the number."""
    return int(_mix(torch.tensor([_signed(number)], device="cpu"), 1))


def _signed(number: int) -> int:
    """The same 64 bits as a signed number."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
