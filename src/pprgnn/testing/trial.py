"""The convolution under test as the checks see it, and the small random graphs that it is checked on."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from unittest import SkipTest

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import UninitializedParameter
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

Factory = Callable[[int, int], Any]
SOLVER_TOL = 1e-10  # of layers that solve to a tolerance, in double precision
SINGLE_TOL = 1e-4  # between single and double precision


@dataclass(frozen=True)
class Graph:
    """Node features, edges without duplicates, and a positive weight for each edge."""

    x: Tensor
    edge_index: Tensor
    edge_weight: Tensor

    @property
    def num_nodes(self) -> int:
        """How many nodes there are, with or without edges."""
        return self.x.size(-2)

    def reversed(self) -> Graph:
        """Every edge the other way round."""
        return replace(self, edge_index=self.edge_index.flip(0))

    def permuted(self, order: Tensor) -> Graph:
        """The same graph with node ``order[i]`` at place i, and its edges in another order, too."""
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel())
        edges = torch.randperm(self.edge_index.size(1))
        return Graph(self.x[order], place[self.edge_index][:, edges], self.edge_weight[edges])

    def to(self, target: torch.dtype | torch.device) -> Graph:
        """In another precision or on another device; ids stay integers."""
        edge_index = self.edge_index.to(target) if isinstance(target, torch.device) else self.edge_index
        return Graph(self.x.to(target), edge_index, self.edge_weight.to(target))

    def clone(self) -> Graph:
        """Equal tensors that share nothing."""
        return Graph(self.x.clone(), self.edge_index.clone(), self.edge_weight.clone())

    def sparse(self, weighted: bool) -> dict[str, Tensor]:
        """The edges as sparse matrices by layout: transposed, as in PyG, and with values 1 unless weighted."""
        weight = self.edge_weight if weighted else torch.ones_like(self.edge_weight)
        makers = {"COO": to_torch_coo_tensor, "CSR": to_torch_csr_tensor, "CSC": to_torch_csc_tensor}
        size = (self.num_nodes, self.num_nodes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch calls two of the layouts beta
            return {name: make(self.edge_index.flip(0), weight, size=size) for name, make in makers.items()}


def draw_graph(channels: int, num_nodes: int = 7, *, symmetric: bool = False, self_loop: bool = False) -> Graph:
    """Draw a strongly connected weighted graph in double precision; ``self_loop`` gives one to node 0."""
    matrix = (torch.rand(num_nodes, num_nodes) < 0.25).double()
    ring = torch.arange(num_nodes)
    matrix[ring, ring.roll(1)] = 1
    matrix *= 0.5 + torch.rand_like(matrix)
    if symmetric:
        matrix = matrix + matrix.t()
    matrix.fill_diagonal_(0)
    if self_loop:
        matrix[0, 0] = 2.5
    edge_index = matrix.nonzero().t().contiguous()
    x = torch.randn(num_nodes, channels, dtype=torch.float64)
    return Graph(x, edge_index, matrix[edge_index[0], edge_index[1]])


def draw_pair(channels: int) -> tuple[Graph, Graph]:
    """One directed graph and one symmetric graph."""
    return draw_graph(channels), draw_graph(channels, symmetric=True)


def side_by_side(*graphs: Graph) -> Graph:
    """Join graphs to one without edges between them, as PyG's loaders do."""
    batch = Batch.from_data_list([Data(g.x, g.edge_index, edge_weight=g.edge_weight) for g in graphs])
    return Graph(batch.x, batch.edge_index, batch.edge_weight)


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
        need(self.takes_weight, "forward takes no edge_weight")

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


def disturb(conv: Module) -> None:
    """Move every parameter a little: a bias that starts at zero would hide errors."""
    with torch.no_grad():
        for parameter in conv.parameters():
            if not isinstance(parameter, UninitializedParameter):  # lazy ones wait for the first input
                parameter.add_(0.1 * torch.randn_like(parameter))


def go_back(out: Tensor) -> None:
    """Run the backward pass of a loss, where the output has one."""
    if out.requires_grad:
        torch.autograd.backward(out.square().sum())


def need(there: object, otherwise: str) -> None:
    """Skip the check when what it looks at is not there."""
    if not there:
        raise SkipTest(otherwise)
