"""Ctrl-C, SIGTERM and SIGHUP: what they mean while a training, a tuning or workers run."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn

HANGUP: int | None = getattr(signal, "SIGHUP", None)  # a dropped connection; under nohup it stays ignored
ENDING: tuple[int, ...] = (signal.SIGTERM,) if HANGUP is None else (signal.SIGTERM, HANGUP)


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


class Interruption:
    """Ctrl-C, SIGTERM and SIGHUP ask for an end after the running epoch; a second Ctrl-C does not wait for it."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self.announce, self.wanted = announce, False
        self._handling = handling(self._ask, signal.SIGINT, *ENDING)
        self._terminals = [number for number in (1, 2) if os.isatty(number)]

    def __enter__(self) -> Interruption:
        self._handling.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._handling.__exit__(*error)

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
