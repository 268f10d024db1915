"""Who is told how a training or a tuning goes: the command line shows it, a program may record it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pprgnn.training.loop import Record, Training
    from pprgnn.training.tune import Tuning

Announce = Callable[[str], None]  # is told what comes next, a phrase each


def silent(phrase: str) -> None:
    """Say nothing."""


class Listener:
    """Is told what happens, as it happens; this one says nothing, others override what they want to know."""

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

    # Of a tuning. Trials in this process are trainings of their own in between, one after the other.
    def tuning_started(self, tuning: Tuning) -> None:
        """Before the first trial."""

    def trial_started(self, number: int, settings: Mapping[str, Any]) -> None:
        """A trial begins."""

    def trial_finished(self, entry: Mapping[str, Any]) -> None:
        """A trial is over: its line in tune.json."""

    def stop(self) -> None:
        """Nothing more comes, whatever happened."""


class Silent(Listener):
    """Says nothing but warnings."""

    def warned(self, text: str) -> None:
        """Warn as Python does."""
        from pprgnn.core.solution import ConvergenceWarning

        warnings.warn(text, ConvergenceWarning, stacklevel=2)


@contextmanager
def stopping(listener: Listener | None) -> Iterator[Listener | None]:
    """Within it the listener is told something, and afterwards that nothing more comes."""
    try:
        yield listener
    finally:
        getattr(listener, "stop", lambda: None)()
