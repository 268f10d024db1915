"""From how far away decisions come and how alike states become, beside what follows from the graph alone."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency, times
from pprgnn.nn.infinite_layer import infinite_layers
from pprgnn.report.measured.results import Missing, Reach, ReachLine, Smoothing, SmoothingLine
from pprgnn.report.measured.trained_run import Allowance, TrainedRun
from pprgnn.training.attribution import attribute
from pprgnn.training.errors import TrainingError
from pprgnn.training.explain_features import drawn_rows
from pprgnn.training.model import at_depths
from pprgnn.training.reach import hops_to

NODES = 32
NEARLY_ALL, AT_LEAST, FARTHEST = 0.99, 8, 30  # shown are hops with so much of our share, and at least and at most
HOPS = 100  # that are told apart while counting
RATE, FADED = 0.9, 1e-5  # of IGNN, and when its series is cut off
DEPTHS = (0, 1, 2, 4, 8, 16, 32, 64, 128)
ALPHA = 0.1  # of APPNP
AT_ONCE = 1 << 22  # numbers in double precision
FEWEST = 3


# ----------------------------------------------------------------------------------------------------------- reach
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
# Without weights, each of these is Σ of factor · Ãⁱ.
WEIGHTLESS: dict[str, list[float]] = {
    "GCN, 2 layers": [0.0] * 2 + [1.0],
    "GCN, 8 layers": [0.0] * 8 + [1.0],
    "APPNP (α = 0.1, 10 steps)": [0.1 * 0.9**i for i in range(10)] + [0.9**10],
    "IGNN (fixed point, rate 0.9)": [RATE**i for i in range(math.ceil(math.log(FADED, RATE)) + 1)],
}


def influences(factors: Sequence[float], adj: Adjacency, rows: Tensor) -> Tensor:
    """Of all nodes on these, which are columns of ones: rows of the series, as columns."""
    total = factors[0] * rows
    for factor in factors[1:]:
        rows = times(adj, rows, transposed=True)
        total += factor * rows
    return total


# -------------------------------------------------------------------------------------------------- over-smoothing
def smoothing(trained: TrainedRun, allowance: Allowance) -> Smoothing | Missing:
    """Energy and distance of states at growing depth."""
    network, few = trained.model.network, trained.few
    layers = [layer for _, layer in infinite_layers(network)]
    if not layers:
        return trained.without_recursion()
    if not allowance.allows(2 * trained.pass_seconds):
        return allowance.too_long("States at growing depth", 2 * trained.pass_seconds)
    adj = trained.usual_adjacency(trained.graphs, undirected=True)
    exact, x = adj.to(torch.float64), trained.input.to(adj.dtype)
    names = (trained.system.title, "SGC: propagation without weights", f"APPNP (α = {ALPHA:g})")
    found: list[list[tuple[float, float]]] = [[] for _ in names]
    depths, level, sgc, appnp = list[int](), 0, x, x
    with trained.model.precise(), torch.no_grad():
        for depth in DEPTHS:
            started = time.perf_counter()
            with at_depths((layer, depth) for layer in layers):
                ours = network.encode(few.x, few.edges, few.edge_weight)
            for _ in range(level, depth):
                sgc, appnp = adj @ sgc, (adj @ appnp).mul_(1 - ALPHA).add_(x, alpha=ALPHA)
            level = depth
            if not bool(torch.isfinite(ours).all()):
                break
            depths.append(depth)
            for values, state in zip(found, (ours, sgc, appnp), strict=True):
                values.append((energy(exact, state), mean_distance(state)))
            if len(depths) >= FEWEST and not allowance.allows(2 * (time.perf_counter() - started)):
                break
    if not depths:
        return Missing("The states of this network overflow.")
    lines = [
        SmoothingLine(name, [e for e, _ in values], [d for _, d in values], measured=number == 0)
        for number, (name, values) in enumerate(zip(names, found, strict=True))
    ]
    return Smoothing(depths, lines)


def energy(adj: Adjacency, x: Tensor) -> float:
    """tr(Xᵀ(I - Ã)X) / ‖X‖², 0 for X = 0; ``adj`` in double precision, because the difference may be tiny."""
    total = size = 0.0
    for start in range(0, x.size(1), width := max(1, AT_ONCE // len(x))):
        part = x[:, start : start + width].double().contiguous()
        total += float((part * (part - adj @ part)).sum())
        size += float(part.square().sum())
    return max(total / size, 0.0) if size else 0.0


def mean_distance(x: Tensor) -> float:
    """The mean of 1 - cosine over all pairs of different rows; rows of 0 are left out.

    The cosines of all pairs, each row with itself included, add up to the square of the sum of the unit rows.
    """
    total, count = torch.zeros(x.size(1), dtype=torch.float64, device=x.device), 0
    for start in range(0, len(x), height := max(1, AT_ONCE // max(x.size(1), 1))):
        part = x[start : start + height].double()
        norm = torch.linalg.vector_norm(part, dim=1, keepdim=True)
        total += (part / torch.where(norm > 0, norm, 1.0)).sum(0)
        count += int((norm > 0).sum())
    if count < 2:
        return 0.0
    return max(1 - (float(total.square().sum()) - count) / (count * (count - 1)), 0.0)
