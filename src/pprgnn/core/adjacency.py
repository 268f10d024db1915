"""Ã and Ãᵀ in CSR: built once, checked once, shared by every step of every solve.

Entry (i, j) of Ã lets node i read node j. An edge ``j -> i`` of a PyG ``edge_index`` therefore is entry (i, j).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from pprgnn.core import entries
from pprgnn.core.backend.buffers import acquire, handle_of, release
from pprgnn.core.backend.kernel import PartRows, multiply
from pprgnn.core.csr import (
    bound_norm,
    cache_friendly_order,
    csr_tensor,
    fingerprint,
    index_dtype,
    move,
    permute,
    rows,
    transpose,
)
from pprgnn.core.entries import Normalization
from pprgnn.core.solution import StateSpace

if TYPE_CHECKING:
    import networkx as nx
    import scipy.sparse as sp


class Adjacency(StateSpace):
    """A normalised adjacency matrix Ã with its transpose, both in CSR (one object when symmetric).

    Build it with :meth:`from_edge_index`, :meth:`from_torch`, :meth:`from_scipy` or :meth:`from_networkx`. All
    take ``normalize`` (``"sym"``: D^-1/2 A D^-1/2 as in PyG's ``GCNConv``, ``"row"``: D^-1 A, ``None``: as it
    is) and ``add_self_loops`` (existing self-loops keep their weight, the other nodes get one of weight 1).
    Edges that occur twice are added up. On the CPU, large graphs are kept in a cache-friendly node order
    inside; what goes in and comes out is always in the caller's order.

    Example:
        >>> import torch
        >>> path = Adjacency.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> path
        Adjacency(num_nodes=3, num_edges=4, normalize='sym', symmetric)
        >>> path @ torch.eye(3)
        tensor([[0.0000, 0.7071, 0.0000],
                [0.7071, 0.0000, 0.7071],
                [0.0000, 0.7071, 0.0000]])
    """

    def __init__(
        self,
        crow: Tensor,
        col: Tensor,
        value: Tensor,
        *,
        normalize: Normalization = None,
        order: Tensor | None = None,
        rank: Tensor | None = None,
    ) -> None:
        """Take a CSR matrix that is checked, sorted and in the given order; use the ``from_...`` builders."""
        self.num_nodes = crow.numel() - 1
        self.normalize = normalize
        # order[p] is the node at position p; rank is its inverse. None: positions are nodes.
        self.order, self.rank = order, rank
        self.value = value
        self.matrix = csr_tensor(crow, col, value)
        # For compiled code, which cannot look into a sparse matrix: plain tensors, and the number of this object.
        self.indices, self.handle = (crow, col), handle_of(self)
        self._matrix_t: Tensor | None = None
        self._norm_bound: float | None = None

    # ---------------------------------------------------------------------------------------------- builders
    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        num_nodes: int | None = None,
        *,
        normalize: Normalization = "sym",
        add_self_loops: bool = False,
        reorder: bool | Literal["auto"] = "auto",
        dtype: torch.dtype | None = None,
    ) -> Adjacency:
        """Build from PyG's ``edge_index`` (2 × E, row 0 sends to row 1) and optional ``edge_weight`` (E).

        An ``EdgeIndex`` of PyG is taken as well, with the number of nodes that it tells. Gradients flow back to
        ``edge_weight``, through the normalisation.
        """
        edges = entries.as_edges(edge_index)
        entries.check_memory(edges, "edge_index")
        if num_nodes is None:
            known = [size for size in getattr(edge_index, "sparse_size", tuple)() if size is not None]
            num_nodes = max([*known, int(edges.max()) + 1 if edges.numel() else 0])
        # int32 stays: a copy of the edges in 64 bits may be the largest thing in memory
        source, target = edges if edges.dtype in (torch.int32, torch.int64) else edges.long()
        return cls._build(target, source, edge_weight, num_nodes, normalize, add_self_loops, reorder, dtype)

    @classmethod
    def from_torch(
        cls,
        adj_t: Tensor,
        *,
        normalize: Normalization = "sym",
        add_self_loops: bool = False,
        reorder: bool | Literal["auto"] = "auto",
        dtype: torch.dtype | None = None,
    ) -> Adjacency:
        """Build from a sparse COO, CSR or CSC tensor in PyG's convention: rows are targets (``adj.t()``)."""
        size = _square(tuple(adj_t.shape), "A sparse adjacency tensor")
        if adj_t.layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
            entries.check_memory(adj_t._values() if adj_t.layout == torch.sparse_coo else adj_t.values(), "adj_t")
        if adj_t.layout == torch.sparse_coo:
            adj_t = adj_t.coalesce()
            row, col = adj_t.indices()
        elif adj_t.layout in (torch.sparse_csr, torch.sparse_csc):
            by_row = adj_t.layout == torch.sparse_csr
            compressed = adj_t.crow_indices() if by_row else adj_t.ccol_indices()
            plain = adj_t.col_indices() if by_row else adj_t.row_indices()
            expanded = rows(compressed.to(index_dtype(size, plain.numel())))
            row, col = (expanded, plain) if by_row else (plain, expanded)
        else:
            raise ValueError(
                f"A sparse adjacency tensor must be COO, CSR or CSC, but has layout {adj_t.layout}; "
                f"convert it with .to_sparse_csr()."
            )
        return cls._build(row, col, adj_t.values(), size, normalize, add_self_loops, reorder, dtype)

    @classmethod
    def from_scipy(
        cls,
        matrix: sp.csr_array | sp.csr_matrix | sp.coo_array | sp.csc_array,
        *,
        normalize: Normalization = "sym",
        add_self_loops: bool = False,
        reorder: bool | Literal["auto"] = "auto",
        dtype: torch.dtype | None = None,
    ) -> Adjacency:
        """Build from a SciPy sparse matrix in SciPy's convention: entry (i, j) is the edge ``i -> j``."""
        size = _square(tuple(matrix.shape), "A SciPy adjacency matrix")
        coo = matrix.tocoo()
        source, target = torch.from_numpy(coo.row), torch.from_numpy(coo.col)
        weight = torch.from_numpy(coo.data.copy())
        return cls._build(target, source, weight, size, normalize, add_self_loops, reorder, dtype)

    @classmethod
    def from_networkx(
        cls,
        graph: nx.Graph[Any],
        *,
        weight: str | None = "weight",
        normalize: Normalization = "sym",
        add_self_loops: bool = False,
        reorder: bool | Literal["auto"] = "auto",
        dtype: torch.dtype | None = None,
    ) -> Adjacency:
        """Build from a networkx graph; nodes are numbered as ``graph.nodes`` lists them."""
        import networkx as nx

        if graph.number_of_nodes() == 0:  # networkx itself refuses an empty graph, in other words
            none = torch.empty(0, dtype=torch.long)
            return cls._build(none, none, None, 0, normalize, add_self_loops, reorder, dtype)
        matrix = nx.to_scipy_sparse_array(graph, weight=weight, format="coo")
        return cls.from_scipy(
            matrix, normalize=normalize, add_self_loops=add_self_loops, reorder=reorder, dtype=dtype
        )

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> Adjacency:
        """Take back what :meth:`state` gave: tensors are looked through but not copied, and may be mapped."""
        num_nodes, normalize, symmetric, norm_bound = entries.read_facts(facts)
        entries.check_tensors(tensors, num_nodes)
        adj = cls(**tensors, normalize=normalize)
        adj._matrix_t, adj._norm_bound = adj.matrix if symmetric else None, norm_bound
        return adj

    @classmethod
    def _build(
        cls,
        row: Tensor,
        col: Tensor,
        weight: Tensor | None,
        num_nodes: int,
        normalize: Normalization,
        add_self_loops: bool,
        reorder: bool | Literal["auto"],
        dtype: torch.dtype | None,
    ) -> Adjacency:
        weight = entries.check_entries(row, col, weight, num_nodes, normalize, dtype)
        crow, col, weight = entries.coalesce(row, col, weight, num_nodes)
        if add_self_loops:
            crow, col, weight = entries.fill_diagonal(crow, col, weight)
        order, rank = cache_friendly_order(crow, col, reorder), None
        if order is not None:
            crow, col, source, rank = permute(crow, col, order)
            weight = move(weight, source)
            del source
        value = entries.normalize_weights(crow, col, weight, normalize, order)
        return cls(crow, col, value, normalize=normalize, order=order, rank=rank)

    # ------------------------------------------------------------------------------------------------- facts
    @property
    def num_edges(self) -> int:
        """Number of stored entries: each undirected edge counts twice, a self-loop once."""
        return self.value.numel()

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the entries."""
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        """Where the entries live."""
        return self.value.device

    @cached_property
    def fingerprint(self) -> int:
        """A number that is the same for the same matrix, also in another process; computed once."""
        return fingerprint(*self.indices, self.matrix.values())

    @cached_property
    def row(self) -> Tensor:
        """The row of every entry, in the inner order."""
        return rows(self.indices[0]).long()

    @property
    def col(self) -> Tensor:
        """The column of every entry, in the inner order."""
        return self.indices[1].long()

    @cached_property
    def longest_row(self) -> int:
        """The largest number of entries in a row."""
        return int(self.indices[0].diff().max()) if self.num_nodes else 0

    @property
    def matrix_t(self) -> Tensor:
        """Ãᵀ in CSR; the very object ``matrix`` when Ã is symmetric."""
        if self._matrix_t is None:
            self._matrix_t = transpose(self.matrix)
        return self._matrix_t

    @property
    def is_symmetric(self) -> bool:
        """Whether Ã equals its transpose, exactly."""
        return self.matrix_t is self.matrix

    @property
    def norm_bound(self) -> float:
        """An upper bound of ‖Ã‖₂, computed once."""
        if self._norm_bound is None:
            value, even = self.matrix.values(), self.normalize == "sym" and self.is_symmetric
            if even and bool((value >= 0).all()) and bool(value.any()):
                # √degree is an eigenvector for the eigenvalue 1, without a negative number: no other is larger.
                # Each entry is off by four roundings at most, since degrees are added up in double precision.
                self._norm_bound = 1 + 1e-6
            else:
                self._norm_bound = bound_norm(self.matrix, self.matrix_t)
        return self._norm_bound

    def in_inner_order(self) -> tuple[Adjacency, Tensor | None]:
        """The same matrix, not copied, with its nodes numbered as they are kept inside, and their order.

        Row p of everything is node ``order[p]`` then (``None``: nodes are as they were). Where a state takes
        gigabytes this saves the copies that change the order in every solve.
        """
        adj = Adjacency(*self.indices, self.value, normalize=self.normalize)
        adj._matrix_t = adj.matrix if self._matrix_t is self.matrix else self._matrix_t
        adj._norm_bound = self._norm_bound
        return adj, self.order

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The tensors to store, not copied, and facts as text, for :meth:`from_state`."""
        tensors = {"crow": self.indices[0], "col": self.indices[1], "value": self.matrix.values()}
        if self.order is not None and self.rank is not None:
            tensors |= {"order": self.order, "rank": self.rank}
        symmetric = "yes" if self.is_symmetric else "no"
        facts = {"num_nodes": str(self.num_nodes), "normalize": self.normalize or "none", "symmetric": symmetric}
        quick = self.normalize == "sym" and self.is_symmetric
        bound = self.norm_bound if quick else self._norm_bound
        return tensors, facts if bound is None else facts | {"norm_bound": repr(bound)}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by :meth:`state`: torch can do neither with a sparse CSR tensor."""
        if type(self) is not Adjacency:
            raise TypeError(f"A {type(self).__name__} cannot be copied or pickled; make another one.")
        if self.value.requires_grad:
            raise ValueError(
                "An Adjacency of learned edge weights cannot be copied, because its gradient would go nowhere; "
                "copy the weights and build it anew."
            )
        return Adjacency.from_state, self.state()

    # ------------------------------------------------------------------------------------------------ action
    # What a graph over several processes does in its own way; on one process all rows are here.
    rows: PartRows | None = None
    rows_t: PartRows | None = None

    @property
    def identity(self) -> tuple[int, int, int]:
        """Numbers of nodes and edges and a fingerprint: what tells this graph from others."""
        return self.num_nodes, self.num_edges, self.fingerprint

    def product(self, x: Tensor, out: Tensor, transposed: bool = False) -> Tensor:
        """Ã x or Ãᵀ x into ``out``, in the inner node order."""
        return multiply(self.matrix_t if transposed else self.matrix, x, out=out)

    def local_rows(self, per_node: Tensor) -> Tensor:
        """Of a tensor with a row for each node of the whole graph, the rows here, in the inner order."""
        return self.permute(per_node)

    def permute(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Rows of ``x`` from the caller's node order into the inner one."""
        return x if self.order is None else torch.index_select(x, 0, self.order, out=out)

    def unpermute(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Rows of ``x`` from the inner node order back into the caller's."""
        return x if self.rank is None else torch.index_select(x, 0, self.rank, out=out)

    def __matmul__(self, x: Tensor) -> Tensor:
        """Ã x, in the caller's node order, with gradients for x and the edge weights."""
        if x.dim() != 2 or x.size(0) != self.num_nodes:
            raise ValueError(f"x must have shape ({self.num_nodes}, channels), but has {tuple(x.shape)}.")
        self.check_like(x, "x")
        y: Tensor = _Product.apply(x, self.value, self, False)  # type: ignore[no-untyped-call]
        return y

    def check_like(self, x: Tensor, name: str) -> None:
        """Raise unless ``x`` has this matrix's dtype and device."""
        if x.dtype != self.dtype or x.device != self.device:
            raise ValueError(
                f"{name} is {x.dtype} on {x.device}, but the adjacency is {self.dtype} on {self.device}; "
                f"convert one, for example adj.to({x.dtype}) or adj.to({str(x.device)!r})."
            )

    def to(self, target: torch.dtype | torch.device | str) -> Adjacency:
        """Return a copy in another floating-point type or on another device (itself when nothing changes)."""
        kwargs: dict[str, Any] = {"dtype" if isinstance(target, torch.dtype) else "device": target}
        value = self.value.to(**kwargs)
        if value is self.value:
            return self
        crow, col = (index.to(value.device) for index in self.indices)
        order, rank = (None if index is None else index.to(value.device) for index in (self.order, self.rank))
        copy = Adjacency(crow, col, value, normalize=self.normalize, order=order, rank=rank)
        if self._matrix_t is self.matrix:
            copy._matrix_t = copy.matrix  # rounding does the same to equal numbers
        return copy

    def to_dense(self) -> Tensor:
        """Ã as a dense matrix in the caller's order: for looking at small graphs."""
        dense = torch.zeros(self.num_nodes, self.num_nodes, dtype=self.dtype, device=self.device)
        row = self.row if self.order is None else self.order[self.row]
        col = self.col if self.order is None else self.order[self.col]
        return dense.index_put((row, col), self.value)

    def edge_gradient(self, left: Tensor, right: Tensor) -> Tensor:
        """⟨left_i, right_j⟩ for every stored entry (i, j); rows in the inner order."""
        result, col = torch.empty_like(self.value), self.indices[1]
        chunk = max(1, (1 << 24) // max(1, left.size(1)))  # bounds the scratch memory, whatever the graph
        for start in range(0, self.num_edges, chunk):
            part = slice(start, start + chunk)
            torch.sum(left[self.row[part]] * right[col[part]], dim=1, out=result[part])
        return result

    def __repr__(self) -> str:
        symmetric = "symmetric" if self.is_symmetric else "directed"
        return (
            f"Adjacency(num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"normalize={self.normalize!r}, {symmetric})"
        )


class _Product(torch.autograd.Function):
    """Y = ÃX with X̄ = ÃᵀȲ and Ā_ij = ⟨Ȳ_i, X_j⟩, or with Ãᵀ instead of Ã; differentiable any number of times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, adj: Adjacency, transposed: bool) -> Tensor:
        ctx.adj, ctx.transposed = adj, transposed
        # Tensors of inference mode cannot be saved, and need not be.
        ctx.save_for_backward(*((x, value) if ctx.needs_input_grad[1] else (None, None)))
        return times(adj, x.contiguous(), transposed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        adj: Adjacency = ctx.adj
        x, value = ctx.saved_tensors
        grad_x = grad_value = None
        if ctx.needs_input_grad[0]:
            entries = adj.value.detach() if value is None else value
            grad_x = _Product.apply(grad, entries, adj, not ctx.transposed)  # type: ignore[no-untyped-call]
        if ctx.needs_input_grad[1]:
            left, right = (adj.permute(each) for each in ((x, grad) if ctx.transposed else (grad, x)))
            if torch.is_grad_enabled():
                grad_value = (left[adj.row] * right[adj.col]).sum(1)
            else:
                grad_value = adj.edge_gradient(left.contiguous(), right.contiguous())
        return grad_x, grad_value, None, None


def times(adj: Adjacency, x: Tensor, transposed: bool = False) -> Tensor:
    """Ã x or Ãᵀ x in the caller's order, with one fresh state at most: they are large."""
    if adj.order is None:
        return adj.product(x, acquire(x), transposed)
    inner, product = adj.permute(x, out=acquire(x)), acquire(x)
    result = adj.unpermute(adj.product(inner, product, transposed), out=inner)  # inner has done its duty
    release(product)
    return result


def _square(shape: tuple[int, ...], what: str) -> int:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"{what} must be square, but has shape {shape}.")
    return shape[0]
