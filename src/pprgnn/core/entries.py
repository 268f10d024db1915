"""From the edges of a graph to the entries of Ã: checked, sorted, added up, with self-loops, normalised.

And from what was stored of an Ã before, at the end.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from pprgnn.core.csr import index_dtype, move, rows, sort_entries

Normalization = Literal["sym", "row"] | None


def as_edges(edge_index: Any) -> Tensor:
    """``edge_index`` as a plain tensor; anything that is none is refused with the way to make it one."""
    if hasattr(edge_index, "as_tensor"):  # PyG's EdgeIndex: the tensor is inside, its own memory is nowhere
        edge_index = edge_index.as_tensor()
    if not isinstance(edge_index, Tensor):
        remedy = "convert it with torch.as_tensor(edge_index)"
        if edge_index is None:
            remedy = "a graph without edges is torch.empty(2, 0, dtype=torch.long)"
        elif hasattr(edge_index, "tocoo"):
            remedy = "build Adjacency.from_scipy(matrix) and pass that instead"
        raise TypeError(
            f"edge_index must be a tensor of shape (2, num_edges), but came as {type(edge_index).__name__}; "
            f"{remedy}."
        )
    if edge_index.layout != torch.strided:
        raise ValueError(
            f"edge_index must be a tensor of shape (2, num_edges), but has layout {edge_index.layout}; build an "
            f"adjacency of it with Adjacency.from_torch(adj_t)."
        )
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(
            f"edge_index must have shape (2, num_edges), but has shape {tuple(edge_index.shape)}; "
            f"transpose a table of pairs with edge_index.t()."
        )
    if edge_index.is_floating_point() or edge_index.dtype == torch.bool:
        raise ValueError(f"edge_index must hold integers, but has dtype {edge_index.dtype}.")
    return edge_index


def check_weight(edge_weight: object) -> None:
    """Raise for weights that are no tensor."""
    if edge_weight is not None and not isinstance(edge_weight, Tensor):
        raise TypeError(
            f"edge_weight must be a tensor with one number per edge, but came as {type(edge_weight).__name__}; "
            f"convert it with torch.as_tensor(edge_weight)."
        )


def check_memory(tensor: Tensor, name: str) -> None:
    """Raise for a tensor without numbers that can be read: compiled code would read at address 0."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    if not wrapped and type(tensor) in (Tensor, torch.nn.Parameter) and not tensor.is_meta:
        return
    try:
        storage = None if wrapped else tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        storage = None
    if storage is None or storage.device.type == "meta" or (storage.data_ptr() == 0 and tensor.numel()):
        raise ValueError(
            f"{name} must hold numbers in memory, but is a {type(tensor).__name__} on {tensor.device} without any "
            f"(from the meta device, a trial run of a compiler or a transform of torch.func); build the adjacency "
            f"of plain tensors, outside."
        )


def check_entries(
    row: Tensor,
    col: Tensor,
    weight: Tensor | None,
    num_nodes: int,
    normalize: Normalization,
    dtype: torch.dtype | None,
) -> Tensor:
    """Everything that can be wrong with a graph, in one sentence each; returns the weights as floats."""
    if normalize not in ("sym", "row", None):
        raise ValueError(f"normalize must be 'sym', 'row' or None, but came as {normalize!r}.")
    check_weight(weight)
    for name, tensor in (("edge_index", row), ("edge_index", col), ("edge_weight", weight)):
        if tensor is not None:
            check_memory(tensor, name)
    if num_nodes < 1 and not row.numel():
        raise ValueError("The graph has no nodes; pass num_nodes >= 1 (edges may be absent, nodes may not).")
    if row.numel():
        lows, highs = zip(torch.aminmax(row), torch.aminmax(col), strict=True)
        low, high = int(min(lows)), int(max(highs))
        if low < 0 or high >= num_nodes:
            remedy = "renumber the nodes" if low < 0 else f"renumber the nodes or pass num_nodes={high + 1}"
            raise ValueError(
                f"Node ids must be in 0 ... {max(num_nodes, 1) - 1}, but the edges name nodes {low} to {high}; "
                f"{remedy}."
            )
    if weight is None:
        one = torch.ones(1, dtype=dtype or torch.get_default_dtype(), device=row.device)
        return one.expand(row.numel())
    if weight.dim() == 2 and weight.size(1) == 1:
        weight = weight.squeeze(1)
    if weight.shape != row.shape:
        raise ValueError(
            f"edge_weight must hold one number per edge, shape ({row.numel()},), but has shape "
            f"{tuple(weight.shape)}."
        )
    weight = weight.to(dtype or (weight.dtype if weight.is_floating_point() else torch.get_default_dtype()))
    if not bool(torch.isfinite(weight).all()):
        bad = int((~torch.isfinite(weight)).nonzero()[0])
        raise ValueError(
            f"Edge weights must be finite, but edge {bad} has weight {float(weight[bad])}; "
            f"drop such edges or replace their weight."
        )
    return weight


