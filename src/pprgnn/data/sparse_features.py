"""Features that are wide and mostly zero: CSR matrices in memory, on disk and in the first linear layer.

Whatever handles features goes through these functions. For dense features they do what is usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import cumsum

from pprgnn.core.csr import csr_tensor, index_dtype, ranges

# Features with at least so many columns are kept in CSR if less than this share of their entries is not zero.
WIDE = 64
SPARSE = 0.1
DENSE_VIEW = 2**26  # numbers, 256 MB: up to so many are made dense for whoever takes a graph out of a data set


def is_sparse(x: Tensor) -> bool:
    """Whether these features are a CSR matrix."""
    return x.layout != torch.strided


def compact(x: Tensor) -> Tensor:
    """A matrix of any layout: in CSR where that pays, dense otherwise."""
    if x.dim() != 2 or x.layout not in (torch.strided, torch.sparse_coo, torch.sparse_csr):
        x = x.to_dense()
    x = x.coalesce() if x.layout == torch.sparse_coo else x
    count = int(torch.count_nonzero(x.values() if is_sparse(x) else x))
    if x.dim() != 2 or x.size(1) < WIDE or count >= SPARSE * x.numel():
        return to_dense(x)
    row, col, value = _entries(x)
    stored = value != 0
    return _from_entries(row[stored], col[stored], value[stored], x.shape)


def from_scipy(matrix: Any) -> Tensor:
    """The features that a SciPy matrix of numbers holds."""
    csr = matrix.tocsr(copy=True)
    csr.sum_duplicates()
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is refused later
        parts = csr.indptr, csr.indices, csr.data.astype(np.float32)
    crow, col, value = map(torch.from_numpy, parts)
    return compact(csr_tensor(crow, col, value, csr.shape[1]))


def _from_entries(row: Tensor, col: Tensor, value: Tensor, shape: Sequence[int]) -> Tensor:
    """Of entries that are sorted by row and column."""
    index = index_dtype(max(shape), len(value))
    return csr_tensor(cumsum(torch.bincount(row, minlength=shape[0])).to(index), col.to(index), value, shape[1])


def _entries(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, columns and values of what is stored; of a dense matrix, of what is not zero."""
    if not is_sparse(x):
        row, col = x.nonzero(as_tuple=True)
        return row, col, x[row, col]
    if x.layout == torch.sparse_coo:
        return *x.indices(), x.values()
    return row_of_entries(x), x.col_indices().long(), x.values()


def row_of_entries(x: Tensor) -> Tensor:
    """The row of each stored entry of a CSR matrix."""
    sizes = x.crow_indices().diff().long()
    return torch.repeat_interleave(torch.arange(len(x), device=x.device), sizes)


# ------------------------------------------------------------------------------------------------------ using them
def to_dense(x: Tensor) -> Tensor:
    """For what cannot use CSR, or wants a gradient at the features."""
    return x.to_dense() if is_sparse(x) else x


