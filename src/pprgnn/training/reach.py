"""What can reach a node: how many hops away others are, and what layers can do to their rows, at most.

The bounds are for proofs that rows far away do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pprgnn.core.csr import sort_entries
from pprgnn.core.depth import Fixed
from pprgnn.local.neighbourhood import LayerBounds, NotWorthwhile
from pprgnn.nn.network import Network
from pprgnn.nn.ppr_conv import PPRConv
from pprgnn.nn.stacked import NodeNet
from pprgnn.nn.task_nets import CoPurchaseNet, LabelNet, PPINet


class Readers:
    """Who reads whom, sorted once, for questions about many nodes.

    Attributes:
        crow, col: in CSR; row i has the nodes that i reads.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        from scipy.sparse import csr_array

        source, target = edge_index.cpu()
        self.crow, self.col, _ = sort_entries(target, source, num_nodes)
        ones = np.ones(len(self.col))
        self._graph = csr_array((ones, self.col.numpy(), self.crow.numpy()), shape=(num_nodes, num_nodes))

    def around(self, node: int) -> tuple[Tensor, Tensor]:
        """The length of the shortest path from every node to ``node``, -1: there is none; and its next stop."""
        from scipy.sparse.csgraph import breadth_first_order

        order, before = breadth_first_order(self._graph, node, directed=True, return_predecessors=True)
        num_nodes = len(before)
        place: NDArray[np.int64] = np.empty(num_nodes, dtype=np.int64)
        place[order] = np.arange(len(order))
        # Nodes come in the order in which they were found, so the places of those that found them never fall, and
        # each hop is one range of places.
        found_by = place[before[order[1:]]]
        distance: NDArray[np.int64] = np.full(num_nodes, -1, dtype=np.int64)
        start, end, hop = 0, 1, 0
        while start < end:
            distance[order[start:end]] = hop
            start, end, hop = end, 1 + int(np.searchsorted(found_by, end)), hop + 1
        return torch.from_numpy(distance), torch.from_numpy(before)


def hops_to(edge_index: Tensor, num_nodes: int, node: int) -> Tensor:
    """The length of the shortest path from every node to ``node``; -1 where there is none."""
    return Readers(edge_index, num_nodes).around(node)[0]


@dataclass(frozen=True)
class Stage:
    """One infinite-depth layer and what comes behind it, row by row, up to the next one.

    Its state is f(G) + skip(X), with ‖f(G)‖ <= min(slope ‖G‖, ceiling) + offset.
    """

    conv: PPRConv
    bounds: LayerBounds  # what its recursion can do to rows
    lin: float  # ‖Ω‖₂
    bias: float  # the norm of the bias
    slope: float = 1.0
    offset: float = 0.0
    ceiling: float = float("inf")
    skip: float = 0.0  # slope and offset of the way around the layer; 0 without one
    skip_offset: float = 0.0
    slope_before: float = 1.0  # the slope of the stage before
    seen: bool = False  # whether the head reads the state before this stage, too


def stages(network: Network) -> list[Stage]:
    """The layers of a network from the first to the last; refuses networks about which too little is known."""
    if isinstance(network, CoPurchaseNet | LabelNet):
        return [_stage(network.conv)]
    if isinstance(network, PPINet):
        skips = [(norm_of(skip.weight), norm_of(skip.bias)) for skip in network.skips]
        return [
            _stage(conv, skip=skip, skip_offset=offset)
            for conv, (skip, offset) in zip(network.convs, skips, strict=True)
        ]
    if not isinstance(network, NodeNet):
        raise NotWorthwhile(f"no bound is known for {type(network).__name__}")
    found: list[Stage] = []
    for i, (conv, norm) in enumerate(zip(network.convs, network.norms, strict=True)):
        skip = network.skips[i] if network.residual else None
        around = 0.0 if skip is None else norm_of(skip.weight) if isinstance(skip, torch.nn.Linear) else 1.0
        slope = found[-1].slope if found else 1.0
        seen = bool(found) and network.jk in ("cat", "max")
        found.append(_stage(conv, **_norm_facts(norm), skip=around, slope_before=slope, seen=seen))
    return found


def _stage(conv: Any, **facts: Any) -> Stage:
    if type(conv) is not PPRConv:
        raise NotWorthwhile(f"no bound is known for {type(conv).__name__}")
    if not conv.output_activation or conv.output_scale is not None:
        raise NotWorthwhile("no bound is known for layers with another output than the published one")
    depth = conv.depth_rule.k if isinstance(conv.depth_rule, Fixed) else None
    bounds = LayerBounds.of(conv.recurrent_weight(), conv.eps, conv.activation, conv.max_depth, depth)
    lin = 1.0 if conv.in_channels is None else norm_of(conv.lin.weight)
    return Stage(conv, bounds, lin, norm_of(conv.bias), **facts)


def _norm_facts(norm: torch.nn.Module) -> dict[str, float]:
    if isinstance(norm, torch.nn.Identity):
        return {}
    if isinstance(norm, torch.nn.BatchNorm1d) and norm.running_mean is not None and norm.running_var is not None:
        scale = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
        return {"slope": float(scale.abs().max()), "offset": norm_of(norm.bias - norm.running_mean * scale)}
    if isinstance(norm, torch.nn.LayerNorm):  # its derivative is at most 1/√(variance + eps)
        largest = float(norm.weight.detach().abs().max())
        channels = norm.weight.numel()
        return {
            "slope": largest * norm.eps**-0.5,
            "offset": norm_of(norm.bias),
            "ceiling": largest * channels**0.5,
        }
    raise NotWorthwhile(f"{type(norm).__name__} mixes the rows of all nodes")


def norm_of(tensor: Any) -> float:
    """‖·‖₂ of a matrix or vector, rounded up; 0 for none."""
    if tensor is None:
        return 0.0
    matrix = tensor.detach().reshape(-1, tensor.size(-1))
    return float(torch.linalg.matrix_norm(matrix, ord=2)) * (1 + 1e-5)
