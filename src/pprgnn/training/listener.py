"""Between a training or a tuning and the world: who is told how it goes, and what Ctrl-C and signals mean."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from pprgnn.training.loop import Record, Training
    from pprgnn.training.tune import Tuning

HANGUP: int | None = getattr(signal, "SIGHUP", None)  # a dropped connection; under nohup it stays ignored
ENDING: tuple[int, ...] = (signal.SIGTERM,) if HANGUP is None else (signal.SIGTERM, HANGUP)
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
def stopping(listener: Listener) -> Iterator[None]:
    """Within it the listener is told something, and afterwards that nothing more comes, if it can be told."""
    try:
        yield
    finally:
        getattr(listener, "stop", lambda: None)()


# ------------------------------------------------------------------------------------------------------ signals
@contextmanager
def handling(handler: Callable[[int, Any], Any], *signals: int) -> Iterator[None]:
    """Within it, these signals go to this handler."""
    if threading.current_thread() is not threading.main_thread():  # elsewhere Python allows no handlers
        yield
        return
    wanted = [number for number in signals if number != HANGUP or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in wanted}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class Interruption(ExitStack):
    """Ctrl-C, SIGTERM and SIGHUP ask for an end after the running epoch; a second Ctrl-C does not wait for it."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        super().__init__()
        self.announce, self.wanted = announce, False
        self._terminals = [number for number in (1, 2) if os.isatty(number)]

    def __enter__(self) -> Interruption:
        self.enter_context(handling(self._ask, signal.SIGINT, *ENDING))
        return self

    def _ask(self, number: int, frame: object) -> None:
        if number == HANGUP:  # the terminal is gone: whatever writes to it would fail before all is saved
            self.wanted = True
            for each in self._terminals:
                with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
                    os.dup2(nowhere.fileno(), each)
            return
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
        self.announce("Stopping after this epoch; press Ctrl-C again to stop at once.")


def ended_by_sigterm() -> AbstractContextManager[None]:
    """SIGTERM and SIGHUP end this as Ctrl-C does, so that no worker stays behind."""

    def stop(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    return handling(stop, *ENDING)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C waits until this is over: half a line in a file would be lost."""
    asked: list[int] = []
    with handling(lambda number, frame: asked.append(number), signal.SIGINT):
        yield
    if asked:
        signal.raise_signal(signal.SIGINT)
