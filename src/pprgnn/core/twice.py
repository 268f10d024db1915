"""Gradients that cannot be differentiated again say so, instead of passing for constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def not_twice(
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
