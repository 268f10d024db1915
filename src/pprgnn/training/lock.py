"""One process at a time works in a folder; the system ends the claim when the process ends, however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pprgnn.training.errors import TrainingError

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing is claimed there
    fcntl = None  # type: ignore[assignment]

LOCKS = Path("/proc/locks")


@contextmanager
def locked(folder: Path | str) -> Iterator[None]:
    """Within it the folder, made if need be, is this process's own; another one that wants it is refused.

    The folder itself is locked, so nothing is left in it. Where that cannot be done (some network drives), or the
    folder cannot be made, which others say better, nothing is refused.
    """
    claim = _claim(Path(folder))
    try:
        yield
    finally:
        if claim is not None:
            os.close(claim)


def _claim(folder: Path) -> int | None:
    if fcntl is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        claim = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(claim)
        raise TrainingError(
            f"{folder} is in use by {_owner(folder)}; wait until it has ended, or choose another folder."
        ) from error
    except OSError:
        os.close(claim)
        return None
    return claim


def _owner(folder: Path) -> str:
    """Who has claimed it, where the system tells."""
    inode = folder.stat().st_ino
    with suppress(OSError):
        for line in LOCKS.read_text(encoding="ascii").splitlines():
            fields = line.split()
            if "FLOCK" in fields and fields[5].endswith(f":{inode}") and "->" not in fields and fields[4] != "0":
                return f"another process ({fields[4]})"
    return "another process"
