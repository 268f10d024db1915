"""One graph over two processes: `python -m benchmarks.distributed` writes results/distributed.md and .json.

A step of the forward pass at width 64 on com-DBLP and on a generated graph of communities: one process with one
thread and with two, two processes with one thread each (gloo on loopback), and what the simulator predicts for
these two. All take turns; a step is the difference of passes of eleven steps and of one, over ten; medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks import machine, shapes
from benchmarks.report import table
from pprgnn import Adjacency
from pprgnn.core.activation import resolve_activation
from pprgnn.core.backend.buffers import acquire
from pprgnn.core.backend.passes import run_pass
from pprgnn.core.problem import Problem
from pprgnn.data.roots import data_root
from pprgnn.distributed.part import cut
from pprgnn.distributed.partitions import choose_method, describe, partition
from pprgnn.distributed.simulate import measure_loopback, simulate
from pprgnn.distributed.team import Team

WIDTH, STEPS = 64, 10


def make(name: str) -> tuple[shapes.Shape, Adjacency]:
    """The same numbers in both processes."""
    if name == "com-DBLP":
        edge_index, nodes = shapes.com_dblp()
    else:
        nodes = {"communities": 200_000, "smoke": 2_000}[name]
        edge_index, nodes = shapes.communities(nodes, 10 * nodes)
    return shapes.dress(name, edge_index, nodes, WIDTH, 1.0), Adjacency.from_edge_index(
        edge_index, num_nodes=nodes
    )


def problem(shape: shapes.Shape, adj: Adjacency, b: Tensor) -> Problem:
    return Problem(b, shape.weight, torch.tensor(shape.eps), adj, resolve_activation("relu"))


def seconds_of_a_step(given: Problem, buffers: list[Tensor], threads: int, together: bool = False) -> float:
    """One sample; of a step that both take together, in both."""
    torch.set_num_threads(threads)
    taken = []
    for steps in (1, 1 + STEPS):
        if together:
            dist.barrier()
        start = time.perf_counter()
        run_pass(given, steps, 0, buffers)
        taken.append(time.perf_counter() - start)
    return (taken[1] - taken[0]) / STEPS


def second(name: str, repeats: int) -> None:
    """The process that only takes part in the steps of both."""
    team, (shape, adj) = Team(), make(name)
    part = cut(adj, partition(adj, 2), team)
    both, buffers = problem(shape, part, shape.b[part.nodes]), rooms(part.num_nodes)
    for _ in range(repeats + 1):
        seconds_of_a_step(both, buffers, 1, together=True)
    team.all_sum(part.rows.exchange.bytes_sent)


def rooms(rows: int) -> list[Tensor]:
    return [acquire(torch.empty(rows, WIDTH)) for _ in range(2)]


def first(name: str, repeats: int) -> dict:
    network, team, (shape, adj) = measure_loopback(), Team(), make(name)
    owner = partition(adj, 2)
    part = cut(adj, owner, team)
    alone, both = problem(shape, adj, adj.permute(shape.b)), problem(shape, part, shape.b[part.nodes])
    whole, rows = rooms(adj.num_nodes), rooms(part.num_nodes)
    contestants = {
        "one": lambda: seconds_of_a_step(alone, whole, 1),
        "two_threads": lambda: seconds_of_a_step(alone, whole, 2),
        "two": lambda: seconds_of_a_step(both, rows, 1, together=True),
        "predicted": lambda: simulate(adj, owner, 2, network, width=WIDTH).seconds,
        "predicted_one": lambda: simulate(adj, torch.zeros_like(owner), 1, network, width=WIDTH).seconds,
    }
    samples: dict[str, list[float]] = {key: [] for key in contestants}
    for turn in range(repeats + 1):
        for key, run in contestants.items():
            taken = run()
            if turn:  # the first is to warm up
                samples[key].append(taken)
    facts = describe(adj, owner, 2)
    sent = team.all_sum(part.rows.exchange.bytes_sent)[0] / ((repeats + 1) * (2 + STEPS))
    error = float((adj.unpermute(whole[0])[part.nodes] - rows[0]).abs().max())
    return {
        "nodes": adj.num_nodes,
        "entries": adj.num_edges,
        "cut_share": facts.cut_share,
        "balance": facts.balance,
        "halo_rows": int(facts.halo_rows.sum()),
        "bytes_per_step": sent,
        "loopback": {"latency": network.latency, "bandwidth": network.bandwidth},
        "seconds": {key: statistics.median(each) for key, each in samples.items()},
        "samples": samples,
        "error": error,
    }


def run(name: str, repeats: int) -> dict:
    """Measure; this process is the first of the two and starts the other one."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store"
        words = ["-m", "benchmarks.distributed", "--second", store, "--graph", name, "--repeats", str(repeats)]
        other = subprocess.Popen([sys.executable, *words], cwd=machine.ROOT)
        try:
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=2)
            found = first(name, repeats)
            dist.destroy_process_group()
            other.wait(timeout=60)
        finally:
            other.kill()
    return found


