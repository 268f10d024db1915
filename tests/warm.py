"""Processes that start with everything imported: a fresh interpreter takes four seconds of CPU to get there.

Each is forked from one that has imported and done nothing else, so it shares no state with the tests. What must be
a fresh interpreter (what is imported when, how fast it starts) does not belong here.
"""

import fcntl
import multiprocessing
import os
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping
from multiprocessing import reduction
from pathlib import Path
from typing import Any

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["torch_geometric.nn", "pprgnn.cli.train_here", "tests.distributed.processes", "tests.training.killed_run"]
)
ENTRY = "from pprgnn.cli.main import run; run()"


class _File:
    """A file descriptor that goes with the process."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return _detach, (reduction.DupFd(self.number),)


def _detach(sent: Any) -> int:
    return int(sent.detach())


def start(
    code: str,
    *arguments: object,
    files: tuple[int, int, int],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    terminal: bool = False,
) -> Any:
    """``python -c CODE ARGUMENTS`` with these files as stdin, stdout and stderr; a terminal becomes its own."""
    given = (list(map(str, arguments)), folder or Path.cwd(), dict(environment or os.environ), terminal)
    process = SERVER.Process(target=_main, args=(code, *given, *map(_File, files)))
    process.start()
    return process


def run(code: str, *arguments: object, timeout: float = 120, **options: Any) -> subprocess.CompletedProcess[str]:
    """To its end; what it writes is text."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error, open(os.devnull) as nothing:
        process = start(code, *arguments, files=(nothing.fileno(), out.fileno(), error.fileno()), **options)
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"It did not end within {timeout:g} s: {code} {arguments}")
        out.seek(0)
        error.seek(0)
        return subprocess.CompletedProcess(arguments, process.exitcode, out.read(), error.read())


def _main(
    code: str,
    arguments: list[str],
    folder: Path,
    environment: dict[str, str],
    terminal: bool,
    *files: int,
) -> None:
    if terminal:
        os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    if terminal:  # Ctrl-C goes to whom the terminal belongs to, and a session has none until it asks for it
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, closefd=False)
    sys.argv = ["-c", *arguments]
    exec(code, {"__name__": "__main__"})
