"""``solve``: the one entry into the core. Inputs are checked here, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from pprgnn.core.activation import Activation, resolve_activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.adjoint import Adjoint, Differentiable, as_adjoint
from pprgnn.core.backend.passes import run
from pprgnn.core.depth import DepthRule, resolve_depth, run_at_depth
from pprgnn.core.problem import Problem, as_eps, check_inputs
from pprgnn.core.solution import Solution


def solve(
    b: Tensor,
    weight: Tensor,
    adj: Adjacency,
    *,
    eps: float | Tensor = 1.0,
    depth: int | DepthRule | None = None,
    tol: float = 1e-5,
    max_depth: int = 500,
    grad_terms: int | None = 5,
    activation: str | Activation | None = "relu",
    checkpoint: bool = False,
    adjoint: Adjoint | None = None,
) -> Solution:
    r"""Solve the infinite recursion G⁽ⁿ⁾ = φ(βₙ Ã G⁽ⁿ⁺¹⁾ W + B), βₙ = 1/(1+nε), for G⁽⁰⁾.

    It converges for every ``weight`` and every ``eps`` > 0. Differentiable in ``b``, ``weight``, ``eps`` and the
    edge weights of ``adj``.

    Args:
        b: personalisation term B, shape (num_nodes, channels).
        weight: W, shape (channels, channels), unconstrained.
        adj: the graph.
        eps: decay rate, one number or one per channel. The smaller, the farther messages travel.
        depth: a rule (:class:`Measured`, :class:`Certificate`, :class:`Influence`), ``None`` for
            ``Measured()``, or an integer for the finite model of that many hops.
        tol: error allowed, relative to ‖b‖.
        max_depth: the cap; reaching it warns.
        grad_terms: exact number of terms of the gradient; ``None`` for all. Memory grows with this number and
            not with depth.
        activation: ``"relu"``, ``"leaky_relu"``, ``"tanh"``, ``"identity"`` or an :class:`Activation`.
        checkpoint: keep one state instead of ``grad_terms`` and repeat those steps in the backward pass.
        adjoint: the same as a value: :class:`Truncated`, :class:`Full` or :class:`Checkpointed`.

    Example:
        >>> import torch, pprgnn
        >>> ring = torch.arange(8)
        >>> edges = torch.stack([torch.cat([ring, ring.roll(1)]), torch.cat([ring.roll(1), ring])])
        >>> adj = pprgnn.Adjacency.from_edge_index(edges)
        >>> b, weight = torch.eye(8), 2 * torch.eye(8)
        >>> solution = pprgnn.solve(b, weight, adj, eps=0.5)
        >>> solution.status.name, solution.truncation_bound < 1e-5
        ('MEASURED', True)
    """
    rule = resolve_depth(depth)
    phi = resolve_activation(activation)
    check_inputs(b, weight, adj, tol, max_depth, grad_terms)
    adjoint = as_adjoint(adjoint, grad_terms, checkpoint)
    eps = as_eps(eps, b, weight.size(0))
    b, weight = b.contiguous(), weight.contiguous()

    wants_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (b, weight, eps, adj.value))
    levels = adjoint.levels if wants_grad else 0
    problem = Problem(b, weight, eps, adj, phi).detach()

    def pass_of(k: int) -> tuple[list[Tensor], Callable[[], list[Tensor]]]:
        states = run(problem, k, adjoint.terms_at(k) if wants_grad else 0, adjoint.repeats)
        return states, lambda: [states[0], states[-1]] if levels else [states[0]]

    with torch.no_grad():
        solution, states = run_at_depth(rule, problem, tol, max_depth, levels, pass_of, wants_grad)
    if not wants_grad:
        return solution
    trace, k = b.flatten()[:0] + 0.0, solution.depth
    state: Tensor = Differentiable.apply(  # type: ignore[no-untyped-call]
        b, weight, eps, adj.value, trace, adj, phi, k, adjoint.terms_at(k), adjoint.repeats, states
    )
    return replace(solution, state=state)
