"""How time grows with depth, nodes and edges: slopes of log-log fits, forward and backward, N = 5."""

from __future__ import annotations

import numpy as np

import pprgnn
from benchmarks import shapes
from benchmarks.contestants import GRAD_TERMS
from benchmarks.machine import median_seconds


def step_seconds(num_nodes: int, num_edges: int, channels: int, depth: int, repeats: int) -> float:
    """Median time of a solve of fixed depth with its gradient."""
    shape = shapes.dress("scaling", *shapes.communities(num_nodes, num_edges), channels, 0.25)
    # Node order is fixed for all sizes: the automatic choice would put a jump into the middle of a series.
    adj = pprgnn.Adjacency.from_edge_index(shape.edge_index, num_nodes=num_nodes, reorder=True)
    _ = adj.matrix_t
    b, weight = shape.b.requires_grad_(), shape.weight.requires_grad_()

    def step() -> None:
        b.grad = weight.grad = None
        pprgnn.solve(b, weight, adj, eps=shape.eps, depth=depth, grad_terms=GRAD_TERMS).state.backward(
            shape.upstream
        )

    return median_seconds(step, repeats)


def series(smoke: bool) -> dict[str, list[dict[str, int]]]:
    """Three series, one quantity growing in each; meant to lie beyond the overhead of calls, below 2 s a point."""
    if smoke:
        base = {"num_nodes": 2000, "num_edges": 12_000, "channels": 8, "depth": 10}
        return {
            "depth": [{**base, "depth": depth} for depth in (10, 40)],
            "nodes": [{**base, "num_nodes": n, "num_edges": 6 * n} for n in (1000, 4000)],
            "edges": [{**base, "num_edges": m} for m in (6000, 24_000)],
        }
    deep = {"num_nodes": 20_000, "num_edges": 120_000, "channels": 64}
    wide = {"channels": 32, "depth": 8}
    return {
        "depth": [{**deep, "depth": depth} for depth in (50, 100, 200, 400)],
        # the edges grow along with the nodes: six per node, as in com-DBLP
        "nodes": [{**wide, "num_nodes": n, "num_edges": 6 * n} for n in (64_000, 128_000, 256_000, 512_000)],
        # few nodes and narrow states: the sparse product, which alone depends on the edges, is most of a step
        "edges": [
            {**wide, "num_nodes": 20_000, "num_edges": m} for m in (500_000, 1_000_000, 2_000_000, 4_000_000)
        ],
    }


def run(smoke: bool = False) -> dict:
    """Time every point and fit the exponents."""
    result = {}
    for name, points in series(smoke).items():
        key = name if name == "depth" else f"num_{name}"
        rows = []
        for point in points:
            rows.append({**point, "ms": 1e3 * step_seconds(**point, repeats=2 if smoke else 5)})
            print(f"  {name} {point[key]:,}: {rows[-1]['ms']:.1f} ms", flush=True)
        slope, _ = np.polyfit(np.log([row[key] for row in rows]), np.log([row["ms"] for row in rows]), 1)
        result[name] = {"exponent": float(slope), "rows": rows}
        print(f"  time ~ {name}^{slope:.2f}", flush=True)
    return result
