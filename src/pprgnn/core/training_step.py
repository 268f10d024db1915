"""A training step as the memory of depths sees it: how it differs from others, and what its error tells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from pprgnn.core.backend import kernel
from pprgnn.core.problem import Recursion
from pprgnn.core.solution import StateSpace

PROBES = 16  # random vectors that sketch an input; with few, that of a channel may be small by chance
FAINT = 1e-10  # below, the share of a channel is as good as none


class Differences(NamedTuple):
    """How a step differs from the one that was checked last."""

    turn: float  # relative change of W since the step before, times depth
    weight: float  # the same since the step that was checked
    rate: float  # of log ε, times depth
    graph: float  # 1: another one
    size: float  # of log (nodes, edges)
    jump: float  # relative change of B, and of its size (log), since the step before
    input: float  # the same since the step that was checked
    surge: float  # by which factor (log) the share of a channel has grown since the step before
    channels: float  # the same since the step that was checked
    output: float  # change of log (‖G⁽⁰⁾‖ / ‖B‖); known after the pass

    @property
    def movement(self) -> float:
        """How far weights and input have gone on; what that does to an error is learned."""
        return max(self.weight, self.input / SMALL.jump)

    @property
    def grown(self) -> bool:
        """Whether a channel may have become stronger, and with it what it adds to the error."""
        return self.surge > SMALL.surge or self.channels > SMALL.channels or self.turn > SMALL.turn

    @property
    def unlike(self) -> bool:
        """Whether input or graph are others; weights and rates move, but in a known way."""
        names = ("graph", "size", "jump", "input", "surge")
        other = any(getattr(self, name) > getattr(SMALL, name) for name in names)
        return other or self.channels > 1.5 * SMALL.channels


# Within these, the error follows from that of the step checked last; found by the schedules of tests/attack.
SMALL = Differences(
    turn=1.5, weight=4.0, rate=1.0, graph=0.5, size=0.1, jump=0.15, input=0.6, surge=0.3, channels=1.0, output=0.5
)


@dataclass(frozen=True)
class TrainingStep:
    """What is looked at in every step."""

    graph: tuple[int, int, int]
    eps: float
    log_scale: float  # of ‖B‖
    weight: Tensor
    sketch: Tensor  # random projections of B, relative to ‖B‖
    size: float  # of the sketch
    rows: Tensor | None = None  # size (log) and direction of each row of B, where small ones may matter

    def comparable(self, other: TrainingStep) -> bool:
        """Whether both are steps of the same layer."""
        pairs = ((self.sketch, other.sketch), (self.weight, other.weight))
        return all(a.shape == b.shape and a.dtype == b.dtype and a.device == b.device for a, b in pairs)

    @cached_property
    def _seen(self) -> tuple[Tensor, float]:
        return kernel.look(self.sketch, self.weight, FAINT) or look(self.sketch, self.weight, FAINT)

    @cached_property
    def log_norm(self) -> float:
        """Of W."""
        return math.log(max(self._seen[1], 1e-30))

    def changes(self, then: TrainingStep, depth: int, space: StateSpace) -> tuple[float, float, float]:
        """Relative changes of W, times depth, and of B; by which factor (log) the share of a channel has grown."""
        weight, sketch = torch.dist(self.weight, then.weight), float(torch.dist(self.sketch, then.sketch))
        growth = float((self._seen[0] / then._seen[0]).max())
        if self.rows is not None and then.rows is not None and self.rows.shape == then.rows.shape:
            moved = float((self.rows - then.rows).abs_().max())
            growth = max(growth, math.exp(min(moved, 700.0))) if moved == moved else math.nan
        sketch, growth = space.reduce(sketch, growth)
        turn, growth = depth * float(weight) / math.exp(then.log_norm), math.log(max(growth, 1e-30))
        if self.graph[0] != then.graph[0]:
            return turn, 1.0, growth
        change = sketch / max(then.size, 1e-30)  # it may be 0 by chance
        return turn, max(change, abs(self.log_scale - then.log_scale)), growth

    def differences(
        self, checked: TrainingStep, before: TrainingStep | None, depth: int, space: StateSpace
    ) -> Differences:
        """From the step checked last and the one before this one, at about this depth."""
        if not self.comparable(checked):  # another layer, or the same in another precision
            return Differences(math.inf, math.inf, 0.0, 1.0, *(math.inf,) * 5, 0.0)
        weight, since_check, growth = turn, jump, surge = self.changes(checked, depth, space)
        moved = turn > SMALL.turn or jump > SMALL.jump or surge > SMALL.surge  # or else it is like the checked one
        if moved and before is not None and before is not checked and self.comparable(before):
            turn, jump, surge = self.changes(before, depth, space)
        sizes = zip(self.graph[:2], checked.graph[:2], strict=True)
        found = Differences(
            turn=turn,
            weight=weight,
            rate=depth * abs(math.log(self.eps / checked.eps)),
            graph=float(self.graph != checked.graph),
            size=max(abs(math.log(max(now, 1) / max(then, 1))) for now, then in sizes),
            jump=jump,
            input=since_check,
            surge=surge,
            channels=growth,
            output=0.0,
        )
        return Differences(*(math.inf if math.isnan(each) else each for each in found))  # numbers that overflowed


def look(sketch: Tensor, weight: Tensor, faint: float) -> tuple[Tensor, float]:
    """The share of each channel in B and in what the next steps make of it, as far as the sketch tells; ‖W‖."""
    shares: Tensor = torch.linalg.vector_norm(sketch, dim=0).add_(faint)
    spread, norm = shares, float(torch.linalg.vector_norm(weight))
    if weight.dim() == 2 and weight.size(0) == len(shares):
        coupled = weight.abs() / max(norm, 1e-30)
        for _ in range(3):
            spread = shares + spread @ coupled + coupled @ spread
    return spread, norm


@dataclass(frozen=True)
class CheckedStep:
    """A step whose error is known: the difference between its pass and one of ``depth``."""

    step: TrainingStep
    depth: int
    log_error: float
    log_output: float

    @cached_property
    def _gain(self) -> float:
        return log_gain(self.log_error, self.depth, self.step.eps)

    def factor(self, n: int) -> float:
        """By which factor (log) level n changed the error."""
        return self._gain - math.log1p(n * self.step.eps)

    def log_error_of(self, step: TrainingStep) -> float:
        """What to expect of another step at the same depth, by how W and ε have moved."""
        decays = 0.0
        if step.eps != self.step.eps:
            decays = sum(math.log1p(n * self.step.eps) - math.log1p(n * step.eps) for n in range(self.depth))
        return self.log_error + self.depth * (step.log_norm - self.step.log_norm) + decays

    def log_error_at(self, depth: int, step: TrainingStep) -> float:
        """The same at another depth."""
        if depth < self.depth:
            return self.log_error_of(step) - sum(self.factor(n) for n in range(depth, self.depth))
        return next(itertools.islice(self.deeper(step), depth - self.depth, None))

    def deeper(self, step: TrainingStep) -> Iterator[float]:
        """The same at this depth, one level deeper, and so on; what deeper passes gain is taken with caution."""
        error = self.log_error_of(step)
        moved = step.log_norm - self.step.log_norm + math.log(self.step.eps / step.eps)  # at large n
        for n in itertools.count(self.depth):
            yield error
            error += 0.7 * min(self.factor(n) + max(moved, 0.0), -0.1)

    def depth_for(self, step: TrainingStep, aim: float, max_depth: int) -> int:
        """The smallest depth, from this one on, at which ``aim`` (log) is expected."""
        depths = range(self.depth, max_depth)
        expected = zip(depths, self.deeper(step), strict=False)
        return next((depth for depth, error in expected if error <= aim), max_depth)

    def enough(self, aim: float) -> int:
        """The depth at which the error of this very step was about ``aim`` (log)."""
        depth, error = self.depth, self.log_error
        while error > aim:
            error, depth = error + min(self.factor(depth), -0.1), depth + 1
        while depth > max(self.depth - 8, 1) and error - min(self.factor(depth - 1), -0.1) <= aim:
            error, depth = error - min(self.factor(depth - 1), -0.1), depth - 1
        return depth


def log_gain(log_error: float, depth: int, eps: float) -> float:
    """log κ, where the factors κ βₙ of all levels give this error."""
    return (log_error + sum(math.log1p(n * eps) for n in range(depth))) / max(depth, 1)


def look_at(problem: Recursion, scale: float, rows: bool) -> TrainingStep:
    """What there is to see before the pass; ``rows``: each row of B, too."""
    b = problem.b.reshape(-1, problem.b.size(-1))
    sketch = (_signs(b.size(0)).to(b) @ b) / scale
    weight = problem.strength.detach().clone(memory_format=torch.contiguous_format)
    square = weight.numel() == b.size(1) ** 2  # which channel goes into which, or nothing of that kind
    return TrainingStep(
        graph=problem.graph,
        eps=problem.space.broadcast(float(problem.eps.min())),
        log_scale=math.log(scale),
        weight=weight.view(b.size(1), b.size(1)) if square else weight,
        sketch=sketch,
        size=problem.space.norm(sketch),
        rows=rows_of(b, scale) if rows else None,
    )


def rows_of(b: Tensor, scale: float) -> Tensor:
    """Size (log) and direction of each row, as far as a random projection tells; faint ones have neither."""
    b = b.detach().reshape(-1, b.size(-1))
    sizes = torch.linalg.vector_norm(b, dim=1) + FAINT * scale
    return torch.stack([sizes.log(), (b @ _signs(b.size(1))[0].to(b)) / sizes])


@lru_cache(maxsize=4)
def _signs(count: int) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(count)
    return torch.randint(2, (PROBES, count), generator=generator, device="cpu").mul_(2).sub_(1).float()