def markdown(data: dict) -> str:
    header = [
        "graph",
        "nodes",
        "entries",
        "cut",
        "1 process",
        "1 process, 2 threads",
        "2 processes",
        "predicted",
        "measured / predicted",
        "MB per step",
        "loopback",
    ]
    rows = []
    for name, row in data["graphs"].items():
        took, link = row["seconds"], row["loopback"]
        rows.append(
            [
                name,
                f"{row['nodes']:,}",
                f"{row['entries']:,}",
                f"{row['cut_share']:.1%}",
                f"{1e3 * took['one']:.1f} ms",
                f"{1e3 * took['two_threads']:.1f} ms ({took['one'] / took['two_threads']:.2f}×)",
                f"{1e3 * took['two']:.1f} ms ({took['one'] / took['two']:.2f}×)",
                f"{1e3 * took['predicted']:.1f} ms ({took['predicted_one'] / took['predicted']:.2f}×)",
                f"{took['two'] / took['predicted']:.2f}",
                f"{row['bytes_per_step'] / 1e6:.1f}",
                f"{1e6 * link['latency']:.0f} µs, {link['bandwidth'] / 1e9:.2f} GB/s",
            ]
        )
    edited, m = " (edited since)" if data["edited"] else "", data["machine"]
    head = (
        f"`{data['command']}` at commit `{data['commit'][:12]}`{edited}, {data['date']}, {m['cpu']}, {m['cores']} "
        f"cores, load at the start {m['load_average']:.1f}. A step of the forward pass at width {WIDTH}, float32; "
        f"medians of {data['repeats']}, taking turns; in brackets, times as fast as one process with one thread. "
        f"Processes have one thread each; parts by {data['method']}.\n"
    )
    return f"# One graph over two processes\n\n{head}\n{table(header, rows)}\n"


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=machine.ROOT / "results" / "distributed.md")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--smoke", action="store_true", help="a tiny graph only")
    parser.add_argument("--graph", help=argparse.SUPPRESS)
    parser.add_argument("--second", help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.second:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", init_method=f"file://{arguments.second}", rank=1, world_size=2)
        second(arguments.graph, arguments.repeats)
        dist.destroy_process_group()
        return
    data: dict = {
        "command": "python -m benchmarks.distributed",
        **machine.commit(),
        "date": machine.now(),
        "machine": machine.describe(),
        "seed": shapes.SEED,
        "repeats": arguments.repeats,
        "method": choose_method("auto"),
    }
    names = ["smoke"] if arguments.smoke else ["com-DBLP", "communities"]
    if "com-DBLP" in names and not (data_root() / "com-dblp").is_dir():
        print("com-DBLP: not run, it is not in PPRGNN_DATA")
        names.remove("com-DBLP")
    data["graphs"] = {name: run(name, arguments.repeats) for name in names}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    arguments.output.write_text(markdown(data))
    print(markdown(data))


if __name__ == "__main__":
    main()
