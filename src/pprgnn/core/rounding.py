"""What rounding does to a solution: a bound where it is good enough, an estimate elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from pprgnn.core.buffers import give, take
from pprgnn.core.depth import Problem
from pprgnn.core.solution import Depth, Solution, Status

DOMINATES = 3.0  # times the tolerance: an estimate may be off by such a factor
ROUNDINGS = 64  # of the state: what an accurate pass may come to
STRONG = 16.0  # times what rounding does
CLAIMS = (Status.CERTIFIED, Status.MEASURED, Status.COMPARED)


def with_rounding(problem: Problem, state: Tensor, found: Depth, status: Status, tol: float) -> Solution:
    """The solution at the depth that was found, with what rounding adds to it.

    Where it was measured against a deeper pass, that pass is the one whose rounding counts: the state differs from
    its result by what was seen.
    """
    bound = estimate = None
    if status in CLAIMS and not found.includes_rounding:
        depth, bounds = found.reference or found.k, problem.bounds()
        safe = bounds.rounding(depth, unit_roundoff(state))
        bound = safe if math.isfinite(safe) else None
        if bounds.underflow > tol:  # numbers too small for their type: a disturbance would not show it
            return found.solution(state, Status.ROUNDING, bound, None)
        if not safe <= tol:  # the bound is pessimistic: what does rounding really do?
            allowed, estimate = tolerable(problem, state.detach(), tol), 0.0
            for seed in range(passes_for(safe)):
                estimate = max(estimate, _estimate(problem, state.detach(), depth, seed))
                found = found.with_products(depth)
                if not estimate <= allowed:
                    status = Status.ROUNDING
                    break
    return found.solution(state, status, bound, estimate)


def tolerable(problem: Problem, state: Tensor, tol: float) -> float:
    """What rounding may add, relative to ‖B‖: a few times the tolerance, or a few roundings of the state itself.

    A state that is much larger than B cannot even be stored to ``tol`` of ‖B‖.
    """
    growth = problem.norm(state) / (problem.norm(problem.b) or 1.0)
    return max(DOMINATES * tol, ROUNDINGS * unit_roundoff(state) * growth)


def passes_for(bound: float) -> int:
    """How many disturbed passes to look at: where rounding may do anything, one may do nothing by chance."""
    return 1 if bound <= 1 else 3


def _estimate(problem: Problem, state: Tensor, depth: int, seed: int) -> float:
    """From a pass that is disturbed more than by rounding, so that it does not miss another branch of φ."""
    scale = problem.norm(problem.b) or 1.0
    with torch.no_grad(), disturbed_pass(problem, depth, 0, seed, STRONG) as (ends, room):
        error = problem.norm(torch.sub(state, ends[0], out=room)) / scale / STRONG
    return error if math.isfinite(error) else math.inf


@contextmanager
def disturbed_pass(
    problem: Problem, depth: int, levels: int, seed: int, times: float = 1.0
) -> Iterator[tuple[list[Tensor], Tensor]]:
    """G⁽⁰⁾ and G⁽ˡᵉᵛᵉˡˢ⁾ of a pass that is disturbed by so many ``times`` what rounding does; and scratch.

    At each level in another way: a disturbance that is the same at all levels may cancel itself.
    """
    entered = problem.entered()
    room = [take(entered.b) for _ in range(4 if levels else 3)]
    g, other, product = room[:3]
    rows, columns = g.numel() // max(g.size(-1), 1), g.size(-1)
    generator = torch.Generator("cpu").manual_seed(seed)
    size = 2 * times * unit_roundoff(g)  # one rounding would be lost in that of the factor itself
    problem.activation.apply_(g.copy_(entered.b))
    for n in range(depth - 1, -1, -1):
        if n == levels - 1:
            room[3].copy_(g)
        # What is 0 stays so, as it does in a sum that is rounded.
        factors = 1 + size * torch.randn(rows + columns, generator=generator, device="cpu", dtype=torch.float64)
        factors = factors.to(g)
        g.view(rows, columns).mul_(factors[:rows, None]).mul_(factors[rows:])
        g, other = entered.step(n, g, other, product), g
    ends = [problem.leave(g, out=other), *room[3:]]
    problem.left(entered)
    yield ends, product
    give(*room)


def unit_roundoff(x: Tensor) -> float:
    """u: the relative error of one rounded operation, at most."""
    return torch.finfo(x.dtype).eps / 2
