"""The error of every depth against the infinite one, with what is proved and what the paper estimates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from pprgnn.core.backend.passes import step
from pprgnn.report.measured.budget import Allowance
from pprgnn.report.measured.results import Convergence, Missing
from pprgnn.report.measured.solves import Passes, Recursion, Solve
from pprgnn.report.measured.trained_run import TrainedRun, of_layers

CONSECUTIVE, STRIDE = 60, 15  # every depth up to the first, then every so many; odd, lest a cycle of two is missed
DEEPEST = 2000
POINTS = 6  # a curve of fewer shows nothing


def convergence(trained: TrainedRun, allowance: Allowance) -> list[Convergence] | Missing:
    """For each layer, how its error falls with depth."""
    if not trained.solves:
        return trained.without_recursion()
    return of_layers(trained.solves, allowance, layer_convergence)


def layer_convergence(solve: Solve, allowance: Allowance) -> Convergence | Missing:
    """Of one layer."""
    passes = Passes(solve.problem)
    problem, bounds = passes.problem, solve.problem.bounds()
    scale = problem.space.norm(problem.b) or 1.0
    unit = float(torch.finfo(problem.b.dtype).eps)
    deepest = bounds.depth(unit, DEEPEST)
    what = f"The error of layer {solve.name} against depth"
    if deepest is None:
        found = _deep_enough(solve, passes, unit * scale, allowance, what)
        if isinstance(found, Missing):
            return found
        deepest, reference = found
    else:
        wanted = (2 * deepest + _steps(deepest, max(1, deepest // POINTS))) * solve.step_seconds
        if not allowance.allows(wanted):
            return allowance.too_long(what, wanted)
        reference = passes.state(deepest).clone()
    if not math.isfinite(size := problem.space.norm(reference)):
        return _overflow(solve)
    rounding = max(unit * max(1.0, size / scale), _perturbed(solve.problem, deepest, reference, unit) / scale)
    stride = 1
    while stride < deepest and _steps(deepest, stride) * solve.step_seconds > 0.8 * allowance.left:
        stride += 2
    faded, depths, errors, influence = _Influence(passes), list[int](), list[float](), list[float]()
    for depth in _depths(deepest, stride, solve.depth):
        if depth > POINTS and not allowance.allows(depth * solve.step_seconds):
            break
        depths.append(depth)
        errors.append(problem.space.norm(passes.state(depth) - reference) / scale)
        influence.append(faded.at(depth))
        if max(errors[-2:]) <= rounding and len(errors) > 1:  # one alone may be a chance, as in a cycle
            break
    if not all(map(math.isfinite, errors + influence)):
        return _overflow(solve)
    certificate = [bounds.error(depth) for depth in depths]
    return Convergence(
        layer=solve.name,
        depths=depths,
        errors=errors,
        certificate=[each if math.isfinite(each) else None for each in certificate],
        influence=influence,
        chosen=solve.depth,
        status=solve.status,
        tol=solve.tol,
        rounding=rounding,
    )


def _perturbed(problem: Recursion, depth: int, state: Tensor, unit: float) -> float:
    """By how much the state moves when every number of B moves by one unit of rounding, up or down."""
    draw = torch.Generator().manual_seed(0)
    signs = torch.randint(2, problem.b.shape, generator=draw).to(problem.b) * 2 - 1
    perturbed = replace(problem, b=problem.b * (1 + unit * signs))
    return problem.space.norm(Passes(perturbed).state(depth) - state)


def _overflow(solve: Solve) -> Missing:
    return Missing(f"The state of layer {solve.name} overflows on the way, so its error has no meaning.")


def _deep_enough(
    solve: Solve, passes: Passes, rounding: float, allowance: Allowance, what: str
) -> tuple[int, Tensor] | Missing:
    """Without a certificate: a depth from which on passes of twice the depth and one step less agree with it."""
    depth, norm = max(2 * solve.depth + 1, 16), passes.problem.space.norm
    while True:
        deeper = 2 * depth + 1
        if not allowance.allows((wanted := 2.5 * deeper) * solve.step_seconds):
            return allowance.too_long(what, wanted * solve.step_seconds)
        reference = passes.state(deeper).clone()
        if not math.isfinite(size := norm(reference)):
            return _overflow(solve)
        allowed = max(rounding, float(torch.finfo(reference.dtype).eps) * size)
        if all(norm(passes.state(each) - reference) <= 4 * allowed for each in (depth, deeper - 1)):
            return depth, reference
        if deeper > DEEPEST:
            return Missing(
                f"Layer {solve.name} still changes after {deeper:,} steps, so there is nothing to compare with."
            )
        depth = deeper


class _Influence:
    """The paper's estimate: E⁽⁰⁾ = B, E⁽ᵏ⁺¹⁾ = φ(βₖ₊₁ Ã E⁽ᵏ⁾ W), asked for with growing k."""

    def __init__(self, passes: Passes) -> None:
        self.problem = passes.problem
        with torch.no_grad():
            self.steps = self.problem.without_input()
        self.state, self.level = self.problem.b, 0
        self.scratch = [torch.empty_like(self.state) for _ in range(3)]
        self.scale = self.problem.space.max_abs(self.state) or 1.0

    def at(self, level: int) -> float:
        """‖E⁽ᵏ⁾‖∞ / ‖B‖∞."""
        with torch.no_grad():
            for n in range(self.level, level):
                self.state = step(self.steps, n + 1, self.state, self.scratch[n % 2], self.scratch[2])
        self.level = level
        return self.problem.space.max_abs(self.state) / self.scale


def _depths(deepest: int, stride: int, chosen: int) -> Iterator[int]:
    """Which depths are looked at: all of them, or every so many, and the chosen one and the last in any case."""
    close = range(0, min(deepest, CONSECUTIVE) + 1, stride)
    far = range(close[-1], deepest + 1, max(stride, STRIDE))
    yield from sorted({*close, *far, min(chosen, deepest), deepest})


def _steps(deepest: int, stride: int) -> int:
    """How many steps that takes."""
    return sum(_depths(deepest, stride, 0))
