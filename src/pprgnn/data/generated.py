"""Data sets that need no file: made from a seed, with tasks whose range is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.raw_files import distinct, undirected
from pprgnn.errors import DataError

Counts = tuple[int, int, int]  # graphs to train, to validate, to test
Partner = Callable[[NDArray[Any]], NDArray[Any]]  # of each node, all possible ones alike


# ------------------------------------------------------------------------- one marked node, and who has to name it
def chains(
    length: int = 100,
    classes: int = 2,
    noise: float = 0.1,
    train: int = 20,
    val: int = 20,
    test: int = 100,
    seed: int = 0,
) -> GraphDataset:
    """Chains whose class is written on the first node only; every node has to name it, up to the last one."""
    _check_whole("length", length, 2)
    node = np.arange(length)
    edge_index = undirected(node[:-1], node[1:], length)
    task = "The class is written on the first node; every node has to name it."
    return _marked("chains", edge_index, torch.from_numpy(node), classes, noise, (train, val, test), seed, task)


def grid(
    rows: int = 16,
    columns: int = 16,
    classes: int = 2,
    noise: float = 0.1,
    train: int = 20,
    val: int = 20,
    test: int = 100,
    seed: int = 0,
) -> GraphDataset:
    """Grids whose class is written in one corner only; every node has to name it, up to the opposite corner."""
    _check_whole("rows", rows, 2)
    _check_whole("columns", columns, 2)
    node = np.arange(rows * columns).reshape(rows, columns)
    source = np.concatenate([node[:-1].ravel(), node[:, :-1].ravel()])
    target = np.concatenate([node[1:].ravel(), node[:, 1:].ravel()])
    distance = torch.from_numpy(np.add.outer(np.arange(rows), np.arange(columns)).ravel())
    task = "The class is written in one corner; every node has to name it."
    edge_index = undirected(source, target, node.size)
    return _marked("grid", edge_index, distance, classes, noise, (train, val, test), seed, task)


def ring(
    length: int = 10,
    classes: int = 5,
    noise: float = 0.1,
    train: int = 100,
    val: int = 50,
    test: int = 100,
    seed: int = 0,
) -> GraphDataset:
    """Ring transfer: the class is written on one node, and the opposite one (``length / 2`` away) names it."""
    _check_whole("length", length, 4)
    if length % 2:
        raise DataError(f"length must be even, so that every node of a ring has an opposite one, not {length}.")
    node = np.arange(length)
    edge_index = undirected(node, np.roll(node, -1), length)
    distance = torch.from_numpy(np.minimum(node, length - node))
    task = "The class is written on one node; the opposite one has to name it."
    asked = distance == length // 2
    return _marked("ring", edge_index, distance, classes, noise, (train, val, test), seed, task, asked)


def _marked(
    name: str,
    edge_index: Tensor,
    distance: Tensor,
    classes: int,
    noise: float,
    counts: Counts,
    seed: int,
    task: str,
    asked: Tensor | None = None,
) -> GraphDataset:
    """Copies of one graph; node 0 shows the class of its copy, one-hot with noise, the others show nothing."""
    _check_whole("classes", classes, 2)
    _check_number("noise", noise)
    _check_whole("seed", seed, 0)
    for what, count in zip(("train", "val", "test"), counts, strict=True):
        _check_whole(what, count, 1)
    nodes, total = len(distance), sum(counts)
    x, label = torch.zeros(total, nodes, classes), torch.cat([torch.arange(count) % classes for count in counts])
    # The noise makes every graph a new one: without it the test graphs would be the training graphs. Each part has
    # a seed of its own, so that no two parts and no two data sets share a graph.
    streams = [torch.Generator().manual_seed(3 * seed + part) for part in range(3)]
    noises = [torch.randn(count, classes, generator=each) for count, each in zip(counts, streams, strict=True)]
    x[:, 0] = torch.eye(classes)[label] + noise * torch.cat(noises)
    y = label[:, None].expand(total, nodes)
    if asked is not None:
        y = torch.where(asked, y, -1)
    copies = (edge_index[:, None] + nodes * torch.arange(total)[:, None]).reshape(2, -1)
    return GraphDataset.from_parts(
        _facts(name, classes, task),
        torch.full((total,), nodes),
        copies,
        per_node={"x": x.flatten(0, 1), "y": y.flatten(), "distance": distance.repeat(total)},
        per_graph={"part": torch.arange(3).repeat_interleave(torch.tensor(counts))},
    )


# ------------------------------------------------------------------------------------------ communities by chance
def sbm(
    nodes: int = 10_000,
    blocks: int = 4,
    degree_in: float = 6.0,
    degree_out: float = 2.0,
    noise: float = 2.0,
    train: float = 0.1,
    val: float = 0.1,
    seed: int = 0,
) -> GraphDataset:
    """A stochastic block model: equal blocks are the classes, and a node shows its own, one-hot with noise.

    A node has on average ``degree_in`` neighbours in its block and ``degree_out`` in the others. Shares ``train``
    and ``val`` of the nodes are drawn for training and validation, the rest is for testing.
    """
    _check_whole("blocks", blocks, 2)
    _check_whole("nodes", nodes, 2 * blocks)
    _check_whole("seed", seed, 0)
    _check_number("noise", noise)
    if nodes % blocks:
        raise DataError(
            f"nodes must be a multiple of blocks ({blocks}), so that all are of one size, not {nodes}."
        )
    size = nodes // blocks
    _check_number("degree_in", degree_in, (size - 1) / 2)  # drawing most of the pairs would take long
    _check_number("degree_out", degree_out, (nodes - size) / 2)
    _check_number("train", train, 1)
    _check_number("val", val, 1)
    first, second = round(train * nodes), round(train * nodes) + round(val * nodes)
    if not 0 < first < second < nodes:
        raise DataError(f"train and val must leave each part at least one node, not {train} and {val} of {nodes}.")
    chance = np.random.default_rng(seed)

    def same_block(node: NDArray[Any]) -> NDArray[Any]:
        place = node % size
        other: NDArray[Any] = node - place + (place + chance.integers(1, size, size=len(node))) % size
        return other

    def other_block(node: NDArray[Any]) -> NDArray[Any]:
        other: NDArray[Any] = (node - node % size + chance.integers(size, nodes, size=len(node))) % nodes
        return other

    within = _pairs(chance, nodes, degree_in, size - 1, same_block)
    across = _pairs(chance, nodes, degree_out, nodes - size, other_block)
    source, target = np.divmod(np.concatenate([within, across]), nodes)
    block = np.arange(nodes) // size
    shown = np.eye(blocks)[block] + noise * chance.standard_normal((nodes, blocks))
    place = torch.from_numpy(chance.permutation(nodes))  # the first places train, the next ones validate
    data = Data(
        x=torch.from_numpy(shown.astype(np.float32)),
        edge_index=undirected(source, target, nodes),
        y=torch.from_numpy(block),
        train_mask=place < first,
        val_mask=(place >= first) & (place < second),
        test_mask=place >= second,
    )
    return GraphDataset.from_graphs([data], _facts("sbm", blocks, "Every node has to name its block."))


def _pairs(
    chance: np.random.Generator, nodes: int, degree: float, partners: int, partner: Partner
) -> NDArray[Any]:
    """Keys ``low * nodes + high`` of pairs; each possible one is there with the same chance, independently.

    First how many, then which: pairs are drawn until so many different ones are there, in time O(edges).
    """
    wanted = int(chance.binomial(nodes * partners // 2, degree / partners))
    keys = np.empty(0, dtype=np.int64)
    while len(keys) < wanted:
        one = chance.integers(nodes, size=wanted - len(keys))
        other = partner(one)
        keys = distinct(np.concatenate([keys, np.minimum(one, other) * nodes + np.maximum(one, other)]))
    return keys


MAKERS: dict[str, Callable[..., GraphDataset]] = {"chains": chains, "sbm": sbm, "grid": grid, "ring": ring}


# -------------------------------------------------------------------------------------------------------- common
def _facts(name: str, classes: int, task: str) -> Facts:
    return Facts(name, "node", False, "accuracy", tuple(str(number) for number in range(classes)), note=task)


def _check_whole(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise DataError(f"{name} must be a whole number of at least {least}, not {value!r}.")


def _check_number(name: str, value: float, most: float = math.inf) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= most or value == math.inf:
        limit = "a number of at least 0" if most == math.inf else f"a number from 0 to {most:g}"
        raise DataError(f"{name} must be {limit}, not {value!r}.")
