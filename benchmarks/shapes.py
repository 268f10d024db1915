"""The four problems that are timed. Everything is seeded; every graph is symmetric, without self-loops."""

from __future__ import annotations

import gzip
import itertools
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SEED = 0


@dataclass(frozen=True)
class Shape:
    """One recursion to solve, forward and backward: plain tensors that every contestant can use."""

    name: str
    edge_index: Tensor  # (2, num_edges), both directions
    b: Tensor  # (n, d)
    weight: Tensor  # (d, d)
    upstream: Tensor  # (n, d): the gradient that arrives from the loss
    eps: float

    @property
    def num_nodes(self) -> int:
        return self.b.size(0)

    @property
    def channels(self) -> int:
        return self.b.size(1)

    @property
    def num_edges(self) -> int:
        return self.edge_index.size(1)


class MissingData(RuntimeError):
    """The file of a real graph is not there; the message says what to do."""


NAMES = ("batch", "ppi-like", "com-DBLP", "million")


def make(name: str, smoke: bool = False) -> Shape:
    """Build a shape by name; ``smoke`` makes it tiny."""
    if name == "batch":
        graph, d, eps = (molecules(130, 2300, 5000), 64, 1.0) if not smoke else (molecules(4, 60, 130), 8, 1.0)
    elif name == "ppi-like":
        n, edges, d, eps = (2400, 66_000, 1024, 0.25) if not smoke else (80, 800, 16, 0.25)
        graph = power_law(n, edges)
    elif name == "com-DBLP":
        graph, d, eps = com_dblp(300 if smoke else None), 8 if smoke else 128, 0.06
    elif name == "million":
        n, edges, d, eps = (1_000_000, 10_000_000, 64, 0.25) if not smoke else (1500, 9000, 8, 0.25)
        graph = communities(n, edges)
    else:
        raise ValueError(f"Unknown shape {name!r}; choose from {', '.join(NAMES)}.")
    return dress(name, *graph, d, eps)


def dress(name: str, edge_index: Tensor, num_nodes: int, channels: int, eps: float) -> Shape:
    """Add B (normal), W (xavier uniform) and the upstream gradient to a graph."""
    generator = torch.Generator().manual_seed(SEED)
    b = torch.randn(num_nodes, channels, generator=generator)
    weight = torch.nn.init.xavier_uniform_(torch.empty(channels, channels), generator=generator)
    upstream = torch.randn(num_nodes, channels, generator=generator) / num_nodes
    return Shape(name, edge_index, b, weight, upstream, eps)


# ------------------------------------------------------------------------------------------------- generators
def molecules(count: int, num_nodes: int, num_edges: int) -> tuple[Tensor, int]:
    """A batch of ``count`` connected molecule-like graphs: slim random trees plus a few ring-closing edges."""
    rng = np.random.default_rng(SEED)
    sizes = rng.multinomial(num_nodes - 5 * count, np.full(count, 1 / count)) + 5
    starts = np.concatenate([[0], np.cumsum(sizes)])
    pairs: set[tuple[int, int]] = set()
    for start, size in zip(starts, sizes, strict=False):
        for node in range(1, size):  # the parent is one of the last three: long chains with short branches
            pairs.add((int(start + max(0, node - rng.integers(1, 4))), int(start + node)))
    while 2 * len(pairs) < num_edges:
        which = rng.integers(count)
        u, v = sorted(starts[which] + rng.integers(sizes[which], size=2))
        if 2 <= v - u <= 6:  # rings of chemistry's size
            pairs.add((int(u), int(v)))
    return _both_directions(np.array(sorted(pairs)).T), num_nodes


def power_law(num_nodes: int, num_edges: int) -> tuple[Tensor, int]:
    """A Chung-Lu graph: node i is drawn with probability ~ (i + 20)^-0.6, which gives hubs and a long tail."""
    rng = np.random.default_rng(SEED)
    chance = (np.arange(num_nodes) + 20.0) ** -0.6
    chance /= chance.sum()

    def draw(count: int) -> np.ndarray:
        return rng.choice(num_nodes, size=(2, count), p=chance)

    pairs = _distinct(draw, num_edges // 2, num_nodes, rng)
    return _both_directions(rng.permutation(num_nodes)[pairs]), num_nodes


def communities(num_nodes: int, num_edges: int, inside: float = 0.8) -> tuple[Tensor, int]:
    """Communities of 100 to 1000 nodes, a share ``inside`` of the edges within them; node ids are shuffled.

    Shuffled, because a real edge list rarely comes in a cache-friendly order: finding one is part of the job.
    """
    rng = np.random.default_rng(SEED)
    sizes = rng.integers(100, 1001, size=num_nodes // 100 + 1)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    starts = np.append(starts[starts < num_nodes - 100], num_nodes)  # the last one takes the rest
    member = np.repeat(np.arange(len(starts) - 1), np.diff(starts))

    def draw(count: int) -> np.ndarray:
        u = rng.integers(num_nodes, size=count)
        home = member[u]
        near = starts[home] + (rng.random(count) * (starts[home + 1] - starts[home])).astype(np.int64)
        return np.stack([u, np.where(rng.random(count) < inside, near, rng.integers(num_nodes, size=count))])

    pairs = _distinct(draw, num_edges // 2, num_nodes, rng)
    return _both_directions(rng.permutation(num_nodes)[pairs]), num_nodes


def com_dblp(max_pairs: int | None = None) -> tuple[Tensor, int]:
    """The co-authorship graph com-DBLP of SNAP, from PPRGNN_DATA/com-dblp/com-dblp.ungraph.txt.gz."""
    folder = os.environ.get("PPRGNN_DATA")
    if not folder:
        raise MissingData("skipped: set PPRGNN_DATA")
    path = Path(folder) / "com-dblp" / "com-dblp.ungraph.txt.gz"
    if not path.exists():
        raise MissingData(f"skipped: set PPRGNN_DATA, {path} does not exist")
    with gzip.open(path, "rt") as file:
        lines = (line for line in file if not line.startswith("#"))
        pairs = np.loadtxt(itertools.islice(lines, max_pairs), dtype=np.int64).T
    pairs = pairs[:, pairs[0] != pairs[1]]
    ids, flat = np.unique(pairs, return_inverse=True)  # the file's ids have gaps
    return _both_directions(flat.reshape(pairs.shape)), len(ids)


def _distinct(draw, count: int, num_nodes: int, rng: np.random.Generator) -> np.ndarray:
    """Exactly ``count`` distinct undirected edges without self-loops, from a sampler of pairs."""
    keys = torch.empty(0, dtype=torch.int64)
    while keys.numel() < count:
        u, v = torch.from_numpy(draw(int(1.1 * (count - keys.numel())) + 100)).unbind(0)
        new = torch.minimum(u, v) * num_nodes + torch.maximum(u, v)
        keys = torch.cat([keys, new[u != v]]).unique()
    keep = keys.numpy()
    if len(keep) > count:  # drop some at random, not the last in order
        keep = np.delete(keep, rng.choice(len(keep), len(keep) - count, replace=False))
    return np.stack([keep // num_nodes, keep % num_nodes])


def _both_directions(pairs: np.ndarray) -> Tensor:
    edges = torch.from_numpy(np.ascontiguousarray(pairs, dtype=np.int64))
    return torch.cat([edges, edges.flip(0)], dim=1)
