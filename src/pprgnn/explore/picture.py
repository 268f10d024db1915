"""Which nodes are drawn: those with the largest influence, near and far, and the ways between; from how far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pprgnn.core.csr import ranges
from pprgnn.training.explain import FAR, MOST_OF_IT
from pprgnn.training.reach import Readers

MOST_EDGES = 4000
FAR_SHARE = 5  # every fifth place is for a node far away


def chosen_nodes(node: int, influence: Tensor, distance: Tensor, before: Tensor, limit: int) -> list[int]:
    """The node that is explained, then others with a way to it, at most ``limit`` in all."""
    reached = distance > 0
    worth = torch.where(reached & ((influence > 0) | (distance == 1)), influence, -1.0)
    near = largest(worth, limit)
    far = largest(torch.where((distance > FAR) & (influence > 0), influence, -1.0), limit // FAR_SHARE)
    shown = {node: None}
    for each in _in_turn(near, far):
        way = [each]
        while way[-1] not in shown:
            way.append(int(before[way[-1]]))
        way.pop()
        if len(shown) + len(way) <= limit:
            shown |= dict.fromkeys(way)
    first, *others = shown
    return [first, *sorted(others, key=lambda each: -float(influence[each]))]


def largest(worth: Tensor, count: int) -> list[int]:
    """The nodes worth most; those below 0 are out of the question."""
    values, places = torch.topk(worth, min(count, len(worth)))
    found: list[int] = places[values >= 0].tolist()
    return found


def _in_turn(near: list[int], far: list[int]) -> Iterator[int]:
    waiting = iter(far)
    for count, each in enumerate(near, start=1):
        yield each
        if count % (FAR_SHARE - 1) == 0:
            yield from ([another] if (another := next(waiting, None)) is not None else [])
    yield from waiting


def edges_among(readers: Readers, nodes: list[int]) -> list[list[int]]:
    """All edges among these nodes, as pairs of places, each once and without direction; the first nodes' first."""
    shown = torch.tensor(nodes)
    place = torch.full((len(readers.crow) - 1,), -1)
    place[shown] = torch.arange(len(nodes))
    starts = readers.crow[shown].long()
    counts = readers.crow[shown + 1].long() - starts
    other = place[readers.col[ranges(starts, counts)].long()]
    one = torch.arange(len(nodes)).repeat_interleave(counts)
    pairs = torch.stack([torch.minimum(one, other), torch.maximum(one, other)], dim=1)
    pairs = pairs[(pairs[:, 0] >= 0) & (pairs[:, 0] != pairs[:, 1])]
    pairs = torch.unique(pairs, dim=0)
    found: list[list[int]] = pairs[:MOST_EDGES].tolist()
    return found


def by_hop(distance: Tensor, shares: Tensor, contributions: Tensor) -> dict[str, Any]:
    """How much comes from which distance, with and without its sign; and within how many hops most of it is."""
    reached = distance >= 0
    hops, farthest = distance[reached], int(distance.max()) + 1
    share = torch.zeros(farthest, dtype=torch.float64).index_add_(0, hops, shares[reached])
    signs = (shares * contributions.sign())[reached]
    signed = torch.zeros(farthest, dtype=torch.float64).index_add_(0, hops, signs)
    counts = torch.bincount(hops, minlength=farthest)
    bars = zip(share.tolist(), signed.tolist(), counts.tolist(), strict=True)
    within = (share.cumsum(0) >= MOST_OF_IT - 1e-9).nonzero().flatten()
    return {
        "hops": [{"hop": i, "share": a, "signed": s, "nodes": n} for i, (a, s, n) in enumerate(bars)],
        "unreachable": {"share": float(shares[~reached].sum()), "nodes": int((~reached).sum())},
        "radius": int(within[0]) if len(within) else None,
    }
