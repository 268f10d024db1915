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

CLAIMS = (Status.CERTIFIED, Status.MEASURED, Status.COMPARED)


def with_rounding(problem: Problem, state: Tensor, found: Depth, status: Status, tol: float) -> Solution:
    """The solution at the depth that was found, with what rounding adds to it."""
    bound = estimate = None
    if status in CLAIMS and not found.includes_rounding:
        bound = problem.bounds().rounding(found.k, torch.finfo(state.dtype).eps / 2)
        if not bound <= tol:  # the bound is pessimistic: what does rounding really do?
            estimate, found = _estimate(problem, state.detach(), found.k), found.with_products(found.k)
            status = status if estimate <= tol else Status.ROUNDING
    return found.solution(state, status, bound, estimate)


def _estimate(problem: Problem, state: Tensor, depth: int) -> float:
    scale = problem.norm(problem.b) or 1.0
    with torch.no_grad(), disturbed_pass(problem, depth, 0, problem.norm(state)) as (ends, room):
        error = problem.norm(torch.sub(state, ends[0], out=room)) / scale
    return error if math.isfinite(error) else math.inf


@contextmanager
def disturbed_pass(problem: Problem, depth: int, levels: int, size: float) -> Iterator[tuple[list[Tensor], Tensor]]:
    """G⁽⁰⁾ and G⁽ˡᵉᵛᵉˡˢ⁾ of a pass whose input differs by about what rounding does in every step; and scratch.

    Every step adds B, so every step is disturbed. ``size`` is the norm of the state of such a pass.
    """
    other = problem.with_input(_disturbed(problem.b, max(size, problem.norm(problem.b))))
    entered = other.entered()
    buffers = [take(problem.b) for _ in range(3 if levels > 1 else 2)]
    ends = entered.descend(depth, levels, buffers, leave=True, ends=True)
    other.left(entered)
    yield ends, other.b
    give(*buffers, other.b)


def _disturbed(b: Tensor, size: float) -> Tensor:
    """B + u · rms · r cᵀ with random signs r and c; the rms is that of a state of this norm."""
    rows, columns = b.numel() // max(b.size(-1), 1), b.size(-1)
    generator = torch.Generator("cpu").manual_seed(0)
    signs = torch.randint(2, (rows + columns,), generator=generator, device="cpu").mul_(2).sub_(1).to(b)
    noise = torch.finfo(b.dtype).eps * size / math.sqrt(max(b.numel(), 1))
    out = take(b)
    torch.addr(
        b.reshape(rows, columns), signs[:rows], signs[rows:], alpha=noise, out=out.view(rows, columns)
    )
    return out
