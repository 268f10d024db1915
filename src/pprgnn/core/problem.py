"""A recursion to solve: what may be given, what the depth rules may ask, and the one whose step is a product."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pprgnn.core.activation import Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.buffers import acquire, release
from pprgnn.core.bounds import StepBounds
from pprgnn.core.decay import decay
from pprgnn.core.recursion import product_step
from pprgnn.core.solution import NotFiniteError, Sketch, StateSpace

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
        return self.adj

    @property
    def strength(self) -> Tensor:
        return self.weight

    @property
    def graph(self) -> tuple[int, int, int]:
        return self.adj.identity

    def detach(self) -> Problem:
        return Problem(self.b.detach(), self.weight.detach(), self.eps.detach(), self.adj, self.activation)

    def without_input(self) -> Problem:
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

    def guess(self, tol: float, max_depth: int) -> Sketch:
        """Where the linear influence of B has faded, from a sketch of it with a few random vectors.

        ‖∏βₙ Ãˡ |B| Wˡ‖ is estimated by ‖Rᵀ Ãˡ |B| Wˡ‖ with few random rows Rᵀ: a product with a thin matrix for
        each l instead of a pass. An estimate: φ may let more or less through.
        """
        adj = self.adj
        scale = adj.max_abs(self.b)
        if not scale:
            return Sketch(1, 0.0)
        bounds = self.bounds()
        growing = max(bounds.rate - 1, 0.0) / bounds.eps  # so many levels can enlarge an influence, no more
        hops = min(bounds.depth(0.1 * tol, max_depth) or max_depth, int(1.5 * min(growing, max_depth)) + 16)
        inner = adj.permute(self.b, out=None if adj.order is None else acquire(self.b))
        size = inner.abs().div_(scale)
        if inner is not self.b:
            release(inner)
        terms, logs = _probe(self, size, hops)
        weight, rates = self.weight.double(), self.eps.double()
        rows, sizes = weight.new_zeros(0, weight.size(0)), weight.new_zeros(0)
        for hop in range(hops - 1, -1, -1):  # Horner: the farthest term is multiplied by W most often
            rows = torch.cat([rows, terms[hop]]) @ (weight * decay(hop, rates))
            factors = rows.view(-1, PROBES, rows.size(1)).abs().amax((1, 2)).clamp_(min=1e-300)
            rows /= factors.repeat_interleave(PROBES)[:, None]
            sizes = torch.cat([sizes, sizes.new_tensor([logs[hop]])]) + factors.log()
        sizes += rows.view(hops, -1).norm(dim=1).log() - math.log(adj.norm(size) * math.sqrt(PROBES))
        seen = (sizes.flip(0) > math.log(0.1 * tol)).nonzero()  # for l = 1, 2, ...
        return Sketch(int(seen[-1]) + 2 if len(seen) else 1, math.exp(min(float(sizes.max()), 700.0)))

    def facts(self) -> str:
        return f"‖W‖₂ = {float(torch.linalg.matrix_norm(self.weight, ord=2)):.3g}, {super().facts()}"

    def step(self, n: int, g: Tensor, out: Tensor, product: Tensor) -> Tensor:
        return product_step(self, n, g, out, product)


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


# --------------------------------------------------------------------------------------- what a solve may be given
def check_inputs(
    b: Tensor, weight: Tensor, adj: Adjacency, tol: float, max_depth: int, grad_terms: int | None = None
) -> None:
    """Raise unless shapes, types and numbers are such that there is something to solve."""
    if not isinstance(adj, Adjacency):
        raise TypeError(
            f"adj must be a pprgnn.Adjacency, but came as {type(adj).__name__}; build it with "
            f"Adjacency.from_edge_index(edge_index, num_nodes=...)."
        )
    if b.dim() != 2 or b.size(0) != adj.num_nodes:
        raise ValueError(
            f"b must have one row per node, shape ({adj.num_nodes}, channels), but has shape {tuple(b.shape)}."
        )
    channels = b.size(1)
    if weight.shape != (channels, channels):
        raise ValueError(
            f"weight must have shape ({channels}, {channels}) to match b, but has shape {tuple(weight.shape)}."
        )
    if not b.is_floating_point():
        raise ValueError(f"b must hold floating-point numbers, but has dtype {b.dtype}; use b.float().")
    check_precision(b)
    adj.check_like(b, "b")
    adj.check_like(weight, "weight")
    for name, tensor in (("b", b), ("weight", weight)):
        good = finite(tensor.detach())
        if not adj.all_true(good) and good:
            raise NotFiniteError(f"{name} must be finite, but is not in another process, which tells where.")
        if not good:
            place = tuple((~torch.isfinite(tensor)).nonzero()[0].tolist())
            raise NotFiniteError(
                f"{name} must be finite, but {name}[{place[0]}, {place[1]}] is {float(tensor[place].detach())}; "
                f"look for NaN in the features or an exploding loss before this layer."
            )
    check_limits(tol, max_depth, grad_terms)


def check_precision(b: Tensor) -> None:
    """Raise for types and devices in which neither norms nor sparse products exist."""
    if b.device.type == "meta":
        raise ValueError(
            "A recursion needs numbers, because its depth depends on them, but b is on the meta device; use a "
            "real device, or Module.to_empty() before the first call."
        )
    if b.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"A recursion needs float32 or float64, but b has dtype {b.dtype}; keep this layer in full precision "
            f"(torch.autocast does so by itself)."
        )


def check_limits(tol: float, max_depth: int, grad_terms: int | None) -> None:
    """Raise unless these numbers make sense."""
    if not tol > 0:
        raise ValueError(f"tol must be > 0, but came as {tol}.")
    if max_depth < 1:
        raise ValueError(f"max_depth must be >= 1, but came as {max_depth}.")
    check_terms(grad_terms)


def check_terms(grad_terms: int | None) -> None:
    """Raise unless a gradient can have so many terms."""
    if grad_terms is not None and grad_terms < 1:
        raise ValueError(f"grad_terms must be >= 1 or None for all terms, but came as {grad_terms}.")


def finite(x: Tensor) -> bool:
    """Whether all entries are; their sum tells in one pass, unless it overflows itself."""
    return math.isfinite(float(x.sum())) or bool(torch.isfinite(x).all())


def as_eps(eps: float | Tensor, like: Tensor, channels: int) -> Tensor:
    """Check ``eps`` and return it as a tensor of shape () or (channels,) on the device of ``like``."""
    if not isinstance(eps, Tensor):
        eps = torch.tensor(float(eps), dtype=like.dtype, device=like.device)  # where it may overflow
    tensor = eps.to(dtype=like.dtype, device=like.device)
    if tensor.numel() == 1:
        tensor = tensor.reshape(())
    elif tensor.shape != (channels,):
        raise ValueError(
            f"eps must be one number or one per channel, shape ({channels},), but has shape {tuple(tensor.shape)}."
        )
    smallest, largest = float(tensor.detach().min()), float(tensor.detach().max())
    if not (smallest > 0.0 and largest < float("inf")):  # also refuses NaN
        raise ValueError(
            f"eps must be positive and finite, but its range is [{smallest}, {largest}]; "
            f"the smaller eps, the farther messages travel (try 0.05 to 1)."
        )
    return tensor
