"""From what a layer is given to an :class:`pprgnn.Adjacency`, kept while it is in use; convolutions as products.

A graph is recognised by its numbers, of which a fingerprint is kept: tensors do not count changes of ``.data``,
and compiled code writes into them without a trace and gives their memory to others. An entry disappears together
with its ``edge_index``.
"""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor

from pprgnn.core.activation import Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.csr import fingerprint
from pprgnn.core.entries import Normalization, as_edges, check_memory, check_weight
from pprgnn.core.solution import Solution

if TYPE_CHECKING:
    from pprgnn.nn.ppr_conv import PPRConv

Conv = TypeVar("Conv", bound=torch.nn.Module)
CAPACITY = 8  # a handful of graphs: train, validation and test loops side by side


class SolvingAdjacency(Adjacency):
    """Some rows of a graph whose states are found in a way of their own: a proved neighbourhood, or known states.

    Layers run on it as on any adjacency.

    Attributes:
        nodes: the caller's number of each row.
    """

    nodes: Any

    @abstractmethod
    def solve(
        self, layer: Tensor, b: Tensor, weight: Tensor, eps: float | Tensor, activation: Activation
    ) -> Solution:
        """The recursion of the layer with this handle."""


def as_adjacency(
    edge_index: Any,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype,
    *,
    normalize: Normalization,
    add_self_loops: bool,
    flow: str = "source_to_target",
    of_matrix: Callable[[Tensor], Tensor] | None = None,
) -> Adjacency:
    """An adjacency as it is; that of an ``edge_index`` or sparse tensor (rows are targets), built once.

    ``normalize`` and ``add_self_loops`` are for what is built: an adjacency is left as it is. ``of_matrix`` is
    done to a sparse tensor first, where it does not mean what an ``edge_index`` does.
    """
    if isinstance(edge_index, Adjacency):
        if edge_weight is not None:
            raise ValueError("An Adjacency carries its own weights; pass edge_weight when building it.")
        return edge_index
    options: dict[str, Any] = {"normalize": normalize, "add_self_loops": add_self_loops, "dtype": dtype}
    sparse = is_torch_sparse_tensor(edge_index)
    if sparse and edge_weight is not None:
        raise ValueError("A sparse adjacency carries its own weights; put edge_weight into it instead.")
    if not sparse:
        edge_index = as_edges(edge_index)

    def build() -> Adjacency:
        if sparse:
            matrix = edge_index if flow == "source_to_target" else edge_index.t()
            return Adjacency.from_torch(matrix if of_matrix is None else of_matrix(matrix), **options)
        edges = edge_index if flow == "source_to_target" else edge_index.flip(0)
        return Adjacency.from_edge_index(edges, edge_weight, num_nodes, **options)

    check_weight(edge_weight)
    tensors = (edge_index, edge_weight)
    if torch.compiler.is_compiling() or any(each is not None and each.requires_grad for each in tensors):
        return build()  # learned weights change with every step
    _drop_unused()
    return cached_adjacency(tensors, (num_nodes, flow, of_matrix, *options.values()), build)


# ------------------------------------------------------------------------------------------- the graph of a layer
def adjacency_of(layer: PPRConv, edge_index: Any, edge_weight: Tensor | None, b: Tensor) -> Adjacency:
    """The adjacency with the options of a layer; that of its first call if it is ``cached``."""
    if not layer.cached:
        return _adjacency(layer, edge_index, edge_weight, b)
    kept, contents = layer._cached_adj, tuple[Any, ...]()
    if kept is not None and (kept.dtype, kept.device) != (b.dtype, b.device):
        kept = None  # the layer was moved
    if isinstance(edge_index, Tensor):
        contents = (b.size(-2), *contents_of(edge_index, edge_weight))
        if kept is not None and contents == layer._cached_contents:
            return kept
    adj = _adjacency(layer, edge_index, edge_weight, b)
    if kept is not None and adj.identity != kept.identity:
        raise ValueError(
            f"cached=True keeps the graph of the first call, {kept}, but another one came, {adj}; use "
            f"cached=False for several graphs."
        )
    layer._cached_adj, layer._cached_contents = adj, contents
    return adj


def _adjacency(layer: PPRConv, edge_index: Any, edge_weight: Tensor | None, b: Tensor) -> Adjacency:
    num_nodes = b.size(-2)
    if isinstance(edge_index, SparseTensor):
        edge_index = edge_index.to_torch_sparse_csr_tensor(b.dtype)
    if is_torch_sparse_tensor(edge_index) and edge_weight is None:
        if layer.flow != "source_to_target":
            raise ValueError("flow='target_to_source' needs an edge_index; transpose the sparse matrix instead.")
        if tuple(edge_index.shape) != (num_nodes, num_nodes):
            raise ValueError(
                f"The sparse adjacency must have shape ({num_nodes}, {num_nodes}) to match x, "
                f"but has shape {tuple(edge_index.shape)}."
            )
    options: dict[str, Any] = {"normalize": layer.normalization, "add_self_loops": layer.add_self_loops}
    return as_adjacency(edge_index, edge_weight, num_nodes, b.dtype, flow=layer.flow, **options)


