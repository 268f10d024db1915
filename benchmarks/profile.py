"""Why the figures are what they are: `python -m benchmarks.profile` writes results/profile.md.

- batch: how much of a pass is the kernel, how much of the kernel is the dense product at this machine's GEMM rate.
- ppi-like: the channels are so many that torch's dense product does nearly all; a pass against the sum of its
  products, and our sparse product against torch's.
- million: the same step on a graph of the same size whose neighbours lie side by side. The difference is what the
  reads of far rows cost; the roofline counts every row as read once.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import pprgnn
from benchmarks import machine, shapes
from benchmarks.contestants import GRAD_TERMS, ExpertCsr, Ours
from pprgnn.core.backend import kernel


def median_ms(run: Callable[[], object], repeats: int) -> float:
    run()
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        samples.append(1e3 * (time.perf_counter() - start))
    return statistics.median(samples)


def profile_batch() -> list[str]:
    shape = shapes.make("batch")
    ours, n, d = Ours(shape), shape.num_nodes, shape.channels
    depth = ours.run().depth
    spent: list[float] = []
    call = kernel._call

    def timed(*arguments: object) -> None:
        start = time.perf_counter()
        call(*arguments)
        spent.append(1e3 * (time.perf_counter() - start))

    kernel._call = timed
    whole = median_ms(ours.run, 200)
    kernel._call = call
    inside = 2 * statistics.median(spent)  # one call forward, one backward
    out = torch.empty(n, d)
    gemm = median_ms(lambda: torch.mm(shape.b, shape.weight, out=out), 500)
    dense = depth + 2 * GRAD_TERMS - 1
    return [
        f"- batch: {whole:.2f} ms a pass, {inside:.2f} ms of it in two kernel calls; {dense} dense products of "
        f"{gemm:.3f} ms, the speed of torch's own GEMM of this size, are {dense * gemm:.2f} ms: a floor."
    ]


def profile_ppi_like() -> list[str]:
    shape = shapes.make("ppi-like")
    choosing, out = Ours(shape), torch.empty_like(shape.b)
    choosing.run()
    depth = choosing.run().depth
    expert, matrix = ExpertCsr(shape, depth), choosing.adj.matrix
    ours = choosing.at(depth)
    whole, rival = median_ms(ours.run, 7), median_ms(expert.run, 7)
    gemm = median_ms(lambda: torch.mm(shape.b, shape.weight, out=out), 15)
    sparse = median_ms(lambda: kernel.multiply(matrix, shape.b, out), 15)
    theirs = median_ms(lambda: expert.product(matrix, shape.b), 15)
    dense, products = depth + 2 * GRAD_TERMS - 1, depth + GRAD_TERMS
    return [
        f"- ppi-like: {whole:.0f} ms a pass ({expert.label}: {rival:.0f}); {dense} dense products of {gemm:.1f} "
        f"ms, by torch, are {dense * gemm:.0f} ms, {products} sparse ones of {sparse:.1f} ms (torch's: "
        f"{theirs:.1f}) are {products * sparse:.0f} ms."
    ]


def profile_million() -> list[str]:
    shape = shapes.make("million")
    n, per_node = shape.num_nodes, shape.edge_index.size(1) // shape.num_nodes
    node = torch.arange(n).repeat_interleave(per_node // 2)
    near = (node + 1 + torch.arange(per_node // 2).repeat(n)) % n
    graphs = {"communities, nodes reordered": shape.edge_index}
    graphs["ring, neighbours side by side"] = torch.cat([torch.stack([node, near]), torch.stack([near, node])], 1)
    lines = []
    for name, edge_index in graphs.items():
        adj = pprgnn.Adjacency.from_edge_index(
            edge_index, num_nodes=n, reorder="auto" if "comm" in name else False
        )

        def run(depth: int, adj: pprgnn.Adjacency = adj) -> object:
            return pprgnn.solve(shape.b, shape.weight, adj, eps=shape.eps, depth=depth)

        step = (median_ms(lambda run=run: run(9), 3) - median_ms(lambda run=run: run(1), 3)) / 8
        lines.append(
            f"- million, {name}: {step:.0f} ms a forward step ({adj.num_edges:,} entries, d = {shape.channels})"
        )
    return lines


def main() -> None:
    facts, description = machine.commit(), machine.describe()
    lines = [
        "# Where the time goes",
        "",
        f"`python -m benchmarks.profile` at commit `{facts['commit'][:12]}`, {machine.now()}, seed {shapes.SEED}, "
        f"{torch.get_num_threads()} threads, load at the start {description['load_average']:.1f}.",
        "",
        *profile_batch(),
        *profile_ppi_like(),
        *profile_million(),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    Path("results/profile.md").write_text(text)


if __name__ == "__main__":
    main()
