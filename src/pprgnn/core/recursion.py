"""The recursion G⁽ⁿ⁾ = φ(βₙ f(G⁽ⁿ⁺¹⁾) + B) from n = k down to 0, and its truncated adjoint.

The two loops of this package are here; their fused versions are in C++. Whatever runs a recursion calls
:func:`descend` with a step, and whatever differentiates one without autograd calls :func:`ascend` with a term.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pprgnn.core.activation import Activation
from pprgnn.core.decay import decay, decay_gradient

if TYPE_CHECKING:
    from pprgnn.core.problem import Problem


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


def product_step(problem: Problem, n: int, g: Tensor, out: Tensor, product: Tensor) -> Tensor:
    """G⁽ⁿ⁾ into ``out``, from g = G⁽ⁿ⁺¹⁾, where f(G) = ÃGW; ``product`` is scratch."""
    return problem.activation.apply_(pre_activation(problem, n, g, out, product))  # G⁽ⁿ⁾ = φ(Z⁽ⁿ⁾)


def pre_activation(problem: Problem, n: int, g: Tensor | None, out: Tensor | None, product: Tensor) -> Tensor:
    """Z⁽ⁿ⁾ from g = G⁽ⁿ⁺¹⁾; ``None``: there is nothing below."""
    if g is None:
        return problem.b
    problem.adj.product(g, out=product)  # Ã G⁽ⁿ⁺¹⁾
    return torch.addmm(problem.b, product, problem.weight * decay(n, problem.eps), out=out)  # ... W βₙ + B


@dataclass
class Gradients:
    """What the terms of an adjoint add up to; ``None``: nobody asks."""

    b: Tensor | None
    weight: Tensor | None
    eps: Tensor | None  # of each channel
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
            self.eps += decay_gradient(n, eps) * (outer * weight).sum(0)
        if kept is None:
            return z_bar
        torch.mm(product, (weight * beta).t(), out=z_bar)  # Ḡ⁽ⁿ⁺¹⁾ = P βₙ Wᵀ
        problem.activation.chain(z_bar, kept(), out=z_bar)  # Z̄⁽ⁿ⁺¹⁾ = φ'(Z⁽ⁿ⁺¹⁾) ⊙ Ḡ⁽ⁿ⁺¹⁾
        if self.b is not None:
            self.b.add_(z_bar)  # B̄ += Z̄⁽ⁿ⁺¹⁾
        return z_bar
