"""Who is told how a tuning goes: the command line shows it, a program may record it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pprgnn.training.loop import Record, Training
    from pprgnn.training.tune import Tuning


class TuningListener(Protocol):
    """Is told how a tuning goes; everything is optional to show."""

    def started(self, tuning: Tuning) -> None:
        """Before the first trial."""

    def trial(self, number: int, settings: Mapping[str, Any]) -> None:
        """A trial begins."""

    def epoch(self, number: int, record: Record, training: Training) -> None:
        """After every epoch of a trial."""

    def ended(self, entry: Mapping[str, Any]) -> None:
        """A trial is over: its line in tune.json."""

    def note(self, text: str) -> None:
        """Something worth a line."""


class Quiet:
    """Says nothing."""

    def started(self, tuning: Tuning) -> None:
        """Say nothing."""

    def trial(self, number: int, settings: Mapping[str, Any]) -> None:
        """Say nothing."""

    def epoch(self, number: int, record: Record, training: Training) -> None:
        """Say nothing."""

    def ended(self, entry: Mapping[str, Any]) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""
