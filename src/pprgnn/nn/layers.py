"""The infinite-depth layers inside a module: find them, set their tolerance, keep and restore their depths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from pprgnn.core.depth_memory import DepthMemory
from pprgnn.nn.infinite_layer import InfiniteLayer
from pprgnn.nn.ppr_conv import PPRConv


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
