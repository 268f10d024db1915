"""How much memory there is, and how much training will need."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pprgnn.training.cgroup import memory_limit, memory_room

if TYPE_CHECKING:
    import torch

MEMINFO = Path("/proc/meminfo")


def available_memory(device: str | torch.device = "cpu") -> int | None:
    """Bytes that can still be used on a device; ``None``: not known.

    On the CPU, what the system could free for us or what the container's limit leaves, whichever is less.
    """
    if str(device).startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    return _least(_meminfo("MemAvailable") or _sysconf("SC_AVPHYS_PAGES"), memory_room())


def total_memory() -> int | None:
    """Bytes of the machine, or of the container if it has less; ``None``: not known."""
    return _least(_meminfo("MemTotal") or _sysconf("SC_PHYS_PAGES"), memory_limit())


def _least(*sizes: int | None) -> int | None:
    return min((size for size in sizes if size is not None), default=None)


def _meminfo(name: str) -> int | None:
    try:
        lines = MEMINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = (line.split() for line in lines if line.startswith(f"{name}:"))
    return next((int(words[1]) * 1024 for words in found), None)


def _sysconf(name: str) -> int | None:
    """Where there is no /proc; macOS knows the pages it has, but not how many are free."""
    try:
        pages, size = os.sysconf(name), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    return pages * size if pages > 0 else None
