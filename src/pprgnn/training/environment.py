"""Where a run took place: machine, libraries, versions. As JSON beside every result; `pprgnn doctor` shows it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pprgnn
from pprgnn.data.roots import cache_root, data_root
from pprgnn.errors import DataError
from pprgnn.training.cgroup import cpu_quota
from pprgnn.training.memory import available_memory, total_memory

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
CPU_INFO = Path("/proc/cpuinfo")


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

        from pprgnn.core.kernel import library_name
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
    return _found(r"(?m)^(?:model name|Model|Hardware)\s*:\s*(.+)$", _cpu_info()) or platform.processor() or None


def _cpu_info() -> str:
    try:
        return CPU_INFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _physical_cores() -> int | None:
    """Two threads of one core have the same pair of ids."""
    ids = {
        (_found(r"(?m)^physical id\s*:\s*(\d+)", part), _found(r"(?m)^core id\s*:\s*(\d+)", part))
        for part in _cpu_info().split("\n\n")
    }
    return len(ids - {(None, None)}) or None


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