def on_values(change: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``change(x)``, for what treats entries one by one and leaves zeros as they are, such as dropout."""
    if not is_sparse(x):
        return change(x)
    return csr_tensor(x.crow_indices(), x.col_indices(), change(x.values()), x.size(1))


def take_rows(x: Tensor, index: Tensor | slice) -> Tensor:
    """``x[index]``: a range of rows, or those with these numbers or under this mask."""
    if not is_sparse(x):
        if isinstance(index, slice) or index.dtype == torch.bool:
            return x[index]
        return x.index_select(0, index)
    if isinstance(index, slice):
        chosen = range(len(x))[index]
        if chosen == range(len(x)):
            return x
        index = chosen.start + chosen.step * torch.arange(len(chosen))
    elif index.dtype == torch.bool:
        index = index.nonzero().flatten()
    crow = x.crow_indices()
    index = index.to(crow.device, torch.long)
    first, sizes = crow[:-1][index].long(), crow.diff()[index].long()
    entries = ranges(first, sizes)
    return csr_tensor(cumsum(sizes).to(crow.dtype), x.col_indices()[entries], x.values()[entries], x.size(1))


def split_rows(x: Tensor, size: int) -> Iterator[Tensor]:
    """So many rows at a time."""
    return (take_rows(x, slice(start, start + size)) for start in range(0, len(x), size))


def row_norms(x: Tensor, order: Literal[1, 2]) -> Tensor:
    """The 1-norm or the 2-norm of each row."""
    if not is_sparse(x):
        return x.float().abs().sum(1) if order == 1 else torch.linalg.vector_norm(x.float(), dim=1)
    sums = x.values().new_zeros(len(x))
    sums.index_add_(0, row_of_entries(x), x.values().abs() if order == 1 else x.values().square())
    return sums if order == 1 else sums.sqrt()


def normalize_rows(x: Tensor) -> Tensor:
    """Rows whose absolute values add up to 1; rows of zeros stay so."""
    sums = row_norms(x, 1).clamp(min=1e-12)
    return on_values(lambda value: value / (sums[row_of_entries(x)] if is_sparse(x) else sums.unsqueeze(1)), x)


def beside(x: Tensor, columns: Tensor) -> Tensor:
    """``x`` and, to the right of it, dense ``columns``."""
    if not is_sparse(x):
        return torch.cat([x, columns], dim=1)
    more_row, more_col, more = _entries(columns)
    pairs = zip(_entries(x), (more_row, more_col + x.size(1), more), strict=True)
    row, col, value = map(torch.cat, pairs)
    order = torch.argsort(row, stable=True)
    return _from_entries(row[order], col[order], value[order], (len(x), x.size(1) + columns.size(1)))


def hide_columns(x: Tensor, hidden: Tensor | slice, first: int) -> Tensor:
    """A copy with zeros in the ``hidden`` rows from column ``first`` on."""
    if not is_sparse(x):
        x = x.clone()
        x[hidden, first:] = 0.0
        return x
    mask = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    mask[hidden] = True
    gone = mask[row_of_entries(x)] & (x.col_indices() >= first)
    return on_values(lambda value: value.masked_fill(gone, 0.0), x)


def has_negative(x: Tensor) -> bool:
    """Whether an entry is below zero."""
    return bool(((x.values() if is_sparse(x) else x) < 0).any())


def not_finite(x: Tensor) -> tuple[int, int, float] | None:
    """The first entry that is infinite or no number, if there is one: its row, its column, and what it is."""
    value = x.values() if is_sparse(x) else x
    if bool(torch.isfinite(value.sum())) or bool(torch.isfinite(value).all()):
        return None
    place = (~torch.isfinite(value)).nonzero()[0]
    row, col = (row_of_entries(x)[place], x.col_indices()[place]) if is_sparse(x) else place
    return int(row), int(col), float(value[tuple(place)])


# --------------------------------------------------------------------------------------------------------- on disk
def tensors_of(x: Tensor) -> dict[str, Tensor]:
    """What a CSR matrix is made of."""
    width = torch.tensor(x.size(1))
    return {"crow": x.crow_indices(), "col": x.col_indices(), "value": x.values(), "width": width}


def from_tensors(parts: Mapping[str, Tensor]) -> Tensor:
    """The inverse of :func:`tensors_of`, checked: products follow these numbers wherever they lead."""
    crow, col, value = parts["crow"], parts["col"], parts["value"]
    [width] = parts["width"].reshape(-1).tolist()
    if not (
        [crow.dim(), *col.shape] == [1, *value.shape]
        and {crow.dtype, col.dtype} in ({torch.int32}, {torch.int64})
        and value.dtype == torch.float32
        and [*crow[:1].tolist(), *crow[-1:].tolist()] == [0, len(col)]
        and bool((crow.diff() >= 0).all())
        and (not len(col) or 0 <= int(col.min()) <= int(col.max()) < width)
    ):
        raise ValueError("the parts of its sparse features do not fit together")
    return csr_tensor(crow, col, value, width)
