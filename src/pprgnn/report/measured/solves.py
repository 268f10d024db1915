"""What the infinite-depth layers of a network were asked to solve, recorded in an evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.passes import permuted, run_pass
from pprgnn.core.depth import Fixed
from pprgnn.core.problem import Problem, as_eps
from pprgnn.core.solve import solve
from pprgnn.core.steps import Steps
from pprgnn.nn.infinite_depth import InfiniteDepth
from pprgnn.nn.infinite_layer import InfiniteLayer, infinite_layers

SMALL = 2_000_000  # numbers in a state: up to here, double precision takes no time worth mentioning

Recursion: TypeAlias = "Problem | Steps"


@dataclass(frozen=True, eq=False)
class Solve:
    """One layer: what it had to solve, and what came of it.

    Attributes:
        name: Of the layer in the network.
        layer: The layer itself.
        given: The recursion, in the precision of the network; a :class:`Problem` where a step is ÃGW.
        depth, status, tol: How deep it went, what is known about that, and the error that was allowed.
    """

    name: str
    layer: InfiniteLayer
    given: Recursion
    depth: int
    status: str
    tol: float

    @cached_property
    def problem(self) -> Recursion:
        """The recursion in double precision, where it is a matter of matrices that are small enough."""
        given = self.given
        if isinstance(given, Steps) or given.b.numel() > SMALL or given.b.device.type == "mps":
            return given
        b, weight, eps = (each.double() for each in (given.b, given.weight, given.eps))
        return Problem(b, weight, eps, given.adj.to(torch.float64), given.activation)

    @cached_property
    def step_seconds(self) -> float:
        """What one step of it takes."""
        passes = Passes(self.problem)
        passes.state(1)
        started = time.perf_counter()
        passes.state(2)
        return max((time.perf_counter() - started) / 2, 1e-6)


class Passes:
    """Passes of any depth through a recursion; a state is good until the next one."""

    def __init__(self, problem: Recursion) -> None:
        self.problem = permuted(problem)  # norms do not care about the order of nodes
        self.buffers = [torch.empty_like(problem.b) for _ in range(2)]

    def state(self, depth: int) -> Tensor:
        """G⁽⁰⁾ of a pass of this depth."""
        with torch.no_grad():
            return run_pass(self.problem, depth, 0, self.buffers)[0]


@contextmanager
def recorded(network: torch.nn.Module) -> Iterator[dict[str, Recursion]]:
    """Within it, the last recursion of each layer by its name; layers that solve something else are not there."""
    layers, asked = infinite_layers(network), dict[str, Recursion]()
    try:
        for name, layer in layers:
            layer.__dict__["solve_product"] = _record_product(name, layer, asked)
            if isinstance(layer, InfiniteDepth):
                layer.__dict__["problem"] = _record_steps(name, layer, asked)
        yield asked
    finally:
        for _, layer in layers:
            for method in ("solve_product", "problem"):
                layer.__dict__.pop(method, None)


def _record_product(name: str, layer: InfiniteLayer, asked: dict[str, Recursion]) -> Callable[..., Any]:
    def solve_product(b: Tensor, weight: Tensor, adj: Adjacency) -> Any:
        eps = as_eps(layer.eps, b, weight.size(0))
        asked[name] = Problem(b.contiguous(), weight, eps, adj, layer.activation).detach()
        return type(layer).solve_product(layer, b, weight, adj)

    return solve_product


def _record_steps(name: str, layer: InfiniteDepth, asked: dict[str, Recursion]) -> Callable[..., Any]:
    def problem(*args: Any, **kwargs: Any) -> Steps:
        found = type(layer).problem(layer, *args, **kwargs)
        asked[name] = found.detach()
        return found

    return problem


def solves_of(network: torch.nn.Module, asked: dict[str, Recursion]) -> list[Solve]:
    """The layers that were recorded, in their order, with what came of their last pass."""
    return [
        Solve(name, layer, asked[name], layer.last_solution.depth, layer.last_solution.status.name, layer.tol)
        for name, layer in infinite_layers(network)
        if name in asked and layer.last_solution is not None
    ]


def solved(problem: Problem, b: Tensor, weight: Tensor, depth: int, terms: int) -> Tensor:
    """The state of such a problem at a depth, for other B and W, with a gradient of so many terms."""
    phi, eps = problem.activation, problem.eps
    return solve(b, weight, problem.adj, eps=eps, depth=Fixed(depth), grad_terms=terms, activation=phi).state
