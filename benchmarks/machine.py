"""What this machine can do, measured: the roof that the timings are compared with."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
FLOAT = 4  # bytes


def median_seconds(function: Callable[[], object], repeats: int = 7) -> float:
    """Median time of a call, after one call to warm up."""
    function()
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


def gemm_gflops(rows: int, inner: int, cols: int) -> float:
    """Rate of a float32 product into an existing buffer."""
    x, y, out = torch.randn(rows, inner), torch.randn(inner, cols), torch.empty(rows, cols)
    seconds = median_seconds(lambda: torch.mm(x, y, out=out))
    return 2 * rows * inner * cols / seconds / 1e9


def stream_gbytes(numel: int) -> dict[str, float]:
    """Copy and triad rate, bytes read plus bytes written (the silent read before a write is not counted)."""
    a, b, c = torch.zeros(numel), torch.ones(numel), torch.ones(numel)
    copy = median_seconds(lambda: a.copy_(b))
    triad = median_seconds(lambda: torch.add(b, c, alpha=0.5, out=a))
    return {"copy": 2 * FLOAT * numel / copy / 1e9, "triad": 3 * FLOAT * numel / triad / 1e9}


def measure(smoke: bool = False) -> dict:
    """Peak of the dense product and bandwidth of the memory; arrays of 256 MB, far beyond any cache."""
    sizes = (256,) if smoke else (2048, 4096)
    gemm = {f"{size}x{size}x{size}": gemm_gflops(size, size, size) for size in sizes}
    stream = stream_gbytes(1 << 20 if smoke else 1 << 26)
    return {"gemm_gflops": gemm, "stream_gbytes": stream}


def peak_gflops(machine: dict) -> float:
    return max(machine["gemm_gflops"].values())


def bandwidth_gbytes(machine: dict) -> float:
    return max(machine["stream_gbytes"].values())


def describe() -> dict:
    """The machine in words."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_average": os.getloadavg()[0],  # near 0 on a quiet machine; timings beside other work mean little
        "os": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def commit() -> dict:
    """Commit of the code that runs, and whether the package or the benchmark has been edited since."""
    head = _git("rev-parse", "HEAD")
    return {"commit": head or "unknown", "edited": bool(_git("status", "--porcelain", "--", "src", "benchmarks"))}


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def roofline(n: int, d: int, nnz: int, depth: int, grad_terms: int) -> dict[str, float]:
    """Floating-point operations and compulsory bytes of one forward and backward pass of a fully fused algorithm.

    Forward: ``depth`` steps, each one dense product (2nd²) and one sparse one (2·nnz·d); each reads G, B and the
    CSR matrix once and writes G. Before them φ(B): reads B, writes G.
    Backward: ``grad_terms`` terms, each two dense products (W̄ and Ḡ; the last term needs only W̄) and one sparse
    one; each reads Z̄, G, B̄ and the CSR matrix and writes Z̄ and B̄.
    """
    terms = min(grad_terms, depth)
    state, csr = FLOAT * n * d, (FLOAT + 4) * nnz + 4 * (n + 1)
    dense = 2 * n * d * d * (depth + 2 * terms - 1)
    sparse = 2 * nnz * d * (depth + terms)
    traffic = 2 * state + depth * (3 * state + csr) + terms * (5 * state + csr)
    return {"flops": dense + sparse, "bytes": traffic}


def roofline_fractions(work: dict[str, float], seconds: float, machine: dict) -> dict[str, float]:
    """Time the roof needs over time measured, if arithmetic and memory overlap fully and if not at all."""
    compute = work["flops"] / (1e9 * peak_gflops(machine))
    memory = work["bytes"] / (1e9 * bandwidth_gbytes(machine))
    return {"overlapped": max(compute, memory) / seconds, "serial": (compute + memory) / seconds}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
