"""A convolution as a module: its copies, its files, its caches and its text."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any
from unittest import SkipTest

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import UninitializedParameter

from pprgnn.testing.trial import Trial, disturb, go_back, having, need_parameters, set_seed


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
    if not hasattr(conv, "register_message_forward_hook"):
        raise SkipTest("the layer is no MessagePassing")
    expected = trial.run(conv, graph)
    conv.register_message_forward_hook(lambda *_: calls.append("called"))
    trial.same(trial.run(conv, graph), expected, "A hook on the messages changes the values.")
    assert calls, "A hook on the messages is never called."


def reset_parameters(trial: Trial) -> None:
    """reset_parameters draws every parameter anew, all finite, and forgets what was cached."""
    conv, other, graph = trial.conv(), trial.conv(), trial.graph()
    if not hasattr(conv, "reset_parameters"):
        raise SkipTest("the layer has no reset_parameters")
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
    need_parameters(conv)
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
    if not parts:
        raise SkipTest("the layer has no cached")
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
