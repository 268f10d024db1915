"""The infinite-depth layers inside a module: find them, set their tolerance, keep and freeze their depths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from pprgnn.core.depth import Fixed
from pprgnn.core.depth_memory import DepthMemory
from pprgnn.core.solution import Status
from pprgnn.nn.infinite_layer import InfiniteLayer
from pprgnn.nn.ppr_conv import PPRConv

Model = TypeVar("Model", bound=torch.nn.Module)


def infinite_layers(module: torch.nn.Module) -> list[tuple[str, InfiniteLayer]]:
    """Every :class:`PPRConv` and :class:`InfiniteDepth` in ``module`` with its name, in their order."""
    return [(name, layer) for name, layer in module.named_modules() if isinstance(layer, InfiniteLayer)]


def ppr_layers(module: torch.nn.Module) -> list[tuple[str, PPRConv]]:
    """Every :class:`PPRConv` in ``module`` with its name, in the order of the module."""
    return [(name, layer) for name, layer in module.named_modules() if isinstance(layer, PPRConv)]


def set_tolerance(module: torch.nn.Module, tol: float) -> None:
    """Set the error that every infinite-depth layer in ``module`` may leave."""
    if not tol > 0:
        raise ValueError(f"tol must be > 0, but came as {tol}.")
    for _, layer in infinite_layers(module):
        layer.tol = tol


@contextmanager
def measure_afresh(module: torch.nn.Module) -> Iterator[None]:
    """Within it, every solve measures its depth on its own input, and proves it where it can.

    What comes out depends on the weights and on the input alone, and the steps after do not depend on what
    happened in the block. For results that are kept, shown or handed on.
    """
    layers = [layer for _, layer in infinite_layers(module)]
    before = [layer.depth_rule for layer in layers]
    try:
        for layer, rule in zip(layers, before, strict=True):
            layer.depth_rule = rule.rule if isinstance(rule, DepthMemory) else rule
        yield
    finally:
        for layer, rule in zip(layers, before, strict=True):
            layer.depth_rule = rule


def depth_state(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What the layers remember about their depths: JSON values by layer, and tensors by ``layer/name``."""
    values: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for name, memory in _memories(module).items():
        values[name] = memory.state()
        own = values[name].pop("tensors")
        tensors |= {f"{name}/{key}": each for key, each in own.items()}
    return values, tensors


def restore_depth_state(module: torch.nn.Module, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Take back what :func:`depth_state` gave: training then goes on as if it had never stopped."""
    memories = _memories(module)
    if set(memories) != set(state):
        raise ValueError(
            f"The depths to restore must be those of the layers {sorted(memories)}, but are those of "
            f"{sorted(state)}; restore them into the network they came from."
        )
    for name, memory in memories.items():
        own = {key.removeprefix(f"{name}/"): each for key, each in tensors.items() if key.startswith(f"{name}/")}
        memory.restore({**state[name], "tensors": own})


def _memories(module: torch.nn.Module) -> dict[str, DepthMemory]:
    layers = infinite_layers(module)
    return {name: layer.depth_rule for name, layer in layers if isinstance(layer.depth_rule, DepthMemory)}


def freeze_depth(model: Model, depth: int | None = None) -> Model:
    """Give every infinite-depth layer in ``model`` the depth it found last, for good; returns the model.

    Args:
        model: A layer, or a network that contains some; it is changed.
        depth: A depth for all of them instead.

    Example:
        >>> import torch
        >>> from pprgnn.nn import PPRConv
        >>> conv, edge_index = PPRConv(16, 8, eps=0.5), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> _ = conv(torch.randn(3, 16), edge_index)
        >>> freeze_depth(conv).depth == conv.last_solution.depth
        True
    """
    layers = infinite_layers(model)
    if not layers:
        raise ValueError(f"freeze_depth needs infinite-depth layers, but {type(model).__name__} has none.")
    rules = [Fixed(_depth_of(name, layer) if depth is None else depth) for name, layer in layers]
    for (_, layer), rule in zip(layers, rules, strict=True):  # all or none
        layer.depth_rule, layer.depth = rule, rule.k
        if hasattr(layer, "steps"):  # a layer of equilibria
            layer.steps = rule.k
    return model


def _depth_of(name: str, layer: InfiniteLayer) -> int:
    if layer.last_solution is None:
        raise ValueError(
            f"The depth of layer {name or type(layer).__name__!r} is not known yet; run the model once on a "
            f"typical graph before freeze_depth, or give depth=..."
        )
    if layer.last_solution.status is Status.REUSED:
        raise ValueError(
            f"The last pass of layer {name or type(layer).__name__!r} was a training step, whose depth is an "
            f"estimate; run the model once with torch.no_grad() before freeze_depth, or give depth=..."
        )
    if getattr(layer, "acceleration", "none") != "none":  # a layer of equilibria
        raise ValueError(
            f"The depth of layer {name or type(layer).__name__!r} may count steps from mixtures of states, and as "
            f"many plain ones would not do; build it with acceleration='none', or give depth=..."
        )
    return layer.last_solution.depth
