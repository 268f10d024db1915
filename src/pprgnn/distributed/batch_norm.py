"""Batch normalisation over the rows of all processes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import BatchNorm

from pprgnn.distributed.team import Team


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
