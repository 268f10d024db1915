"""Layers at given depths, for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pprgnn.baselines.ignn import EquilibriumConv
from pprgnn.core.depth import Fixed
from pprgnn.nn.infinite_layer import InfiniteLayer


@contextmanager
def at_depths(layers: Iterable[tuple[InfiniteLayer, int]]) -> Iterator[None]:
    """Within it, layers go exactly so deep; those of an equilibrium make so many steps."""
    chosen = list(layers)
    names = [("steps" if isinstance(layer, EquilibriumConv) else "depth_rule") for layer, _ in chosen]
    before = [(getattr(layer, name), layer.last_solution) for (layer, _), name in zip(chosen, names, strict=True)]
    try:
        for (layer, depth), name in zip(chosen, names, strict=True):
            setattr(layer, name, depth if name == "steps" else Fixed(depth))
        yield
    finally:
        for (layer, _), name, (old, solution) in zip(chosen, names, before, strict=True):
            setattr(layer, name, old)
            layer.last_solution = solution
