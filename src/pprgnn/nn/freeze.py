"""From infinite to a fixed depth: for formats that know no adaptive one."""

from __future__ import annotations

from typing import TypeVar

import torch

from pprgnn.core.depth import Fixed
from pprgnn.core.solution import Status
from pprgnn.nn.infinite_layer import InfiniteLayer

Model = TypeVar("Model", bound=torch.nn.Module)


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
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, InfiniteLayer)]
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
