"""What must hold for every problem: bounds bound, claims are true, warnings come when they are due."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

import pprgnn
from pprgnn import Status

from . import reference
from .problems import COUNT, Attack

CLAIMS = {"CERTIFIED", "MEASURED", "COMPARED", "REUSED"}  # statuses that say: within the tolerance
PATIENCE = 0.5 if COUNT <= 1000 else 5.0  # seconds for the answer to a claim


@dataclass
class Case:
    """A problem, and what came of it."""

    attack: Attack

    def __post_init__(self) -> None:
        self.adj = self.attack.adjacency()
        self.solution, self.warned = self.attack.solve(self.adj)
        self.state = self.solution.state.detach()
        self.dense = self.attack.dense(self.adj)

    @property
    def claims(self) -> bool:
        return self.solution.status.name in CLAIMS and not self.warned

    @property
    def bounds(self) -> dict[str, float | None]:
        names = "error_bound", "truncation_bound", "rounding_bound"
        return {name: getattr(self.solution, name, None) for name in names}

    @cached_property
    def accuracy(self) -> float:
        """What the answer must be known to, in order to judge."""
        return 1e-3 * min(x or 1e-30 for x in (self.attack.tol, *self.bounds.values()) if x is not None)

    @cached_property
    def answer(self) -> reference.Answer | None:
        patience = PATIENCE if self.claims or self.solution.error_bound is not None else 0.05
        return reference.answer(self.dense, self.accuracy, patience) if self.dense.size else None

    @cached_property
    def resolution(self) -> float:
        """How close to the truth, relative to ‖b‖, numbers of this type can be: a hundred units of the state."""
        growth = float(self.state.double().norm() / self.attack.b.detach().double().norm().clamp(min=1e-300))
        return 100 * torch.finfo(self.state.dtype).eps * growth

    @cached_property
    def error(self) -> float | None:
        """The true one, relative to ‖b‖."""
        return None if self.answer is None else self.answer.error(self.state)


Messages = Iterator[str]


# --------------------------------------------------------------------------------------------------- checks
def graph(case: Case) -> Messages:
    """Ã is the matrix of the documentation, to a few ulps of each entry."""
    attack = case.attack
    weight = None if attack.edge_weight is None else attack.edge_weight.to(case.state.dtype)
    wanted = reference.adjacency(attack.edges, weight, attack.num_nodes, attack.normalize, attack.self_loops)
    scale = wanted.abs() * attack.num_nodes * 8 * torch.finfo(case.state.dtype).eps
    if attack.normalize is None and weight is not None:  # edges that occur twice may cancel
        scale = scale + reference.adjacency(attack.edges, weight.abs(), attack.num_nodes, None, False) * 1e-6
    if not bool(((case.adj.to_dense().double() - wanted).abs() <= scale + 1e-300).all()):
        yield "Ã differs from the dense matrix"


def norm(case: Case) -> Messages:
    """The bound of ‖Ã‖₂ is one, and not a useless one."""
    largest = np.abs(case.dense.a).max(initial=0.0)
    true = largest * np.linalg.norm(case.dense.a / (largest or 1), 2)
    if not case.adj.norm_bound >= true * (1 - 1e-12):
        yield f"norm_bound {case.adj.norm_bound:.17g} < {true:.17g}"


def shape(case: Case) -> Messages:
    b = case.attack.b
    if (case.state.shape, case.state.dtype) != (b.shape, b.dtype):
        yield f"state is {tuple(case.state.shape)}, {case.state.dtype}"
    if not torch.isfinite(case.state).all() and case.solution.status is not Status.NOT_FINITE:
        yield f"the state is not finite, the status {case.solution.status.name}"
    if not case.dense.size and case.state.any():
        yield "b = 0, but the state is not"


def warning(case: Case) -> Messages:
    if case.solution.converged == bool(case.warned):
        yield f"{case.solution.status.name} and {len(case.warned)} warnings"
    if len(case.warned) > 1:
        yield f"warned {len(case.warned)} times"


def words(case: Case) -> Messages:
    """The numbers that come with a status fit it, and each other."""
    status, (error, truncation, rounding) = case.solution.status.name, case.bounds.values()
    if any(x is not None and not x >= 0 for x in case.bounds.values()):
        yield f"a bound is negative or NaN: {case.bounds}"
    if hasattr(case.solution, "truncation_bound"):
        if (error is None) != (truncation is None or rounding is None):
            yield f"error_bound is {error} with {truncation} and {rounding}"
        elif error is not None and not max(truncation, rounding) <= error <= 1.001 * (truncation + rounding):
            yield f"error_bound {error} is not {truncation} + {rounding}"
        if status in ("CERTIFIED", "MEASURED") and not (truncation or 0) <= 1.001 * case.attack.tol:
            yield f"{status}, but truncation is bounded by {truncation} only"
    if status == "NOT_FINITE" and error is not None and error < float("inf"):
        yield f"the state is not finite, the error at most {error:.1e}"
    if status in ("COMPARED", "REUSED", "INFLUENCE") and error is not None:
        yield f"{status} with a proof, {error:.1e}"


def bound(case: Case) -> Messages:
    """What is called proved is true for the numbers as computed."""
    proved, answer = case.solution.error_bound, case.answer
    if proved is not None and answer is not None and not case.error <= proved + answer.accuracy:
        yield f"error {case.error:.2e} > error_bound {proved:.2e} ({case.solution.status.name})"


def parts(case: Case) -> Messages:
    """Truncation and rounding, each below its own bound; what was measured is as good as the passes were."""
    _, truncation, rounding = case.bounds.values()
    if case.answer is None or (truncation is None and rounding is None):
        return
    exact = reference.finite(case.dense, case.solution.depth, case.accuracy, PATIENCE)
    if exact is None or not torch.isfinite(case.state).all():
        return
    rounded, slack = exact.error(case.state), exact.accuracy + case.answer.accuracy
    if rounding is not None and not rounded <= rounding + slack:
        yield f"rounding {rounded:.2e} > rounding_bound {rounding:.2e}"
    if case.solution.measured_error is not None:
        slack += 2 * (rounding if rounding is not None else float("inf"))
    if truncation is not None and not case.error - rounded <= truncation + slack:
        yield f"truncation {case.error - rounded:.2e} > truncation_bound {truncation:.2e}"


def claim(case: Case) -> Messages:
    """Whoever says nothing else is within ten times the tolerance, or as close as the state can be stored."""
    if case.claims and case.error is not None and not case.error <= 10 * case.attack.tol + case.resolution:
        yield f"{case.solution.status.name} with error {case.error:.2e}, tol {case.attack.tol:g}"


def easy(case: Case) -> Messages:
    """What is easy converges: nobody may be always right by warning always."""
    tol, rule = case.attack.tol, case.attack.options["depth"]
    depth = case.dense.depth_by_norms(0.01 * tol)
    possible = 1.5 * depth + 20 <= case.attack.options["max_depth"] and not (case.dense.a < 0).any()
    if not possible or not case.dense.size or isinstance(rule, pprgnn.Influence):
        return
    dtype = np.float32 if case.state.dtype == torch.float32 else np.float64
    with np.errstate(all="ignore"):
        rounding = reference.Floats(case.dense, depth, dtype).rounding
    if rounding <= 1e-2 * tol and not case.claims:
        yield f"{case.solution.status.name}, though depth {depth} is enough and rounding {rounding:.1e}"


CHECKS = [graph, norm, shape, warning, words, bound, parts, claim, easy]


def failures_of(case: Case) -> list[str]:
    return [f"{check.__name__}: {message}" for check in CHECKS for message in check(case)]
