"""A recursion to solve: what the depth rules may ask about it, and the one whose step is a matrix product."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pprgnn.core.activation import Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.rows import StateSpace
from pprgnn.core.bounds import StepBounds
from pprgnn.core.recursion import product_step
from pprgnn.core.sketch import Sketch, sketch_influence

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
