"""Peak memory of one step, each in a fresh process: ``python -m benchmarks.memory '{"job": ...}'``.

The high-water mark of Linux (VmHWM, what ``ru_maxrss`` reports) is reset just before the step, because building a
large graph may take more than the step itself, and because a child inherits its parent's ``ru_maxrss``.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

import pprgnn
from benchmarks import contestants, shapes
from benchmarks.machine import ROOT

SMALLEST_STATE = 8 << 20  # bytes; below, buffers of the libraries drown the states


def contestant_peak(shape: shapes.Shape, name: str, smoke: bool) -> dict | None:
    """Peak extra memory of a contestant's forward and backward pass; ``None`` for tiny shapes."""
    if shape.b.nbytes < SMALLEST_STATE:
        return None
    return _in_fresh_process({"job": "contestant", "contestant": name, "shape": shape.name, "smoke": smoke})


def depth_peaks(smoke: bool) -> dict:
    """Peak memory at depth 10 and at depth 1000 with N = 5 gradient terms."""
    n, edges, d = (20_000, 80_000, 16) if smoke else (200_000, 800_000, 64)
    size = {"job": "depth", "num_nodes": n, "num_edges": edges, "channels": d}
    depths = (10, 100) if smoke else (10, 1000)
    rows = []
    for depth in depths:
        rows.append({"depth": depth, **_in_fresh_process({**size, "depth": depth})})
        print(f"  depth {depth}: {rows[-1]['extra_states']:.2f} states above the start", flush=True)
    low, high = (row["peak_bytes"] for row in rows)
    return {**size, "rows": rows, "relative_difference": high / low - 1}


def _in_fresh_process(job: dict) -> dict:
    command = [sys.executable, "-m", "benchmarks.memory", json.dumps(job)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}  # as many as here
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"The memory measurement {job} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


# ------------------------------------------------------------------------------------------ in the fresh process
def _peak(step: Callable[[], object], state_bytes: int) -> dict:
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
        read_peak, before = (lambda: _status("VmHWM")), _status("VmRSS")
    except OSError:  # no such file, or not allowed: the high-water mark of the whole process must do
        read_peak = _maxrss
        before = read_peak()
    step()
    peak = read_peak()
    return {
        "state_bytes": state_bytes,
        "before_bytes": before,
        "peak_bytes": peak,
        "extra_states": (peak - before) / state_bytes,
    }


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


def _maxrss() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _tiny(channels: int) -> shapes.Shape:
    return shapes.dress("warm-up", *shapes.communities(2000, 8000), channels, 1.0)


def _contestant_job(job: dict) -> dict:
    kind = contestants.CONTESTANTS[job["contestant"]]
    shape = shapes.make(job["shape"], job["smoke"])
    # The states before the last N are not kept, so depth changes nothing, and some take a minute a run otherwise.
    # Ours does all it does, the measurement of its depth included.
    depth = () if kind is contestants.Ours else (contestants.GRAD_TERMS + 1,)
    # Threads and the workspaces of the libraries come with the first use: not the step's.
    kind(_tiny(shape.channels), *depth).run()
    contestant = kind(shape, *depth)
    bytes_per_state = shape.b.nbytes
    del shape
    return _peak(contestant.run, bytes_per_state)


def _depth_job(job: dict) -> dict:
    contestants.Ours(_tiny(job["channels"])).run()  # warms up, as above
    shape = shapes.dress("memory", *shapes.communities(job["num_nodes"], job["num_edges"]), job["channels"], 0.25)
    adj = pprgnn.Adjacency.from_edge_index(shape.edge_index, num_nodes=shape.num_nodes)
    _ = adj.matrix_t
    b, weight = shape.b.requires_grad_(), shape.weight.requires_grad_()

    def step() -> None:
        solution = pprgnn.solve(
            b, weight, adj, eps=shape.eps, depth=job["depth"], grad_terms=contestants.GRAD_TERMS
        )
        solution.state.backward(shape.upstream)

    return _peak(step, b.nbytes)


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    torch.manual_seed(shapes.SEED)
    print(json.dumps({"contestant": _contestant_job, "depth": _depth_job}[request["job"]](request)))
