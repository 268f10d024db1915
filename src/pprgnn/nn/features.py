"""What networks do with features first: dropout with cheap random numbers, and linear layers of sparse ones.

On the CPU, torch's own random numbers take most of the time of a small network. A sparse linear layer is one
product with the CSR matrix and, for the gradient, one with its transpose: torch's own backward pass sorts the
entries anew in each step, which takes longer than the products.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch_geometric.nn.dense.linear import Linear

from pprgnn.core.backend.kernel import multiply
from pprgnn.core.csr import csr_tensor
from pprgnn.data.sparse_features import is_sparse, on_values, row_of_entries

STEPS = 1 << 16  # a quarter of a random word decides about an entry
Pattern: TypeAlias = tuple[Tensor, Tensor, Tensor]  # of a transpose: crow, col, and where each entry came from


def dropout(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """As ``torch.nn.functional.dropout``, with the rate rounded to the next of 2^16 steps; the mean is exact.

    Of sparse features, stored entries are dropped: the others are zero either way.
    """
    if is_sparse(x):
        return on_values(lambda value: dropout(value, rate, training), x)
    if not training or rate == 0 or rate == 1 or x.device.type != "cpu":
        return F.dropout(x, rate, training)
    dropped = min(max(round(rate * STEPS), 1), STEPS - 1)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.long).random_(-(1 << 63), None)
    quarters = words.view(torch.int16)[: x.numel()].view(x.shape)
    kept = quarters.float().ge_(dropped - STEPS // 2)  # 1 and 0: comparing floats in place is the fastest way
    return x * kept.to(x.dtype).mul_(STEPS / (STEPS - dropped))


class TorchDropout(torch.nn.Dropout):
    """With torch's own random numbers; of sparse features, too."""

    def forward(self, x: Tensor) -> Tensor:
        return on_values(super().forward, x)


class Dropout(torch.nn.Dropout):
    """:func:`dropout` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)


def read_sparse(network: torch.nn.Module, in_channels: int) -> None:
    """Prepare the linear layers of a network that may read features of this width; nothing else changes."""
    for module in network.modules():
        kind = _KINDS.get(type(module))
        if kind is not None and module.weight.size(1) == in_channels:  # type: ignore[operator]
            module.__class__ = kind


class _ReadsSparse:
    """What both kinds of linear layers learn."""

    weight: Tensor
    bias: Any
    _kept: tuple[Tensor, Tensor, Pattern] | None = None  # crow and col of the features seen last

    def forward(self, x: Tensor) -> Tensor:
        """As usual, or the product; what does not fit is left to torch, which says so."""
        weight = self.weight
        fits = (x.size(-1), x.dtype, x.device) == (weight.size(1), weight.dtype, weight.device)
        if x.layout != torch.sparse_csr or x.requires_grad or not fits:
            usual: Tensor = super().forward(x)  # type: ignore[misc]
            return usual
        follows = torch.is_grad_enabled() and weight.requires_grad
        out: Tensor = _Product.apply(x, weight, self._transposed(x) if follows else None)  # type: ignore[no-untyped-call]
        return out if self.bias is None else out + self.bias

    def _transposed(self, x: Tensor) -> Pattern:
        """Found once for the same entries, whatever their values are: dropout changes those alone."""
        crow, col = x.crow_indices(), x.col_indices()
        if self._kept is None or not (_same(self._kept[0], crow) and _same(self._kept[1], col)):
            source = torch.argsort(col, stable=True)  # by column, then by row
            sizes = torch.bincount(col, minlength=x.size(1))
            starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).to(crow.dtype)
            self._kept = crow, col, (starts, row_of_entries(x)[source].to(col.dtype), source)
        return self._kept[2]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}


def _same(one: Tensor, other: Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape


class SparseLinear(_ReadsSparse, torch.nn.Linear):
    """torch's linear layer."""


class SparsePyGLinear(_ReadsSparse, Linear):  # type: ignore[misc]
    """PyG's linear layer."""


_KINDS: dict[type[Any], type[Any]] = {torch.nn.Linear: SparseLinear, Linear: SparsePyGLinear}


class _Product(torch.autograd.Function):
    """X Wᵀ, with the gradient of W alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, transposed: Pattern | None) -> Tensor:
        ctx.transposed, ctx.value = transposed, x.values()
        return multiply(x, weight.t().contiguous(), out=weight.new_empty(len(x), len(weight)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        crow, col, source = ctx.transposed
        matrix = csr_tensor(crow, col, ctx.value[source], len(grad))
        return None, multiply(matrix, grad.contiguous(), out=grad.new_empty(len(crow) - 1, grad.size(1))).t(), None
