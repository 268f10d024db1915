"""A solve as operators of PyTorch, opaque to its compilers: inside, depth is adaptive as everywhere.

``pprgnn::solve`` and ``pprgnn::propagate`` (Ã x) know nothing but tensors, numbers and words, so that they can be
compiled, exported and run in another process. A layer that is alive is found by its handle: it has the memory of
its depths, it may have rules and activations that words cannot say, and it is told what came out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pprgnn.core.activation import RELU, TANH, Activation, leaky_relu, resolve_activation
from pprgnn.core.adjacency import Adjacency, times
from pprgnn.core.backend.buffers import acquire, collect, release_later
from pprgnn.core.backend.handles import object_of
from pprgnn.core.backend.passes import pull_back
from pprgnn.core.backend.passes import run as run_pass
from pprgnn.core.checks import as_eps, check_inputs
from pprgnn.core.depth import Certificate, DepthRule, Fixed, Influence, Measured, run_at_depth
from pprgnn.core.last_step import LastStep, of_root, one_less
from pprgnn.core.problem import Problem
from pprgnn.core.rounding import described
from pprgnn.core.solution import weakest
from pprgnn.nn.adjacency_cache import adjacency_by_content

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

        def wrap(crow: Tensor, value: Tensor, col: Tensor, order: Any, rank: Any) -> Adjacency:
            return Adjacency(crow, col, value, normalize=normalize, order=order, rank=rank)

        return adjacency_by_content((edges, value, col, order, rank), (how,), wrap)

    def build(edges: Tensor, value: Tensor | None) -> Adjacency:
        edges = edges.flip(0) if "flipped" in flags else edges
        return Adjacency.from_edge_index(
            edges, value, num_nodes, normalize=normalize, add_self_loops="loops" in flags, dtype=dtype
        )

    owner = object_of(layer) if "keep" in flags else None
    if owner is not None and owner._cached_adj is not None:
        kept: Adjacency = owner._cached_adj
        return kept
    adj = adjacency_by_content((edges, value), (how, num_nodes, dtype), build)
    if owner is not None:
        owner._cached_adj = adj
    return adj


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


def run(b: Tensor, weight: Tensor, eps: Tensor, graph: Graph, options: Options) -> tuple[Tensor, Tensor, Tensor]:
    """G⁽⁰⁾, the states that its gradient needs, one above the other, and the depth."""
    collect()
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
    last, chosen = None, _rule(rule, owner)
    if first:
        scale = getattr(owner, "output_scale", None)
        root = of_root(given.weight, given.eps)
        last = LastStep.of(root, adj, 1.0 if scale is None else float(scale.abs().max()))
        tol, max_depth = last.tolerance(tol), max(max_depth - 1, 1)
        chosen = chosen if rule != OWN else one_less(chosen)

    def pass_of(k: int) -> tuple[tuple[Tensor, Tensor], Callable[[], list[Tensor]]]:
        kept = acquire(b.expand(slots, *b.shape))
        states = run_pass(given, k, terms, checkpoint, kept.unbind(0))
        return (states[0], kept), lambda: [states[0], states[-1]] if terms else [states[0]]

    found, (out, kept) = run_at_depth(chosen, given, tol, max_depth, terms, pass_of, wants_grad)
    solution = described(given, out, found, tol, max_depth)
    if owner is not None:
        # Without the state: the compiler may do with its memory what it likes.
        nothing = out.new_empty(0)
        after = solution if last is None else last.after(solution, b, adj, nothing)
        solution = replace(after, state=nothing)
        before = [owner.last_solution] if part and owner.last_solution is not None else []
        owner.last_solution = weakest([*before, solution], solution.state)
    return out, release_later(kept), torch.tensor(found.k, device="cpu")


def _rates(eps: Tensor, b: Tensor) -> Tensor:
    if eps.numel() == 1 and 0.0 < float(eps) < math.inf:  # the quick way
        return eps.reshape(())
    return as_eps(eps, b, b.size(1))


def pull(saved: Sequence[Any], graph: Graph, options: Options, needs: list[bool]) -> list[Tensor]:
    """The gradients that are needed, of b, weight, eps and the edges. What came in is left as it is."""
    collect()
    grad, b, weight, eps, out, kept, depth = saved
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
def product(x: Tensor, graph: Graph, transposed: bool) -> Tensor:
    """Ã x or Ãᵀ x."""
    collect()
    adj = adjacency(graph, x.size(0), x.dtype)
    return release_later(times(adj, x.contiguous(), transposed=True) if transposed else adj @ x)


def edge_gradient(left: Tensor, right: Tensor, graph: Graph) -> Tensor:
    """⟨left_i, right_j⟩ for every edge that i reads j by."""
    adj = adjacency(graph, left.size(0), left.dtype)
    return _per_edge(adj.edge_gradient(adj.permute(left), adj.permute(right)), adj, graph)
