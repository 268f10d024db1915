"""Over-smoothing: how alike states become with depth, beside propagation without weights."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.nn.infinite_layer import infinite_layers
from pprgnn.report.measured.budget import Allowance
from pprgnn.report.measured.results import Missing, Smoothing, SmoothingLine
from pprgnn.report.measured.trained_run import TrainedRun
from pprgnn.training.depths import at_depths

DEPTHS = (0, 1, 2, 4, 8, 16, 32, 64, 128)
ALPHA = 0.1  # of APPNP
AT_ONCE = 1 << 22  # numbers in double precision
FEWEST = 3


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
