"""The forward pass of the layers where plain Python is not possible: under compilers, ``torch.func`` and ONNX.

:class:`pprgnn.nn.PPRConv` becomes operators (:mod:`pprgnn.nn.operators`), and plain messages for ONNX. How deep an
:class:`pprgnn.nn.InfiniteDepth` goes is found by an operator that is opaque to compilers and calls the convolution
as plain Python does; its answer, the state from which a few steps are left, is a constant to the gradient. Those
last steps are compiled with everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.buffers import object_of
from pprgnn.core.depth import Fixed, run_at_depth
from pprgnn.core.recursion import unrolled
from pprgnn.core.solution import Solution, Status
from pprgnn.nn import operators
from pprgnn.nn.known_convs import analyze_conv
from pprgnn.nn.linear_output import of_first_hop, one_less
from pprgnn.nn.messages import normalized_edges, recursion_by_messages
from pprgnn.nn.operators import ALL, FIRST, OWN, Graph, Options, activation_word, rule_word
from pprgnn.nn.wrapped_conv import Call, draws_at_random

if TYPE_CHECKING:
    from pprgnn.nn.infinite_depth import InfiniteDepth
    from pprgnn.nn.ppr_conv import PPRConv

PLACES = "0123456789"


def is_needed(edge_index: Any) -> bool:
    """Whether a compiler or a transform of ``torch.func`` runs this code; neither can read sparse tensors."""
    plain = isinstance(edge_index, Adjacency) or getattr(edge_index, "layout", None) is torch.strided
    return plain and (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


@torch.compiler.disable  # type: ignore[untyped-decorator]
def eager_only(function: Callable[..., Tensor], *args: Any) -> Any:
    """Call a function that compilers must not look into: sparse tensors and equilibria are beyond them."""
    return function(*args)


def forward_product(layer: PPRConv, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
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
    one: Callable[..., Any] = operators.propagate
    many: Callable[..., Any] = operators.solve
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        one, many = operators.Propagate.apply, operators.Solve.apply
    b = layer._input_term(one(b, *graph, False) if layer.smooth_input else b)
    weight, eps = layer.recurrent_weight(), layer.eps
    if not isinstance(eps, Tensor):
        eps = torch.full((), eps, dtype=b.dtype, device=b.device)
    eps = eps.to(b.dtype)
    if layer.output_activation:
        return layer.scaled(_solved(layer, many, b, weight, eps, graph, part))
    if layer.depth_rule == Fixed(0):
        if not torch.compiler.is_exporting():
            layer.last_solution = Solution(b.new_empty(0), 0, Status.FIXED)
        return layer.scaled(b)
    first, first_graph = (b, *of_first_hop(weight, eps)), graph
    if layer.grad_terms == 1:  # the one term is that of the last step
        first = (b.detach(), first[1].detach(), first[2].detach())
        first_graph = graph._replace(value=None if graph.value is None else graph.value.detach())
    state = _solved(layer, many, *first, first_graph, part, FIRST)
    with torch.autocast(b.device.type, enabled=False):
        return layer.scaled(torch.addmm(b, one(state, *graph, False), weight))  # Z⁽⁰⁾ = Ã G⁽¹⁾ W + B


def _solved(
    layer: PPRConv,
    many: Callable[..., Any],
    b: Tensor,
    weight: Tensor,
    eps: Tensor,
    graph: Graph,
    part: int,
    hop: str = "",
) -> Tensor:
    """G⁽⁰⁾ of a recursion; G⁽¹⁾ of the layer where ``hop`` says so."""
    rule, terms = layer.depth_rule, layer.grad_terms
    if hop:
        rule, terms = one_less(rule), None if terms is None else max(terms - 1, 1)
    tensors = [b, weight, eps] if graph.value is None else [b, weight, eps, graph.value]
    exported_for_use = torch.compiler.is_exporting() and not layer.training
    wants_grad = torch.is_grad_enabled() and any(t.requires_grad for t in tensors) and not exported_for_use
    slots = terms if wants_grad and terms is not None else 0
    if isinstance(rule, Fixed):
        slots = min(slots, rule.k)
    alone = graph.layer is None
    options = Options(
        (rule_word(rule) if alone else OWN) + hop,
        activation_word(layer.activation),
        layer.tol if alone else 0.0,
        layer.max_depth if alone else 0,
        ALL if terms is None else terms,
        min(slots, 1) if layer.checkpoint else slots,
        layer.checkpoint,
        wants_grad,
        part,
    )
    if alone and OWN in (options.rule.removesuffix(hop), options.activation):
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
        edge_index, edge_weight = normalized_edges(layer, edge_index, edge_weight, b)
        normalize, loops, keep = None, False, ""
    how = f"edges {normalize or 'none'}{' loops' if loops else ''}{flipped}{keep}"
    return Graph(edge_index, edge_weight, None, None, None, None, handle, how)


def _messages(layer: PPRConv, b: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
    """The whole recursion in standard operations."""
    if not isinstance(layer.depth_rule, Fixed):
        raise ValueError(operators.NOT_IN_ONNX)
    if not isinstance(edge_index, Tensor):
        raise ValueError("ONNX needs an edge_index of shape (2, num_edges), not a sparse adjacency.")
    edge_index, weight = normalized_edges(layer, edge_index, edge_weight, b)
    source, target = edge_index if layer.flow == "source_to_target" else edge_index.flip(0)

    def send(x: Tensor) -> Tensor:
        return torch.zeros_like(x).index_add(-2, target, x.index_select(-2, source) * weight.unsqueeze(-1))

    return recursion_by_messages(layer, b, send, layer.depth_rule.k)


# ------------------------------------------------------------------------------------------------- any convolution
def _settle(
    b: Tensor,
    eps: Tensor,
    layer: Tensor,
    parameters: Sequence[Tensor],
    arguments: Sequence[Tensor],
    names: Sequence[str],
    terms: int,
) -> Tensor:
    owner: InfiniteDepth | None = object_of(layer)
    if owner is None:
        raise RuntimeError("This compiled code needs a layer that is gone; keep the model, or compile it again.")
    args = tuple(value for name, value in zip(names, arguments, strict=True) if name in PLACES)
    kwargs = {name: value for name, value in zip(names, arguments, strict=True) if name not in PLACES}
    own = dict(zip(_names(owner), parameters, strict=True))

    def call(g: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(owner.conv, own, (g, *args), kwargs)
        return out

    with torch.no_grad():
        known = analyze_conv(owner.conv, b, args, kwargs)
        problem = owner.problem(b, eps, Call(owner.conv, args, kwargs, call), known)
        problem.check()

        def pass_of(k: int) -> tuple[Tensor, Callable[[], list[Tensor]]]:
            state = problem.start(k, terms)
            return state, lambda: [problem.finish(state, terms, False), state] if terms else [state]

        limits = (owner.tol, owner.max_depth)
        solution, state = run_at_depth(owner.depth_rule, problem, *limits, terms, pass_of, terms > 0)
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


def forward_steps(layer: InfiniteDepth, b: Tensor, call: Call) -> Tensor:
    """The state."""
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
        _check(layer, call)
        assert terms is not None
        places = [*((str(i), value) for i, value in enumerate(call.args)), *call.kwargs.items()]
        names = [name for name, value in places if value is not None]
        values = [value for _, value in places if value is not None]
        parameters = [*layer.conv.parameters(), *layer.conv.buffers()]
        with torch.no_grad():
            g = torch.ops.pprgnn.settle(b, eps, layer.handle, parameters, values, names, terms)
        left = terms
    return unrolled(call, b, eps, phi, range(left), g)


def _check(layer: InfiniteDepth, call: Call) -> None:
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
    if not all(value is None or isinstance(value, Tensor) for value in (*call.args, *call.kwargs.values())):
        raise ValueError(f"Compiled code of adaptive depth takes tensors alone behind x; {remedy}.")


def _names(layer: InfiniteDepth) -> list[str]:
    return [name for name, _ in (*layer.conv.named_parameters(), *layer.conv.named_buffers())]
