"""From how far away decisions come, beside what follows from the graph alone for other systems."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency, times
from pprgnn.report.measured.budget import Allowance
from pprgnn.report.measured.results import Missing, Reach, ReachLine
from pprgnn.report.measured.trained_run import TrainedRun
from pprgnn.training.attribution import attribute
from pprgnn.training.errors import TrainingError
from pprgnn.training.explain_features import drawn_rows
from pprgnn.training.model import at_depths
from pprgnn.training.reach import hops_to

NODES = 32
NEARLY_ALL, AT_LEAST, FARTHEST = 0.99, 8, 30  # shown are hops with so much of our share, and at least and at most
HOPS = 100  # that are told apart while counting
RATE, FADED = 0.9, 1e-5  # of IGNN, and when its series is cut off


def reach(trained: TrainedRun, allowance: Allowance) -> Reach | Missing:
    """The mean over some nodes of the share of influence by hop."""
    system = trained.system
    if trained.model.facts.task != "node":
        return Missing("Labels are of whole graphs, so there is no node from which to count hops.")
    if not system.whole_gradient:
        return Missing(f"There is no gradient from the logits of {system.title} back to all nodes.")
    if not allowance.allows(trained.pass_seconds):
        return allowance.too_long("From how far away decisions come", trained.pass_seconds)
    try:
        ours, others, counts = _measured(trained, allowance)
    except TrainingError as error:
        return Missing(str(error))
    if not ours:
        return Missing("No input of a node has any influence on the decisions that were looked at; biases decide.")
    mean = torch.stack(ours).mean(0)
    enough = (mean.cumsum(0) >= NEARLY_ALL).nonzero().flatten()
    farthest = int(torch.stack(counts).sum(0).nonzero().max())
    last = min(max(int(enough[0]) if len(enough) else FARTHEST, AT_LEAST), farthest, FARTHEST)

    def shares(of_nodes: list[Tensor]) -> list[float]:
        found = torch.stack(of_nodes).mean(0)
        kept: list[float] = torch.cat([found[:last], found[last:].sum()[None]]).tolist()
        return kept

    lines = [ReachLine(name, shares(of_nodes), measured=False) for name, of_nodes in others.items()]
    return Reach(
        hops=list(range(last + 1)),
        lines=[ReachLine(system.title, shares(ours), measured=True), *lines],
        nodes=len(ours),
        nodes_by_hop=shares(counts),
    )


def _measured(
    trained: TrainedRun, allowance: Allowance
) -> tuple[list[Tensor], dict[str, list[Tensor]], list[Tensor]]:
    """By hop, for each node: shares of the trained network, shares by the graph alone, numbers of nodes."""
    ours, counts = list[Tensor](), list[Tensor]()
    others: dict[str, list[Tensor]] = {name: [] for name in WEIGHTLESS}
    depths = [(solve.layer, solve.depth) for solve in trained.solves] if len(trained.batches.sizes) == 1 else []
    seconds = trained.pass_seconds
    for graph, nodes in drawn_rows(trained.batches, trained.masks[trained.part], NODES).items():
        batch = trained.batches.batch(torch.tensor([graph], device=trained.model.device))
        edges, size = trained.dataset[graph].edge_index, int(trained.batches.sizes[graph])
        distances, shares = list[tuple[int, Tensor]](), list[Tensor]()
        for node in nodes:
            if (ours or shares) and not allowance.allows(1.5 * seconds):  # the others need some time, too
                break
            started = time.perf_counter()
            with at_depths(depths):
                influence = attribute(trained.model, batch, node, None, None).nodes.abs()
            distance = hops_to(edges, size, node)
            seconds = time.perf_counter() - started
            if float(influence.sum()) > 0:
                distances.append((node, distance))
                shares.append(_by_hop(influence, distance))
                counts.append(torch.bincount(distance[distance >= 0].clamp(max=HOPS), minlength=HOPS + 1).double())
        ours += shares
        if distances:
            adj = trained.usual_adjacency([graph], undirected=False)
            rows = torch.zeros(size, len(distances), dtype=adj.dtype, device=adj.device)
            rows[[node for node, _ in distances], range(len(distances))] = 1.0
            for name, factors in WEIGHTLESS.items():
                columns = influences(factors, adj, rows).abs().double().cpu().unbind(1)
                others[name] += [_by_hop(each, far) for each, (_, far) in zip(columns, distances, strict=True)]
    return ours, others, counts


def _by_hop(influence: Tensor, distance: Tensor) -> Tensor:
    """Shares by hop; what has no path counts as farthest."""
    hops = torch.where(distance < 0, HOPS, distance).clamp(max=HOPS)
    found = torch.zeros(HOPS + 1, dtype=torch.float64).index_add_(0, hops, influence.double())
    return found / found.sum()


# ---------------------------------------------------------------------------------------- from the graph alone
def _ignn() -> list[float]:
    factors = [1.0]
    while factors[-1] > FADED:
        factors.append(RATE * factors[-1])
    return factors


# Without weights, each of these is Σ of factor · Ãⁱ.
WEIGHTLESS: dict[str, list[float]] = {
    "GCN, 2 layers": [0.0] * 2 + [1.0],
    "GCN, 8 layers": [0.0] * 8 + [1.0],
    "APPNP (α = 0.1, 10 steps)": [0.1 * 0.9**i for i in range(10)] + [0.9**10],
    "IGNN (fixed point, rate 0.9)": _ignn(),
}


def influences(factors: Sequence[float], adj: Adjacency, rows: Tensor) -> Tensor:
    """Of all nodes on these, which are columns of ones: rows of the series, as columns."""
    total = factors[0] * rows
    for factor in factors[1:]:
        rows = times(adj, rows, transposed=True)
        total += factor * rows
    return total
