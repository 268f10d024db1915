"""A solve as operators of PyTorch, opaque to its compilers: inside, depth is adaptive as everywhere.

``pprgnn::solve`` and ``pprgnn::propagate`` (Ã x) know nothing but tensors, numbers and words, so that they can be
compiled, exported and run in another process. A layer that is alive is found by its handle: it has the memory of
its depths, it may have rules and activations that words cannot say, and it is told what came out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pprgnn.core.activation import RELU, TANH, Activation, leaky_relu, resolve_activation
from pprgnn.core.adjacency import Adjacency, times
from pprgnn.core.backend.buffers import acquire, collect, object_of, release_later
from pprgnn.core.backend.passes import pull_back
from pprgnn.core.backend.passes import run as run_pass
from pprgnn.core.depth import Certificate, DepthRule, Fixed, Influence, Measured, run_at_depth
from pprgnn.core.measure import part_of
from pprgnn.core.problem import Problem, as_eps, check_inputs
from pprgnn.core.solution import weakest
from pprgnn.nn.linear_output import LastStep, of_root, one_less
from pprgnn.nn.through_adjacency import cached_adjacency

_GRAPH = (
    "Tensor edges, Tensor? value, Tensor? col, Tensor? order, Tensor? rank, Tensor? handle, Tensor? layer, str how"
)
_OPTIONS = (
    "str rule, str activation, float tol, SymInt max_depth, SymInt grad_terms, SymInt slots, bool checkpoint, "
    "bool wants_grad, int part"
)
_SAVED = "Tensor? b, Tensor weight, Tensor eps, Tensor out, Tensor kept, Tensor depth"
NOT_IN_ONNX = "ONNX has no adaptive depth; run the model once and export pprgnn.nn.freeze_depth(model) instead."
OWN = "own"  # the rule or activation of the layer itself
ALL = -1  # terms
FIRST = " first"  # behind a rule: it is for G⁽¹⁾ of a layer whose last step is linear


class Graph(NamedTuple):
    """A graph as an operator takes it: ``how`` says whether the tensors are edges to build Ã of, or Ã itself."""

    edges: Tensor  # edge_index, or crow
    value: Tensor | None  # edge weights, or the entries of Ã
    col: Tensor | None
    order: Tensor | None
    rank: Tensor | None
    handle: Tensor | None  # of the Adjacency
    layer: Tensor | None  # handle of the layer
    how: str  # "edges" or "csr", then: none | sym | row, loops, flipped, keep


def adjacency(graph: Graph, num_nodes: int, dtype: torch.dtype) -> Adjacency:
    """The live object, the cached one or a new one."""
    edges, value, col, order, rank, handle, layer, how = graph
    kind, word, *flags = how.split()
    normalize: Any = None if word == "none" else word
    if kind == "csr":
        adj: Adjacency | None = object_of(handle)
        if adj is not None and value is not None:
            mine = (adj.indices[0].data_ptr(), adj.indices[1].data_ptr(), adj.value.data_ptr())
            if col is not None and mine == (edges.data_ptr(), col.data_ptr(), value.data_ptr()):
                return adj  # a handle that was stored may name another object here

        tensors = (edges, col, value, order, rank)

        def wrap() -> Adjacency:  # of copies: the compiler may use the memory again
            copies: list[Any] = [None if each is None else each.detach().clone() for each in tensors]
            return Adjacency(*copies[:3], normalize=normalize, order=copies[3], rank=copies[4])

        return cached_adjacency(tensors, (how,), wrap)

    def build() -> Adjacency:
        weight = None if value is None else value.detach()
        return Adjacency.from_edge_index(
            edges.flip(0) if "flipped" in flags else edges,
            weight,
            num_nodes,
            normalize=normalize,
            add_self_loops="loops" in flags,
            dtype=dtype,
        )

    owner = object_of(layer) if "keep" in flags else None
    if owner is not None and owner._cached_adj is not None:
        kept: Adjacency = owner._cached_adj
        return kept
    adj = cached_adjacency((edges, value), (how, num_nodes, dtype), build)
    if owner is not None:
        owner._cached_adj = adj
    return adj


_SIZE = len(Graph._fields)


# ------------------------------------------------------------------------------------------------------ the solve
class Options(NamedTuple):
    """What a solve is told beside its tensors."""

    rule: str
    activation: str
    tol: float  # this and the next are the layer's, if the rule is
    max_depth: int
    grad_terms: int  # ALL for all
    slots: int  # how many states are kept for the backward pass
    checkpoint: bool
    wants_grad: bool
    part: int  # which set of features on one graph


def rule_word(rule: DepthRule) -> str:
    """A rule as a word."""
    if isinstance(rule, Fixed):
        return f"fixed {rule.k}"
    if isinstance(getattr(rule, "rule", rule), Measured):  # with or without memory
        return "measured"
    return "certificate" if isinstance(rule, Certificate) else "influence" if isinstance(rule, Influence) else OWN


def activation_word(phi: Activation) -> str:
    """An activation as a word."""
    return phi.name if type(phi) in (type(RELU), type(TANH)) else OWN


def _rule(word: str, owner: Any) -> DepthRule:
    if word == OWN:
        rule: DepthRule = _alive(owner).depth_rule
        return rule
    if word.startswith("fixed"):
        return Fixed(int(word.split()[1]))
    rules: dict[str, DepthRule] = {"measured": Measured(), "certificate": Certificate(), "influence": Influence()}
    return rules[word]


def _activation(word: str, owner: Any) -> Activation:
    if word == OWN:
        own: Activation = _alive(owner).activation
        return own
    if word.startswith("leaky_relu("):
        return leaky_relu(float(word[len("leaky_relu(") : -1]))
    return resolve_activation(word)


def _alive(owner: Any) -> Any:
    if owner is None:
        raise RuntimeError(
            "This compiled code needs a layer that is gone, for its depth rule or activation; keep the model that "
            "was compiled."
        )
    return owner


def run(b: Tensor, weight: Tensor, eps: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    """G⁽⁰⁾, the states that its gradient needs, one above the other, and the depth."""
    collect()
    graph, options = Graph(*rest[:_SIZE]), Options(*rest[_SIZE:])
    rule, word, tol, max_depth, grad_terms, slots, checkpoint, wants_grad, part = options
    owner = object_of(graph.layer)
    first, rule = rule.endswith(FIRST), rule.removesuffix(FIRST)
    if rule == OWN:  # with its limits: no need to compile anew when they change
        owner = _alive(owner)
        tol, max_depth = owner.tol, owner.max_depth
    terms = grad_terms if wants_grad and grad_terms != ALL else 0
    adj, phi = adjacency(graph, b.size(0), b.dtype), _activation(word, owner)
    check_inputs(b, weight, adj, tol, max_depth, None if grad_terms == ALL else grad_terms)
    given = Problem(b.contiguous(), weight.contiguous(), _rates(eps, b), adj, phi)
    last, chosen, whole, asked = None, _rule(rule, owner), given, (tol, max_depth)
    if first:
        scale = getattr(owner, "output_scale", None)
        root = of_root(given.weight, given.eps)
        whole = replace(given, weight=root, eps=given.eps / (1 - given.eps))
        last = LastStep.of(root, adj, 1.0 if scale is None else float(scale.abs().max()))
        tol, max_depth = last.tolerance(tol), max(max_depth - 1, 1)
        chosen = chosen if rule != OWN else one_less(chosen)

    def pass_of(k: int) -> tuple[tuple[Tensor, Tensor], Callable[[], list[Tensor]]]:
        kept = acquire(b.expand(slots, *b.shape))
        states = run_pass(given, k, terms, checkpoint, kept.unbind(0))
        return (states[0], kept), lambda: [states[0], states[-1]] if terms else [states[0]]

    with part_of(whole.facts, *asked):
        solution, (out, kept) = run_at_depth(chosen, given, tol, max_depth, terms, pass_of, wants_grad)
    depth = torch.tensor(solution.depth, device="cpu")
    if owner is not None:
        # Without the state: the compiler may do with its memory what it likes.
        nothing = out.new_empty(0)
        after = solution if last is None else last.after(solution, b, adj, nothing)
        solution = replace(after, state=nothing)
        before = [owner.last_solution] if part and owner.last_solution is not None else []
        owner.last_solution = weakest([*before, solution], solution.state)
    return out, release_later(kept), depth


def _rates(eps: Tensor, b: Tensor) -> Tensor:
    if eps.numel() == 1 and 0.0 < float(eps) < math.inf:  # the quick way
        return eps.reshape(())
    return as_eps(eps, b, b.size(1))


def pull(*args: Any) -> list[Tensor]:
    """The gradients that are needed, of b, weight, eps and the edges. What came in is left as it is."""
    collect()
    grad, b, weight, eps, out, kept, depth, *rest, needs = args
    graph, options = Graph(*rest[:_SIZE]), Options(*rest[_SIZE:])
    k, adj = int(depth), adjacency(graph, out.size(0), out.dtype)
    phi = _activation(options.activation, object_of(graph.layer))
    rates = eps.reshape(()) if eps.numel() == 1 else eps
    given = Problem(out if b is None else b.contiguous(), weight.contiguous(), rates, adj, phi)
    if options.grad_terms == ALL:
        terms, repeats = k + 1, False
        out, *states = run_pass(given, k, terms, False)
    else:
        terms = min(options.grad_terms, k + 1)
        keep = min(terms, k)
        repeats = options.checkpoint and keep > 1
        states = list(kept.unbind(0)[: 1 if repeats else keep])
    bars = pull_back(given, out, states, grad, k, terms, needs, repeats)
    found = (
        None if bars.b is None else release_later(bars.b),
        bars.weight,
        None if bars.eps is None else bars.eps.view_as(eps),
        None if bars.value is None else _per_edge(bars.value, adj, graph),
    )
    return [each for each in found if each is not None]


def _per_edge(value_bar: Tensor, adj: Adjacency, graph: Graph) -> Tensor:
    """From the entries of Ã to the edges that they were built of."""
    if graph.how.startswith("csr"):
        return value_bar
    column, row = graph.edges.flip(0) if "flipped" in graph.how else graph.edges
    if adj.rank is not None:
        row, column = adj.rank[row], adj.rank[column]
    n = adj.num_nodes
    return value_bar[torch.searchsorted(adj.row * n + adj.col, row * n + column)]


# ---------------------------------------------------------------------------------------------------- the product
def product(x: Tensor, *rest: Any) -> Tensor:
    """Ã x or Ãᵀ x."""
    collect()
    graph, transposed = Graph(*rest[:-1]), rest[-1]
    adj = adjacency(graph, x.size(0), x.dtype)
    return release_later(times(adj, x.contiguous(), transposed=True) if transposed else adj @ x)


def edge_products(left: Tensor, right: Tensor, *rest: Any) -> Tensor:
    """⟨left_i, right_j⟩ for every edge that i reads j by."""
    graph = Graph(*rest)
    adj = adjacency(graph, left.size(0), left.dtype)
    return _per_edge(adj.edge_gradient(adj.permute(left), adj.permute(right)), adj, graph)


# ---------------------------------------------------------------------------------------------------- registration
# Not `torch.library.custom_op`: the same, but its wrappers in Python take half a millisecond a step.
_library: Any = torch.library.Library("pprgnn", "FRAGMENT")  # type: ignore[no-untyped-call]


def _operator(name: str, schema: str, function: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    _library.define(f"{name}{schema}")
    _library.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"pprgnn::{name}", fake, lib=_library)
    return getattr(torch.ops.pprgnn, name).default


def _fake_run(b: Tensor, weight: Tensor, eps: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    if torch.onnx.is_in_onnx_export():  # its second attempt, in which the layer does not notice
        raise ValueError(NOT_IN_ONNX)
    kept = b.new_empty(Options(*rest[_SIZE:]).slots, *b.shape)
    return b.new_empty(b.shape), kept, torch.empty((), dtype=torch.int64, device="cpu")


def _fake_pull(grad: Tensor, b: Any, weight: Tensor, eps: Tensor, out: Tensor, *rest: Any) -> list[Tensor]:
    like = (out, weight, eps, rest[3])  # rest: kept, depth, edges, value ...
    return [each.new_empty(each.shape) for each, needed in zip(like, rest[-1], strict=True) if needed]


solve = _operator(
    "solve",
    f"(Tensor b, Tensor weight, Tensor eps, {_GRAPH}, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
    run,
    _fake_run,
)
solve_backward = _operator(
    "solve_backward", f"(Tensor grad, {_SAVED}, {_GRAPH}, {_OPTIONS}, bool[] needs) -> Tensor[]", pull, _fake_pull
)
propagate = _operator(
    "propagate", f"(Tensor x, {_GRAPH}, bool transposed) -> Tensor", product, lambda x, *_: x.new_empty(x.shape)
)
edge_gradient = _operator(
    "edge_gradient",
    f"(Tensor left, Tensor right, {_GRAPH}) -> Tensor",
    edge_products,
    lambda left, right, edges, value, *_: value.new_empty(value.shape),
)


# ------------------------------------------------------------------------------------------------------ gradients
def _quick(function: Callable[..., Any], operator: Any) -> Callable[..., Any]:
    """The operator, without the detour through torch's dispatcher where nobody watches it."""

    def call(first: Tensor, *args: Any) -> Any:
        watched = torch._C._len_torch_dispatch_stack() or type(first) not in (Tensor, torch.nn.Parameter)
        with torch._C._AutoDispatchBelowAutograd():
            return operator(first, *args) if watched else function(first, *args)

    return call


