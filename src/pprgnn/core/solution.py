"""What comes out of a solve: the state, how deep it is, and what is known about its error."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torch import Tensor


class ConvergenceWarning(UserWarning):
    """The result may be off by more than the tolerance; the message says what to change."""


class NotFiniteError(ValueError):
    """An input of a solve holds NaN or an infinite number."""


class Status(Enum):
    """What is known about a solution. The value is a sentence."""

    FIXED = "The depth was given: this is the finite model, nothing is claimed about the infinite one."
    CERTIFIED = "Proved: the error is at most error_bound, by the product of the step bounds."
    MEASURED = "Measured against a deeper pass and proved: the error is at most error_bound."
    COMPARED = "Two depths agree to the tolerance, but the certificate is too weak to prove it."
    REUSED = "The depth of an earlier measurement, adapted to the present weights; not measured again."
    INFLUENCE = "Chosen by the paper's influence rule: an estimate, not a bound."
    CAPPED = "max_depth was reached before the tolerance."
    NOT_FINITE = "The state overflowed."

    @property
    def converged(self) -> bool:
        """Whether the rule that chose the depth reached its aim (a fixed depth has none)."""
        return self not in (Status.CAPPED, Status.NOT_FINITE)


@dataclass(frozen=True)
class Depth:
    """The answer of a depth rule. Errors are relative: ‖G - G∞‖ / ‖B‖ in the Frobenius norm."""

    k: int
    status: Status
    error_bound: float | None = None  # proved
    measured_error: float | None = None  # seen, against a deeper pass
    estimated_error: float | None = None  # extrapolated
    products: int = 0  # sparse products spent on finding k

    def solution(self, state: Tensor, status: Status) -> Solution:
        """What came out at this depth."""
        errors = (self.error_bound, self.measured_error, self.estimated_error)
        return Solution(state, self.k, status, *errors, products=self.products + self.k)


@dataclass(frozen=True)
class Solution:
    """Result of :func:`pprgnn.solve`.

    Errors are relative to ‖b‖, in the Frobenius norm, so that they do not depend on units.

    Attributes:
        state: G⁽⁰⁾, one row per node.
        depth: how many hops the state reaches.
        status: a :class:`Status`; its value is a sentence.
        error_bound: a proved bound of the error, or ``None``.
        measured_error: the difference to a deeper pass, or ``None``.
        estimated_error: an extrapolation from the last measurement when the depth was re-used, or ``None``.
        products: every sparse product of the forward pass, those of the depth search included.
    """

    state: Tensor
    depth: int
    status: Status
    error_bound: float | None
    measured_error: float | None
    estimated_error: float | None
    products: int

    @property
    def converged(self) -> bool:
        """Whether the depth rule reached its aim."""
        return self.status.converged

    def __repr__(self) -> str:
        known = {
            name: f"{value:.1e}"
            for name in ("error_bound", "measured_error", "estimated_error")
            if (value := getattr(self, name)) is not None
        }
        errors = "".join(f", {name}={value}" for name, value in known.items())
        shape = "×".join(str(size) for size in self.state.shape)
        return f"Solution({shape}, depth={self.depth}, {self.status.name}{errors}, products={self.products})"
