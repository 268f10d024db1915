"""Damage files at random, and see that reading them ends as it should."""

from __future__ import annotations

import contextlib
import resource
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from pprgnn.errors import DataError

from .targets import Target

SECONDS, BYTES = 10, 2 << 30  # that reading a small file may take
WORDS = (
    *(b"-1", b"0", b"1e309", b"NaN", b"2000000000", b"9223372036854775807", b"9223372036854775808", b"1e-320"),
    *(b"\0", b'"', b"'", b",", b";", b"\t", b"\n", b"\r", b"=", b"{", b"}", b"[", b"]", b"null", b"true", b"#"),
    *(b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3\xa4", b"<!DOCTYPE x>", b"&amp;", b"</node>", b"F64", b"I8", b"BOOL"),
)


def damaged(content: bytes, draw: Random) -> bytes:
    """The same with one to three changes."""
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(content) + 1)
        length = draw.choice((1, 1, 2, 4, 8, 64))
        kind = draw.randrange(6)
        if kind == 0:
            content = content[:place] + draw.randbytes(length) + content[place + length :]
        elif kind == 1:
            content = content[:place] + draw.choice(WORDS) + content[place + draw.choice((0, 1, length)) :]
        elif kind == 2:
            content = content[:place] + content[place + length :]
        elif kind == 3:
            content = content[:place] + content[place : place + length] * draw.choice((2, 50)) + content[place:]
        elif kind == 4 and place < len(content):
            flipped = content[place] ^ (1 << draw.randrange(8))
            content = content[:place] + bytes([flipped]) + content[place + 1 :]
        else:
            content = content[:place]
    return content


def files_of(folder: Path) -> list[Path]:
    """In an order that does not depend on the file system."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def read_within_limits(target: Target, folder: Path) -> Any:
    """What was read, or our own error; any other error, a hang or a waste of memory is raised."""
    with _limited(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return target.read(folder)
        except DataError as error:
            return error


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def too_long(*_: object) -> None:
        raise TimeoutError(f"Reading took more than {SECONDS} s.")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    memory, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, memory[1]))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, memory)
