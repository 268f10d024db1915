"""Convolutions of PyG whose inside is known: a product with one matrix, then linear maps.

For these a step costs one sparse product with a matrix that is built once, and their Lipschitz constant is known,
so that depth can be proved. Only the very classes below count: a subclass may do something else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn import MLP, GCNConv, GINConv, GraphConv, SAGEConv
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops, is_torch_sparse_tensor
from torch_geometric.utils.sparse import set_sparse_value

from pprgnn.core.adjacency import Adjacency
from pprgnn.nn.through_adjacency import as_adjacency

ROUNDING = 1 + 1e-5  # of norms, in a bound
GENTLE = (  # element-wise with slopes of at most 1
    torch.nn.Identity,
    torch.nn.ReLU,
    torch.nn.Tanh,
    torch.nn.Sigmoid,
    torch.nn.Softplus,
)


@dataclass(frozen=True)
class ConvAnalysis:
    """A convolution on one graph.

    Args:
        adj: The matrix of its messages.
        function: The convolution as a function of the state.
        lipschitz: An upper bound of its Lipschitz constant, if there is one, from that of the norm of ``adj``.
        weight: W when the convolution is ÃGW and nothing else.
    """

    adj: Adjacency
    function: Callable[[Tensor], Tensor]
    lipschitz: Callable[[float], float | None]
    weight: Tensor | None = None


def analyze_conv(
    conv: torch.nn.Module, state: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ConvAnalysis | None:
    """What is known about ``conv(state, *args, **kwargs)``, or ``None``."""
    look = _KNOWN.get(type(conv))
    if look is None or state.dim() != 2 or not isinstance(conv, MessagePassing):
        return None
    if torch._C._are_functorch_transforms_active():  # torch.func cannot see through our products
        return None
    if conv.explain or is_watched(conv) or conv.decomposed_layers > 1:
        return None
    named = dict(zip(("edge_index", "edge_weight"), args, strict=False)) | kwargs
    if len(args) > 2 or not {"edge_index"} <= named.keys() <= {"edge_index", "edge_weight"}:
        return None
    edge_index, weight = named["edge_index"], named.get("edge_weight")
    sparse = is_torch_sparse_tensor(edge_index)
    told = edge_index.sparse_size() if isinstance(edge_index, EdgeIndex) else edge_index.shape if sparse else ()
    if not {*told} <= {state.size(0), None}:
        return None  # PyG refuses it
    if isinstance(edge_index, EdgeIndex):
        edge_index = edge_index.as_tensor()
    if conv.flow != "source_to_target" and isinstance(edge_index, Adjacency):
        return None
    if type(conv) is GCNConv and _is_edge_index(edge_index) and _has_double_loops(edge_index):
        return None  # PyG takes one of the loops of a node where we would add them up
    if getattr(conv, "cached", False) and conv.normalize:
        if not _is_edge_index(edge_index):
            return None
        edge_index, weight = _cached_edges(conv, edge_index, weight, state)

    def adjacency(**options: Any) -> Adjacency:
        return as_adjacency(edge_index, weight, state.size(0), state.dtype, flow=conv.flow, **options)

    return look(conv, weight is not None, sparse, adjacency)


def _is_edge_index(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided


def _has_double_loops(edge_index: Tensor) -> bool:
    looped = edge_index[0, edge_index[0] == edge_index[1]]
    return looped.numel() > 1 and bool((looped.sort().values.diff() == 0).any())


def _cached_edges(conv: Any, edge_index: Tensor, weight: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
    """The normalised edges of the first graph, kept where the convolution itself keeps them."""
    if conv._cached_edge_index is None:
        conv._cached_edge_index = gcn_norm(
            edge_index, weight, state.size(0), False, conv.add_self_loops, conv.flow, state.dtype
        )
    edges, weight = conv._cached_edge_index
    return edges, weight


def is_watched(conv: torch.nn.Module) -> bool:
    """Whether there are hooks on its messages or passes, which a product would go past."""
    return any(hooks for name, hooks in vars(conv).items() if name.endswith("_hooks") and "state_dict" not in name)


def _gcn(conv: Any, weighted: bool, sparse: bool, adjacency: Callable[..., Adjacency]) -> ConvAnalysis | None:
    if conv.aggr not in ("add", "sum") or conv.improved:
        return None
    normalize = conv.normalize and not conv.cached
    loops = normalize and conv.add_self_loops
    adj = adjacency(
        normalize="sym" if normalize else None,
        add_self_loops=loops and not sparse,
        of_matrix=_with_loops if loops else None,
    )

    def function(g: Tensor) -> Tensor:
        out: Tensor = adj @ conv.lin(g)
        return out if conv.bias is None else out + conv.bias

    return ConvAnalysis(
        adj,
        function,
        lambda of_adj: of_adj * exact_norm(conv.lin.weight),
        conv.lin.weight.t() if conv.bias is None else None,
    )


def _sage(conv: Any, weighted: bool, sparse: bool, adjacency: Callable[..., Adjacency]) -> ConvAnalysis | None:
    if weighted or conv.aggr not in ("mean", "add", "sum") or conv.project or conv.normalize:
        return None
    mean = conv.aggr == "mean"
    adj = adjacency(
        normalize="row" if mean and not sparse else None,
        add_self_loops=False,
        of_matrix=_by_count if mean else None,
    )
    return _neighbours_and_self(adj, conv.lin_l, conv.lin_r if conv.root_weight else None)


def _graph_conv(
    conv: Any, weighted: bool, sparse: bool, adjacency: Callable[..., Adjacency]
) -> ConvAnalysis | None:
    if conv.aggr not in ("add", "sum"):
        return None
    return _neighbours_and_self(adjacency(normalize=None, add_self_loops=False), conv.lin_rel, conv.lin_root)


# In a sparse matrix PyG's layers see something else than in the same edges one by one.
def _with_loops(matrix: Tensor) -> Tensor:
    """One more on the diagonal, also where there is a self-loop already."""
    looped: Tensor = add_self_loops(_as_csr(matrix), fill_value=1.0)[0]
    return looped


def _by_count(matrix: Tensor) -> Tensor:
    """Divided by the number of entries of a row, whatever their weights."""
    matrix = _as_csr(matrix)
    count = matrix.crow_indices().diff()
    divided: Tensor = set_sparse_value(matrix, matrix.values() / count.repeat_interleave(count))
    return divided


def _as_csr(matrix: Tensor) -> Tensor:
    if matrix.layout == torch.sparse_coo:  # made anew: PyG calls every such matrix sorted, which it may not be
        matrix = torch.sparse_coo_tensor(matrix._indices(), matrix._values(), matrix.shape)
    return matrix.to_sparse_csr()


def _neighbours_and_self(adj: Adjacency, neighbours: Any, own: Any) -> ConvAnalysis:
    def function(g: Tensor) -> Tensor:
        out: Tensor = neighbours(adj @ g)
        return out if own is None else out + own(g)

    def lipschitz(of_adj: float) -> float:
        return of_adj * exact_norm(neighbours.weight) + (0.0 if own is None else exact_norm(own.weight))

    return ConvAnalysis(adj, function, lipschitz)


def _gin(conv: Any, weighted: bool, sparse: bool, adjacency: Callable[..., Adjacency]) -> ConvAnalysis | None:
    if weighted or conv.aggr not in ("add", "sum"):
        return None
    adj = adjacency(normalize=None, add_self_loops=False)

    def function(g: Tensor) -> Tensor:
        out: Tensor = conv.nn(torch.addcmul(adj @ g, g, 1 + conv.eps))
        return out

    def lipschitz(of_adj: float) -> float | None:
        inner = lipschitz_of(conv.nn)
        return None if inner is None else (abs(1 + float(conv.eps.detach())) + of_adj) * inner

    return ConvAnalysis(adj, function, lipschitz)


_KNOWN: dict[type, Callable[[Any, bool, bool, Callable[..., Adjacency]], ConvAnalysis | None]] = {
    GCNConv: _gcn,
    SAGEConv: _sage,
    GraphConv: _graph_conv,
    GINConv: _gin,
}


def lipschitz_of(module: torch.nn.Module) -> float | None:
    """An upper bound for a chain of linear maps and gentle activations; ``None`` for anything else."""
    if isinstance(module, GENTLE):
        return 1.0
    if isinstance(module, torch.nn.LeakyReLU):
        return max(1.0, abs(module.negative_slope))
    if isinstance(module, torch.nn.ELU):
        return max(1.0, abs(module.alpha))
    if isinstance(module, torch.nn.Dropout):
        return 1 / (1 - module.p) if module.training and module.p < 1 else 1.0
    if type(module).__name__ == "Linear" and isinstance(getattr(module, "weight", None), Tensor):
        return exact_norm(module.weight)  # type: ignore[arg-type]
    if type(module) is torch.nn.Sequential:
        parts = list(module)
    elif type(module) is MLP and _is_plain(module):
        mlp: Any = module
        parts = [*mlp.lins, *[mlp.act or torch.nn.Identity()] * len(mlp.lins)]
    else:
        return None
    bounds = [lipschitz_of(part) for part in parts]
    return None if None in bounds else math.prod(bound for bound in bounds if bound is not None)


def _is_plain(mlp: Any) -> bool:
    """Linear maps with the identity or ReLU-like activations between them: no norm, no dropout in training."""
    dropout = mlp.training and any(rate > 0 for rate in mlp.dropout)
    return not dropout and all(isinstance(norm, torch.nn.Identity) for norm in mlp.norms)


def exact_norm(weight: Tensor) -> float:
    """‖W‖₂, rounded up."""
    return float(torch.linalg.matrix_norm(weight.detach().double(), ord=2)) * ROUNDING


def matrices_of(conv: torch.nn.Module) -> list[Tensor]:
    """Every matrix among the parameters."""
    # Vectors of attention, (1, heads, channels), turn messages rather than enlarge them.
    weights = [p.detach() for p in conv.parameters() if p.dim() >= 2 and not (p.dim() == 3 and p.size(0) == 1)]
    stacks = [p.reshape(-1, *p.shape[-2:]) for p in weights if min(p.shape[-2:]) > 1]
    return [matrix for stack in stacks for matrix in stack]
