"""The random walk kernel with a support vector machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pprgnn.baselines.kernel_graphs import KernelGraphs
from pprgnn.baselines.kernels import Comparison, KernelNet, Matrix, normalized
from pprgnn.errors import DataError

NODES_PER_BLOCK = 1024  # of graphs that are compared with another at once: their walks fit the processor's cache
ACCURACY = 1e-12  # of the sum over all walks
POWER = 64  # of the adjacency matrix, in the bound of its largest eigenvalue


class RandomWalkNet(KernelNet):
    r"""The geometric random walk kernel: common walks, those of :math:`k` steps weighted by :math:`\lambda^k`.

    .. math:: k(G, H) = \sum_k \lambda^k \mathbf{1}^\top A_\times^k \mathbf{1},

    where :math:`A_\times` is the adjacency matrix of the pairs of nodes with the same label. With any number of
    steps, the sum is finite if :math:`\lambda` times the largest eigenvalues of both graphs is less than 1.

    grakel has such a kernel, but its fast method follows pairs of nodes with different labels, and its slow one
    inverts a matrix for each pair of graphs; here the walks of a graph and of many others advance together.

    Args:
        decay: The weight of a step; of several, cross-validation chooses one. Too large ones are left out.
        steps: Walks have at most so many steps; 0: any number.
        max_hours: Refuse to compare all pairs of graphs if that would take longer.
    """

    choice_name = "decay"

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["node", "graph"] = "graph",
        *,
        decay: float | tuple[float, ...] = (0.001, 0.01, 0.05, 0.1),
        steps: int = 0,
        max_hours: float = 1.0,
    ) -> None:
        super().__init__(in_channels, num_classes, task)
        self.choices = tuple(decay) if isinstance(decay, tuple | list) else (decay,)
        self.steps, self.max_hours = steps, max_hours

    def possible_choices(self, graphs: KernelGraphs) -> tuple[float, ...]:
        """Those for which the sum over all walks is finite; the largest, which takes longest, comes first."""
        largest = float(eigenvalue_bounds(graphs).max())
        possible = [each for each in self.choices if self.steps or each * largest**2 < 1]
        if not possible:
            raise ValueError(
                f"The sum over all random walks is infinite with decay {min(self.choices):g}: on these graphs it "
                f"must be below {1 / largest**2:.2g}; choose a smaller decay, or a number of steps."
            )
        return tuple(sorted(possible, reverse=True))

    def comparison(self, graphs: KernelGraphs, choice: float) -> Comparison:
        """Of other graphs with these, one after the other."""
        numbers: dict[bytes, int] = {}
        mine = list(_walkers(graphs, numbers, 1))
        own, largest = self._own_walks(mine, choice), max(each.bound for each in mine)
        blocks = list(_walkers(graphs, numbers, NODES_PER_BLOCK))

        def compare(others: KernelGraphs) -> Matrix:
            theirs = list(_walkers(others, numbers, 1))
            for number, each in enumerate(theirs):
                if not self.steps and choice * each.bound * max(each.bound, largest) >= 1:
                    raise DataError(
                        f"The sum over all random walks is infinite for graph {number}, whose largest eigenvalue "
                        f"may be {each.bound:.3g}: this model was trained with decay {choice:g} on graphs up to "
                        f"{largest:.3g}; train with a smaller decay, or a number of steps."
                    )
            values = [np.concatenate([self._walks(each, block, choice) for block in blocks]) for each in theirs]
            return normalized(np.stack(values), self._own_walks(theirs, choice), own)

        return compare

    def matrix(self, graphs: KernelGraphs, choice: float, done: Callable[[float], None]) -> Matrix:
        """Of all pairs: of one graph after another with those that follow."""
        numbers: dict[bytes, int] = {}
        blocks = list(_walkers(graphs, numbers, NODES_PER_BLOCK))
        ends = np.cumsum([len(block.graphs) for block in blocks])
        values, work = np.zeros((len(graphs), len(graphs))), graphs.sizes * (graphs.sizes.sum() - graphs.starts)
        for i, one in enumerate(_walkers(graphs, numbers, 1)):
            for block, end in zip(blocks, ends, strict=True):
                if end > i:
                    values[i, end - len(block.graphs) : end] = self._walks(one, block, choice)
            done(float(work[: i + 1].sum() / work.sum()))
        values = np.triu(values) + np.triu(values, 1).T
        return normalized(values, values.diagonal(), values.diagonal())

    def _own_walks(self, singles: list[_Walkers], choice: float) -> Matrix:
        return np.array([self._walks(each, each, choice)[0] for each in singles])

    def _walks(self, one: _Walkers, others: _Walkers, choice: float) -> Matrix:
        """The weighted number of common walks of one graph with each of the others."""
        match = (others.labels[:, None] == one.labels).astype(np.float64)  # (nodes of others, nodes of one)
        step = choice * one.graphs.adjacency.toarray().T
        slowness = choice * one.bound * others.bound
        walks, total, taken = match, others.graphs.sums(match.sum(axis=1)), 0
        while not self.steps or taken < self.steps:
            walks = (others.graphs.adjacency @ walks) @ step
            walks *= match
            more = others.graphs.sums(walks.sum(axis=1))
            total += more
            taken += 1
            if not self.steps and (more <= ACCURACY * (1 - slowness) * total).all():
                break
        return total


class _Walkers(NamedTuple):
    """Graphs to walk on together: labels as numbers, and a bound of their largest eigenvalue."""

    graphs: KernelGraphs
    labels: NDArray[np.int64]
    bound: float


def _walkers(graphs: KernelGraphs, numbers: dict[bytes, int], nodes: int) -> Iterator[_Walkers]:
    """The graphs in their order, together while they have no more than so many nodes."""
    labels = np.array([numbers.setdefault(label.tobytes(), len(numbers)) for label in graphs.labels])
    bounds, first = eigenvalue_bounds(graphs), 0
    starts, ends = graphs.starts, graphs.starts + graphs.sizes
    while first < len(graphs):
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + nodes, side="right")))
        part = graphs.take(np.arange(first, last))
        yield _Walkers(part, labels[starts[first] : ends[last - 1]], float(bounds[first:last].max()))
        first = last


def eigenvalue_bounds(graphs: KernelGraphs) -> Matrix:
    """For each graph, a little more than its largest eigenvalue: the largest row sum of Aᵖ, to the 1/p."""
    walks: Any = np.ones(graphs.adjacency.shape[0])
    for _ in range(POWER):
        walks = graphs.adjacency @ walks
    bounds: Matrix = np.maximum.reduceat(walks, graphs.starts) ** (1 / POWER)
    return bounds
