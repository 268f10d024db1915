"""A convolution as a module: its copies, files and caches, its gradients, and what it says to wrong input."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck
from torch.func import functional_call
from torch.nn import Module
from torch.nn.parameter import UninitializedParameter

from pprgnn.testing.trial import Graph, Trial, disturb, go_back, having, need, set_seed, side_by_side

STEP = 1e-5  # of the finite differences: large against the tolerance of a solver, small against a kink of ReLU
CLOSE = 1e-3
NO_GRADIENT = "no gradient reaches the features"


def lazy_channels(trial: Trial) -> None:
    """in_channels=-1 is derived from the first input, and the layer is then like one that was told."""
    graph, lazy, told = trial.graph(), trial.conv(-1), trial.conv()
    out = trial.run(lazy, graph)
    for name, parameter in lazy.named_parameters():
        assert not isinstance(parameter, UninitializedParameter), f"{name} has no values after the first input."
    told.load_state_dict(lazy.state_dict())
    trial.same(trial.run(told, graph), out, "A lazy layer gives other values than one made with in_channels.")


def changed_graph(trial: Trial) -> None:
    """Edges and weights that were changed in place are noticed."""
    _check_changes(trial, lambda tensor: tensor, "in place")


def changed_data(trial: Trial) -> None:
    """Edges and weights that were changed through their data, which counts no versions, are noticed."""
    _check_changes(trial, lambda tensor: tensor.data, "through .data")


def changed_matrix(trial: Trial) -> None:
    """Values of a sparse CSR matrix that were changed in place are noticed."""
    trial.need_weight()
    graph = trial.graph()
    conv, matrix = trial.conv(), graph.sparse(weighted=True)["CSR"]
    trial.run(conv, graph, matrix)
    matrix.values().mul_(torch.linspace(0.5, 2, matrix.values().numel()))
    expected = trial.run(trial.conv(), graph, matrix.clone())
    trial.same(trial.run(conv, graph, matrix), expected, "A sparse matrix changed in place is not noticed.")


def cached(trial: Trial) -> None:
    """With cached=True the first graph stays in use, or another one is refused by an error that says so."""
    conv, graph = _caching(trial), trial.graph()
    first = trial.run(conv, graph)
    trial.same(trial.run(conv, graph.clone()), first, "cached=True gives other values for the same graph.")
    try:
        out = trial.run(conv, graph.reversed())
    except ValueError as error:
        if "cached" not in str(error):
            raise
    else:
        trial.same(out, first, "cached=True does not keep the first graph.")


def message_hooks(trial: Trial) -> None:
    """A hook on the messages is called, as PyG promises, and changes nothing by looking at them."""
    conv, graph, calls = trial.conv(), trial.graph(), list[str]()
    need(hasattr(conv, "register_message_forward_hook"), "the layer is no MessagePassing")
    expected = trial.run(conv, graph)
    conv.register_message_forward_hook(lambda *_: calls.append("called"))
    trial.same(trial.run(conv, graph), expected, "A hook on the messages changes the values.")
    assert calls, "A hook on the messages is never called."


def reset_parameters(trial: Trial) -> None:
    """reset_parameters draws every parameter anew, all finite, and forgets what was cached."""
    conv, other, graph = trial.conv(), trial.conv(), trial.graph()
    need(hasattr(conv, "reset_parameters"), "the layer has no reset_parameters")
    disturb(other)
    for layer in (conv, other):
        set_seed(2)
        layer.reset_parameters()
    for (name, one), another in zip(conv.named_parameters(), other.parameters(), strict=True):
        assert bool(one.isfinite().all()), f"{name} is not finite after reset_parameters."
        assert torch.equal(one, another), f"{name} still depends on its old value after reset_parameters."
    if having(conv, "cached", bool):
        conv = _caching(trial)
        trial.run(conv, graph)
        set_seed(2)
        conv.reset_parameters()
        fresh = trial.run(other, graph.reversed())
        trial.same(trial.run(conv, graph.reversed()), fresh, "reset_parameters keeps the cached graph.")


def text(trial: Trial) -> None:
    """The repr names the class and does not change by using the layer."""
    conv = trial.conv()
    before = repr(conv)
    assert type(conv).__name__ in before, f"The repr does not name the class: {before}"
    trial.run(conv, trial.graph())
    assert repr(conv) == before, f"The repr changes with the first pass, from {before} to {conv!r}"


def state_dict(trial: Trial) -> None:
    """The state dict carries everything learned to a fresh layer, also after a pass."""
    conv, graph = trial.conv(), trial.graph()
    need(list(conv.parameters()), "the layer has no parameters")
    for moment in ("before", "after"):
        fresh = trial.conv(seed=2)
        fresh.load_state_dict(conv.state_dict())
        out = trial.run(fresh, graph)
        trial.same(out, trial.run(conv, graph), f"A state dict from {moment} a pass gives other values.")


def deep_copy(trial: Trial) -> None:
    """A deep copy gives the same values and shares no parameter, also after a pass."""
    _check_copies(trial, copy.deepcopy)


def pickling(trial: Trial) -> None:
    """A layer from a pickle gives the same values and shares no parameter, also after a pass."""
    _check_copies(trial, lambda conv: pickle.loads(pickle.dumps(conv)))


def inputs_unchanged(trial: Trial) -> None:
    """Neither the forward nor the backward pass changes its inputs."""
    conv, graph = trial.conv(), trial.graph(self_loop=True)
    before = graph.clone()
    go_back(trial.run(conv, graph))
    for name in ("x", "edge_index", "edge_weight"):
        assert torch.equal(getattr(graph, name), getattr(before, name)), f"{name} was changed in place."


# ---------------------------------------------------------- gradients: right, complete, and only where messages go
def gradient(trial: Trial) -> None:
    """The gradients of features and parameters are those of finite differences, in double precision."""
    conv, graph = _all_terms(trial), trial.graph(5)
    trial.run(conv, graph)
    _compare(lambda x: trial.run(conv, replace(graph, x=x)), graph.x, "x")
    for name, parameter in conv.named_parameters():

        def output(value: Tensor, name: str = name) -> Tensor:
            out: Tensor = functional_call(_Run(trial, conv), {f"conv.{name}": value}, (graph,))
            return out

        _compare(output, parameter, name)


def edge_weight_gradient(trial: Trial) -> None:
    """The gradient of the edge weights is that of finite differences, and not zero."""
    trial.need_weight()
    conv, graph = _all_terms(trial), trial.graph(5)
    weight = graph.edge_weight.clone().requires_grad_()
    go_back(trial.run(conv, replace(graph, edge_weight=weight)))
    assert weight.grad is not None, "No gradient reaches the edge weights."
    assert bool((weight.grad != 0).any()), "No gradient reaches the edge weights."
    _compare(lambda w: trial.run(conv, replace(graph, edge_weight=w)), graph.edge_weight, "edge_weight")


def complete_gradient(trial: Trial) -> None:
    """Features and every parameter get a finite gradient."""
    conv, graph = trial.conv(), trial.graph()
    x = graph.x.clone().requires_grad_()
    go_back(trial.run(conv, replace(graph, x=x)))
    for name, tensor in [("x", x), *conv.named_parameters()]:
        if tensor.requires_grad:  # a frozen parameter is the choice of the layer
            assert tensor.grad is not None, f"No gradient reaches {name}."
            assert bool(tensor.grad.isfinite().all()), f"The gradient of {name} is not finite."


def local_gradient(trial: Trial) -> None:
    """A gradient stays within the connected component of the node that it comes from."""
    conv, (here, there) = trial.conv(), (trial.graph(4), trial.graph(3))
    graph = side_by_side(here, there)
    x = graph.x.clone().requires_grad_()
    out = trial.run(conv, replace(graph, x=x))
    need(out.requires_grad, NO_GRADIENT)
    (leaked,) = torch.autograd.grad(out[: here.num_nodes].square().sum(), x)
    leak = float(leaked[here.num_nodes :].abs().max())
    assert leak == 0, f"Features of another component get a gradient of up to {leak:.1e}."


def in_place_activation(trial: Trial) -> None:
    """An activation behind the layer may work in place."""
    conv, graph = trial.conv(), trial.graph()
    gradients = []
    for relu in (torch.relu, torch.relu_):
        x = graph.x.clone().requires_grad_()
        out = trial.run(conv, replace(graph, x=x))
        need(out.requires_grad, NO_GRADIENT)
        gradients.append(torch.autograd.grad(relu(out).square().sum(), x)[0])
    trial.same(gradients[1], gradients[0], "An activation in place behind the layer changes the gradient.")


def gradient_penalty(trial: Trial) -> None:
    """The gradient of a gradient is that of finite differences, or refused, but never silently something else."""
    conv, graph = _all_terms(trial), trial.graph(5)
    direction = torch.randn_like(graph.x)

    def penalty(x: Tensor, differentiable: bool) -> Tensor:
        out = trial.run(conv, replace(graph, x=x.requires_grad_()))
        loss = out.square().sum()
        (slope,) = torch.autograd.grad(loss, x, create_graph=differentiable, allow_unused=True)
        need(slope is not None, NO_GRADIENT)
        return slope.square().sum()

    x = graph.x.clone()
    try:
        loss = penalty(x, True)
        found = torch.autograd.grad(loss, x, allow_unused=True)[0] if loss.requires_grad else None
    except (NotImplementedError, RuntimeError):
        return  # refused
    assert found is not None, "The gradient of a gradient is silently left out."
    ends = [float(penalty(graph.x + sign * STEP * direction, False)) for sign in (1, -1)]
    expected = (ends[0] - ends[1]) / (2 * STEP)
    gap, size = abs(float((found * direction).sum()) - expected), max(1.0, abs(expected))
    assert gap <= CLOSE * size, f"The gradient of a gradient is off by {gap / size:.1e}, relative to its size."


# ------------------------------------------------------------------ wrong input: refused in words, not passed over
def wrong_columns(trial: Trial) -> None:
    """Features with too many columns are refused by an error that names a number of columns."""
    conv, graph = trial.conv(), trial.graph()
    need(list(conv.parameters()), "the layer has no parameters")
    wide = replace(graph, x=torch.cat([graph.x, graph.x], dim=1))
    message = _refusal(trial, conv, wide, "features with too many columns")
    _must_name(message, str(trial.in_channels), str(2 * trial.in_channels))


def unknown_nodes(trial: Trial) -> None:
    """Edges to nodes that do not exist are refused by an error that speaks of nodes or edges."""
    conv, graph = trial.conv(), trial.graph()
    for node in (graph.num_nodes + 2, -1):
        edge_index = graph.edge_index.clone()
        edge_index[0, 1] = node
        message = _refusal(trial, conv, replace(graph, edge_index=edge_index), f"an edge from node {node}")
        _must_name(message, "node", "edge", "vert")


def nan_features(trial: Trial) -> None:
    """A feature that is not a number is refused, or seen in the output; it never becomes a number."""
    conv, graph = trial.conv(), trial.graph()
    graph.x[0, 0] = float("nan")
    try:
        out = trial.run(conv, graph)
    except Exception as error:
        _must_name(str(error), "nan", "finite")
    else:
        assert not bool(out.isfinite().all()), "A feature that is not a number gives an output of numbers."


def tuple_features(trial: Trial) -> None:
    """A pair of feature tensors gives a row per node, or is refused by an error that speaks of tuples."""
    conv, graph = trial.conv(), trial.graph()
    try:
        out = conv((graph.x, graph.x), graph.edge_index)
    except AttributeError as error:
        raise AssertionError(f"A tuple of features is not refused but crashes: {error}") from error
    except Exception as error:
        _must_name(str(error), "tuple", "bipartite")
    else:
        assert out.shape == (graph.num_nodes, trial.out_channels), "A tuple of features gives another shape."


# ------------------------------------------------------------------------------------------- what the checks share
def _check_changes(trial: Trial, writable: Callable[[Tensor], Tensor], how: str) -> None:
    conv, graph = trial.conv(), trial.graph()
    for what in ("edge_index", "edge_weight"):
        trial.run(conv, graph)
        tensor = writable(getattr(graph, what))
        tensor.copy_(tensor.flip(0) if what == "edge_index" else tensor * torch.linspace(0.5, 2, tensor.numel()))
        expected = trial.run(trial.conv(), graph.clone())
        trial.same(trial.run(conv, graph), expected, f"A change of {what} {how} is not noticed.")


def _caching(trial: Trial) -> Any:
    conv = trial.conv()
    parts = having(conv, "cached", bool)
    need(parts, "the layer has no cached")
    for part in parts:
        part.cached = True
    return conv


def _check_copies(trial: Trial, duplicate: Callable[[Module], Module]) -> None:
    conv, graph = trial.conv(), trial.graph()
    for moment in ("before", "after"):
        twin = duplicate(conv)
        expected = trial.run(conv, graph)
        trial.same(trial.run(twin, graph), expected, f"A copy from {moment} a pass gives other values.")
        kept = [parameter.detach().clone() for parameter in conv.parameters()]
        disturb(twin)
        same = [torch.equal(*pair) for pair in zip(conv.parameters(), kept, strict=True)]
        assert all(same), f"A copy from {moment} a pass shares parameters with the layer."


class _Run(torch.nn.Module):
    """A convolution on a graph, as a module: parameters can then be replaced for one call."""

    def __init__(self, trial: Trial, conv: torch.nn.Module) -> None:
        super().__init__()
        self.trial, self.conv = trial, conv

    def forward(self, graph: Graph) -> Tensor:
        return self.trial.run(self.conv, graph)


def _all_terms(trial: Trial) -> Any:
    conv = trial.conv()
    for part in conv.modules():
        if hasattr(part, "grad_terms"):
            part.grad_terms = None  # a truncated gradient is not meant to be exact
    return conv


def _compare(function: Callable[[Tensor], Tensor], at: Tensor, name: str) -> None:
    value = at.detach().clone().requires_grad_()
    try:
        gradcheck(
            function,
            (value,),
            eps=STEP,
            atol=CLOSE,
            rtol=CLOSE,
            nondet_tol=STEP,
            check_undefined_grad=False,
            fast_mode=True,
        )
    except GradcheckError as error:
        raise AssertionError(f"The gradient of {name} is not the derivative by finite differences.") from error


def _refusal(trial: Trial, conv: torch.nn.Module, graph: Graph, what: str) -> str:
    try:
        trial.run(conv, graph)
    except Exception as error:
        return str(error)
    raise AssertionError(f"Not refused: {what}.")


def _must_name(message: str, *words: str) -> None:
    named = any(word in message.lower() for word in words)
    assert named, f"The error does not say what is wrong (no word of {', '.join(words)}): {message}"
