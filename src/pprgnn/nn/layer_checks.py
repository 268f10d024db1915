"""What a layer refuses, in one sentence each: once, at the border."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.entries import as_edges, check_weight

if TYPE_CHECKING:
    from pprgnn.nn.ppr_conv import PPRConv


def check_options(
    layer: PPRConv, out_channels: int, aggr: Any, normalize: Any, add_self_loops: bool | None
) -> None:
    """Raise for options of :class:`pprgnn.nn.PPRConv` that make no sense."""
    name = type(layer).__name__
    if aggr not in ("add", "sum"):
        raise ValueError(f"'{name}' adds messages up, but aggr={aggr!r} was given.")
    if out_channels < 1:
        raise ValueError(f"out_channels must be >= 1, but came as {out_channels}.")
    if normalize not in (True, False, "sym", "row"):
        raise ValueError(f"normalize must be True, False, 'sym' or 'row', but came as {normalize!r}.")
    if add_self_loops and not normalize:
        raise ValueError(
            f"'{name}' does not add self-loops without normalisation; set add_self_loops=False or normalize=True."
        )


def check_weight_options(weight_init: Any, weight_scale: Any) -> None:
    """Raise unless W can start so."""
    multiple = isinstance(weight_init, int | float) and math.isfinite(weight_init)
    if not multiple and weight_init not in ("glorot", "identity"):
        raise ValueError(f"weight_init must be 'glorot', 'identity' or a number, but came as {weight_init!r}.")
    if not (isinstance(weight_scale, int | float) and 0 < weight_scale < math.inf):
        raise ValueError(f"weight_scale must be a finite number > 0, but came as {weight_scale!r}.")


def check_output_scale(output_scale: Any) -> None:
    """Raise unless it is a factor."""
    number = isinstance(output_scale, int | float) and math.isfinite(output_scale) and output_scale != 0
    if not number and output_scale != "mean":
        raise ValueError(
            f"output_scale must be 'mean' or a finite number other than 0, but came as {output_scale!r}."
        )


def check_input(layer: PPRConv, x: Any) -> Tensor:
    """Return ``x`` if there is a row of features for each node, or say what is wrong."""
    x = one_set_of_nodes(type(layer).__name__, x)
    check_numbers(type(layer).__name__, x)
    if x.dim() not in (2, 3):
        raise ValueError(
            f"x must have shape (num_nodes, in_channels), or (batch, num_nodes, in_channels) for one graph "
            f"with several sets of features, but has shape {tuple(x.shape)}."
        )
    if layer.in_channels is None and x.size(-1) != layer.out_channels:
        raise ValueError(
            f"x must have {layer.out_channels} columns, because this layer has no linear map for its input, "
            f"but has {x.size(-1)}; give in_channels={x.size(-1)} to have one."
        )
    found: Tensor = x
    return found


def one_set_of_nodes(layer: str, x: Any) -> Any:
    """Return ``x``; of a pair of the same tensor, as PyG's tools for heterogeneous graphs pass it, that tensor."""
    if torch._C._get_tracing_state() is not None:
        raise ValueError(
            f"torch.jit.trace (and torch.onnx.export with dynamo=False) cannot follow '{layer}'; use "
            f"torch.export, or torch.onnx.export(..., dynamo=True)."
        )
    numbers = isinstance(x, list) and not any(isinstance(each, Tensor) for each in x)
    if numbers or not isinstance(x, (tuple, list)):
        return x
    if len(x) == 2 and x[0] is x[1]:
        return x[0]
    raise ValueError(
        f"'{layer}' received a tuple of node features, but a recursion needs the same nodes on both sides; use "
        f"'SAGEConv' or 'GraphConv' for bipartite graphs."
    )


def check_numbers(layer: str, x: Any) -> None:
    """Raise unless there are numbers to compute with: how deep a layer goes depends on them."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"x must be a tensor of shape (num_nodes, channels), but came as {type(x).__name__}; convert it with "
            f"torch.as_tensor(x)."
        )
    if not x.is_floating_point():
        raise ValueError(f"x must hold floating-point numbers, but has dtype {x.dtype}; use x.float().")
    if x.is_meta:
        raise ValueError(
            f"'{layer}' computes with numbers, but x is on the meta device and has none; pass real features (the "
            f"output has a row for each of x)."
        )


def check_edges(layer: PPRConv, edge_index: Any, edge_weight: Tensor | None, num_nodes: int) -> Any:
    """The edges as a plain tensor, unless they are a matrix; what cannot be a graph is refused."""
    check_weight(edge_weight)
    learned = [each for each in (edge_index, edge_weight) if isinstance(each, Tensor) and each.requires_grad]
    if layer.cached and learned:
        raise ValueError(
            "cached=True keeps the edge weights of the first call, so that they cannot be learned; use "
            "cached=False."
        )
    if isinstance(edge_index, Adjacency | SparseTensor) or is_torch_sparse_tensor(edge_index):
        return edge_index
    if isinstance(edge_index, EdgeIndex) and not {*edge_index.sparse_size()} <= {num_nodes, None}:
        raise ValueError(
            f"The EdgeIndex must be made for the {num_nodes} rows of x, but its sparse_size is "
            f"{edge_index.sparse_size()}."
        )
    return as_edges(edge_index)


def as_rates(eps: float | Sequence[float] | Tensor, channels: int | None) -> tuple[float, ...]:
    """Check one rate, or several to be shared out among ``channels``, and return them as numbers."""
    values: Any = eps.tolist() if hasattr(eps, "tolist") else eps  # tensors and NumPy arrays
    several = isinstance(values, Iterable) and not isinstance(values, str)
    rates = tuple(float(rate) for rate in values) if several else (float(values),)
    if not rates:
        raise ValueError("eps must be a rate or several, but came as an empty list; try eps=0.25.")
    single = torch.tensor(rates, dtype=torch.float32, device="cpu").tolist()
    if not all(0.0 < rate < math.inf for rate in single):  # also refuses NaN
        raise ValueError(
            f"eps must be positive and finite, but came as {eps} (in float32 {single}); the smaller eps, the "
            f"farther messages travel (try 0.05 to 1)."
        )
    if channels is None and len(rates) > 1:
        raise ValueError("Several rates are shared out among channels; give channels=... to say how many.")
    if channels is not None and len(rates) > channels:
        raise ValueError(
            f"eps must not have more rates than there are channels to share out, but has {len(rates)} for "
            f"{channels} channels; give fewer rates or more channels."
        )
    return rates
