"""Whole training steps: what does choosing the depth cost, against a depth that is known?

Layer (B = x Ω, solve) + linear head + cross-entropy + Adam, three times with the same start, differing in the
depth rule only. The three take turns step by step, so that a slow minute of the machine hits all of them.
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import Tensor, nn

import pprgnn
from benchmarks import shapes
from benchmarks.contestants import GRAD_TERMS, TOL

CLASSES = 10


class Model(nn.Module):
    """One PPR layer and a linear head."""

    def __init__(self, shape: shapes.Shape, adj: pprgnn.Adjacency, rule: pprgnn.DepthRule) -> None:
        super().__init__()
        torch.manual_seed(shapes.SEED)
        self.lin = nn.Linear(shape.channels, shape.channels, bias=False)
        self.weight = nn.Parameter(shape.weight.clone())
        self.head = nn.Linear(shape.channels, CLASSES)
        self.adj, self.eps, self.rule = adj, shape.eps, rule
        self.depth = 0

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        solution = pprgnn.solve(
            self.lin(x), self.weight, self.adj, eps=self.eps, depth=self.rule, tol=TOL, grad_terms=GRAD_TERMS
        )
        self.depth = solution.depth
        return self.head(solution.state), solution.products


class Trainer:
    """A model with its optimiser; remembers what each step took."""

    def __init__(self, shape: shapes.Shape, adj: pprgnn.Adjacency, rule: pprgnn.DepthRule, labels: Tensor) -> None:
        self.model = Model(shape, adj, rule)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.005)
        self.x, self.labels = shape.b, labels
        self.seconds: list[float] = []
        self.products: list[int] = []  # of the forward passes, search and measurement included
        self.depths: list[int] = []

    def step(self) -> None:
        start = time.perf_counter()
        self.optimizer.zero_grad()
        logits, products = self.model(self.x)
        nn.functional.cross_entropy(logits, self.labels).backward()
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - start)
        self.products.append(products)
        self.depths.append(self.model.depth)


def run(shape: shapes.Shape, steps: int) -> dict:
    """Train ``steps`` steps under each rule; overheads are relative to a fixed depth that is enough for all."""
    adj = pprgnn.Adjacency.from_edge_index(shape.edge_index, num_nodes=shape.num_nodes)
    _ = adj.matrix_t, adj.norm_bound
    labels = torch.randint(CLASSES, (shape.num_nodes,), generator=torch.Generator().manual_seed(shapes.SEED))
    memory = pprgnn.DepthMemory(pprgnn.Measured())
    Trainer(shape, adj, pprgnn.Fixed(2), labels).step()  # threads and workspaces
    first, enough = _depths(shape, adj, labels, steps)
    trainers = {
        "default": Trainer(shape, adj, memory, labels),
        "fixed": Trainer(shape, adj, pprgnn.Fixed(first), labels),
        "fixed, enough": Trainer(shape, adj, pprgnn.Fixed(enough), labels),
        "influence": Trainer(shape, adj, pprgnn.Influence(), labels),
    }
    for step in range(steps):
        for name, trainer in trainers.items():
            trainer.step()
            if trainer.seconds[-1] > 1:
                print(f"  step {step + 1}/{steps}, {name}: {trainer.seconds[-1]:.1f} s", flush=True)
    rows = {name: _row(trainer) for name, trainer in trainers.items()}
    for row in rows.values():
        for kind in ("median_ms", "total_ms"):
            row[kind.replace("ms", "overhead")] = row[kind] / rows["fixed, enough"][kind] - 1
    searched = sum(p - d for p, d in zip(trainers["default"].products, trainers["default"].depths, strict=True))
    return {
        "shape": shape.name,
        "steps": steps,
        "rows": rows,
        "checks": memory.checks,
        "products_measuring": searched,
        "fixed_depth": trainers["fixed"].depths[0],
    }


def _depths(shape: shapes.Shape, adj: pprgnn.Adjacency, labels: Tensor, steps: int) -> tuple[int, int]:
    """The depth that is measured for the first step, and one that is enough for the last one, too."""
    trainer = Trainer(shape, adj, pprgnn.Measured(), labels)
    trainer.step()
    trainer.model.rule = pprgnn.DepthMemory()
    for _ in range(steps - 2):
        trainer.step()
    trainer.model.rule = pprgnn.Measured()
    trainer.step()
    return trainer.depths[0], max(trainer.depths[0], trainer.depths[-1])


def _row(trainer: Trainer) -> dict:
    return {
        "median_ms": 1e3 * statistics.median(trainer.seconds),
        "total_ms": 1e3 * sum(trainer.seconds),
        "first_depth": trainer.depths[0],
        "last_depth": trainer.depths[-1],
        "forward_products": sum(trainer.products),
        "samples_ms": [1e3 * s for s in trainer.seconds],
    }
