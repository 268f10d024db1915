"""The fused kernel against torch operations, by activation and width: writes results/kernel.md and .json.

`python -m benchmarks.kernel`: chains of 500 nodes, 10,000 in all, 300 levels, one thread, forward and with the
gradient of five terms. Both take turns; CPU times are the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import torch

from benchmarks import machine
from benchmarks.report import table
from pprgnn import Adjacency, solve
from pprgnn.core.backend.kernel import library_name

NODES, LENGTH, DEPTH = 10_000, 500, 300
STRENGTH = {"relu": 0.9, "tanh": 2.0}


def chains() -> Adjacency:
    node = torch.arange(NODES)
    here = node[node % LENGTH != LENGTH - 1]
    edges = torch.stack([here, here + 1])
    return Adjacency.from_edge_index(torch.cat([edges, edges.flip(0)], 1), num_nodes=NODES)


def seconds(adj: Adjacency, activation: str, channels: int, backward: bool) -> float:
    """CPU time of one pass."""
    draw = torch.Generator().manual_seed(0)
    b = 0.1 * torch.randn(NODES, channels, generator=draw)
    weight = (STRENGTH[activation] * torch.eye(channels)).requires_grad_(backward)
    start = time.process_time()
    state = solve(b, weight, adj, eps=0.01, depth=DEPTH, activation=activation).state
    if backward:
        state.sum().backward()
    return time.process_time() - start


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel", description=__doc__)
    parser.add_argument("--channels", type=int, nargs="*", default=[8, 16, 32, 64, 128])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("results/kernel"))
    options = parser.parse_args(given)
    torch.set_num_threads(1)
    adj, rows, found, before = chains(), [], [], os.environ.get("PPRGNN_KERNEL", "")
    for activation in STRENGTH:
        for channels in options.channels:
            for backward in (False, True):
                times: dict[str, list[float]] = {"fused": [], "torch": []}
                for _ in range(options.repeats + 1):  # the first is for warming up
                    for way in times:
                        os.environ["PPRGNN_KERNEL"] = "torch" if way == "torch" else ""
                        times[way].append(seconds(adj, activation, channels, backward))
                fused, plain = (statistics.median(each[1:]) for each in times.values())
                what = "forward and backward" if backward else "forward"
                shown = f"{1e3 * fused:.0f}", f"{1e3 * plain:.0f}", f"{plain / fused:.1f}×"
                rows.append([activation, str(channels), what, *shown])
                found.append({"activation": activation, "channels": channels, "backward": backward, **times})
    os.environ["PPRGNN_KERNEL"] = before
    facts = {"command": "python -m benchmarks.kernel", **machine.commit(), "date": machine.now()}
    facts["kernel"] = library_name()
    options.output.with_suffix(".json").write_text(json.dumps({**facts, "found": found}, indent=1) + "\n")
    page = (
        f"# The fused kernel against torch operations\n\n`{facts['command']}` at commit `{facts['commit'][:12]}`, "
        f"{facts['date'][:10]}, `{facts['kernel']}`.\n{NODES:,} nodes in chains of {LENGTH}, {DEPTH} levels, one "
        f"thread, medians of {options.repeats} runs, in turns.\n\n"
        + table(["φ", "channels", "pass", "fused, CPU ms", "torch, CPU ms", "torch / fused"], rows)
        + "\n"
    )
    options.output.with_suffix(".md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
