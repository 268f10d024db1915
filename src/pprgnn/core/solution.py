"""What comes out of a solve: the state, how deep it is, and what is known about its error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor

MARGIN = 1e3  # how far an influence grows is an estimate
ERRORS = ("truncation_bound", "measured_error", "estimated_error", "rounding_bound", "rounding_error")


class ConvergenceWarning(UserWarning):
    """The result may be off by more than the tolerance; the message says what to change."""


class NotFiniteError(ValueError):
    """An input of a solve holds NaN or an infinite number."""


class Status(Enum):
    """What is known about a solution, the best first. The value is a sentence."""

    CERTIFIED = "Proved in exact arithmetic: what truncation leaves out is at most truncation_bound."
    MEASURED = (
        "Measured against a deeper pass and proved in exact arithmetic: what truncation leaves out is at most "
        "truncation_bound."
    )
    COMPARED = "Two depths agree to the tolerance on this input; not proved."
    REUSED = "The depth of an earlier input, adapted to this one: an estimate, neither measured nor proved."
    INFLUENCE = "Chosen by the paper's influence rule: an estimate, not a bound."
    FIXED = "The depth was given: this is the finite model, nothing is claimed about the infinite one."
    ROUNDING = "Rounding errors of this precision are estimated to exceed the tolerance: no depth would reach it."
    CAPPED = "max_depth was reached before the tolerance."
    NOT_FINITE = "The state overflowed."

    @property
    def converged(self) -> bool:
        """Whether the rule that chose the depth reached its aim (a fixed depth has none)."""
        return self not in (Status.ROUNDING, Status.CAPPED, Status.NOT_FINITE)


class Sketch(NamedTuple):
    """What a few random vectors tell of the linear influence of B: an estimate."""

    depth: int  # where it has faded
    growth: float  # the largest on the way, relative to B itself

    def decides(self, unit: float) -> bool:
        """Whether differences of ``unit`` may grow to the size of the state, and choose a branch of it."""
        return not self.growth * unit * MARGIN <= 1

    def beyond(self, max_depth: int, unit: float) -> bool:
        """Whether that holds of what lies beyond ``max_depth``: passes that agree then tell nothing."""
        return self.depth > max_depth and self.decides(unit)


@dataclass(frozen=True)
class Depth:
    """The answer of a depth rule. Errors are relative: ‖G - G∞‖ / ‖B‖ in the Frobenius norm."""

    k: int
    status: Status
    truncation_bound: float | None = None  # proved, in exact arithmetic
    measured_error: float | None = None  # seen, against a pass of another depth on the same input
    estimated_error: float | None = None  # extrapolated from other inputs
    products: int = 0  # sparse products spent on finding k
    includes_rounding: bool = False  # whether what was measured does
    reference: int | None = None  # depth of the pass that k was compared with
    sketch: Sketch | None = None
    rounding_error: float | None = None  # estimated, by a rule that looks at it itself

    def solution(
        self,
        state: Tensor,
        status: Status,
        rounding_bound: float | None = None,
        rounding_error: float | None = None,
    ) -> Solution:
        """What came out at this depth."""
        errors = (self.truncation_bound, self.measured_error, self.estimated_error)
        rounding_error = self.rounding_error if rounding_error is None else rounding_error
        return Solution(state, self.k, status, self.products + self.k, *errors, rounding_bound, rounding_error)


@dataclass(frozen=True)
class Solution:
    """Result of :func:`pprgnn.solve`.

    Errors are relative to ‖b‖, in the Frobenius norm, so that they do not depend on units.

    Attributes:
        state: G⁽⁰⁾, one row per node.
        depth: how many hops the state reaches.
        status: a :class:`Status`; its value is a sentence.
        products: every sparse product of the forward pass, those of the depth search included (but not those of a
            sketch with few columns, which is thin).
        truncation_bound: proved in exact arithmetic: how far the recursion of this depth can be from the infinite
            one; ``None`` where there is no proof.
        measured_error: the difference to a pass of another depth on this very input, or ``None``.
        estimated_error: extrapolated from earlier inputs when the depth was re-used, or ``None``.
        rounding_bound: proved: what rounding can add in this pass; ``None`` where it was not computed.
        rounding_error: estimated: what rounding does add, from a second pass with a slightly disturbed ``b``.
    """

    state: Tensor
    depth: int
    status: Status
    products: int = 0
    truncation_bound: float | None = None
    measured_error: float | None = None
    estimated_error: float | None = None
    rounding_bound: float | None = None
    rounding_error: float | None = None

    @property
    def error_bound(self) -> float | None:
        """Proved for the numbers as they were computed: truncation and rounding together; ``None``: no proof.

        In float32, or where weights are large, the rounding part is often far above what rounding really does
        (:attr:`rounding_error`), and may be infinite.
        """
        if self.truncation_bound is None or self.rounding_bound is None:
            return None
        return self.truncation_bound + self.rounding_bound

    @property
    def converged(self) -> bool:
        """Whether the depth rule reached its aim."""
        return self.status.converged

    def __repr__(self) -> str:
        names = ("truncation_bound", "error_bound", "measured_error", "estimated_error", "rounding_error")
        known = [(name, getattr(self, name)) for name in names]
        errors = "".join(f", {name}={value:.1e}" for name, value in known if value is not None)
        shape = "×".join(str(size) for size in self.state.shape)
        return f"Solution({shape}, depth={self.depth}, {self.status.name}{errors}, products={self.products})"


def failure(solution: Solution, facts: str, tol: float, max_depth: int) -> str:
    """In a sentence or two, what went wrong and what to do."""
    status, dtype = solution.status, solution.state.dtype
    known = (solution.rounding_error, solution.truncation_bound, solution.measured_error)
    error = next((each for each in known if each is not None), None)
    reached = "" if error is None else f" (error {error:.1e})"
    if status is Status.NOT_FINITE:
        return (
            f"The state overflowed {dtype} ({facts}); use a larger eps, weight decay, gradient clipping or "
            f"float64."
        )
    if status is Status.ROUNDING:
        finer = "float64, " if dtype != torch.float64 else ""
        return (
            f"Rounding errors in {dtype} exceed tol = {tol:g} of ‖b‖{reached}: {facts}. Use {finer}a larger eps, "
            f"smaller weights or a larger tol."
        )
    if error is not None and error <= tol:
        reached = "; two depths agree, but what lies beyond may still grow and decide otherwise"
    return (
        f"Not converged to tol = {tol:g} within max_depth = {max_depth}{reached}: {facts}. Raise max_depth, "
        f"use a larger eps, or regularise the weights."
    )


def weakest(solutions: Sequence[Solution], state: Tensor) -> Solution:
    """One for several that were solved side by side: as well known as the worst of them in every respect."""
    errors: dict[str, float | None] = {}
    for name in ERRORS:
        values = [getattr(each, name) for each in solutions]
        errors[name] = None if None in values else max(values)
    status = max((each.status for each in solutions), key=list(Status).index)
    depth, products = max(each.depth for each in solutions), sum(each.products for each in solutions)
    return Solution(state, depth, status, products, **errors)


def frobenius_norm(x: Tensor) -> float:
    """‖x‖_F, also where the squares of the entries would leave the range of their type."""
    norm = float(torch.linalg.vector_norm(x))
    if not 1e-15 < norm < 1e15 and x.numel():
        largest = float(x.abs().max())
        if 0 < largest < math.inf:
            return largest * float(torch.linalg.vector_norm(x / largest))
    return norm


class StateSpace:
    """Norms and agreement over all rows of a state: here in one process; a graph over several has its own."""

    def norm(self, x: Tensor) -> float:
        """‖x‖_F of all rows."""
        return frobenius_norm(x)

    def max_abs(self, x: Tensor) -> float:
        """The largest entry of all rows, without sign."""
        return float(x.abs().max()) if x.numel() else 0.0

    def reduce(self, norm: float, largest: float) -> tuple[float, float]:
        """A norm and a largest entry, from those of the rows that are here."""
        return norm, largest

    def all_sum(self, x: Tensor) -> Tensor:
        """The sum of ``x`` over all processes."""
        return x

    def all_true(self, fact: bool) -> bool:
        """Whether this holds in all processes."""
        return fact

    def broadcast(self, value: float) -> float:
        """The number of the first process: depths must not differ between them."""
        return value


def unit_roundoff(x: Tensor) -> float:
    """u: the relative error of one rounded operation, at most."""
    return torch.finfo(x.dtype).eps / 2