class _Looped(torch.autograd.Function):
    """What the transforms of ``torch.func`` understand, too; whatever comes in batches is done one by one."""

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        def part(i: int) -> list[Any]:
            given = zip(args, in_dims, strict=True)
            return [arg.select(dim, i) if isinstance(dim, int) else arg for arg, dim in given]

        results = [cls.apply(*part(i)) for i in range(info.batch_size)]  # type: ignore[no-untyped-call]
        if isinstance(results[0], Tensor):
            return torch.stack(results), 0
        return tuple(torch.stack(each) for each in zip(*results, strict=True)), (0,) * len(results[0])


class _Gradient(_Looped):
    """One that has none itself."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError("The gradient of a solve or of edge weights cannot be differentiated again.")


class _SolveGradient(_Gradient):
    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        return tuple(_quick_pull(*args))


class _EdgeGradient(_Gradient):
    forward = staticmethod(_quick(edge_products, edge_gradient))


class Solve(_Looped):
    """:data:`solve` with its gradient."""

    forward = staticmethod(_quick(run, solve))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        b, weight, eps, *rest = inputs
        graph, ctx.options = Graph(*rest[:_SIZE]), Options(*rest[_SIZE:])
        ctx.how = graph.how
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[1:])
        repeats = ctx.options.grad_terms == ALL or ctx.options.checkpoint
        needs_b = repeats or ctx.options.activation == OWN  # φ' may need its input
        ctx.save_for_backward(b if needs_b else None, weight, eps, *output, *graph[:-1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if not ctx.options.wants_grad:
            raise RuntimeError(
                "This graph was made without gradients; compile or export it with gradients enabled (and export "
                "it in training mode) to train it."
            )
        needs = [ctx.needs_input_grad[i] for i in (0, 1, 2, 4)]  # b, weight, eps, value
        known = (*ctx.saved_tensors, ctx.how, *ctx.options, needs)
        found = iter(() if grad is None else _SolveGradient.apply(grad, *known))  # type: ignore[no-untyped-call]
        b, weight, eps, value = (next(found, None) if needed else None for needed in needs)
        return b, weight, eps, None, value, *(None,) * (_SIZE - 2 + len(ctx.options))


class Propagate(_Looped):
    """:data:`propagate` with its gradient."""

    forward = staticmethod(_quick(product, propagate))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, *graph, ctx.transposed = inputs
        ctx.how = graph.pop()
        ctx.save_for_backward(x if ctx.needs_input_grad[2] else None, *graph)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *graph = ctx.saved_tensors
        graph = [*graph, ctx.how]
        of_x = of_value = None
        if ctx.needs_input_grad[0]:
            of_x = Propagate.apply(grad, *graph, not ctx.transposed)  # type: ignore[no-untyped-call]
        if ctx.needs_input_grad[2]:
            pair = (x, grad) if ctx.transposed else (grad, x)
            of_value = _EdgeGradient.apply(*pair, *graph)  # type: ignore[no-untyped-call]
        return of_x, None, of_value, *(None,) * (_SIZE - 1)


_quick_pull = _quick(pull, solve_backward)


def _differentiable(name: str, function: Any) -> None:
    def autograd(*args: Any) -> Any:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):
            return function.apply(*args)
        return function.forward(*args)

    _library.impl(name, autograd, "Autograd")


_differentiable("solve", Solve)
_differentiable("propagate", Propagate)
