"""Parts of a block-diagonal matrix: many graphs are normalised once, and a batch takes the blocks it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.csr import csr_tensor, ranges


def take_blocks(adj: Adjacency, starts: Tensor, sizes: Tensor) -> Adjacency:
    """The diagonal blocks of ``adj`` that start at these nodes, as one matrix; no entry may lie between blocks."""
    if adj.order is not None:
        raise ValueError("Blocks are taken from a matrix in the caller's order; build it with reorder=False.")
    crow, col, entries = _taken(adj.matrix, starts, sizes)
    there, back = (crow, col, adj.value[entries]), None
    if not adj.is_symmetric:  # the blocks of Ãᵀ are those of Ã, transposed: nothing is sorted again
        crow, col, entries = _taken(adj.matrix_t, starts, sizes)
        back = crow, col, adj.matrix_t.values()[entries]
    return _block(adj, there, back)


def _taken(matrix: Tensor, starts: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``crow`` and ``col`` of the blocks, and which entries they are."""
    crow, col = matrix.crow_indices(), matrix.col_indices()
    first = crow[starts]
    counts = crow[starts + sizes] - first
    entries = ranges(first.long(), counts.long())
    # Where a block goes, less where it was: its entries, and its nodes.
    by_entry = (counts.cumsum(0) - counts - first).to(crow.dtype)
    by_node = (sizes.cumsum(0) - sizes - starts).to(col.dtype)
    ends = crow[ranges(starts + 1, sizes)] + torch.repeat_interleave(by_entry, sizes)
    new_col = col[entries] + torch.repeat_interleave(by_node, counts.long())
    return torch.cat([ends.new_zeros(1), ends]), new_col, entries


def cut_blocks(adj: Adjacency, cuts: Sequence[int]) -> Iterator[Adjacency]:
    """The matrix cut at these nodes, the first 0 and the last its end, into matrices that share its entries."""
    there, back = _cut(adj.matrix, adj.value, cuts), _cut(adj.matrix_t, adj.matrix_t.values(), cuts)
    for part in there:
        yield _block(adj, part, None if adj.is_symmetric else next(back))


Csr = tuple[Tensor, Tensor, Tensor]


def _cut(matrix: Tensor, value: Tensor, cuts: Sequence[int]) -> Iterator[Csr]:
    crow, col = matrix.crow_indices(), matrix.col_indices()
    entries = crow[torch.tensor(cuts, device=crow.device)].tolist()
    for (first, last), (start, end) in zip(pairwise(cuts), pairwise(entries), strict=True):
        yield crow[first : last + 1] - start, col[start:end] - first, value[start:end]


def _block(adj: Adjacency, there: Csr, back: Csr | None) -> Adjacency:
    """A part of ``adj``, with its transpose; ``None``: the same."""
    block = Adjacency(*there, normalize=adj.normalize)
    same = back is None or (torch.equal(there[1], back[1]) and torch.equal(there[2], back[2]))
    block._matrix_t = block.matrix if same or back is None else csr_tensor(*back)
    block._norm_bound = adj.norm_bound  # that of the largest block, at least
    return block
