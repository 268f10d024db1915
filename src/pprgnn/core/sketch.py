"""How far the linear influence of B reaches, from a few random vectors instead of a pass."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from pprgnn.core.backend.buffers import acquire, release
from pprgnn.core.decay import decay

if TYPE_CHECKING:
    from pprgnn.core.problem import Problem

PROBES = 2  # random vectors of a sketch
HOPS_AT_ONCE = 16
MARGIN = 1e3  # how far an influence grows is an estimate


class Sketch(NamedTuple):
    """What a few random vectors tell of the linear influence of B: an estimate."""

    depth: int  # where it has faded
    growth: float  # the largest on the way, relative to B itself

    def decides(self, unit: float) -> bool:
        """Whether differences of ``unit`` may grow to the size of the state, and choose a branch of it."""
        return not self.growth * unit * MARGIN <= 1

    def beyond(self, max_depth: int, unit: float) -> bool:
        """Whether that holds of what lies beyond ``max_depth``: passes that agree then tell nothing."""
        return self.depth > max_depth and self.decides(unit)


def sketch_influence(problem: Problem, tol: float, max_depth: int) -> Sketch:
    """Where the linear influence of B has faded, from a sketch of it with a few random vectors.

    ‖∏βₙ Ãˡ |B| Wˡ‖ is estimated by ‖Rᵀ Ãˡ |B| Wˡ‖ with few random rows Rᵀ: a product with a thin matrix for each l
    instead of a pass. An estimate: φ may let more or less through.
    """
    adj = problem.adj
    scale = adj.max_abs(problem.b)
    if not scale:
        return Sketch(1, 0.0)
    bounds = problem.bounds()
    growing = max(bounds.rate - 1, 0.0) / bounds.eps  # so many levels can enlarge an influence, no more
    hops = min(bounds.depth(0.1 * tol, max_depth) or max_depth, int(1.5 * min(growing, max_depth)) + 16)
    inner = adj.permute(problem.b, out=None if adj.order is None else acquire(problem.b))
    size = inner.abs().div_(scale)
    if inner is not problem.b:
        release(inner)
    terms, logs = _probe(problem, size, hops)
    weight, rates = problem.weight.double(), problem.eps.double()
    rows, sizes = weight.new_zeros(0, weight.size(0)), weight.new_zeros(0)
    for hop in range(hops - 1, -1, -1):  # Horner: the farthest term is multiplied by W most often
        rows = torch.cat([rows, terms[hop]]) @ (weight * decay(hop, rates))
        factors = rows.view(-1, PROBES, rows.size(1)).abs().amax((1, 2)).clamp_(min=1e-300)
        rows /= factors.repeat_interleave(PROBES)[:, None]
        sizes = torch.cat([sizes, sizes.new_tensor([logs[hop]])]) + factors.log()
    sizes += rows.view(hops, -1).norm(dim=1).log() - math.log(adj.norm(size) * math.sqrt(PROBES))
    seen = (sizes.flip(0) > math.log(0.1 * tol)).nonzero()  # for l = 1, 2, ...
    return Sketch(int(seen[-1]) + 2 if len(seen) else 1, math.exp(min(float(sizes.max()), 700.0)))


def _probe(problem: Problem, size: Tensor, hops: int) -> tuple[list[Tensor], list[float]]:
    """Rᵀ Ãˡ |B| for l = 1, 2, ..., each with the log of a factor."""
    adj, generator = problem.adj, torch.Generator("cpu").manual_seed(0)
    # Not signs: on few nodes all of these may be orthogonal to what grows.
    rows = torch.randn(adj.identity[0], PROBES, generator=generator, device="cpu")
    probes = [adj.local_rows(rows.to(problem.b)).contiguous()]
    terms: list[Tensor] = []
    logs, log = [], 0.0
    while len(terms) < hops:
        for _ in range(min(hops - len(terms), HOPS_AT_ONCE)):
            probes.append(adj.product(probes[-1], torch.empty_like(probes[-1]), transposed=True))
            factor = adj.max_abs(probes[-1]) or 1.0  # powers of Ã and W alone may leave every range
            probes[-1] /= factor
            log += math.log(factor)
            logs.append(log)
        together = adj.all_sum(torch.cat(probes[1:], dim=1).t() @ size)  # a single pass over B
        terms.extend(torch.split(together.double(), PROBES))
        probes = probes[-1:]
    return terms, logs
