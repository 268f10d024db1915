"""Hostile problems, drawn from a seed: everything that a caller may do, and little that a caller should."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

import pprgnn

from . import reference

COUNT = int(os.environ.get("PPRGNN_ATTACK", "240"))  # how many problems; `make attack` asks for 10,000
ONE = os.environ.get("PPRGNN_ATTACK_SEED")  # the only problem to try, to repeat a failure
CHUNKS = 4 if COUNT <= 1000 else 40


def seeds(chunk: int) -> range:
    """The seeds of one of the CHUNKS parts of all problems."""
    if ONE is not None:
        return range(int(ONE), int(ONE) + (chunk == 0))

    return range(chunk * COUNT // CHUNKS, (chunk + 1) * COUNT // CHUNKS)


def _softsign_slope(z: Tensor) -> Tensor:
    return (1 + z.abs()) ** -2


def _steep(z: Tensor) -> Tensor:
    return 1.5 * torch.nn.functional.softsign(z)


def _steep_slope(z: Tensor) -> Tensor:
    return 1.5 * _softsign_slope(z)


# What solve takes; the same functions, written once more, are in reference.PHIS.
ACTIVATIONS: dict[str, Any] = {
    **{name: name for name in ("relu", "leaky_relu", "tanh", "identity")},
    "softsign": pprgnn.Activation(torch.nn.functional.softsign, _softsign_slope, lipschitz=1.0),
    "steep": pprgnn.Activation(_steep, _steep_slope, lipschitz=1.5),
}


# --------------------------------------------------------------------------------------------------- graphs
def _pairs(pairs: list[tuple[int, int]]) -> np.ndarray[Any, Any]:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


def _both(edges: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.concatenate([edges, edges[::-1]], axis=1)


def _random(n: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return rng.integers(0, n, (2, rng.integers(0, 5 * n + 1)))  # also twice the same edge, also self-loops


def _forward(n: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    edges = np.sort(_random(n, rng), axis=0)
    return edges[:, edges[0] != edges[1]]


GRAPHS: dict[str, Callable[[int, np.random.Generator], np.ndarray[Any, Any]]] = {
    "directed": _random,
    "undirected": lambda n, rng: _both(_random(n, rng)),
    "ring": lambda n, rng: _both(_pairs([(i, (i + 1) % n) for i in range(n)])),
    "cycle": lambda n, rng: _pairs([(i, (i + 1) % n) for i in range(n)]),
    "star": lambda n, rng: _both(_pairs([(0, i) for i in range(1, n)])),
    "into_star": lambda n, rng: _pairs([(i, 0) for i in range(1, n)]),
    "path": lambda n, rng: _both(_pairs([(i, i + 1) for i in range(n - 1)])),
    "acyclic": _forward,
    "empty": lambda n, rng: _pairs([]),
    "loops": lambda n, rng: _pairs([(i, i) for i in range(n)]),
    "isolated": lambda n, rng: _both(_random(max(1, n // 2), rng)),
    "complete": lambda n, rng: _pairs([(i, j) for i in range(n) for j in range(n)]),
}


def _one_value_per_pair(edges: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same weight in both directions, so that an undirected graph stays one."""
    ends = np.sort(edges, axis=0)
    return values[(ends[0] * 41 + ends[1]) % len(values)]


EDGE_WEIGHTS: dict[str, Callable[[int, np.random.Generator], np.ndarray[Any, Any]]] = {
    "uniform": lambda e, rng: rng.uniform(0.1, 1, e),
    "wild": lambda e, rng: 10 ** rng.uniform(-24, 3, e),
    "tiny": lambda e, rng: np.full(e, 1e-24),
    "large": lambda e, rng: rng.uniform(1, 10, e),
    "some_zero": lambda e, rng: rng.integers(0, 2, e).astype(float),
    "signed": lambda e, rng: rng.standard_normal(e),
}


