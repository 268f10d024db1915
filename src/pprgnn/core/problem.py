"""A recursion to solve: what the depth rules may ask about it, and the one whose step is a matrix product."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pprgnn.core.activation import Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.buffers import acquire, release
from pprgnn.core.backend.rows import StateSpace
from pprgnn.core.bounds import StepBounds
from pprgnn.core.decay import decay
from pprgnn.core.recursion import product_step
from pprgnn.core.solution import Sketch

PROBES = 2  # random vectors of a sketch
HOPS_AT_ONCE = 16  # of a sketch
_IN_ONE_PROCESS = StateSpace()


class Recursion(ABC):
    """One recursion to solve, as the depth rules see it: B, ε and φ, and a step that a subclass defines."""

    b: Tensor  # (..., n, d)
    eps: Tensor  # () or (d,)
    activation: Activation

    @property
    def space(self) -> StateSpace:
        """Where its states are: norms of all rows."""
        return _IN_ONE_PROCESS

    @property
    @abstractmethod
    def strength(self) -> Tensor:
        """All numbers that say what a step does, beside the graph: W."""

    @property
    @abstractmethod
    def graph(self) -> tuple[int, int, int]:
        """Numbers of nodes and edges and a fingerprint: whether it is the graph of before."""

    @abstractmethod
    def detach(self) -> Recursion:
        """The same numbers without their autograd history."""

    @abstractmethod
    def without_input(self) -> Recursion:
        """The same steps without B."""

    @abstractmethod
    def bounds(self) -> StepBounds:
        """What is known about its steps."""

    @abstractmethod
    def step(self, n: int, g: Tensor, out: Tensor, product: Tensor) -> Tensor:
        """G⁽ⁿ⁾ into ``out``, from g = G⁽ⁿ⁺¹⁾; ``product`` is scratch."""

    def guess(self, tol: float, max_depth: int) -> Sketch | None:
        """A depth to begin with, found without a pass; ``None``: f may be anything."""
        return None

    def facts(self) -> str:
        """What to look at when it does not converge."""
        return f"smallest eps = {float(self.eps.detach().min()):.3g}"


@dataclass(frozen=True)
class Problem(Recursion):
    """A recursion whose step is f(G) = ÃGW; ``b`` in the inner node order of ``adj`` where steps are computed."""

    b: Tensor  # (n, d)
    weight: Tensor  # (d, d)
    eps: Tensor  # () or (d,)
    adj: Adjacency
    activation: Activation

    @property
    def space(self) -> StateSpace:
        """That of the graph."""
        return self.adj

    @property
    def strength(self) -> Tensor:
        """W."""
        return self.weight

    @property
    def graph(self) -> tuple[int, int, int]:
        """That of the adjacency."""
        return self.adj.identity

    def detach(self) -> Problem:
        """The same numbers without their autograd history."""
        return Problem(self.b.detach(), self.weight.detach(), self.eps.detach(), self.adj, self.activation)

    def without_input(self) -> Problem:
        """The same steps without B."""
        return replace(self, b=torch.zeros_like(self.b))

    def bounds(self) -> StepBounds:
        """Bounds of its steps; the channel with the slowest decay counts."""
        weight, finfo = self.weight.detach(), torch.finfo(self.b.dtype)
        norm = float(torch.linalg.matrix_norm(weight, ord=2)) * (1 + 1e-5)  # rounding of the SVD
        sums = [float(weight.abs().sum(dim).max()) for dim in (0, 1)]
        absolute = min(math.sqrt(sums[0] * sums[1]) * (1 + 1e-5), math.sqrt(weight.size(0)) * norm)
        lipschitz, of_adj = self.activation.lipschitz, self.adj.norm_bound
        length = self.adj.longest_row + weight.size(0) + 8  # sparse sum, dense sum, βₙ, + B and φ
        scale = self.adj.norm(self.b) or 1.0
        smallest = finfo.smallest_normal * finfo.eps * math.sqrt(self.b.numel())
        return StepBounds(
            rate=lipschitz * of_adj * self.adj.broadcast(norm),
            eps=float(self.eps.detach().min()),
            lipschitz=lipschitz,
            absolute_rate=lipschitz * of_adj * self.adj.broadcast(absolute),
            sum_length=length,
            underflow=self.adj.broadcast(lipschitz * length * (1 + absolute) * smallest / scale),
        )

    def guess(self, tol: float, max_depth: int) -> Sketch | None:
        """Where the linear influence of B has faded."""
        return sketch_influence(self, tol, max_depth)

    def facts(self) -> str:
        """With the norm of W."""
        return f"‖W‖₂ = {float(torch.linalg.matrix_norm(self.weight, ord=2)):.3g}, {super().facts()}"

    def step(self, n: int, g: Tensor, out: Tensor, product: Tensor) -> Tensor:
        """G⁽ⁿ⁾ = φ(βₙ Ã G⁽ⁿ⁺¹⁾ W + B)."""
        return product_step(self, n, g, out, product)


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
