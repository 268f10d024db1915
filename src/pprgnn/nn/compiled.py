"""The operators of :mod:`pprgnn.nn.operators`, registered with PyTorch, and the same as functions.

``torch.compile`` and ``torch.export`` see the operators; the transforms of ``torch.func`` (grad, vjp, jacrev and
vmap) understand functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pprgnn.nn import operators
from pprgnn.nn.operators import ALL, OWN, Graph, Options

_GRAPH = (
    "Tensor edges, Tensor? value, Tensor? col, Tensor? order, Tensor? rank, Tensor? handle, Tensor? layer, str how"
)
_OPTIONS = (
    "str rule, str activation, float tol, SymInt max_depth, SymInt grad_terms, SymInt slots, bool checkpoint, "
    "bool wants_grad, int part"
)
_SAVED = "Tensor? b, Tensor weight, Tensor eps, Tensor out, Tensor kept, Tensor depth"
_SIZE = len(Graph._fields)
NOT_IN_ONNX = "ONNX has no adaptive depth; run the model once and export pprgnn.nn.freeze_depth(model) instead."


# Not `torch.library.custom_op`: the same, but its wrappers in Python take half a millisecond a step.
_library: Any = torch.library.Library("pprgnn", "FRAGMENT")  # type: ignore[no-untyped-call]


def _operator(name: str, schema: str, function: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    _library.define(f"{name}{schema}")
    _library.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"pprgnn::{name}", fake, lib=_library)
    return getattr(torch.ops.pprgnn, name).default


def _quick(function: Callable[..., Any], operator: Any) -> Callable[..., Any]:
    """The operator, without the detour through torch's dispatcher where nobody watches it."""

    def call(first: Tensor, *args: Any) -> Any:
        watched = torch._C._len_torch_dispatch_stack() or type(first) not in (Tensor, torch.nn.Parameter)
        with torch._C._AutoDispatchBelowAutograd():
            return operator(first, *args) if watched else function(first, *args)

    return call


def _differentiable(
    name: str, operator: Callable[..., Any], save: Callable[..., None], backward: Callable[..., Any]
) -> None:
    def forward(ctx: Any, *args: Any) -> Any:
        output = operator(*args)
        save(ctx, args, output)
        return output

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function: Any = type(f"{name.capitalize()}Backward", (torch.autograd.Function,), methods)

    def autograd(*args: Any) -> Any:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):
            return function.apply(*args)
        return operator(*args)

    _library.impl(name, autograd, "Autograd")


