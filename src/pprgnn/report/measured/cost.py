"""Time and memory of a training step against depth, beside the same recursion under plain autograd."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pprgnn.core.activation import IDENTITY, RELU
from pprgnn.core.backend.buffers import release_buffers
from pprgnn.core.decay import decay
from pprgnn.core.problem import Problem
from pprgnn.core.recursion import descend
from pprgnn.report.measured.budget import Allowance
from pprgnn.report.measured.results import Cost, Missing
from pprgnn.report.measured.solves import solved
from pprgnn.report.measured.trained_run import TrainedRun

DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
USUAL_TERMS = 5
MEMORY = 1 << 30  # that plain autograd may take
STATES_PER_STEP = 3  # that plain autograd keeps, about
FEWEST = 3
REPEATS = 3

Pass = Callable[[int], Tensor]  # from a depth to a state with a gradient


def cost(trained: TrainedRun, allowance: Allowance) -> Cost | Missing:
    """Of the first layer, at growing depth."""
    asked = next((each for each in trained.solves if isinstance(each.given, Problem)), None)
    if asked is None:
        return trained.without_product()
    assert isinstance(asked.given, Problem)
    problem = asked.given
    least = 8 * REPEATS * sum(DEPTHS[:FEWEST]) * asked.step_seconds
    if not allowance.allows(least):
        return allowance.too_long("Time and memory against depth", least)
    leaves = (problem.b.detach().clone().requires_grad_(), problem.weight.detach().clone().requires_grad_())
    terms = asked.layer.grad_terms or USUAL_TERMS
    plain = _unrolled(problem, leaves)
    state_bytes = problem.b.numel() * problem.b.element_size()
    found: list[tuple[int, float, int]] = []
    beside: list[tuple[float | None, int | None]] = []
    last = 0.0
    for depth in DEPTHS:
        if len(found) >= FEWEST and not allowance.allows(2 * (REPEATS + 1) * last):
            break
        kept, last = _measured(lambda depth: solved(problem, *leaves, depth, terms), depth, leaves)
        found.append((depth, last, kept))
        fits = STATES_PER_STEP * depth * state_bytes <= MEMORY
        if fits and (not beside or (beside[-1][0] is not None and allowance.allows(_next(beside)))):
            taken, seconds = _measured(plain, depth, leaves)
            beside.append((seconds, taken))
        else:
            beside.append((None, None))
    release_buffers()
    return Cost(
        depths=[depth for depth, _, _ in found],
        seconds=[seconds for _, seconds, _ in found],
        bytes=[kept for _, _, kept in found],
        unrolled_seconds=[seconds for seconds, _ in beside],
        unrolled_bytes=[kept for _, kept in beside],
        threads=torch.get_num_threads(),
        repeats=REPEATS,
    )


def _next(beside: list[tuple[float | None, int | None]]) -> float:
    """What twice the depth is going to take."""
    return 2 * (REPEATS + 1) * (beside[-1][0] or 0.0)


def _unrolled(problem: Problem, leaves: tuple[Tensor, Tensor]) -> Pass:
    """As one would write it in torch; in the inner node order, which is the faster one."""
    plain: dict[Any, Callable[[Tensor], Tensor]] = {RELU: torch.relu, IDENTITY: lambda z: z}
    phi = plain.get(problem.activation, problem.activation.function)
    matrix = problem.adj.matrix.detach()

    def run(depth: int) -> Tensor:
        b, weight = leaves
        b = problem.adj.permute(b)

        def step(n: int, g: Tensor) -> Tensor:
            return phi(torch.sparse.mm(matrix, g) @ (weight * decay(n, problem.eps)) + b)

        return problem.adj.unpermute(descend(step, phi(b), range(depth)))

    return run


def _measured(run: Pass, depth: int, leaves: tuple[Tensor, Tensor]) -> tuple[int, float]:
    """Bytes of states kept for the gradient, and the median time of a step; the first one warms up."""
    arriving, seconds = torch.ones_like(leaves[0]), []
    kept = _kept(run, depth, leaves, arriving)
    for _ in range(REPEATS):
        started = time.perf_counter()
        with torch.enable_grad():
            torch.autograd.grad(run(depth), leaves, arriving)
        seconds.append(time.perf_counter() - started)
    return kept, statistics.median(seconds)


def _kept(run: Pass, depth: int, leaves: tuple[Tensor, Tensor], arriving: Tensor) -> int:
    """Bytes of all states that autograd holds between the forward and the backward pass."""
    size, held = leaves[0].numel(), dict[int, int]()

    def keep(tensor: Tensor) -> Tensor:
        state = tensor.is_floating_point() or tensor.dtype == torch.bool  # or where it is positive
        if tensor.layout == torch.strided and state and tensor.numel() == size:
            held[tensor.untyped_storage().data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        state = run(depth)
    total = sum(held.values())
    torch.autograd.grad(state, leaves, arriving)
    return total
