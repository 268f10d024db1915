"""The convolution under test, as the checks see it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest import SkipTest

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import UninitializedParameter

from pprgnn.testing.graphs import Graph, draw_graph

Factory = Callable[[int, int], Any]
SOLVER_TOL = 1e-10  # of layers that solve to a tolerance, in double precision
SINGLE_TOL = 1e-4  # between single and double precision


@dataclass(frozen=True)
class Trial:
    """How to make the convolution, and how far values that must agree may differ."""

    factory: Factory
    in_channels: int
    out_channels: int
    tol: float

    def conv(self, in_channels: int | None = None, *, dtype: torch.dtype = torch.float64, seed: int = 1) -> Any:
        """A fresh layer in evaluation mode; its parameters depend on the seed alone, none has a special value."""
        set_seed(seed)
        conv = self.factory(self.in_channels if in_channels is None else in_channels, self.out_channels)
        if not isinstance(conv, Module):
            raise TypeError(f"The factory must return a torch.nn.Module, but returned {conv!r}.")
        if dtype == torch.float64:
            for part in having(conv, "tol", float):
                part.tol = min(part.tol, SOLVER_TOL)
        disturb(conv)
        return conv.to(dtype).eval()

    def graph(self, num_nodes: int = 7, **options: bool) -> Graph:
        """A random graph with the right number of features."""
        return draw_graph(self.in_channels, num_nodes, **options)

    def run(self, conv: Module, graph: Graph, edges: Tensor | None = None) -> Tensor:
        """The output for a graph, or for its features and ``edges`` without further weights."""
        weights = {"edge_weight": graph.edge_weight} if self.takes_weight and edges is None else {}
        out = conv(graph.x, graph.edge_index if edges is None else edges, **weights)
        if isinstance(out, (tuple, list)):  # the check of the output reports it; the others look at the values
            out = out[0]
        assert isinstance(out, Tensor), f"The output is a {type(out).__name__} instead of a tensor."
        return out

    @cached_property
    def takes_weight(self) -> bool:
        """Whether forward takes ``edge_weight``; one with ``**kwargs`` is asked by a call."""
        with torch.random.fork_rng(devices=[]):  # the graphs of a check must not depend on who asks first
            conv, graph = self.conv(), self.graph()
        parameters = inspect.signature(conv.forward).parameters
        if "edge_weight" in parameters:
            return True
        if all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
            return False
        try:
            conv(graph.x, graph.edge_index, edge_weight=graph.edge_weight)
        except TypeError:
            return False
        return True

    def need_weight(self) -> None:
        """Skip the check when the layer knows no edge weights."""
        if not self.takes_weight:
            raise SkipTest("forward takes no edge_weight")

    def same(self, actual: Tensor, expected: Tensor, sentence: str, tol: float | None = None) -> None:
        """Fail with the sentence unless both agree, relative to the largest value."""
        assert actual.shape == expected.shape, (
            f"{sentence} The shapes are {tuple(actual.shape)} and {tuple(expected.shape)}."
        )
        actual, expected = actual.detach().cpu().double(), expected.detach().cpu().double()
        gap = float((actual - expected).abs().max()) if expected.numel() else 0.0
        allowed = (self.tol if tol is None else tol) * max(1.0, float(expected.abs().max()))
        assert gap <= allowed, f"{sentence} The largest difference is {gap:.1e}, {allowed:.1e} is allowed."


def set_seed(seed: int) -> None:
    """As torch.manual_seed, for the CPU alone, where layers and graphs are drawn: a hundred times as fast."""
    torch.default_generator.manual_seed(seed)


def having(conv: Module, name: str, kind: type) -> list[Any]:
    """The layer and those of its parts that have such an attribute: wrappers pass on to inner layers."""
    return [part for part in conv.modules() if isinstance(getattr(part, name, None), kind)]


def drawn(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Those that have a shape already: lazy ones wait for the first input."""
    return [tensor for tensor in tensors if not isinstance(tensor, UninitializedParameter)]


def disturb(conv: Module) -> None:
    """Move every parameter a little: a bias that starts at zero would hide errors."""
    with torch.no_grad():
        for parameter in drawn(conv.parameters()):
            parameter.add_(0.1 * torch.randn_like(parameter))


def go_back(out: Tensor) -> None:
    """Run the backward pass of a loss, where the output has one."""
    if out.requires_grad:
        torch.autograd.backward(out.square().sum())


def need_parameters(conv: Module) -> None:
    """Skip the check when there is nothing to learn."""
    if not any(True for _ in conv.parameters()):
        raise SkipTest("the layer has no parameters")