# ---------------------------------------------------------------------------------------------------------- solve
def _run(b: Tensor, weight: Tensor, eps: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return operators.run(b, weight, eps, Graph(*rest[:_SIZE]), Options(*rest[_SIZE:]))


def _fake_run(b: Tensor, weight: Tensor, eps: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    if torch.onnx.is_in_onnx_export():  # its second attempt, in which the layer does not notice
        raise ValueError(NOT_IN_ONNX)
    kept = b.new_empty(Options(*rest[_SIZE:]).slots, *b.shape)
    return b.new_empty(b.shape), kept, torch.empty((), dtype=torch.int64, device="cpu")


def _pull(*args: Any) -> list[Tensor]:
    *saved, needs = args
    return operators.pull(saved[:7], Graph(*saved[7 : 7 + _SIZE]), Options(*saved[7 + _SIZE :]), needs)


def _fake_pull(grad: Tensor, b: Any, weight: Tensor, eps: Tensor, out: Tensor, *rest: Any) -> list[Tensor]:
    like = (out, weight, eps, rest[3])  # rest: kept, depth, edges, value ...
    return [each.new_empty(each.shape) for each, needed in zip(like, rest[-1], strict=True) if needed]


solve = _operator(
    "solve",
    f"(Tensor b, Tensor weight, Tensor eps, {_GRAPH}, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
    _run,
    _fake_run,
)
solve_backward = _operator(
    "solve_backward", f"(Tensor grad, {_SAVED}, {_GRAPH}, {_OPTIONS}, bool[] needs) -> Tensor[]", _pull, _fake_pull
)


def _save_solve(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    b, weight, eps, *rest = inputs
    graph, ctx.options = Graph(*rest[:_SIZE]), Options(*rest[_SIZE:])
    ctx.how = graph.how
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])
    repeats = ctx.options.grad_terms == ALL or ctx.options.checkpoint
    needs_b = repeats or ctx.options.activation == OWN  # φ' may need its input
    ctx.save_for_backward(b if needs_b else None, weight, eps, *output, *graph[:-1])


def _solve_gradients(pull: Callable[..., Any], ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
    if not ctx.options.wants_grad:
        raise RuntimeError(
            "This graph was made without gradients; compile or export it with gradients enabled (and export it in "
            "training mode) to train it."
        )
    needs = [ctx.needs_input_grad[i] for i in (0, 1, 2, 4)]  # b, weight, eps, value
    found = iter(()) if grad is None else iter(pull(grad, *ctx.saved_tensors, ctx.how, *ctx.options, needs))
    b, weight, eps, value = (next(found, None) if needed else None for needed in needs)
    return b, weight, eps, None, value, *(None,) * (_SIZE - 2 + len(ctx.options))


def _solve_backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    return _solve_gradients(_quick_pull, ctx, grad)


_quick_pull = _quick(_pull, solve_backward)
_differentiable("solve", _quick(_run, solve), _save_solve, _solve_backward)


# ------------------------------------------------------------------------------------------------------ propagate
def _product(x: Tensor, *rest: Any) -> Tensor:
    return operators.product(x, Graph(*rest[:-1]), rest[-1])


def _fake_product(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape)


def _edge_gradient(left: Tensor, right: Tensor, *graph: Any) -> Tensor:
    return operators.edge_gradient(left, right, Graph(*graph))


def _fake_edge_gradient(left: Tensor, right: Tensor, edges: Tensor, value: Tensor, *rest: Any) -> Tensor:
    return value.new_empty(value.shape)


propagate = _operator("propagate", f"(Tensor x, {_GRAPH}, bool transposed) -> Tensor", _product, _fake_product)
edge_gradient = _operator(
    "edge_gradient", f"(Tensor left, Tensor right, {_GRAPH}) -> Tensor", _edge_gradient, _fake_edge_gradient
)


def _save_product(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, *graph, ctx.transposed = inputs
    ctx.how = graph.pop()
    ctx.save_for_backward(x if ctx.needs_input_grad[2] else None, *graph)


def _product_gradients(
    propagate: Callable[..., Tensor], edge_gradient: Callable[..., Tensor], ctx: Any, grad: Tensor
) -> tuple[Tensor | None, ...]:
    x, *graph = ctx.saved_tensors
    pair = (x, grad) if ctx.transposed else (grad, x)
    return (
        propagate(grad, *graph, ctx.how, not ctx.transposed) if ctx.needs_input_grad[0] else None,
        None,
        edge_gradient(*pair, *graph, ctx.how) if ctx.needs_input_grad[2] else None,
        *(None,) * (_SIZE - 1),
    )


def _product_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return _product_gradients(propagate, edge_gradient, ctx, grad)


_differentiable("propagate", _quick(_product, propagate), _save_product, _product_backward)


# ------------------------------------------------------------------------------------------------------ torch.func
class _Looped(torch.autograd.Function):
    """Whatever comes in batches is done one by one."""

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        def part(i: int) -> list[Any]:
            given = zip(args, in_dims, strict=True)
            return [arg.select(dim, i) if isinstance(dim, int) else arg for arg, dim in given]

        results = [cls.apply(*part(i)) for i in range(info.batch_size)]  # type: ignore[no-untyped-call]
        if isinstance(results[0], Tensor):
            return torch.stack(results), 0
        return tuple(torch.stack(each) for each in zip(*results, strict=True)), (0,) * len(results[0])


class Solve(_Looped):
    """:data:`solve`."""

    forward = staticmethod(_run)
    setup_context = staticmethod(_save_solve)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        return _solve_gradients(_SolveBackward.apply, ctx, grad)


class _SolveBackward(_Looped):
    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        return tuple(_pull(*args))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError("The gradient of a solve cannot be differentiated again.")


class Propagate(_Looped):
    """:data:`propagate`."""

    forward = staticmethod(_product)
    setup_context = staticmethod(_save_product)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _product_gradients(Propagate.apply, _EdgeGradient.apply, ctx, grad)


class _EdgeGradient(_Looped):
    forward = staticmethod(_edge_gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError("The gradient of a product by its edge weights cannot be differentiated again.")
