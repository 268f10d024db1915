"""Who owns which node: parts of equal work, with few entries of Ã between them; and what a partition is worth."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.csr import rows
from pprgnn.core.entries import coalesce
from pprgnn.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

METHODS = ("auto", "metis", "range", "random")
ROW_WORK = 12  # the dense product of a row takes as long as about that many entries, at 64 channels
# With fewer nodes to a part, METIS has nothing to coarsen: it leaves parts empty, or puts all nodes into one.
METIS_NODES_PER_PART = 8
METIS_IMBALANCE = 10  # per mille that the heaviest part may exceed the mean; 30 is what METIS has itself


def partition(adj: Adjacency, parts: int, method: str = "auto", seed: int = 0) -> Tensor:
    """The part of each node (int32, in the caller's order); work is balanced, and a part may be empty.

    Args:
        adj: The graph; of a directed one, both directions count.
        parts: How many.
        method: ``"metis"``: few entries between the parts; ``"range"``: intervals of the cache-friendly node order
            of ``adj``, at no cost; ``"random"``; ``"auto"``: METIS where it is installed, otherwise ranges.
        seed: Of ``metis`` and ``random``.
    """
    method = choose_method(method)
    if not isinstance(parts, int) or parts < 1:
        raise DataError(f"The number of parts must be a whole number from 1 on, but is {parts!r}.")
    if not isinstance(seed, int) or not 0 <= seed < 2**31 - 1:
        raise DataError(f"The seed of a partition must be a whole number from 0 to 2³¹ - 2, but is {seed!r}.")
    work = work_of_rows(adj)
    if method == "metis" and 1 < parts <= adj.num_nodes // METIS_NODES_PER_PART:
        owner = _metis(adj, work, parts, seed)
    elif method == "random":
        order = torch.randperm(adj.num_nodes, generator=torch.Generator().manual_seed(seed)).to(adj.device)
        owner = torch.empty_like(order)
        owner[order] = _ranges(work[order], parts)
    else:
        owner = _ranges(work, parts)
    return adj.unpermute(owner.to(torch.int32))


def work_of_rows(adj: Adjacency) -> Tensor:
    """The work of a step for each row, counted in entries; in the inner order."""
    return adj.matrix.crow_indices().long().diff() + ROW_WORK


def choose_method(method: str) -> str:
    """The method itself or, for ``"auto"``, the best one that is installed."""
    if method not in METHODS:
        raise DataError(f"A graph is partitioned by one of {', '.join(METHODS)}, but the method is {method!r}.")
    has_metis = find_spec("pymetis") is not None
    if method == "metis" and not has_metis:
        raise DataError(
            "Partitioning by METIS needs pymetis: pip install 'pprgnn[partition]', or use the method 'range'."
        )
    return ("metis" if has_metis else "range") if method == "auto" else method


def _ranges(work: Tensor, parts: int) -> Tensor:
    """Intervals of equal work: a node belongs where its middle lies."""
    end = work.cumsum(0)
    return (2 * end - work) * parts // (2 * end[-1])


def _metis(adj: Adjacency, work: Tensor, parts: int, seed: int) -> Tensor:
    import pymetis

    kind = pymetis.zero_copy_dtype()  # numbers of another one would be converted one by one

    def array(numbers: Tensor) -> NDArray[Any]:
        return numbers.cpu().numpy().astype(kind, copy=False)

    crow, col, weight = _undirected(adj)
    # Nothing can be done about a node that is heavier than a part should be; METIS would give up parts for it.
    capped = work.clamp(max=int(work.sum()) // parts)
    _, owner = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(array(crow), array(col)),
        vweights=array(capped),
        eweights=None if weight is None else array(weight),
        recursive=False,
        options=pymetis.Options(seed=seed + 1, ufactor=METIS_IMBALANCE),  # + 1: to C, 0 and 1 are the same
    )
    return torch.as_tensor(owner, device=adj.device)


def _undirected(adj: Adjacency) -> tuple[Tensor, Tensor, Tensor | None]:
    """``crow`` and ``col`` of A + Aᵀ without self-loops, and the entries behind each edge (None: as many)."""
    crow, col = adj.matrix.crow_indices(), adj.matrix.col_indices()
    row = rows(crow)
    between = row != col
    if not adj.is_symmetric:
        row, col = row[between], col[between]
        return coalesce(
            torch.cat([row, col]), torch.cat([col, row]), torch.ones_like(row).repeat(2), adj.num_nodes
        )
    if not bool(between.all()):
        crow = torch.cat([crow[:1], torch.bincount(row[between], minlength=adj.num_nodes).cumsum(0)])
        col = col[between]
    return crow, col, None


# ------------------------------------------------------------------------------------------------ what it is worth
@dataclass(frozen=True)
class PartitionFacts:
    """What a step costs under a partition; the tensors (int64) have one number per part."""

    nodes: Tensor
    entries: Tensor  # stored entries of its rows
    interior_nodes: Tensor  # those that no entry, in either direction, connects with another part
    interior_entries: Tensor
    halo_rows: Tensor  # distinct rows of other parts that its rows read
    sent_rows: Tensor  # of its rows, one for each part that reads it
    neighbours: Tensor  # parts that it reads from or that read from it
    edge_cut: int  # stored entries whose ends are in different parts

    @property
    def parts(self) -> int:
        """How many."""
        return self.nodes.numel()

    @property
    def work(self) -> Tensor:
        """The work of a step, counted in entries."""
        return self.entries + ROW_WORK * self.nodes

    @property
    def interior_work(self) -> Tensor:
        """The share of it that needs no rows of others."""
        return self.interior_entries + ROW_WORK * self.interior_nodes

    @property
    def cut_share(self) -> float:
        """The edge cut as a share of all entries."""
        return self.edge_cut / max(1, int(self.entries.sum()))

    @property
    def balance(self) -> float:
        """The heaviest part's work over the mean: 1 is perfect."""
        return int(self.work.max()) * self.parts / int(self.work.sum())


def describe(adj: Adjacency, owner: Tensor, parts: int, *, transposed: bool = False) -> PartitionFacts:
    """What this partition costs per step of Ã, or Ãᵀ; ``owner`` is what :func:`partition` returns."""
    owner = check_owner(adj, owner, parts)
    matrix = adj.matrix_t if transposed else adj.matrix
    row, col = rows(matrix.crow_indices()), matrix.col_indices()
    reader, sender = owner[row], owner[col]
    between = reader != sender
    interior = torch.ones_like(owner, dtype=torch.bool)
    interior[row[between]] = interior[col[between]] = False
    # Each (part, row of another part) once, however many entries of the part read that row.
    needed = torch.unique(reader[between] * adj.num_nodes + col[between])
    reads, sends = needed // adj.num_nodes, owner[needed % adj.num_nodes]
    links = torch.unique(torch.cat([reads * parts + sends, sends * parts + reads]))

    def per_part(part: Tensor) -> Tensor:
        return torch.bincount(part, minlength=parts)

    return PartitionFacts(
        nodes=per_part(owner),
        entries=per_part(reader),
        interior_nodes=per_part(owner[interior]),
        interior_entries=per_part(reader[interior[row]]),
        halo_rows=per_part(reads),
        sent_rows=per_part(sends),
        neighbours=per_part(links // parts),
        edge_cut=int(between.sum()),
    )


def check_owner(adj: Adjacency, owner: Tensor, parts: int) -> Tensor:
    """The owners as int64, in the inner order, if each node has one of so many parts."""
    if owner.shape != (adj.num_nodes,) or owner.is_floating_point():
        raise DataError(
            f"owner must hold one whole number for each of the {adj.num_nodes} nodes, but has shape "
            f"{tuple(owner.shape)} and dtype {owner.dtype}."
        )
    if owner.numel() and not 0 <= int(owner.min()) <= int(owner.max()) < parts:
        raise DataError(
            f"owner must be from 0 to {parts - 1}, one number per part, but runs from {int(owner.min())} to "
            f"{int(owner.max())}; partition the graph into {parts} parts."
        )
    return adj.permute(owner.to(adj.device, torch.long))
