"""Fixed points by damped iteration, and their gradient without a history of the iteration."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pprgnn.baselines.anderson import Anderson
from pprgnn.core.solution import ConvergenceWarning, NotFiniteError

PROGRESS = 0.99  # a mixture must make the error this much smaller to count


@torch.no_grad()
def iterate(
    function: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    step: float,
    tol: float,
    cap: int,
    remedy: str,
    accelerate: bool = False,
) -> Tensor:
    """x ← x + ``step`` (f(x) - x) until ‖f(x) - x‖ <= ``tol`` ‖f(x)‖.

    Args:
        function: f; must return a new tensor.
        start: Where to start; is not changed.
        step: 1 is the plain iteration, less is damped.
        tol: Relative to the size of the state.
        cap: Most applications of f; a warning says if they were not enough.
        remedy: What to change then; the end of the sentence.
        accelerate: Go on from mixtures of earlier states, as long as they make ‖f(x) - x‖ smaller.
    """
    state, size, error = start.clone(), 0.0, math.inf
    mixing = Anderson(state) if accelerate else None
    smallest, mixed = math.inf, False
    try:
        for _ in range(cap):
            change = function(state)
            size = float(torch.linalg.vector_norm(change))
            error = float(torch.linalg.vector_norm(change.sub_(state)))
            if mixing is not None and mixed:
                mixed = False
                if not error <= PROGRESS * smallest:  # or is no number
                    mixing.reject(state)
                    continue
                mixing.accept()
            if not (math.isfinite(size) and math.isfinite(error)):
                raise NotFiniteError(f"The state overflowed before it became steady; {remedy}.")
            smallest = min(smallest, error)
            following = torch.add(state, change, alpha=step, out=change)
            if error <= tol * size:
                return following
            if mixing is not None and mixing.active:
                mixing.add(state, following)
                mixed = mixing.mix(state)
            else:
                state = following
    finally:
        if mixing is not None:
            mixing.release()
    warnings.warn(
        f"The state was not steady after {cap} steps (its change is {error / max(size, 1e-30):.1e} of its size, "
        f"wanted were {tol:.1e}); {remedy}.",
        ConvergenceWarning,
        stacklevel=2,
    )
    return state


def fixed_point(
    function: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    step: float,
    tol: float,
    cap: int,
    remedy: str,
    accelerate: bool = False,
) -> Tensor:
    """x = f(x), with the gradient of the implicit function theorem for all that ``function`` reads.

    The backward pass solves g = ḡ + Jᵀg with the same iteration, J being the derivative of f at x: memory does not
    grow with the number of steps. Not differentiable twice. Arguments are those of :func:`iterate`.
    """
    options: dict[str, Any] = {"step": step, "tol": tol, "cap": cap, "remedy": remedy, "accelerate": accelerate}
    state = iterate(function, start, **options)
    result = function(state)
    if result.requires_grad:
        at = state.requires_grad_()
        with torch.enable_grad():
            again = function(at)

        def adjoint(grad: Tensor) -> Tensor:
            def pull_back(g: Tensor) -> Tensor:
                return torch.autograd.grad(again, at, g, retain_graph=True)[0] + grad

            return iterate(pull_back, grad, **options)

        result.register_hook(adjoint)  # type: ignore[no-untyped-call]
    return result
