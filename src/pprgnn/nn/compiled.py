"""The forward pass of :class:`pprgnn.nn.PPRConv` where plain Python is not possible.

``torch.compile`` and ``torch.export`` see the operators of :mod:`pprgnn.nn.operators`, ``torch.func`` the same in
functions that its transforms understand, ONNX plain messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.depth import Fixed
from pprgnn.core.steps import unrolled
from pprgnn.nn import operators, traced_edges
from pprgnn.nn.operators import ALL, OWN, Graph, Options, activation_word, rule_word

if TYPE_CHECKING:
    from pprgnn.nn.ppr_conv import PPRConv

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


# ------------------------------------------------------------------------------------------------------ the layer
def is_needed(edge_index: Any) -> bool:
    """Whether a compiler or a transform of ``torch.func`` runs this code; neither can read sparse tensors."""
    plain = isinstance(edge_index, Adjacency) or getattr(edge_index, "layout", None) is torch.strided
    return plain and (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


@torch.compiler.disable  # type: ignore[untyped-decorator]
def apart(function: Callable[..., Tensor], *args: Any) -> Any:
    """Call a function that compilers must not look into: sparse tensors and equilibria are beyond them."""
    return function(*args)


def forward(layer: PPRConv, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
    """The forward pass of the layer, by operators."""
    b = layer.lin(x).to(layer.weight.dtype)  # autocast may have lowered it
    if torch.onnx.is_in_onnx_export():
        with torch.autocast(b.device.type, enabled=False):
            return _messages(layer, b, edge_index, edge_weight)
    handle = None if torch.compiler.is_exporting() else layer.handle
    graph = _graph(layer, b, edge_index, edge_weight, handle)
    if b.dim() == 2:
        return _state(layer, b, graph, 0)
    states = [_state(layer, part, graph, i) for i, part in enumerate(b)]
    return torch.stack(states) if states else b


def _state(layer: PPRConv, b: Tensor, graph: Graph, part: int) -> Tensor:
    one: Callable[..., Any] = propagate
    many: Callable[..., Any] = solve
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        from pprgnn.nn import transforms

        one, many = transforms.Propagate.apply, transforms.Solve.apply
    b = layer._input_term(one(b, *graph, False) if layer.smooth_input else b)
    weight, eps = layer.recurrent_weight(), layer.eps
    if not isinstance(eps, Tensor):
        eps = torch.full((), eps, dtype=b.dtype, device=b.device)
    eps = eps.to(b.dtype)
    tensors = [b, weight, eps] if graph.value is None else [b, weight, eps, graph.value]
    exported_for_use = torch.compiler.is_exporting() and not layer.training
    wants_grad = torch.is_grad_enabled() and any(t.requires_grad for t in tensors) and not exported_for_use
    slots = layer.grad_terms if wants_grad and layer.grad_terms is not None else 0
    if isinstance(layer.depth_rule, Fixed):
        slots = min(slots, layer.depth_rule.k)
    alone = graph.layer is None
    options = Options(
        rule_word(layer.depth_rule) if alone else OWN,
        activation_word(layer.activation),
        layer.tol if alone else 0.0,
        layer.max_depth if alone else 0,
        ALL if layer.grad_terms is None else layer.grad_terms,
        min(slots, 1) if layer.checkpoint else slots,
        layer.checkpoint,
        wants_grad,
        part,
    )
    if alone and OWN in (options.rule, options.activation):
        raise ValueError(
            "A depth rule or activation of your own cannot be exported; use a built-in one (depth=None, a number, "
            "pprgnn.Certificate() or pprgnn.Influence(); activation='relu', 'leaky_relu', 'tanh' or 'identity')."
        )
    state: Tensor = many(b, weight, eps, *graph, *options)[0]
    return state


def _graph(layer: PPRConv, b: Tensor, edge_index: Any, edge_weight: Tensor | None, handle: Tensor | None) -> Graph:
    if handle is None and layer._cached_adj is not None:  # while a layer lives, the operator looks there
        edge_index = layer._cached_adj
    if isinstance(edge_index, Adjacency):
        if edge_weight is not None:
            raise ValueError("An Adjacency carries its own weights; pass edge_weight when building it.")
        crow, col = edge_index.indices
        own = None if handle is None else edge_index.handle
        how = f"csr {edge_index.normalize or 'none'}"
        return Graph(crow, edge_index.value, col, edge_index.order, edge_index.rank, own, handle, how)
    normalize, loops = layer.normalization, layer.add_self_loops
    flipped = " flipped" if layer.flow != "source_to_target" else ""
    keep = " keep" if layer.cached else ""
    if edge_weight is not None and edge_weight.requires_grad and torch.is_grad_enabled():
        # Autograd follows the normalisation itself, and the operator gives the gradient of what comes out.
        edge_index, edge_weight = traced_edges.normalized(edge_index, edge_weight, b, normalize, loops, layer.flow)
        normalize, loops, keep = None, False, ""
    how = f"edges {normalize or 'none'}{' loops' if loops else ''}{flipped}{keep}"
    return Graph(edge_index, edge_weight, None, None, None, None, handle, how)


def _messages(layer: PPRConv, b: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
    """The whole recursion in standard operations."""
    if not isinstance(layer.depth_rule, Fixed):
        raise ValueError(NOT_IN_ONNX)
    if not isinstance(edge_index, Tensor):
        raise ValueError("ONNX needs an edge_index of shape (2, num_edges), not a sparse adjacency.")
    edge_index, edge = traced_edges.normalized(
        edge_index, edge_weight, b[0] if b.dim() == 3 else b, layer.normalization, layer.add_self_loops, layer.flow
    )
    source, target = edge_index if layer.flow == "source_to_target" else edge_index.flip(0)
    edges = (source, target, edge)
    b = layer._input_term(traced_edges.propagated(b, *edges) if layer.smooth_input else b)
    weight, eps = layer.recurrent_weight(), torch.as_tensor(layer.eps, dtype=b.dtype, device=b.device)

    def step(g: Tensor) -> Tensor:
        return traced_edges.propagated(g, *edges) @ weight

    return unrolled(step, b, eps, layer.activation, range(layer.depth_rule.k))
