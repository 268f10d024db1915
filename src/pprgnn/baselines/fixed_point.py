"""Fixed points by damped iteration, and their gradient without a history of the iteration."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from pprgnn.core.solution import ConvergenceWarning, NotFiniteError


@torch.no_grad()
def iterate(
    function: Callable[[Tensor], Tensor], start: Tensor, *, step: float, tol: float, cap: int, remedy: str
) -> Tensor:
    """x ← x + ``step`` (f(x) - x) until ‖f(x) - x‖ <= ``tol`` ‖f(x)‖.

    Args:
        function: f; must return a new tensor.
        start: Where to start; is not changed.
        step: 1 is the plain iteration, less is damped.
        tol: Relative to the size of the state.
        cap: Most applications of f; a warning says if they were not enough.
        remedy: What to change then; the end of the sentence.
    """
    state, size, error = start.clone(), 0.0, math.inf
    for _ in range(cap):
        change = function(state)
        size = float(torch.linalg.vector_norm(change))
        error = float(torch.linalg.vector_norm(change.sub_(state)))
        if not (math.isfinite(size) and math.isfinite(error)):
            raise NotFiniteError(f"The state overflowed before it became steady; {remedy}.")
        state.add_(change, alpha=step)
        if error <= tol * size:
            return state
    warnings.warn(
        f"The state was not steady after {cap} steps (its change is {error / max(size, 1e-30):.1e} of its size, "
        f"wanted were {tol:.1e}); {remedy}.",
        ConvergenceWarning,
        stacklevel=2,
    )
    return state


def fixed_point(
    function: Callable[[Tensor], Tensor], start: Tensor, *, step: float, tol: float, cap: int, remedy: str
) -> Tensor:
    """x = f(x), with the gradient of the implicit function theorem for all that ``function`` reads.

    The backward pass solves g = ḡ + Jᵀg with the same iteration, J being the derivative of f at x: memory does not
    grow with the number of steps. Not differentiable twice. Arguments are those of :func:`iterate`.
    """
    state = iterate(function, start, step=step, tol=tol, cap=cap, remedy=remedy)
    result = function(state)
    if result.requires_grad:
        at = state.requires_grad_()
        with torch.enable_grad():
            again = function(at)

        def adjoint(grad: Tensor) -> Tensor:
            def pull_back(g: Tensor) -> Tensor:
                return torch.autograd.grad(again, at, g, retain_graph=True)[0] + grad

            return iterate(pull_back, grad, step=step, tol=tol, cap=cap, remedy=remedy)

        result.register_hook(adjoint)  # type: ignore[no-untyped-call]
    return result
