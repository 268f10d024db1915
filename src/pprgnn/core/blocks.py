"""Parts of a block-diagonal matrix: many graphs are normalised once, and a batch takes the blocks it needs."""

from __future__ import annotations

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency


def ranges(starts: Tensor, sizes: Tensor) -> Tensor:
    """``starts[i], starts[i] + 1, ...``, ``sizes[i]`` of them, one range after the other."""
    ends = sizes.cumsum(0)
    shift = starts - (ends - sizes)
    return torch.repeat_interleave(shift, sizes) + torch.arange(int(sizes.sum()), device=starts.device)


def take_blocks(adj: Adjacency, starts: Tensor, sizes: Tensor) -> Adjacency:
    """The diagonal blocks of ``adj`` that start at these nodes, as one matrix; no entry may lie between blocks."""
    crow, col = adj.matrix.crow_indices(), adj.matrix.col_indices()
    if adj.order is not None:
        raise ValueError("Blocks are taken from a matrix in the caller's order; build it with reorder=False.")
    first, last = crow[starts], crow[starts + sizes]
    entries = ranges(first.long(), (last - first).long())
    lengths = crow.diff()[ranges(starts, sizes)]
    new_crow = torch.zeros(len(lengths) + 1, dtype=crow.dtype, device=crow.device)
    torch.cumsum(lengths, 0, out=new_crow[1:])
    shift = (sizes.cumsum(0) - sizes - starts).to(col.dtype)  # where a block goes, less where it was
    new_col = col[entries] + torch.repeat_interleave(shift, (last - first).long())
    blocks = Adjacency(new_crow, new_col, adj.value[entries], normalize=adj.normalize)
    if adj.is_symmetric:
        blocks._matrix_t = blocks.matrix
    blocks._norm_bound = adj.norm_bound  # that of the largest block, at least
    return blocks