def coalesce(row: Tensor, col: Tensor, weight: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """``crow``, ``col`` and weights, sorted by (row, col); edges that occur more than once are added up."""
    crow, col, source = sort_entries(row, col, num_nodes)
    weight = move(weight, source)
    del source
    first = torch.ones(col.numel() + 1, dtype=torch.bool, device=col.device)
    torch.ne(col[1:], col[:-1], out=first[1:-1])
    first[crow] = True  # starts of rows, and the end, so that crow can be looked up in what follows
    if not bool(first.all()):
        slot = first.cumsum(0, dtype=crow.dtype).sub_(1)
        weight = weight.new_zeros(int(slot[-1])).index_add(0, slot[:-1], weight)
        crow = slot[crow]
        del slot
        col = col[first[:-1]]
    return crow, col, weight


def fill_diagonal(crow: Tensor, col: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Give every node without a self-loop one of weight 1."""
    row, num_nodes = rows(crow), crow.numel() - 1
    has_loop = torch.zeros(num_nodes, dtype=torch.bool, device=row.device)
    has_loop[row[row == col]] = True
    lonely = (~has_loop).nonzero().squeeze(1).to(row.dtype)
    row, col = torch.cat([row, lonely]), torch.cat([col, lonely])
    return coalesce(row, col, torch.cat([weight, weight.new_ones(lonely.numel())]), num_nodes)


def normalize_weights(
    crow: Tensor, col: Tensor, weight: Tensor, normalize: Normalization, order: Tensor | None
) -> Tensor:
    """D^-1/2 A D^-1/2, D^-1 A or A itself, entry by entry; D holds the row sums, as in PyG.

    ``order`` says which nodes the rows stand for, if not their own numbers.
    """
    if normalize is None:
        return weight.contiguous()
    row = rows(crow)
    degree = _degrees(crow, row, weight)
    if bool((degree < 0).any()):
        node = int(degree.argmin())
        named = node if order is None else int(order[node])
        raise ValueError(
            f"Normalisation needs degrees >= 0, but the weights of the edges into node {named} add up to "
            f"{float(degree[node]):g}; use non-negative weights, or no normalisation "
            f"(normalize=None; in a layer, False)."
        )
    connected = degree > 0
    safe = torch.where(connected, degree, 1.0)  # no division by zero, neither here nor in the gradient
    if normalize == "row":
        return weight * torch.where(connected, 1.0 / safe, 0.0).to(weight.dtype).index_select(0, row)
    scale = torch.where(connected, safe.rsqrt(), 0.0).to(weight.dtype)
    cut = 0 if bool(connected.all()) else int((~connected[col]).sum())
    if cut:
        warnings.warn(
            f"Symmetric normalisation gives weight 0 to {cut} of {row.numel()} edges, because they start at "
            f"nodes that no edge points to; use add_self_loops=True or normalize='row' to keep them.",
            UserWarning,
            stacklevel=4,
        )
    both = scale.index_select(0, row) * scale.index_select(0, col)  # first: symmetric to the last bit
    return weight * both


def _degrees(crow: Tensor, row: Tensor, weight: Tensor) -> Tensor:
    """Sums of the rows in double precision: the norm bound of what is divided by them relies on it."""
    if weight.stride() == (0,) and not weight.requires_grad:  # all the same, so that counting is enough
        return crow.diff() * weight[:1].sum().double()
    return weight.new_zeros(crow.numel() - 1, dtype=torch.float64).index_add(0, row, weight.double())


# ------------------------------------------------------------------------------------------- what can be stored
NORMALIZATIONS: dict[str, Normalization] = {"sym": "sym", "row": "row", "none": None}
TRUTH = {"yes": True, "no": False}


def read_facts(text: Mapping[str, str]) -> tuple[int, Normalization, bool, float | None]:
    """Number of nodes, normalisation, whether it is symmetric, and the bound of its norm, if that is known."""
    try:
        bound = float(text["norm_bound"]) if "norm_bound" in text else None
        facts = int(text["num_nodes"]), NORMALIZATIONS[text["normalize"]], TRUTH[text["symmetric"]], bound
    except (KeyError, ValueError) as error:
        raise _wrong(f"its facts are {dict(text)}") from error
    if bound is not None and not 0 <= bound < math.inf:
        raise _wrong(f"norm_bound is {bound}")
    return facts


def check_tensors(tensors: Mapping[str, Tensor], num_nodes: int) -> None:
    """Raise unless names, types, lengths and every index fit: compiled code goes where they point."""
    names = sorted(tensors)
    if names not in (["col", "crow", "value"], ["col", "crow", "order", "rank", "value"]):
        raise _wrong(f"its tensors are {', '.join(names) or 'missing'}")
    count = tensors["col"].numel()
    index = index_dtype(num_nodes, count)
    lengths = {"crow": num_nodes + 1, "col": count, "value": count, "order": num_nodes, "rank": num_nodes}
    for name, tensor in tensors.items():
        if tensor.shape != (lengths[name],):
            raise _wrong(f"{name} has shape {tuple(tensor.shape)} instead of ({lengths[name]},)")
        if not tensor.is_contiguous():
            raise _wrong(f"{name} is not contiguous")
        expected = torch.int64 if name in ("order", "rank") else index
        if not (tensor.is_floating_point() if name == "value" else tensor.dtype == expected):
            raise _wrong(f"{name} has dtype {tensor.dtype}")
    crow = tensors["crow"]
    if int(crow[0]) != 0 or int(crow[-1]) != count:
        raise _wrong(f"crow runs from {int(crow[0])} to {int(crow[-1])} instead of 0 to {count}")
    if bool((crow[1:] < crow[:-1]).any()):
        raise _wrong("crow decreases")
    for name in sorted({"col", "order", "rank"} & tensors.keys()):
        least, most = (int(each) for each in torch.aminmax(tensors[name])) if tensors[name].numel() else (0, -1)
        if least < 0 or most >= num_nodes:
            raise _wrong(f"{name} has {least if least < 0 else most}, which is no node of {num_nodes}")
    if "order" in tensors:
        nodes = torch.arange(num_nodes, device=crow.device)
        if not torch.equal(tensors["rank"][tensors["order"]], nodes):
            raise _wrong("rank does not undo order")


def _wrong(what: str) -> ValueError:
    return ValueError(f"This is not the state of an Adjacency, because {what}; store it again from the edges.")
