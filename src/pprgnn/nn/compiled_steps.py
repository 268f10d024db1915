"""The forward pass of :class:`pprgnn.nn.InfiniteDepth` under a compiler.

How deep the recursion goes is found by an operator that is opaque to the compiler and calls the convolution as
plain Python does; its answer, the state from which a few steps are left, is a constant to the gradient. Those last
steps are compiled with everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pprgnn.core.depth import Fixed, run_at_depth
from pprgnn.core.handles import held
from pprgnn.core.steps import unrolled
from pprgnn.nn.known_convs import know
from pprgnn.nn.wrapped_conv import draws_at_random

if TYPE_CHECKING:
    from pprgnn.nn.infinite_depth import InfiniteDepth

PLACES = "0123456789"


def _settle(
    b: Tensor,
    eps: Tensor,
    layer: Tensor,
    parameters: Sequence[Tensor],
    arguments: Sequence[Tensor],
    names: Sequence[str],
    terms: int,
) -> Tensor:
    owner: InfiniteDepth | None = held(layer)
    if owner is None:
        raise RuntimeError("This compiled code needs a layer that is gone; keep the model, or compile it again.")
    args = tuple(value for name, value in zip(names, arguments, strict=True) if name in PLACES)
    kwargs = {name: value for name, value in zip(names, arguments, strict=True) if name not in PLACES}
    own = dict(zip(_names(owner), parameters, strict=True))

    def call(g: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(owner.conv, own, (g, *args), kwargs)
        return out

    with torch.no_grad():
        problem = owner.problem(b, eps, call, args, kwargs, know(owner.conv, b, args, kwargs))
        problem.check()

        def pass_of(k: int) -> tuple[tuple[Tensor, Callable[[], Tensor]], Callable[[], list[Tensor]]]:
            state = problem.start(k, terms)

            def output() -> Tensor:
                return problem.finish(state, terms, False)

            return (state, output), lambda: [output(), state] if terms else [state]

        limits = (owner.tol, owner.max_depth)
        found, (state, output) = run_at_depth(owner.depth_rule, problem, *limits, terms, pass_of, terms > 0)
        solution = problem.described(output(), found, *limits)
    # The compiler may re-use the memory of the state.
    owner.last_solution = replace(solution, state=b.new_empty(0))
    return state


settle = torch.library.custom_op(
    "pprgnn::settle",
    _settle,
    mutates_args=(),
    schema="(Tensor b, Tensor eps, Tensor layer, Tensor[] parameters, Tensor[] arguments, str[] names, int terms) "
    "-> Tensor",
)


@settle.register_fake
def _(b: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(b, memory_format=torch.contiguous_format)


def forward(
    layer: InfiniteDepth,
    b: Tensor,
    call: Callable[[Tensor], Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Tensor:
    """The state; ``call`` is the convolution on these arguments."""
    phi, wants_grad = layer.activation, torch.is_grad_enabled()
    rates = layer.eps
    eps = rates.to(b.dtype) if isinstance(rates, Tensor) else torch.full((), rates, dtype=b.dtype, device=b.device)
    rule, terms = layer.depth_rule, (layer.grad_terms if wants_grad else 0)
    if isinstance(rule, Fixed):
        g, left = phi.function(b), rule.k
        if terms is not None and terms < rule.k:
            with torch.no_grad():
                g = unrolled(call, b, eps, phi, range(terms, rule.k))
            left = terms
    else:
        _check(layer, args, kwargs)
        assert terms is not None
        names, values = _flat(args, kwargs)
        parameters = [*layer.conv.parameters(), *layer.conv.buffers()]
        with torch.no_grad():
            g = torch.ops.pprgnn.settle(b, eps, layer.handle, parameters, values, names, terms)
        left = terms
    return unrolled(call, b, eps, phi, range(left), g)


def _check(layer: InfiniteDepth, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    name, remedy = type(layer.conv).__name__, "run the model once and use pprgnn.nn.freeze_depth(model)"
    if torch.compiler.is_exporting():
        raise ValueError(f"'{type(layer).__name__}' of adaptive depth cannot be exported; {remedy}.")
    if layer.grad_terms is None:
        raise ValueError(f"Compiled code needs a number of gradient terms; give grad_terms=..., or {remedy}.")
    if layer.training and draws_at_random(layer.conv):
        raise ValueError(
            f"Dropout inside {name} needs one mask for all steps, which compiled code cannot give; put dropout "
            f"around the layer instead."
        )
    if not all(value is None or isinstance(value, Tensor) for value in (*args, *kwargs.values())):
        raise ValueError(f"Compiled code of adaptive depth takes tensors alone behind x; {remedy}.")


def _names(layer: InfiniteDepth) -> list[str]:
    return [name for name, _ in (*layer.conv.named_parameters(), *layer.conv.named_buffers())]


def _flat(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[str], list[Tensor]]:
    """The tensors among the arguments, with their places or names."""
    places = [(str(i), value) for i, value in enumerate(args) if value is not None]
    named = [*places, *((name, value) for name, value in kwargs.items() if value is not None)]
    return [name for name, _ in named], [value for _, value in named]
