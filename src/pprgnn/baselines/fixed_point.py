"""Fixed points by damped iteration, Anderson's acceleration, and gradients without a history of the iteration."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from pprgnn.core.backend.buffers import acquire, release
from pprgnn.core.solution import ConvergenceWarning, NotFiniteError

MEMORY = 5  # pairs that are remembered
WASTE = 0.25  # steps from rejected mixtures, as a part of those from accepted ones; beyond, there are no more
Acceleration = Literal["anderson", "none"]
PROGRESS = 0.99  # a mixture must make the error this much smaller to count


class Anderson:
    r"""Mixtures of the last results of an iteration :math:`x \leftarrow g(x)`.

    The mixture :math:`\sum_i \gamma_i g(x_i)` with :math:`\sum_i \gamma_i = 1` is that with the least
    :math:`\|\sum_i \gamma_i (g(x_i) - x_i)\|` over the last pairs, a little regularised towards the plain step
    :math:`g(x_k)`.

    What a step from a mixture achieves is compared with what plain steps would (:meth:`accepts`). After too many
    rejections :attr:`active` is ``False`` and plain steps are all that is left, so that it converges whenever they
    do. It takes ``2 * memory`` states, however many steps.

    Args:
        like: A state.
        memory: How many pairs are remembered.
    """

    def __init__(self, like: Tensor, memory: int = MEMORY) -> None:
        self.memory = memory
        self.results, self.residuals = (acquire(like.detach().expand(memory, *like.shape)) for _ in range(2))
        # Of the residuals with one another: a few numbers, wherever the states are.
        self.products = torch.zeros(memory, memory, dtype=torch.float64, device="cpu")
        self.count = 0  # pairs added since the last restart
        self.accepted = self.rejected = 0
        self.smallest = math.inf  # change of a step that counts
        self.mixed = False  # whether the next step is from a mixture

    @property
    def active(self) -> bool:
        """Whether mixtures are still worth a try."""
        return self.rejected <= 1 + WASTE * self.accepted

    def add(self, x: Tensor, result: Tensor) -> None:
        """Remember that a step leads from ``x`` to ``result``; both are copied."""
        place, known = self.count % self.memory, min(self.count + 1, self.memory)
        self.results[place].copy_(result)
        residual = torch.sub(result, x, out=self.residuals[place])
        products = (self.residuals[:known].flatten(1) @ residual.flatten()).cpu().double()
        self.products[place, :known] = self.products[:known, place] = products
        self.count += 1

    def mix(self, out: Tensor) -> bool:
        """Write the mixture to ``out``; returns whether it is another one than the plain step."""
        known, last = min(self.count, self.memory), (self.count - 1) % self.memory
        out.copy_(self.results[last])
        others = [place for place in range(known) if place != last]
        if not others:
            return False
        # In differences to the last residual r: |r + Σ θ_i (r_i - r)|² is least. Tiny θ are the plain step.
        cross = self.products[last, last] - self.products[others, last]
        square = self.products[others][:, others] - self.products[last, last] + cross[:, None] + cross[None, :]
        floor = 10 * torch.finfo(out.dtype).eps * float(square.diagonal().max())
        square.diagonal().add_(floor)
        share, failed = torch.linalg.solve_ex(square, cross)
        if int(failed) or not bool(share.isfinite().all()):
            return False
        weights = torch.zeros(known, dtype=torch.float64, device="cpu")
        weights[others], weights[last] = share, 1 - share.sum()
        torch.mv(self.results[:known].flatten(1).t(), weights.to(out), out=out.view(-1))
        return True

    @property
    def residual(self) -> float:
        """‖g(x) - x‖ of the last pair."""
        last = (self.count - 1) % self.memory
        return math.sqrt(self.products[last, last])

    def amplification(self, moved: float) -> float:
        """‖Δx‖ / ‖Δ(g(x) - x)‖ of the last two pairs, given ‖Δx‖: how far a residual tells of an error there."""
        last, before = ((self.count - n) % self.memory for n in (1, 2))
        square = self.products[last, last] + self.products[before, before] - 2 * self.products[last, before]
        return moved / float(square) ** 0.5 if float(square) > 0 else 0.0

    def accepts(self, size: float, progress: float, out: Tensor) -> bool:
        """Whether a step counts that ended with a change of this size.

        One from a mixture does if the size is at most ``progress`` times the smallest before, and is a number.
        Otherwise ``out`` becomes the plain step again that the mixture took the place of.
        """
        if self.mixed:
            self.mixed = False
            if not size <= progress * self.smallest:
                self.reject(out)
                return False
            self.accepted += 1
        self.smallest = min(self.smallest, size)
        return True

    def reject(self, out: Tensor) -> None:
        """The plain step to ``out``; memory starts anew."""
        self.rejected += 1
        out.copy_(self.results[(self.count - 1) % self.memory])
        self.count = 0

    def release(self) -> None:
        """Hand the memory over to the next solve."""
        release(self.results, self.residuals)


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
    try:
        for _ in range(cap):
            change = function(state)
            size = float(torch.linalg.vector_norm(change))
            error = float(torch.linalg.vector_norm(change.sub_(state)))
            if mixing is not None and not mixing.accepts(error, PROGRESS, state):
                continue
            if not (math.isfinite(size) and math.isfinite(error)):
                raise NotFiniteError(f"The state overflowed before it became steady; {remedy}.")
            following = torch.add(state, change, alpha=step, out=change)
            if error <= tol * size:
                return following
            if mixing is not None and mixing.active:
                mixing.add(state, following)
                mixing.mixed = mixing.mix(state)
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


def fixed_point(function: Callable[[Tensor], Tensor], start: Tensor, **options: Any) -> Tensor:
    """x = f(x), with the gradient of the implicit function theorem for all that ``function`` reads.

    The backward pass solves g = ḡ + Jᵀg with the same iteration, J being the derivative of f at x: memory does not
    grow with the number of steps. Not differentiable twice. ``options`` are the arguments of :func:`iterate`.
    """
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
