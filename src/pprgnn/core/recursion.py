"""The recursion G⁽ⁿ⁾ = φ(βₙ f(G⁽ⁿ⁺¹⁾) + B) from n = k down to 0, and its truncated adjoint.

The two loops of this package are here; their fused versions are in C++. Whatever runs a recursion calls
:func:`descend` with a step, and whatever differentiates one without autograd calls :func:`ascend` with a term.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pprgnn.core.activation import Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.rows import StateSpace
from pprgnn.core.bounds import StepBounds
from pprgnn.core.decay import decay, decay_gradient
from pprgnn.core.sketch import Sketch, sketch_influence

_IN_ONE_PROCESS = StateSpace()


def descend(step: Callable[[int, Tensor], Tensor], g: Tensor, levels: range) -> Tensor:
    """The forward loop, from the last level to the first; ``g`` is the state before it."""
    for n in reversed(levels):
        g = step(n, g)  # G⁽ⁿ⁾ = φ(βₙ f(G⁽ⁿ⁺¹⁾) + B)
    return g


def ascend(
    term: Callable[[int, Tensor, Tensor], Tensor], z_bar: Tensor, state: Callable[[int], Tensor], count: int
) -> Tensor:
    """The adjoint loop, from the root: so many terms, each of which adds to the gradients."""
    for n in range(count):
        z_bar = term(n, z_bar, state(n + 1))  # Z̄⁽ⁿ⁺¹⁾, from Z̄⁽ⁿ⁾ and G⁽ⁿ⁺¹⁾
    return z_bar


def unrolled(
    function: Callable[[Tensor], Tensor],
    b: Tensor,
    eps: Tensor,
    activation: Activation,
    levels: range,
    state: Tensor | None = None,
) -> Tensor:
    """G⁽ⁿ⁾ over ``levels`` as plain operations, for autograd and whoever traces them.

    ``state`` is what the levels above came to; by default there are none, and G⁽ᵏ⁾ = φ(B).
    """
    phi = activation.function

    def step(n: int, g: Tensor) -> Tensor:
        return phi(function(g) * decay(n, eps) + b)  # φ(βₙ f(G⁽ⁿ⁺¹⁾) + B)

    return descend(step, phi(b) if state is None else state, levels)


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

    def pre_activation(self, n: int, g: Tensor | None, out: Tensor | None, product: Tensor) -> Tensor:
        """Z⁽ⁿ⁾ from g = G⁽ⁿ⁺¹⁾; ``None``: there is nothing below."""
        if g is None:
            return self.b
        self.adj.product(g, out=product)  # Ã G⁽ⁿ⁺¹⁾
        return torch.addmm(self.b, product, self.weight * decay(n, self.eps), out=out)  # ... W βₙ + B

    def step(self, n: int, g: Tensor, out: Tensor, product: Tensor) -> Tensor:
        """G⁽ⁿ⁾ = φ(Z⁽ⁿ⁾)."""
        return self.activation.apply_(self.pre_activation(n, g, out, product))


@dataclass
class Gradients:
    """What the terms of an adjoint add up to; ``None``: nobody asks."""

    b: Tensor | None
    weight: Tensor | None
    eps: Tensor | None
    value: Tensor | None = None  # of the edges

    def add_term(
        self,
        problem: Problem,
        n: int,
        z_bar: Tensor,
        below: Tensor,
        kept: Callable[[], Tensor] | None,
        product: Tensor,
    ) -> Tensor:
        """Section 3 of the method for one n, from Z̄⁽ⁿ⁾ and ``below`` = G⁽ⁿ⁺¹⁾; returns Z̄⁽ⁿ⁺¹⁾ in its place.

        ``kept()`` is what φ' needs at level n + 1, and ``None`` after the last term; ``product`` is scratch.
        """
        weight, eps, beta = problem.weight, problem.eps, decay(n, problem.eps)  # W, ε, βₙ
        if self.value is not None:  # Ā_ij += ⟨Z̄_i, βₙ (G⁽ⁿ⁺¹⁾ W)_j⟩ on existing edges
            self.value += problem.adj.edge_gradient(z_bar, torch.mm(below, weight * beta, out=product))
        problem.adj.product(z_bar, product, transposed=True)  # P = Ãᵀ Z̄; PAPER: βₙ goes with Z⁽ⁿ⁾, not with G⁽ⁿ⁾
        if self.weight is not None and self.eps is not None:
            outer = below.t() @ product  # (d, d)
            self.weight += outer * beta  # W̄ += G⁽ⁿ⁺¹⁾ᵀ P βₙ
            # ε̄ += dβₙ/dε · Z̄ᵀ(Ã G⁽ⁿ⁺¹⁾ W), read off the d × d matrix: no further pass over the nodes
            per_channel = decay_gradient(n, eps) * (outer * weight).sum(0)
            self.eps += per_channel if eps.dim() else per_channel.sum()
        if kept is None:
            return z_bar
        torch.mm(product, (weight * beta).t(), out=z_bar)  # Ḡ⁽ⁿ⁺¹⁾ = P βₙ Wᵀ
        problem.activation.chain(z_bar, kept(), out=z_bar)  # Z̄⁽ⁿ⁺¹⁾ = φ'(Z⁽ⁿ⁺¹⁾) ⊙ Ḡ⁽ⁿ⁺¹⁾
        if self.b is not None:
            self.b.add_(z_bar)  # B̄ += Z̄⁽ⁿ⁺¹⁾
        return z_bar
