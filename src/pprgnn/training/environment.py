"""Where a run took place: machine, libraries, versions, and how much of the machine it may use.

As JSON beside every result; `pprgnn doctor` shows it. Torch is imported where it is asked.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pprgnn
from pprgnn.data.roots import cache_root, data_root
from pprgnn.errors import DataError

if TYPE_CHECKING:
    import torch

REQUIRED = ("torch", "torch_geometric", "numpy", "scipy", "pyarrow", "safetensors", "joblib")
# Optional packages, and the extra of this package that brings each.
EXTRAS = {
    "matplotlib": "report",
    "jinja2": "report",
    "fastapi": "explore",
    "uvicorn": "explore",
    "grakel": "kernels",
    "scikit-learn": "kernels",
    "pymetis": "partition",
    "networkx": "networkx",
    "optuna": "tune",
    "distributed": "grid",
}
CPU_INFO, MEMINFO = Path("/proc/cpuinfo"), Path("/proc/meminfo")
UNLIMITED = 1 << 60  # version 1 of control groups writes "no limit" as a number close to 2⁶³
OWN_GROUPS, MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
GIB, MIB = 1 << 30, 1 << 20


def environment() -> dict[str, Any]:
    """Everything about this machine and this installation that may matter to a result; never fails.

    What cannot be found out, or needs a package that cannot be imported, is ``None``.
    """
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cores": cores(),
        "memory": {"total": total_memory(), "available": available_memory("cpu")},
        **_torch_facts(),
        "versions": {"pprgnn": pprgnn.__version__, **{name: installed(name) for name in REQUIRED}},
        "extras": {name: installed(name) for name in EXTRAS},
        "commit": _own_commit(),
        "data_root": _data_root(),
        "cache_root": str(cache_root()),
    }


@cache  # reading what a package says about itself takes milliseconds, and a grid asks for each of its cells
def installed(name: str) -> str | None:
    """The version of a package, or ``None``."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def cores() -> dict[str, float | None]:
    """Processors of the machine, real ones among them, those this process may run on, and its share of time."""
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "logical": os.cpu_count(),
        "physical": _physical_cores(),
        "allowed": os.cpu_count() if affinity is None else len(affinity(0)),
        "quota": cpu_quota(),
    }


def _torch_facts() -> dict[str, Any]:
    """Threads, libraries and devices as torch sees them; all ``None`` when it cannot be imported."""
    names = ("threads", "blas", "kernel", "device", "gpus")
    try:
        import torch

        from pprgnn.core.backend.kernel import library_name
    except (ImportError, OSError):  # OSError: one of its libraries does not load
        return dict.fromkeys(names)
    has_gpu = torch.cuda.is_available()
    threads = {
        "torch": torch.get_num_threads(),
        "interop": torch.get_num_interop_threads(),
        **{name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")},
    }
    blas = parse_blas(torch.__config__.show(), torch.__config__.parallel_info())
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if has_gpu else []
    facts = (threads, blas, library_name(), "cuda" if has_gpu else "cpu", gpus)
    return dict(zip(names, facts, strict=True))


def parse_blas(config: str, parallel: str) -> dict[str, str | None]:
    """The libraries that do the dense products and the threading, from torch's own words about its build."""
    mkl = _found(r"Math Kernel Library Version ([\d.]+)", config)
    named = _found(r"BLAS_INFO=(\w+)", config) or _found(r"\bBLAS=(\w+)", config)
    return {
        "library": f"MKL {mkl}" if mkl else {"open": "OpenBLAS", "openblas": "OpenBLAS"}.get(named or "", named),
        "openmp": _found(r"a\.k\.a\. OpenMP ([\d.]+)", config),
        "backend": _found(r"parallel backend: (.+)", parallel),
        "instructions": _found(r"CPU capability usage: (\S+)", config),
    }


def _found(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match[1].strip() if match else None


def _cpu_model() -> str | None:
    named = _found(r"(?m)^(?:model name|Model|Hardware)\s*:\s*(.+)$", _text(CPU_INFO))
    return named or platform.processor() or None


def _physical_cores() -> int | None:
    """Two threads of one core have the same pair of ids."""
    ids = {
        (_found(r"(?m)^physical id\s*:\s*(\d+)", part), _found(r"(?m)^core id\s*:\s*(\d+)", part))
        for part in _text(CPU_INFO).split("\n\n")
    }
    return len(ids - {(None, None)}) or None


def _text(path: Path) -> str:
    """What is in a file; nothing if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _data_root() -> str | None:
    try:
        return str(data_root())
    except DataError:
        return None


@cache  # files that change later are not what runs here
def _own_commit() -> str | None:
    return _commit(Path(pprgnn.__file__).parent)


def _commit(package: Path) -> str | None:
    """The commit of the checkout that the package runs from, with ``-dirty`` when its files were changed since."""
    top = package.parents[1]
    if package.parent.name != "src" or not (top / ".git").exists():
        return None  # installed; a repository around it would be somebody else's
    quiet = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}  # looking must not get in the way of a commit

    def git(*words: str) -> str:
        command = ["git", "-C", str(top), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, env=quiet, check=True)
        return done.stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", str(package))
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changed else commit or None


# --------------------------------------------------------------------------------------------------------- memory
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
    kibibytes = _found(rf"(?m)^{name}:\s*(\d+)", _text(MEMINFO))
    return None if kibibytes is None else int(kibibytes) * 1024


def _sysconf(name: str) -> int | None:
    """Where there is no /proc; macOS knows the pages it has, but not how many are free."""
    try:
        pages, size = os.sysconf(name), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    return pages * size if pages > 0 else None


def size_text(size: int) -> str:
    """A number of bytes as people say it."""
    return f"{size / GIB:.1f} GiB" if size >= GIB // 10 else f"{size / MIB:.1f} MiB"


# ----------------------------------------------------------------- limits of Linux control groups, version 1 and 2
def cpu_quota(own: Path = OWN_GROUPS, mount: Path = MOUNT) -> float | None:
    """Processors' worth of time that this process may use; ``None``: no limit, or none known."""
    quotas = []
    for folder in _folders("cpu", own, mount):
        version_1 = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = _words(folder, "cpu.max") or [word for name in version_1 for word in _words(folder, name)]
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
        limit = _words(folder, "memory.max") or _words(folder, "memory.limit_in_bytes")
        used = _words(folder, "memory.current") or _words(folder, "memory.usage_in_bytes")
        if limit and limit[0].isdigit() and int(limit[0]) < UNLIMITED and used:
            words = _words(folder, "memory.stat")
            stat = dict(zip(words[::2], words[1::2], strict=False))
            droppable = stat.get("total_inactive_file", stat.get("inactive_file", 0))
            yield int(limit[0]), int(used[0]) - int(droppable)


def _words(folder: Path, name: str) -> list[str]:
    return _text(folder / name).split()


def _folders(controller: str, own: Path, mount: Path) -> Iterator[Path]:
    """The folders of this process' group and of all groups around it.

    In a container the path may be the host's: the part of it that does not exist is passed over.
    """
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = mount / controller if controllers else mount  # version 2 names none
        group = top / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top) and folder.is_dir())
