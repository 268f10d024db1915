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
CLAIMS = (Status.CERTIFIED, Status.MEASURED, Status.COMPARED)


def with_rounding(problem: Problem, state: Tensor, found: Depth, status: Status, tol: float) -> Solution:
    """The solution at the depth that was found, with what rounding adds to it."""
    bound = estimate = None
    if status in CLAIMS and not found.includes_rounding:
        safe = problem.bounds().rounding(found.k, unit_roundoff(state))
        bound = safe if math.isfinite(safe) else None
        if not safe <= tol:  # the bound is pessimistic: what does rounding really do?
            estimate, found = _estimate(problem, state.detach(), found.k), found.with_products(found.k)
            status = status if estimate <= DOMINATES * tol else Status.ROUNDING
    return found.solution(state, status, bound, estimate)


def _estimate(problem: Problem, state: Tensor, depth: int) -> float:
    scale = problem.norm(problem.b) or 1.0
    with torch.no_grad(), disturbed_pass(problem, depth, 0) as (ends, room):
        error = problem.norm(torch.sub(state, ends[0], out=room)) / scale
    return error if math.isfinite(error) else math.inf


@contextmanager
def disturbed_pass(problem: Problem, depth: int, levels: int) -> Iterator[tuple[list[Tensor], Tensor]]:
    """G⁽⁰⁾ and G⁽ˡᵉᵛᵉˡˢ⁾ of a pass whose input differs by about what rounding does in every step; and scratch.

    Every step adds B, so every step is disturbed.
    """
    other = problem.with_input(_disturbed(problem.b, problem.norm(problem.b)))
    entered = other.entered()
    buffers = [take(problem.b) for _ in range(3 if levels > 1 else 2)]
    ends = entered.descend(depth, levels, buffers, leave=True, ends=True)
    other.left(entered)
    yield ends, other.b
    give(*buffers, other.b)


def unit_roundoff(x: Tensor) -> float:
    """u: the relative error of one rounded operation, at most."""
    return torch.finfo(x.dtype).eps / 2


def _disturbed(b: Tensor, norm: float) -> Tensor:
    """B + 4u · rms(B) · r cᵀ with random signs r and c: less would be lost in the rounding of the sum itself."""
    rows, columns = b.numel() // max(b.size(-1), 1), b.size(-1)
    generator = torch.Generator("cpu").manual_seed(0)
    signs = torch.randint(2, (rows + columns,), generator=generator, device="cpu").mul_(2).sub_(1).to(b)
    noise = 4 * unit_roundoff(b) * norm / math.sqrt(max(b.numel(), 1))
    out = take(b)
    torch.addr(b.reshape(rows, columns), signs[:rows], signs[rows:], alpha=noise, out=out.view(rows, columns))
    return out
