"""The memory that makes measuring the depth cheap in training."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from pprgnn.core.depth import Measured, Problem
from pprgnn.core.solution import Depth, Status


@dataclass
class DepthMemory:
    """Re-uses what a :class:`Measured` rule found, so that training costs little more than a fixed depth.

    Between measurements the error curve seen last is scaled by how ‖W‖ and ε have moved since (an estimate), and
    the depth follows. A new measurement is made when the graph is of another size, when the estimate leaves the
    measured range, or when weights or graph have changed and measuring has become cheap: less than ``share`` of
    the work done since the last one.
    """

    rule: Measured = field(default_factory=Measured)
    share: float = 0.05
    _curve: dict[int, float] = field(default_factory=dict, repr=False)
    _log_rates: tuple[float, float] = field(default=(0.0, 0.0), repr=False)  # log ‖W‖ and ε when measured
    _graph: tuple[int, int, int] = field(default=(0, 0, 0), repr=False)
    _direction: Tensor | None = field(default=None, repr=False)
    _probe: Tensor = field(default_factory=lambda: torch.empty(0), repr=False)
    _work: float = field(default=0.0, repr=False)
    _cost: float = field(default=0.0, repr=False)
    _levels: int = field(default=-1, repr=False)
    _last_depth: Depth | None = field(default=None, repr=False)
    _failed: tuple[float, int, int] | None = field(default=None, repr=False)  # under which limits
    measurements: int = 0

    def forget(self) -> None:
        """Measure again at the next opportunity."""
        self._curve, self._direction, self._failed = {}, None, None

    def learn_from(self, other: DepthMemory) -> None:
        """Start from what another memory found, on graphs of another size: a guess for the first measurement."""
        self._curve, self._log_rates, self._graph = dict(other._curve), other._log_rates, other._graph
        self._levels, self._last_depth = other._levels, other._last_depth

    def choose(self, problem: Problem, tol: float, max_depth: int, levels: int) -> Depth:
        """Re-use, adapt or measure."""
        # Training looks at more levels than evaluation; what holds for more levels holds for fewer.
        more_levels = levels > self._levels
        self._levels = max(levels, self._levels)
        log_norm = problem.agreed(self._log_norm(problem.gauge.detach()))
        eps = float(problem.eps.detach().min())
        graph = problem.graph
        drifted = abs(log_norm - self._log_rates[0]) > 0.02 or eps != self._log_rates[1]
        too_far = abs(log_norm - self._log_rates[0]) > math.log(problem.drift)
        changed = drifted or graph != self._graph
        # What was measured on other weights is a guess here, on another graph a bolder one: leave a margin.
        aim = tol * (0.1 if graph != self._graph else 0.3 if drifted else 1.0)
        estimate = None if more_levels or too_far else self._estimate(log_norm, eps, aim, max_depth, levels)
        affordable = self._work * self.share >= self._cost
        no_better = log_norm >= self._log_rates[0] - 0.02 and eps <= self._log_rates[1] and graph == self._graph
        if self._failed == (tol, max_depth, self._levels) and no_better and not affordable and self._last_depth:
            depth = replace(self._last_depth, products=0)  # it warns again, but does not search in every step
        elif estimate is None or not _similar(graph, self._graph) or (changed and affordable):
            last = self._last_depth
            known = last.k if last is not None and last.status.converged else None
            guess = estimate[0] if estimate is not None else known
            depth, self._curve = self.rule.measure(problem, tol, max_depth, self._levels, guess)
            self._log_rates, self._graph = (log_norm, eps), graph
            self._work, self._cost = 0.0, depth.products
            self.measurements += 1
            self._failed = None if depth.status.converged else (tol, max_depth, self._levels)
            if self._failed:
                self._curve = {}
        else:
            depth = Depth(estimate[0], Status.REUSED, estimated_error=estimate[1])
        self._last_depth = depth
        self._work += depth.k + 2 * levels  # a backward term costs about two forward steps
        return depth

    def state(self) -> dict[str, Any]:
        """Everything the next choices depend on: JSON values, except that "direction" and "probe" are tensors.

        ``rule`` and ``share`` are not part of it: they are how the memory was built, not what it remembers.
        """
        last = self._last_depth
        return {
            "curve": [[k, _to_json(error)] for k, error in self._curve.items()],
            "log_rates": [_to_json(rate) for rate in self._log_rates],
            "graph": list(self._graph),
            "work": self._work,
            "cost": self._cost,
            "levels": self._levels,
            "last_depth": None
            if last is None
            else {
                name: _to_json(value.name if isinstance(value, Status) else value)
                for name, value in vars(last).items()
            },
            "failed": None if self._failed is None else list(self._failed),
            "measurements": self.measurements,
            "direction": None if self._direction is None else self._direction.detach().clone(),
            "probe": self._probe.detach().clone(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state` gave: from here on the choices are those of the memory it came from."""
        try:
            last, failed, direction = state["last_depth"], state["failed"], state["direction"]
            known = DepthMemory(
                self.rule,
                self.share,
                {int(k): float(error) for k, error in state["curve"]},
                (float(state["log_rates"][0]), float(state["log_rates"][1])),
                (int(state["graph"][0]), int(state["graph"][1]), int(state["graph"][2])),
                None if direction is None else direction.clone(),
                state["probe"].clone(),
                float(state["work"]),
                float(state["cost"]),
                int(state["levels"]),
                None if last is None else _depth_from(last),
                None if failed is None else (float(failed[0]), int(failed[1]), int(failed[2])),
                int(state["measurements"]),
            )
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"This is not the state of a DepthMemory ({type(error).__name__}: {error}); take it from "
                f"DepthMemory.state(), or go on without it: depths are then measured afresh."
            ) from error
        vars(self).update(vars(known))

    def _log_norm(self, weight: Tensor) -> float:
        """Log ‖W‖₂ by a power iteration that starts where the last one ended: an estimate, no decomposition."""
        v, rounds = self._direction, 1
        if v is None or v.shape != weight.shape[:1]:
            start = torch.Generator("cpu").manual_seed(0)
            self._probe = torch.randn(weight.size(0), generator=start, device="cpu").to(weight)
            self._probe *= 0.1 / self._probe.norm()
            v, rounds = self._probe, 60  # from scratch: later drift must not look like convergence
        v = v.to(weight) + self._probe.to(weight)  # a direction that starts to grow must be seen
        for _ in range(rounds):
            v = torch.mv(weight, torch.mv(weight.t(), v))
            v = v / (v.norm() + 1e-30)
        self._direction = v
        return math.log(max(float(torch.mv(weight.t(), v).norm()), 1e-30))

    def _estimate(
        self, log_norm: float, eps: float, tol: float, max_depth: int, levels: int
    ) -> tuple[int, float] | None:
        """The smallest depth whose scaled error is below tol; ``None`` when the curve does not reach it."""
        known = sorted((k, math.log(max(e, 1e-30))) for k, e in self._curve.items() if math.isfinite(e))
        if not known or not math.isfinite(log_norm):
            return None
        shift, old_norm, old_eps = 0.0, *self._log_rates
        for k in range(min(max_depth, 2 * known[-1][0]) + 1):
            shift += log_norm - old_norm + math.log((1 + k * old_eps) / (1 + k * eps))
            estimate = _interpolate(known, k)
            if k >= levels and estimate is not None and estimate + shift <= math.log(tol):
                return k, math.exp(estimate + shift)
        return None


def _interpolate(known: list[tuple[int, float]], k: int) -> float | None:
    """Log error at k from measurements: between two of them, or half as deep again as the last one.

    The error falls ever faster with depth, so the last slope carried on overestimates it.
    """
    if len(known) < 2:
        return known[0][1] if k == known[0][0] else None
    for (k0, e0), (k1, e1) in itertools.pairwise(known):
        if k0 <= k <= k1 or (k1 == known[-1][0] < k <= 1.5 * k1):
            return e0 + (e1 - e0) * (k - k0) / (k1 - k0)
    return None


def _similar(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    return all(x <= 2 * y and y <= 2 * x for x, y in zip(a[:2], b[:2], strict=True))


def _to_json(value: Any) -> Any:
    """Numbers as they are; JSON has no infinite ones, so these become words that ``float`` understands."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _depth_from(state: Mapping[str, Any]) -> Depth:
    errors = {
        name: None if state[name] is None else float(state[name])
        for name in ("error_bound", "measured_error", "estimated_error")
    }
    return Depth(int(state["k"]), Status[state["status"]], **errors, products=int(state["products"]))
