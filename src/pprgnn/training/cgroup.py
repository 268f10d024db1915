"""What a container may use: the limits that Linux control groups (version 1 and 2) set for this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

UNLIMITED = 1 << 60  # version 1 writes "no limit" as a number close to 2⁶³
OWN_GROUPS, MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def cpu_quota(own: Path = OWN_GROUPS, mount: Path = MOUNT) -> float | None:
    """Processors' worth of time that this process may use; ``None``: no limit, or none known."""
    quotas = []
    for folder in _folders("cpu", own, mount):
        words = _words(folder / "cpu.max") or _words(folder / "cpu.cfs_quota_us") + _words(
            folder / "cpu.cfs_period_us"
        )
        if len(words) == 2 and all(word.isdigit() and int(word) for word in words):  # not "max" or -1
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_limit(own: Path = OWN_GROUPS, mount: Path = MOUNT) -> int | None:
    """Bytes that this process and its group may use; ``None``: no limit, or none known."""
    return min((limit for limit, _ in _memory(own, mount)), default=None)


def memory_room(own: Path = OWN_GROUPS, mount: Path = MOUNT) -> int | None:
    """Bytes that are still free under the limit. File pages that can be dropped count as free."""
    return min((max(limit - used, 0) for limit, used in _memory(own, mount)), default=None)


def _memory(own: Path, mount: Path) -> Iterator[tuple[int, int]]:
    """Limit and use of this group and of those around it, as far as they have a limit."""
    for folder in _folders("memory", own, mount):
        limit = _words(folder / "memory.max") or _words(folder / "memory.limit_in_bytes")
        used = _words(folder / "memory.current") or _words(folder / "memory.usage_in_bytes")
        if limit and limit[0].isdigit() and int(limit[0]) < UNLIMITED and used:
            yield int(limit[0]), int(used[0]) - _droppable(folder)


def _droppable(folder: Path) -> int:
    words = _words(folder / "memory.stat")
    stat = dict(zip(words[::2], words[1::2], strict=False))
    return int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))


def _folders(controller: str, own: Path, mount: Path) -> Iterator[Path]:
    """The folders of this process' group and of all groups around it.

    In a container the path may be the host's: the part of it that does not exist is passed over.
    """
    for line in own.read_text(encoding="utf-8").splitlines() if own.exists() else ():
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            top = mount
        elif controller in controllers.split(","):
            top = mount / controller
        else:
            continue
        group = top / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top) and folder.is_dir())


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except OSError:
        return []
