"""How a solve is differentiated: with few terms, with all, or with few and less memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pprgnn.core.activation import Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.passes import pull_back
from pprgnn.core.problem import Problem, check_terms

TERMS = 5  # by default
SMALL_STATE = 1 << 20  # entries: up to so many, a copy of G⁽⁰⁾ for φ' is quicker than a mask of it


class Adjoint:
    """A gradient of so many terms, by states that are kept or found again; see its subclasses."""

    terms: int | None = None  # all
    repeats = False  # whether steps are repeated instead of keeping their states

    @property
    def levels(self) -> int:
        """So many states beside G⁽⁰⁾ must be converged: an N-term gradient uses G⁽⁰⁾ ... G⁽ᴺ⁾."""
        return self.terms or 0

    def terms_at(self, depth: int) -> int:
        """Of a pass of this depth, which has no more than depth + 1."""
        return depth + 1 if self.terms is None else min(self.terms, depth + 1)


@dataclass(frozen=True)
class Truncated(Adjoint):
    """The first N terms, exactly: memory for N states, whatever the depth."""

    terms: int | None = 5

    def __post_init__(self) -> None:
        check_terms(self.terms)


@dataclass(frozen=True)
class Full(Adjoint):
    """All terms, as autograd through the whole recursion: memory grows with depth."""


@dataclass(frozen=True)
class Checkpointed(Truncated):
    """The gradient of N terms from one state: the last N steps are repeated in the backward pass."""

    repeats = True


def as_adjoint(adjoint: Adjoint | None, grad_terms: int | None, checkpoint: bool) -> Adjoint:
    """The adjoint itself, or what ``grad_terms`` and ``checkpoint`` say."""
    if adjoint is None:
        return Checkpointed(grad_terms) if checkpoint else Full() if grad_terms is None else Truncated(grad_terms)
    if not isinstance(adjoint, Adjoint):
        raise ValueError(
            f"adjoint must be Truncated(N), Full() or Checkpointed(N), but came as {adjoint!r}; grad_terms=N is "
            f"short for the first, grad_terms=None for the second."
        )
    if checkpoint or grad_terms != TERMS:
        raise ValueError(f"adjoint={adjoint} says how to differentiate; leave grad_terms and checkpoint out.")
    return adjoint


class Differentiable(torch.autograd.Function):
    """G⁽⁰⁾ of a pass that was run, with a gradient of exactly ``terms`` terms.

    Kept for the backward pass: G⁽¹⁾ ... G⁽ᵗᵉʳᵐˢ⁾, or with ``checkpoint`` only the last of them, whatever the
    depth; and what φ' needs of G⁽⁰⁾, which belongs to the caller and may be overwritten.
    """

    @staticmethod
    def forward(
        ctx: Any,
        b: Tensor,
        weight: Tensor,
        eps: Tensor,
        value: Tensor,  # = adj.value: an argument of its own so that autograd sees it
        trace: Tensor,  # nothing of b, but with its history: b itself is not kept
        adj: Adjacency,
        activation: Activation,
        depth: int,
        terms: int,
        checkpoint: bool,
        states: list[Tensor],
    ) -> Tensor:
        out, *kept = states
        ctx.adj, ctx.activation, ctx.depth, ctx.terms = adj, activation, depth, terms
        ctx.repeats = checkpoint and min(terms, depth) > 1
        # b is needed again to repeat steps, and to recover z when φ' cannot be read off φ(z).
        needs_b = ctx.repeats or not activation.from_output
        memo = None
        if terms and activation.from_output:
            memo = out.clone() if out.numel() <= SMALL_STATE else activation.memo(out)
        learned = value if ctx.needs_input_grad[3] else None  # else it may be a tensor of inference mode
        ctx.save_for_backward(weight, eps, learned, trace, b if needs_b else None, memo, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        weight, eps, value, trace, b, memo, *kept = ctx.saved_tensors
        given = Problem(grad_out if b is None else b, weight, eps, ctx.adj, ctx.activation)
        needs = ctx.needs_input_grad[:4]
        # So that states can go as soon as they have been read; older versions of torch keep them until the end.
        getattr(ctx, "maybe_clear_saved_tensors", lambda: None)()
        with torch.no_grad():
            found = pull_back(given, memo, kept, grad_out, ctx.depth, ctx.terms, needs, ctx.repeats)
        gradients = (found.b, found.weight, found.eps, found.value)
        return (*refuse_twice(gradients, (grad_out, weight, eps, value, trace), "a solve"), *(None,) * 7)


def refuse_twice(
    gradients: Sequence[Tensor | None], sources: Sequence[Tensor | None], what: str
) -> tuple[Tensor | None, ...]:
    """The gradients; in a backward pass with ``create_graph`` they raise when differentiated.

    ``torch.autograd.function.once_differentiable`` does so only where the incoming gradient has a history: with a
    loss such as ``out.sum()`` it has none, and a gradient penalty would be ignored without a word.
    """
    if not torch.is_grad_enabled():
        return tuple(gradients)
    inputs = [each for each in sources if each is not None and each.requires_grad]
    return tuple(
        None if each is None else _Refuse.apply(each, what, *inputs)  # type: ignore[no-untyped-call]
        for each in gradients
    )


class _Refuse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, what: str, *inputs: Tensor) -> Tensor:
        ctx.what = what
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError(
            f"The gradient of {ctx.what} cannot be differentiated again; for second derivatives (a gradient "
            f"penalty, a Hessian) use pprgnn.solve_steps(b, lambda g: adj @ g @ weight, ...), which plain "
            f"autograd follows."
        )
