"""Who is told how training goes: the command line shows it, a program may record it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pprgnn.training.loop import Record, Training

Announce = Callable[[str], None]  # is told what comes next, a phrase each


def silent(phrase: str) -> None:
    """Say nothing."""


class Listener(Protocol):
    """Is told what happens, as it happens."""

    def started(self, training: Training) -> None:
        """Before the first epoch."""

    def epoch(self, record: Record) -> None:
        """After every epoch."""

    def warned(self, text: str) -> None:
        """A solve did not converge: what, and the remedy."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def finished(self, summary: Mapping[str, Any]) -> None:
        """At the end, also when it came early."""


class Mute:
    """Says nothing at all: another process says it."""

    def started(self, training: Training) -> None:
        """Say nothing."""

    def epoch(self, record: Record) -> None:
        """Say nothing."""

    def warned(self, text: str) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def finished(self, summary: Mapping[str, Any]) -> None:
        """Say nothing."""


class Silent(Mute):
    """Says nothing but warnings."""

    def warned(self, text: str) -> None:
        """Warn as Python does."""
        from pprgnn.core.solution import ConvergenceWarning

        warnings.warn(text, ConvergenceWarning, stacklevel=2)
