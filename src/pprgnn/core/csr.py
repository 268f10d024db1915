"""CSR matrices from entries in any order: sorting, transposing, ordering nodes. None of it follows gradients.

What moves entries also says where each came from (``source``), so that :func:`move` can take the values along,
and with them their gradients.
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from pprgnn.core.backend.kernel import call, graph_library, multiply

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 1 << 14  # numbers at a time of a fingerprint: they stay in the cache of the processor


def index_dtype(num_nodes: int, num_entries: int) -> torch.dtype:
    """Of ``crow`` and ``col``: half the memory wherever that is enough."""
    return torch.int32 if max(num_nodes, num_entries) < 2**31 - 1 else torch.int64


def sort_entries(row: Tensor, col: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """``crow`` and ``col``, sorted by (row, col), and ``source``. Equal entries keep their order."""
    library = graph_library(row, num_nodes, row.numel())
    if library is None:
        source = torch.argsort(row.long() * num_nodes + col, stable=True)
        index = index_dtype(num_nodes, row.numel())
        crow = torch.zeros(num_nodes + 1, dtype=torch.int64, device=row.device)
        torch.cumsum(torch.bincount(row, minlength=num_nodes), 0, out=crow[1:])
        return crow.to(index), col[source].to(index), source
    row, col = row.contiguous(), col.to(row.dtype).contiguous()
    crow, sorted_col, source = _room(num_nodes, row.numel())
    sort = library.pprgnn_sort_i64 if row.dtype == torch.int64 else library.pprgnn_sort_i32
    call(sort, num_nodes, row.numel(), row, col, crow, sorted_col, source)
    return crow, sorted_col, source


def permute(crow: Tensor, col: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``crow``, ``col`` and ``source`` with node ``order[p]`` at position p; and the inverse of ``order``."""
    num_nodes, rank = order.numel(), torch.empty_like(order)
    library = graph_library(col, num_nodes, col.numel())
    if library is None:
        rank[order] = torch.arange(num_nodes, device=order.device)
        return *sort_entries(rank[rows(crow)], rank[col], num_nodes), rank
    moved = _room(num_nodes, col.numel())
    call(library.pprgnn_permute, num_nodes, crow, col, order, rank, *moved)
    return *moved, rank


def move(value: Tensor, source: Tensor) -> Tensor:
    """``value[source]``, twice as fast; one number that was expanded remains so."""
    return value if value.stride() == (0,) else value.index_select(0, source)


def _room(num_nodes: int, num_entries: int) -> tuple[Tensor, Tensor, Tensor]:
    kind: dict[str, Any] = {"dtype": torch.int32, "device": "cpu"}  # whatever the default device is
    return torch.empty(num_nodes + 1, **kind), torch.empty(num_entries, **kind), torch.empty(num_entries, **kind)


def rows(crow: Tensor) -> Tensor:
    """The row of every entry."""
    num_nodes, num_entries = crow.numel() - 1, int(crow[-1])
    library = graph_library(crow, num_nodes, num_entries)
    if library is None:
        nodes = torch.arange(num_nodes, dtype=crow.dtype, device=crow.device)
        return nodes.repeat_interleave(crow.diff(), output_size=num_entries)
    row = torch.empty(num_entries, dtype=torch.int32, device="cpu")
    call(library.pprgnn_rows, num_nodes, crow, row)
    return row


def transpose(matrix: Tensor) -> Tensor:
    """The transpose in CSR: the matrix itself when it is symmetric."""
    crow, col, value = matrix.crow_indices(), matrix.col_indices(), matrix.values()
    if _is_symmetric(crow, col, value):
        return matrix
    crow_t, col_t, source = sort_entries(col, rows(crow), matrix.size(0))
    value_t = move(value, source)
    if torch.equal(col_t, col) and torch.equal(value_t, value):  # crow agrees as well: it counts the rows in col_t
        return matrix
    return csr_tensor(crow_t, col_t, value_t)


def _is_symmetric(crow: Tensor, col: Tensor, value: Tensor) -> bool:
    """Whether it is, found without a copy; ``False`` also when there is no library to tell."""
    library = graph_library(col, crow.numel() - 1, col.numel())
    suffix = {torch.float32: "f32", torch.float64: "f64"}.get(value.dtype)
    if library is None or suffix is None:
        return False
    answer = torch.empty(1, dtype=torch.int32, device="cpu")
    call(getattr(library, f"pprgnn_symmetric_{suffix}"), crow.numel() - 1, crow, col, value, answer)
    return bool(answer)


