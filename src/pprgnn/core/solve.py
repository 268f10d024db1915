"""``solve``: the one entry into the core. Inputs are checked here, once."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from pprgnn.core.activation import Activation, resolve_activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.decay import as_eps
from pprgnn.core.depth import DepthRule, resolve_depth, run_at_depth
from pprgnn.core.recursion import Problem, Recursion, run
from pprgnn.core.rounding import with_rounding
from pprgnn.core.solution import ConvergenceWarning, Depth, NotFiniteError, Solution, Status


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
    eps = as_eps(eps, b, weight.size(0))
    b, weight = b.contiguous(), weight.contiguous()

    wants_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (b, weight, eps, adj.value))
    # An N-term gradient uses G⁽⁰⁾ ... G⁽ᴺ⁾, so all of them must be converged.
    levels = grad_terms if wants_grad and grad_terms is not None else 0
    problem = Problem(b, weight, eps, adj, phi).detach()

    def terms_at(k: int) -> int:
        return (k + 1 if grad_terms is None else min(grad_terms, k + 1)) if wants_grad else 0

    def pass_of(k: int) -> tuple[list[Tensor], Callable[[], list[Tensor]]]:
        states = run(problem, k, terms_at(k), checkpoint)
        return states, lambda: [states[0], states[-1]] if levels else [states[0]]

    with torch.no_grad():
        found, states = run_at_depth(rule, problem, tol, max_depth, levels, pass_of, wants_grad)
    solution = described(problem, states[0], found, tol, max_depth)
    if not wants_grad:
        return solution
    trace = b.flatten()[:0] + 0.0
    state: Tensor = Recursion.apply(  # type: ignore[no-untyped-call]
        b, weight, eps, adj.value, trace, adj, phi, found.k, terms_at(found.k), checkpoint, states
    )
    return replace(solution, state=state)


def described(problem: Problem, state: Tensor, found: Depth, tol: float, max_depth: int) -> Solution:
    """The solution with all that is known about it; warns when it is not what was asked for."""
    status = found.status if problem.adj.everywhere(finite(state)) else Status.NOT_FINITE
    solution = with_rounding(problem, state, found, status, tol)
    if not solution.converged:
        norm = float(torch.linalg.matrix_norm(problem.weight, ord=2))
        facts = f"‖W‖₂ = {norm:.3g}, smallest eps = {float(problem.eps.min()):.3g}"
        warnings.warn(failure(solution, facts, tol, max_depth), ConvergenceWarning, stacklevel=3)
    return solution


def failure(solution: Solution, facts: str, tol: float, max_depth: int) -> str:
    """In a sentence or two, what went wrong and what to do."""
    status, dtype = solution.status, solution.state.dtype
    known = (solution.rounding_error, solution.truncation_bound, solution.measured_error)
    error = next((each for each in known if each is not None), None)
    reached = "" if error is None else f" (error {error:.1e})"
    if status is Status.NOT_FINITE:
        return (
            f"The state overflowed {dtype} ({facts}); use a larger eps, weight decay, gradient clipping or "
            f"float64."
        )
    if status is Status.ROUNDING:
        finer = "float64, " if dtype != torch.float64 else ""
        return (
            f"Rounding errors in {dtype} exceed tol = {tol:g} of ‖b‖{reached}: {facts}. Use {finer}a larger eps, "
            f"smaller weights or a larger tol."
        )
    if error is not None and error <= tol:
        reached = "; two depths agree, but what lies beyond may still grow and decide otherwise"
    return (
        f"Not converged to tol = {tol:g} within max_depth = {max_depth}{reached}: {facts}. Raise max_depth, "
        f"use a larger eps, or regularise the weights."
    )


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
        if not adj.everywhere(good) and good:
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
    if grad_terms is not None and grad_terms < 1:
        raise ValueError(f"grad_terms must be >= 1 or None for all terms, but came as {grad_terms}.")


def finite(x: Tensor) -> bool:
    """Whether all entries are; their sum tells in one pass, unless it overflows itself."""
    return math.isfinite(float(x.sum())) or bool(torch.isfinite(x).all())
