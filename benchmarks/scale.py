"""One machine's limit: 10 million nodes and 100 million directed edges, built and trained on for one step.

``python -m benchmarks.scale`` needs about 24 GB; ``--nodes 1_000_000 --edges 10_000_000`` a tenth of it.
"""

from __future__ import annotations

import argparse
import gc
import json
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import pprgnn
from benchmarks import machine
from pprgnn.core.backend.buffers import in_file, states_on_disk

KINDS = {
    "communities": "blocks of 512 nodes, 4 of 5 edges inside, ids shuffled",
    "random": "both ends of every edge uniform: the worst case for caches",
}
BLOCK, INSIDE, CHUNK = 512, 0.8, 1 << 22
CLASSES, LABELLED = 16, 0.1
GB = 1e9


# ---------------------------------------------------------------------------------------------------- the graph
def edges_of(kind: str, num_nodes: int, num_edges: int, seed: int = 0) -> Tensor:
    """(2, num_edges) in int32, every edge in both directions; some at a time, because 64 bits would not fit."""
    draw = torch.Generator().manual_seed(seed)
    half = num_edges // 2
    edges = torch.empty(2, 2 * half, dtype=torch.int32)
    names = torch.randperm(num_nodes, generator=draw, dtype=torch.int32) if kind == "communities" else None
    for start in range(0, half, CHUNK):
        stop = min(half, start + CHUNK)
        one, other = torch.randint(num_nodes, (2, stop - start), generator=draw)
        if names is not None:
            near = (one // BLOCK * BLOCK + other % BLOCK).clamp_(max=num_nodes - 1)
            other = torch.where(torch.rand(stop - start, generator=draw) < INSIDE, near, other)
            one, other = names[one], names[other]
        edges[0, start:stop], edges[1, start:stop] = one, other
    edges[:, half:] = edges[:, :half].flip(0)
    return edges


def build(kind: str, num_nodes: int, num_edges: int, reorder: bool) -> tuple[pprgnn.Adjacency, dict]:
    """The matrix in a good order of its nodes, and what it took: seconds, and bytes above the edges themselves."""
    seconds = {}
    with _timed(seconds, "draw"):
        edges = edges_of(kind, num_nodes, num_edges)
    with Memory() as memory, _timed(seconds, "build"):
        adj = pprgnn.Adjacency.from_edge_index(edges, num_nodes=num_nodes, reorder="auto" if reorder else False)
    with _timed(seconds, "transpose"):
        symmetric = adj.is_symmetric
    facts = {
        "nodes": num_nodes,
        "edges": adj.num_edges,
        "symmetric": symmetric,
        "reordered": adj.order is not None,
        "edge_index_bytes": edges.nbytes,
        "matrix_bytes": sum(tensor.nbytes for tensor in adj.state()[0].values()),
        "peak_bytes": memory.peak - memory.before,
        "seconds": seconds,
    }
    # Features are drawn, so that they can be drawn in the inner order: nothing has to be moved in or out.
    return adj.in_inner_order()[0], facts


# ----------------------------------------------------------------------------------------------------- the step
@dataclass(frozen=True)
class Step:
    """How the step is done."""

    width: int = 64
    depth: int | None = 10  # None: what the rule finds
    grad_terms: int = 5
    checkpoint: bool = True
    eps: float = 0.25


def train_once(adj: pprgnn.Adjacency, how: Step, features: Path | None, states: Path | None) -> dict:
    """One step with all gradients: linear map, solve, linear head on a tenth of the nodes, cross-entropy."""
    torch.manual_seed(0)
    n, d = adj.num_nodes, how.width
    shape = torch.Size((n, d))
    x = in_file(shape, torch.float32, str(features)) if features else torch.empty(shape)
    for part in x.split(1 << 20):
        part.normal_()
    labelled = torch.randperm(n)[: max(1, int(LABELLED * n))]
    labels = torch.randint(CLASSES, (len(labelled),))
    lin, head = torch.nn.Linear(d, d), torch.nn.Linear(d, CLASSES)
    weight = torch.nn.Parameter(torch.nn.init.xavier_uniform_(torch.empty(d, d)))
    eps = torch.nn.Parameter(torch.tensor(how.eps))
    seconds: dict[str, float] = {}
    where = states_on_disk(states) if states else nullcontext()
    with where, Memory() as memory:
        with _timed(seconds, "forward"):
            # In one expression: a name for the term B or the solution would keep a state alive.
            solution = pprgnn.solve(
                lin(x),
                weight,
                adj,
                eps=eps,
                depth=how.depth,
                grad_terms=how.grad_terms,
                checkpoint=how.checkpoint,
            )
            depth, status = solution.depth, solution.status.name
            chosen = solution.state.index_select(0, labelled)
            del solution
            loss = torch.nn.functional.cross_entropy(head(chosen), labels)
            del chosen
        with _timed(seconds, "backward"):
            loss.backward()
    parameters = {"lin": lin.weight, "bias": lin.bias, "weight": weight, "eps": eps, "head": head.weight}
    return {
        "depth": depth,
        "status": status,
        "seconds": seconds,
        "state_bytes": x.nbytes,
        "peak_bytes": memory.peak,
        "peak_private_bytes": memory.peak_private,
        "loss": float(loss.detach()),
        "gradient_norms": {name: float(p.grad.norm()) for name, p in parameters.items() if p.grad is not None},
    }


def roofline(adj: pprgnn.Adjacency, how: Step, step: dict, roof: dict) -> dict:
    """Least time over time measured, by two counts of the bytes.

    ``once``: a product reads its state once, as if the cache held all rows that are read again
    (:func:`benchmarks.machine.roofline`). ``per_edge``: a row of the state comes from memory for every edge.
    Steps that the backward pass repeats count as work in both.
    """
    n, d, nnz, depth = adj.num_nodes, how.width, adj.num_edges, step["depth"]
    terms = min(how.grad_terms, depth)
    again = terms * (terms - 1) // 2 if how.checkpoint else 0
    work = machine.roofline(n, d, nnz, depth + again, terms)
    state, products = machine.FLOAT * n * d, depth + again + terms
    gathered = work["bytes"] + products * (machine.FLOAT * nnz * d - state)
    seconds = sum(step["seconds"].values())
    bandwidth = GB * machine.bandwidth_gbytes(roof)
    return {
        "bandwidth_gbytes": bandwidth / GB,
        "gflops": machine.peak_gflops(roof),
        "bytes_once": work["bytes"],
        "bytes_per_edge": gathered,
        "memory_once": work["bytes"] / bandwidth / seconds,
        "memory_per_edge": gathered / bandwidth / seconds,
        "with_arithmetic": machine.roofline_fractions(work, seconds, roof),
    }


# -------------------------------------------------------------------------------------------------- measurement
class Memory:
    """Peak of the memory of this process: all of it (VmHWM, reset here) and what is no file's (sampled)."""

    def __enter__(self) -> Memory:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        self.before, self.peak_private, self._done = _status("VmRSS"), 0, threading.Event()
        self._watch = threading.Thread(target=self._sample, daemon=True)
        self._watch.start()
        return self

    def _sample(self) -> None:
        while not self._done.wait(0.05):
            self.peak_private = max(self.peak_private, _status("RssAnon"))

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._watch.join()
        self.peak = _status("VmHWM")


class _timed:
    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self.seconds, self.name = seconds, name

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.name] = time.perf_counter() - self.start


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