def csr_tensor(crow: Tensor, col: Tensor, value: Tensor, columns: int | None = None) -> Tensor:
    """A CSR tensor, square by default, that shares these tensors, which must be sorted, distinct and in range."""
    num_nodes = crow.numel() - 1
    size = (num_nodes, num_nodes if columns is None else columns)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            crow, col, value.detach(), size=size, device=value.device, check_invariants=False
        )


def bound_norm(matrix: Tensor, matrix_t: Tensor, iterations: int = 20) -> float:
    """An upper bound of ‖M‖₂, given the transpose as well.

    For x > 0 and a non-negative matrix M, ‖M‖₂² = ρ(MᵀM) <= max_i (MᵀMx)_i / x_i (Collatz and Wielandt); a few
    power iterations make it tight, and ``‖M‖₂ <= ‖|M|‖₂`` covers negative weights. Rounding is included.
    """
    value = matrix.values()
    largest = float(value.abs().max()) if value.numel() else 0.0
    if largest == 0.0:
        return 0.0
    # In double precision, and scaled: squares of the entries must not leave the range of their type.
    there, back = (
        csr_tensor(each.crow_indices(), each.col_indices(), each.values().abs().double() / largest)
        for each in (matrix, matrix_t)
    )
    x = torch.ones(matrix.size(0), 1, dtype=torch.float64, device=value.device)
    product, y = torch.empty_like(x), torch.empty_like(x)
    smallest = math.inf
    for _ in range(iterations):
        multiply(back, multiply(there, x, out=product), out=y)
        smallest = min(smallest, float((y / x).max()))
        x = (y / y.max()).clamp_(min=1e-30)  # any x > 0 gives a bound, but none that underflows to 0
    # A sum of k positive numbers, in whatever order, is off by k roundings at most; the entries by four.
    terms = sum(int(each.crow_indices().diff().max()) for each in (there, back))
    rounding = (terms + 10) * 2.0**-53 + 4 * torch.finfo(value.dtype).eps
    return largest * math.sqrt(smallest) * (1 + rounding)


def ranges(starts: Tensor, sizes: Tensor) -> Tensor:
    """``starts[i], starts[i] + 1, ...``, ``sizes[i]`` of them, one range after the other."""
    ends = sizes.cumsum(0)
    shift = starts - (ends - sizes)
    return torch.repeat_interleave(shift, sizes) + torch.arange(int(sizes.sum()), device=starts.device)


# ---------------------------------------------------------------------------------------------------- fingerprints
def fingerprint(*tensors: Tensor) -> int:
    """A number that follows every bit of dense tensors, the same in every process.

    One pass, in the memory of a block.
    """
    total = 0
    for tensor in tensors:
        data = tensor.detach().reshape(-1)
        if data.stride() != (1,) or data.storage_offset() * data.element_size() % 8:
            data = data.clone(memory_format=torch.contiguous_format)  # words start at multiples of eight bytes
        data, multipliers = data.view(torch.uint8), _multipliers(data.device)
        end = data.numel() // 8 * 8
        sums = [torch.sum(data[end:] * multipliers[: data.numel() - end])]  # fewer bytes than a word
        for words in torch.split(data[:end].view(torch.int64), BLOCK):
            mixed = torch.bitwise_right_shift(words, 32).bitwise_xor_(words)  # signs must not get lost at the top
            sums.append(mixed.mul_(multipliers[: words.numel()]).sum())
        for each in torch.stack(sums).tolist():  # one after the other: the order of blocks and tensors matters
            total = (total * 0x2545F4914F6CDD1D + each) % 2**64
    return total % 2**63  # fits a tensor


@cache
def _multipliers(device: torch.device) -> Tensor:
    draw = torch.Generator("cpu").manual_seed(0)
    with torch.inference_mode(False):
        numbers = torch.randint(-(2**62), 2**62, (BLOCK,), generator=draw, device="cpu").mul_(2).add_(1)
    return numbers.to(device)


# ------------------------------------------------------------------------------------------------------ node order
# The sparse product reads one row of the state per edge. When neighbours lie near each other those reads hit the
# cache. Nodes are merged with their strongest neighbour, the merged graph again, and so on; the resulting tree is
# then read from left to right, so that communities of every size become intervals.
# Below this many nodes a state of usual width fits the last-level cache and the order hardly matters.
LARGE_GRAPH = 50_000