# ------------------------------------------------------------------------------------------------ graphs in use
@dataclass
class _Entry:
    of: weakref.ref[Tensor]  # it goes with this tensor
    key: tuple[Any, ...]
    adj: Adjacency


_entries: list[_Entry] = []


def cached_adjacency(
    tensors: tuple[Tensor | None, ...], options: tuple[Any, ...], build: Callable[[], Adjacency]
) -> Adjacency:
    """Return the adjacency of a graph with these numbers and options; ``build`` makes it when it is not known.

    Reading the edges once more costs little beside a solve, which reads them in each of its steps.
    """
    first = next(tensor for tensor in tensors if tensor is not None)
    key = (*contents_of(*tensors), options)
    entry = next((entry for entry in _entries if entry.key == key), None)
    if entry is None:
        entry = _Entry(weakref.ref(first), key, build())
        _drop_unused()
        _entries[:] = [entry, *_entries][:CAPACITY]
    elif entry.of() is None:  # compiled code gives equal numbers in another tensor
        entry.of = weakref.ref(first)
    return entry.adj


def _drop_unused() -> None:
    """Not at every look: the graphs of compiled code come in new tensors each time."""
    _entries[:] = [entry for entry in _entries if entry.of() is not None]


def contents_of(*tensors: Tensor | None) -> tuple[Any, ...]:
    """What tells tensors from others, sparse ones included: their kind, and a fingerprint of their numbers."""
    found: list[Any] = []
    for tensor in tensors:
        parts = () if tensor is None else dense_parts(tensor)
        for part in parts:
            check_memory(part, "A graph")
        kind = None if tensor is None else (tensor.layout, tensor.shape, tensor.dtype, tensor.device)
        found.append((kind, fingerprint(*parts)))
    return tuple(found)


def dense_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """The dense tensors that it consists of."""
    if tensor.layout == torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout == torch.sparse_csr:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout == torch.sparse_csc:
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)


# -------------------------------------------------------------------------------------- convolutions as products
def through_adjacency(conv: Conv) -> Conv:
    """The same layer; given an :class:`pprgnn.Adjacency` in the place of ``edge_index``, it multiplies by it.

    Args:
        conv: A layer whose messages are the rows of ``x``, weighted and added up, such as ``GCNConv`` or
            ``GCN2Conv``. The adjacency is taken as it is, so build the layer with ``normalize=False`` if it has
            this option. Anything else than an adjacency goes PyG's way.

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GCNConv
        >>> conv = through_adjacency(GCNConv(16, 8, normalize=False))
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> conv(torch.randn(3, 16), Adjacency.from_edge_index(path, add_self_loops=True)).shape
        torch.Size([3, 8])
    """
    name = type(conv).__name__
    if not isinstance(conv, MessagePassing):
        raise ValueError(f"through_adjacency needs a layer of PyG that passes messages, but got {name}.")
    if conv.aggr not in ("add", "sum") or conv.flow != "source_to_target":
        raise ValueError(
            f"Only a sum of messages from source to target is a product with an adjacency, but {name} has "
            f"aggr={conv.aggr!r} and flow={conv.flow!r}; give it a plain edge_index."
        )
    if getattr(conv, "normalize", False):
        raise ValueError(f"An adjacency is normalised already; build {name} with normalize=False.")
    kind: Any = type(conv)
    conv.__class__ = _through(kind)
    return conv


@cache
def _through(kind: Any) -> type[Any]:
    """A class rather than an attribute of the layer: copies of the layer then multiply with their own weights."""

    class Through(kind):  # type: ignore[misc]
        # PyG puts a compiled method in place of `propagate` unless the class itself, not a parent, defines one.
        def propagate(self, edge_index: Any, size: Any = None, **messages: Any) -> Tensor:
            if not isinstance(edge_index, Adjacency):
                result: Tensor = super().propagate(edge_index, size=size, **messages)
                return result
            if messages.pop("edge_weight", None) is not None:
                raise ValueError("An Adjacency carries its own weights; pass edge_weight when building it.")
            if [*messages] != ["x"]:
                raise ValueError(
                    f"{kind.__name__} sends more than x along the edges ({', '.join(messages)}), which a product "
                    f"with an Adjacency cannot do; give it a plain edge_index."
                )
            x = messages["x"]
            sources: Tensor = x[0] if isinstance(x, tuple) else x  # a pair: sources and targets
            return edge_index @ sources

        def __reduce__(self) -> tuple[Any, ...]:
            return _restored, (kind,), self.__dict__

    Through.__name__, Through.__qualname__, Through.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    return Through


def _restored(kind: Any) -> Any:
    made = _through(kind)
    return object.__new__(made)
