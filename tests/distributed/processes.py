"""Runs a function in several processes that have joined a group, as torchrun would, but within one test.

Starting a process takes seconds (it imports torch), so the processes stay and serve every test of the session.
"""

from __future__ import annotations

import atexit
import os
import pickle
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import connection
from pathlib import Path
from typing import Any

from tests import warm

LEAVE_LIMIT = 10.0  # seconds to leave a group
LEFT = b"left"
START_LIMIT = 180.0  # seconds; a busy machine may take long to import torch


class RemoteTraceback(Exception):
    """Where the error was raised, in the process that raised it."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Lost(RuntimeError):
    """A process is no more."""


def run_team(function: Callable[..., Any], size: int, *args: Any, limit: float = 60.0) -> list[Any]:
    """What ``function(*args)`` returns in each of ``size`` processes, by rank; ``Team()`` there is all of them.

    The function must be at the top of a module. Warnings are treated there as in the calling test. The first error
    is raised here; after ``limit`` seconds the processes are ended.
    """
    _POOL.grow(size)
    return _POOL.run(function, size, args, limit)


class _Pool:
    def __init__(self) -> None:
        self.members: list[tuple[Any, connection.Connection]] = []

    def grow(self, size: int) -> None:
        if not all(process.is_alive() for process, _ in self.members):
            self.close()
        fresh = []
        for _ in range(size - len(self.members)):
            here, there = warm.SERVER.Pipe()
            process = warm.SERVER.Process(target=_serve, args=(there,), daemon=True)
            process.start()
            there.close()
            self.members.append((process, here))
            fresh.append(here)
        for pipe in fresh:
            if not pipe.poll(START_LIMIT):
                self.close()
                raise TimeoutError(f"A process did not start within {START_LIMIT:.0f} s.")
            pipe.recv()

    def run(self, function: Callable[..., Any], size: int, args: tuple[Any, ...], limit: float) -> list[Any]:
        waiting = {pipe: rank for rank, (_, pipe) in enumerate(self.members[:size])}
        task = pickle.dumps((function, args))
        results: list[Any] = [None] * size
        error: BaseException | None = None
        end = time.monotonic() + limit
        with tempfile.TemporaryDirectory() as folder:
            for pipe, rank in waiting.items():
                # Bytes: the module of the function is imported only once the warning filters hold.
                pipe.send((rank, size, str(Path(folder, "store")), limit, warnings.filters, task))
            while waiting:
                ready = connection.wait(list(waiting), max(0.0, end - time.monotonic()))
                for pipe in ready:
                    rank = waiting.pop(pipe)
                    try:
                        results[rank] = self._answer(pipe)
                    except BaseException as raised:
                        # The others mostly fail as well, at once, since they cannot reach this one any more.
                        error, end = error or raised, min(end, time.monotonic() + 3)
                if not ready:
                    error = error or TimeoutError(f"Ranks {[*waiting.values()]} were not done in {limit:g} s.")
                    break
        # All must have left a group before the next one is joined; who does not is replaced for the next test.
        if waiting or isinstance(error, Lost) or not self._have_left(size):
            self.close()
        if error is not None:
            raise error
        return results

    def _have_left(self, size: int) -> bool:
        try:
            return all(pipe.poll(LEAVE_LIMIT) and pipe.recv_bytes() == LEFT for _, pipe in self.members[:size])
        except EOFError:
            return False

    @staticmethod
    def _answer(pipe: Any) -> Any:
        try:
            answer, error, text = pickle.loads(pipe.recv_bytes())
        except EOFError:
            raise Lost("A process ended without an answer; it may have crashed.") from None
        if error is not None:
            raise error from RemoteTraceback(text)
        return answer

    def close(self) -> None:
        for process, pipe in self.members:
            process.kill()
            pipe.close()
        for process, _ in self.members:
            process.join()
            process.close()
        self.members.clear()


_POOL = _Pool()
atexit.register(_POOL.close)


def _serve(pipe: connection.Connection) -> None:
    """Do what comes through the pipe, until it closes."""
    os.environ.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    import torch  # not above: the number of threads is read on import

    torch.set_num_threads(1)
    pipe.send("ready")
    while True:
        try:
            rank, size, store, limit, filters, task = pipe.recv()
        except EOFError:
            return
        with warnings.catch_warnings():
            warnings.filters[:] = filters  # type: ignore[index]
            try:
                _join(rank, size, store, limit)
                function, args = pickle.loads(task)
                answer = pickle.dumps((function(*args), None, ""))
            except BaseException as error:
                answer = _failure(error)
            # Sent before the group is left, which makes the others fail as well: the first error is the cause.
            pipe.send_bytes(answer)
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
            pipe.send_bytes(LEFT)


def _join(rank: int, size: int, store: str, limit: float) -> None:
    import torch
    import torch.distributed as dist

    where, patience = dist.FileStore(store, size), timedelta(seconds=limit)
    dist.init_process_group("gloo", store=where, rank=rank, world_size=size, timeout=patience)
    dist.all_reduce(torch.zeros(1))  # nobody may fail while others are still joining


def _failure(error: BaseException) -> bytes:
    text = traceback.format_exc()
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return pickle.dumps((None, error, text))
