"""The recursion with any step: G⁽ⁿ⁾ = φ(βₙ f(G⁽ⁿ⁺¹⁾) + B), where f is a function of the state, such as a layer.

The same depth rules as for f(G) = ÃGW. The gradient is autograd's, through the last few steps: what lies deeper is
a constant to it, so that memory does not depend on depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint as repeat_in_backward

from pprgnn.core.activation import Activation, resolve_activation
from pprgnn.core.adjoint import Adjoint, as_adjoint
from pprgnn.core.bounds import StepBounds
from pprgnn.core.decay import decay
from pprgnn.core.depth import DepthRule, resolve_depth, run_at_depth
from pprgnn.core.problem import Recursion, as_eps, check_limits, check_precision, finite
from pprgnn.core.recursion import descend, unrolled
from pprgnn.core.solution import NotFiniteError, Solution


@dataclass(frozen=True)
class Steps(Recursion):
    """A recursion of any steps, as the depth rules see it. Nothing here is in an inner node order."""

    b: Tensor  # (..., n, d)
    function: Callable[[Tensor], Tensor]
    eps: Tensor  # () or (d,)
    activation: Activation
    lipschitz: Callable[[], float | None]  # of the function; asked for only where a bound is wanted
    numbers: Callable[[], Tensor]  # that say what the function does
    graph_facts: Callable[[], tuple[int, int, int]]

    @property
    def graph(self) -> tuple[int, int, int]:
        return self.graph_facts()

    @property
    def strength(self) -> Tensor:
        return self.numbers()

    def detach(self) -> Steps:
        return replace(self, b=self.b.detach(), eps=self.eps.detach())

    def without_input(self) -> Steps:
        """The same steps without B, and without what the function answers to nothing."""
        zero = torch.zeros_like(self.b)
        constant = self.function(zero)
        return replace(self, b=zero, function=lambda g: self.function(g) - constant)

    def bounds(self) -> StepBounds:
        """Bounds of its steps, infinite where no Lipschitz constant is known."""
        own, slowest = self.activation.lipschitz, float(self.eps.detach().min())
        constant = self.lipschitz()
        if constant is None:
            return StepBounds(math.inf, slowest, own)
        scale = float(torch.linalg.vector_norm(self.b.detach())) or 1.0
        with torch.no_grad():
            at_zero = float(torch.linalg.vector_norm(self.function(torch.zeros_like(self.b))))
        return StepBounds(own * constant, slowest, own, at_zero / scale)

    def step(self, n: int, g: Tensor, out: Tensor, product: Tensor | None = None) -> Tensor:
        torch.mul(self.function(g), decay(n, self.eps), out=out)
        return self.activation.apply_(out.add_(self.b))

    def start(self, depth: int, terms: int) -> Tensor:
        """The state from which ``terms`` steps are left, as a constant to autograd: G⁽ᵗᵉʳᵐˢ⁾."""
        with torch.no_grad():
            first, second = self.b.detach().clone(), torch.empty_like(self.b)

            def step(n: int, g: Tensor) -> Tensor:
                return self.step(n, g, second if g is first else first)

            return descend(step, self.activation.apply_(first), range(terms, depth))

    def finish(self, g: Tensor, terms: int, checkpoint: bool) -> Tensor:
        """The last steps, with autograd."""

        def step(n: int, g: Tensor) -> Tensor:
            return unrolled(self.function, self.b, self.eps, self.activation, range(n, n + 1), g)

        def repeated(n: int, g: Tensor) -> Tensor:
            out: Tensor = repeat_in_backward(step, n, g, use_reentrant=False)
            return out

        return descend(repeated if checkpoint else step, g, range(terms))

    def solve(
        self, rule: DepthRule, tol: float, max_depth: int, adjoint: Adjoint, wants_grad: bool = True
    ) -> Solution:
        """As :func:`solve_steps`."""
        check_limits(tol, max_depth, adjoint.terms)
        self.check()
        wants_grad, grad_terms = wants_grad and torch.is_grad_enabled(), adjoint.terms
        levels = adjoint.levels if wants_grad else 0

        def pass_of(k: int) -> tuple[Tensor, Callable[[], list[Tensor]]]:
            terms = 0 if not wants_grad else k if grad_terms is None else min(k, grad_terms)
            start = self.start(k, terms)
            with torch.set_grad_enabled(wants_grad):
                all_of_it = wants_grad and (grad_terms is None or k < grad_terms)
                state = self.finish(
                    self.activation.function(self.b) if all_of_it else start, terms, adjoint.repeats
                )
            return state, lambda: [state.detach(), start] if levels else [state.detach()]

        with torch.no_grad():
            solution, state = run_at_depth(rule, self.detach(), tol, max_depth, levels, pass_of, wants_grad)
        return replace(solution, state=state)

    def check(self) -> None:
        """Raise if there is nothing to solve."""
        check_precision(self.b)
        if not finite(self.b.detach()):
            raise NotFiniteError(
                "The input term b must be finite, but has NaN or infinite entries; look for NaN in the features "
                "or an exploding loss before this layer."
            )


def solve_steps(
    b: Tensor,
    function: Callable[[Tensor], Tensor],
    *,
    eps: float | Tensor = 1.0,
    depth: int | DepthRule | None = None,
    tol: float = 1e-5,
    max_depth: int = 500,
    grad_terms: int | None = 5,
    activation: str | Activation | None = "relu",
    checkpoint: bool = False,
    lipschitz: Callable[[], float | None] = lambda: None,
    numbers: Callable[[], Tensor] = lambda: torch.ones(1),
    graph: Callable[[], tuple[int, int, int]] = lambda: (0, 0, 0),
    wants_grad: bool = True,
    adjoint: Adjoint | None = None,
) -> Solution:
    r"""Solve G⁽ⁿ⁾ = φ(βₙ f(G⁽ⁿ⁺¹⁾) + B) for G⁽⁰⁾, for any Lipschitz function f of the state.

    It converges for every such f and every ``eps`` > 0.

    Args:
        b: B, shape (..., num_nodes, channels).
        function: f; must return the shape it is given, and the same values for the same state.
        eps: decay rate, one number or one per channel.
        depth: a rule, ``None`` for :class:`Measured`, or an integer for so many steps.
        tol: error allowed, relative to ‖b‖.
        max_depth: the cap; reaching it warns.
        grad_terms: through how many of the last steps the gradient goes; ``None`` for all.
        activation: φ, as in :func:`pprgnn.solve`.
        checkpoint: keep one state per term instead of all that autograd needs, and repeat steps for the gradient.
        lipschitz: an upper bound of f's Lipschitz constant in the Frobenius norm, or ``None`` where it is not
            known: depths are then compared with each other, without a proof.
        numbers: for rules that re-use depths between training steps: what f is made of, such as its weights.
        graph: likewise: numbers of nodes and edges, and a number that tells graphs apart.
        wants_grad: whether a gradient will be asked for, where autograd is on.
        adjoint: ``grad_terms`` and ``checkpoint`` as a value, as in :func:`pprgnn.solve`.

    Example:
        >>> import torch
        >>> turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
        >>> solution = solve_steps(torch.ones(3, 2), lambda g: g @ turn, eps=0.5, lipschitz=lambda: 1.0)
        >>> solution.status.name, solution.truncation_bound < 1e-5
        ('MEASURED', True)
    """
    rates, phi = as_eps(eps, b, b.size(-1)), resolve_activation(activation)
    problem = Steps(b, function, rates, phi, lipschitz, numbers, graph)
    chosen = as_adjoint(adjoint, grad_terms, checkpoint)
    return problem.solve(resolve_depth(depth), tol, max_depth, chosen, wants_grad)