# ------------------------------------------------------------------------------------------------- matrices
def _spread(d: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return np.diag(rng.choice([0.0, 1e-3, 0.5, 1.5, 4.0, -3.0], d))


WEIGHTS: dict[str, Callable[[int, np.random.Generator], np.ndarray[Any, Any]]] = {
    "random": lambda d, rng: rng.standard_normal((d, d)) * 10 ** rng.uniform(-1, 0.7) / math.sqrt(d),
    "spread": _spread,
    "negative": lambda d, rng: -rng.uniform(1, 7) * np.eye(d),
    "positive": lambda d, rng: rng.uniform(1, 5) * np.eye(d),
    "nilpotent": lambda d, rng: np.triu(3 * rng.standard_normal((d, d)), 1),
    "rotation": lambda d, rng: 2 * np.linalg.qr(rng.standard_normal((d, d)))[0],
    "rank_one": lambda d, rng: np.outer(rng.standard_normal(d), rng.standard_normal(d)),
    "huge": lambda d, rng: 1e3 * rng.standard_normal((d, d)),
    "tiny": lambda d, rng: 1e-24 * rng.standard_normal((d, d)),
    "zero": lambda d, rng: np.zeros((d, d)),
    "inverse": lambda d, rng: 1e24 * np.eye(d),  # only with edge weights of 1e-24
}


def _one_row(n: int, d: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    b = np.zeros((n, d))
    b[rng.integers(n)] = rng.standard_normal(d)
    return b


def _few_channels(n: int, d: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return rng.standard_normal((n, d)) * (rng.random(d) < 0.4)


def _faint_channels(n: int, d: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return rng.standard_normal((n, d)) * np.where(rng.random(d) < 0.5, 1e-10, 1)


INPUTS: dict[str, Callable[[int, int, np.random.Generator], np.ndarray[Any, Any]]] = {
    "random": lambda n, d, rng: rng.standard_normal((n, d)),
    "ones": lambda n, d, rng: np.ones((n, d)),
    "negative": lambda n, d, rng: -rng.random((n, d)),
    "zero": lambda n, d, rng: np.zeros((n, d)),
    "few_channels": _few_channels,
    "faint_channels": _faint_channels,
    "huge": lambda n, d, rng: 1e20 * rng.standard_normal((n, d)),
    "tiny": lambda n, d, rng: 1e-25 * rng.standard_normal((n, d)),
    "one_row": _one_row,
}


def _sliced(x: Tensor) -> Tensor:
    room = x.new_full((3 * x.size(0) + 1, 2 * x.size(1) + 1), float("nan"))
    room[1::3, 1::2] = x
    return room[1::3, 1::2]


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t().contiguous().t(),
    "sliced": _sliced,
    "fortran_sliced": lambda x: _sliced(x.t()).t(),
}


# ------------------------------------------------------------------------------------------------- problems
@dataclass
class Attack:
    """One call of ``solve``; ``facts`` say in words what was drawn."""

    b: Tensor
    weight: Tensor
    eps: float | Tensor
    phi: str
    edges: Tensor
    edge_weight: Tensor | None
    num_nodes: int
    normalize: Any = "sym"
    self_loops: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    facts: str = ""

    def adjacency(self) -> pprgnn.Adjacency:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # edges that the symmetric normalisation cuts
            return pprgnn.Adjacency.from_edge_index(
                self.edges,
                self.edge_weight,
                self.num_nodes,
                normalize=self.normalize,
                add_self_loops=self.self_loops,
                dtype=self.b.dtype,
            )

    def solve(self, adj: pprgnn.Adjacency, **options: Any) -> tuple[pprgnn.Solution, list[str]]:
        """The solution, and the convergence warnings on the way."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = pprgnn.solve(
                self.b, self.weight, adj, eps=self.eps, activation=ACTIVATIONS[self.phi], **self.options | options
            )
        return found, [str(w.message) for w in caught if issubclass(w.category, pprgnn.ConvergenceWarning)]

    def dense(self, adj: pprgnn.Adjacency) -> reference.Dense:
        """With the entries of Ã as they were rounded: the data of the problem, not a part of its solution."""
        return reference.Dense.of(self.b, self.weight, adj.to_dense(), self.eps, self.phi)

    @property
    def tol(self) -> float:
        return float(self.options.get("tol", 1e-5))


def draw(seed: int, dtype: torch.dtype | None = None) -> Attack:
    """The problem of this seed, in either precision or in this one."""
    rng = np.random.default_rng([18, seed])

    def pick(table: Any) -> Any:
        names = list(table)
        return names[rng.integers(len(names))]

    either = [torch.float32, torch.float64][rng.integers(2)]
    dtype = dtype or either
    n, d = int(rng.choice([1, 2, 3, 5, 8, 12, 20, 40])), int(rng.integers(1, 9))
    graph, kind, into, phi = pick(GRAPHS), pick(WEIGHTS), pick(INPUTS), pick(ACTIVATIONS)
    if rng.random() < 0.5:  # half of the problems are such as people have
        kind, into = pick(["random", "spread", "negative"]), pick(["random", "few_channels"])
    edges = GRAPHS[graph](n, rng)
    weighted = pick(EDGE_WEIGHTS) if rng.random() < 0.4 else None
    normalize = [None, "row", "sym"][rng.integers(3)]
    if kind == "inverse":
        weighted, normalize = "tiny", None
    if weighted == "signed":
        normalize = None
    edge_weight = None
    if weighted is not None:
        edge_weight = EDGE_WEIGHTS[weighted](edges.shape[1] + 41, rng)
        edge_weight = torch.from_numpy(_one_value_per_pair(edges, edge_weight)).to(dtype)
    self_loops = bool(rng.random() < 0.3) and normalize is not None
    eps: Any = 10 ** rng.uniform(-3, 1, d if rng.random() < 0.25 else 1).astype(np.float32).astype(float)
    eps = torch.tensor(eps, dtype=torch.float32).to(dtype)  # the same number in both precisions
    layouts = pick(LAYOUTS), pick(LAYOUTS)
    options = {
        "tol": [1e-2, 1e-5, 1e-5, 1e-5, 1e-8][rng.integers(5)],
        "max_depth": [20, 500, 500, 2000][rng.integers(4)],
        "grad_terms": [None, 1, 5][rng.integers(3)],
        "checkpoint": bool(rng.integers(2)),
    }
    rule = [None, None, None, pprgnn.Certificate(), pprgnn.Influence()][rng.integers(5)]
    b = LAYOUTS[layouts[0]](torch.from_numpy(INPUTS[into](n, d, rng)).to(dtype))
    weight = LAYOUTS[layouts[1]](torch.from_numpy(WEIGHTS[kind](d, rng)).to(dtype))
    if rng.random() < 0.5:
        weight.requires_grad_()
    facts = (
        f"{graph}({n}, {weighted}, {normalize}, loops={self_loops}), W {kind}({d}) {layouts[1]}, b {into} "
        f"{layouts[0]}, eps {eps.tolist()}, {phi}, {dtype}, {rule}, {options}, grad={weight.requires_grad}"
    )
    return Attack(
        b,
        weight,
        eps if d > 1 or eps.numel() == 1 else eps[:1],
        phi,
        torch.from_numpy(edges.copy()),
        edge_weight,
        n,
        normalize,
        self_loops,
        {**options, "depth": rule},
        facts,
    )