def cache_friendly_order(crow: Tensor, col: Tensor, reorder: bool | Literal["auto"]) -> Tensor | None:
    """Nodes in an order that keeps communities together, or ``None`` when the given order is kept."""
    num_nodes = crow.numel() - 1
    if reorder == "auto":
        reorder = num_nodes >= LARGE_GRAPH and col.device.type == "cpu"
    if not reorder:
        return None
    library = graph_library(col, num_nodes, col.numel())
    if library is None:
        return torch.from_numpy(_community_order(crow.cpu().numpy(), col.cpu().numpy())).to(col.device)
    order = torch.empty(num_nodes, dtype=torch.int64, device="cpu")
    call(library.pprgnn_order, num_nodes, crow, col, order)
    return order


# What follows is in graph.cpp as well. Both give the same order, because there is nothing in it but whole numbers,
# single operations on float32, and ties broken by a hash. The only use of NumPy and SciPy in the core.
def _community_order(crow: NDArray[Any], col: NDArray[Any]) -> NDArray[np.int64]:
    import numpy as np
    from scipy.sparse import csr_array

    num_nodes = len(crow) - 1
    pattern = csr_array((np.ones(len(col), dtype=np.uint32), col, crow), shape=(num_nodes, num_nodes))
    graph = _contract(pattern + pattern.T, np.arange(num_nodes, dtype=col.dtype), num_nodes)
    volume = graph.sum(axis=1)
    merged_into: list[NDArray[Any]] = []
    while True:
        group, count = _merge(graph, volume, level=len(merged_into))
        if count == graph.shape[0]:
            break
        merged_into.append(group)
        graph = _contract(graph, group, count)
        volume = np.bincount(group, weights=volume)

    order = np.arange(graph.shape[0])
    for group in reversed(merged_into):  # open every group in its place
        order = np.argsort(np.argsort(order)[group], kind="stable")
    return order


def _contract(graph: Any, group: NDArray[Any], count: int) -> Any:
    """The graph of the groups: weights between two groups are added up, weights inside a group are dropped."""
    from scipy.sparse import coo_array

    entries = graph.tocoo()
    row, col = group[entries.row], group[entries.col]
    between = row != col
    return coo_array((entries.data[between], (row[between], col[between])), shape=(count, count)).tocsr()


def _merge(graph: Any, volume: NDArray[Any], level: int) -> tuple[NDArray[Any], int]:
    """A group for every node, and the number of groups."""
    import numpy as np

    nodes = np.arange(graph.shape[0], dtype=graph.indices.dtype)
    best = _strongest_neighbours(graph, volume)
    # Of two nodes that choose each other the larger one leads, and whoever else chose it joins as well. Elsewhere
    # half of the nodes stay, at random, and others may join them.
    leads = (best[best] == nodes) & ((volume > volume[best]) | ((volume == volume[best]) & (nodes <= best)))
    coin = _scramble(nodes.astype(np.uint32) + np.uint32(level * 0x9E3779B9 % 2**32)) % 2 == 1
    stays = leads | (coin & ~leads[best])
    joins = ~stays & stays[best]
    number = np.cumsum(~joins, dtype=nodes.dtype) - 1
    return np.where(joins, number[best], number), int((~joins).sum())


def _strongest_neighbours(graph: Any, volume: NDArray[Any]) -> NDArray[Any]:
    """For every node one neighbour, or itself if it has none."""
    import numpy as np

    best = np.arange(graph.shape[0], dtype=graph.indices.dtype)
    row, col = best.repeat(np.diff(graph.indptr)), graph.indices
    # A weak preference for small groups keeps the tree balanced. The hash breaks ties, the same way at both ends.
    pull = np.float32(1) / np.sqrt(np.sqrt(np.maximum(volume, 1).astype(np.float32)))
    strength = graph.data.astype(np.float32) * pull[col]
    key = strength.view(np.uint32).astype(np.uint64) << np.uint64(32) | _scramble((row ^ col).astype(np.uint32))
    connected = np.diff(graph.indptr) > 0
    if len(row):
        strongest = np.zeros(len(best), dtype=np.uint64)
        strongest[connected] = np.maximum.reduceat(key, graph.indptr[:-1][connected])
        hit = key == strongest[row]
        best[row[hit]] = col[hit]
    return best


def _scramble(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The last steps of MurmurHash3: a bijection."""
    import numpy as np

    x = (x ^ x >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    x = (x ^ x >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return x ^ x >> np.uint32(16)