def report(result: dict) -> str:
    """A few lines for people."""
    built, step, roof = result["built"], result["step"], result["roofline"]
    seconds, state = built["seconds"], step["state_bytes"]
    return "\n".join(
        [
            f"graph     {built['nodes']:,} nodes, {built['edges']:,} entries; {result['kind']}: "
            f"{KINDS[result['kind']]}",
            f"build     {seconds['build']:.1f} s, peak {built['peak_bytes'] / GB:.2f} GB above the edges "
            f"({built['edge_index_bytes'] / GB:.2f} GB); matrix {built['matrix_bytes'] / GB:.2f} GB; "
            f"symmetry {seconds['transpose']:.1f} s",
            f"step      forward {step['seconds']['forward']:.1f} s (depth {step['depth']}, {step['status']}), "
            f"backward {step['seconds']['backward']:.1f} s",
            f"memory    peak {step['peak_bytes'] / GB:.2f} GB, of it no file's "
            f"{step['peak_private_bytes'] / GB:.2f} GB; a state has {state / GB:.2f} GB",
            f"roofline  {roof['bandwidth_gbytes']:.1f} GB/s, {roof['gflops']:.0f} GFLOP/s measured; bytes "
            f"at least {roof['bytes_once'] / GB:.0f} GB: {roof['memory_once']:.0%} of the bandwidth, a row from "
            f"memory for every edge {roof['bytes_per_edge'] / GB:.0f} GB: {roof['memory_per_edge']:.0%}; "
            f"with the arithmetic, not overlapped: {roof['with_arithmetic']['serial']:.0%} of the roof",
        ]
    )


def run(
    kind: str,
    num_nodes: int,
    num_edges: int,
    how: Step,
    *,
    reorder: bool = True,
    features: Path | None = None,
    states: Path | None = None,
    smoke: bool = False,
) -> dict:
    """Build, train one step, compare with what the machine could do."""
    roof = machine.measure(smoke)
    adj, built = build(kind, num_nodes, num_edges, reorder)
    step = train_once(adj, how, features, states)
    return {
        "kind": kind,
        "machine": machine.describe() | {"measured": roof},
        "built": built,
        "how": vars(how) | {"features": str(features or ""), "states": str(states or "")},
        "step": step,
        "roofline": roofline(adj, how, step, roof),
    }


def main(arguments: list[str] | None = None) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--edges", type=int, default=100_000_000, help="each undirected one counts twice")
    parser.add_argument("--width", type=int, default=64, help="channels of a state")
    parser.add_argument("--kind", choices=KINDS, default="communities")
    parser.add_argument("--depth", type=int, default=10, help="0: what the rule finds")
    parser.add_argument("--grad-terms", type=int, default=5)
    parser.add_argument("--keep-states", action="store_true", help="checkpoint=False")
    parser.add_argument("--no-reorder", action="store_true", help="keep the nodes in the order drawn")
    parser.add_argument("--features", type=Path, help="a folder: the features are in a file there, not in memory")
    parser.add_argument("--states", type=Path, help="a folder: so are the states of the solve")
    parser.add_argument("--output", type=Path, help="write everything as JSON")
    parser.add_argument("--smoke", action="store_true", help="measure the machine in a moment")
    given = parser.parse_args(arguments)
    how = Step(given.width, given.depth or None, given.grad_terms, not given.keep_states)
    result = run(
        given.kind,
        given.nodes,
        given.edges,
        how,
        reorder=not given.no_reorder,
        features=given.features,
        states=given.states,
        smoke=given.smoke,
    )
    print(report(result))
    if given.output:
        given.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
