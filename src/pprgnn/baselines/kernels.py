"""Graph kernels with a support vector machine: graphlets, Weisfeiler-Lehman subtrees and random walks."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pprgnn.baselines.kernel_graphs import NAMES, KernelGraphs, sparse_rows
from pprgnn.errors import DataError
from pprgnn.nn.network import Network, check_features

Matrix: TypeAlias = NDArray[np.float64]
Comparison: TypeAlias = Callable[[KernelGraphs], Matrix]
NODES_PER_BLOCK = 1024  # of graphs that are compared with another at once: their walks fit the processor's cache
ACCURACY = 1e-12  # of the sum over all walks
POWER = 64  # of the adjacency matrix, in the bound of its largest eigenvalue


class KernelNet(Network):
    r"""The support vector machine of a graph kernel: :math:`\sum_i \alpha_i k(G, G_i) + b` over kept graphs.

    The kernel is normalised, :math:`k(G, G) = 1`. With two classes the two logits differ by the decision value;
    with more there is one machine for each class against the rest. Labels of nodes are the columns of ``x`` that
    hold nothing but zeros and ones, such as one-hot ones; without any, the degree. Other columns are not used.
    There is no gradient: :class:`pprgnn.training.kernel_fit.KernelTraining` fits it.

    Attributes:
        choices: Values of the kernel's own setting, of which cross-validation chooses one.
        choice_name: What that setting is called.
        uses_labels: Whether the labels of nodes play a part.
        max_hours: The most that the kernel of all pairs of graphs may take.
    """

    choices: tuple[float, ...] = (0.0,)
    choice_name = ""
    uses_labels = True
    max_hours = math.inf
    label_columns: Tensor
    choice: Tensor
    encode_is_deterministic = True

    def __init__(self, in_channels: int, num_classes: int, task: str = "graph") -> None:
        super().__init__()
        if task != "graph":
            raise ValueError(f"A graph kernel labels graphs, but task came as {task!r}; use a network for nodes.")
        self.in_channels, self.num_classes = in_channels, num_classes
        machines = 1 if num_classes == 2 else num_classes
        self.dual = torch.nn.Parameter(torch.zeros(0, machines, dtype=torch.float64), requires_grad=False)
        self.intercept = torch.nn.Parameter(torch.zeros(machines, dtype=torch.float64), requires_grad=False)
        self.register_buffer("label_columns", torch.zeros(in_channels, dtype=torch.bool))
        self.register_buffer("choice", torch.zeros((), dtype=torch.float64))
        for name, empty in zip(NAMES, ((0,), (2, 0), (0, 0)), strict=True):
            kind = torch.uint8 if name == "labels" else torch.int64
            self.register_buffer(f"kept_{name}", torch.zeros(empty, dtype=kind))
        self._comparison: Comparison | None = None  # with the kept graphs, once it is needed

    @abstractmethod
    def comparison(self, graphs: KernelGraphs, choice: float) -> Comparison:
        """From other graphs to their kernel values with these: a row per other graph."""

    def matrix(self, graphs: KernelGraphs, choice: float, done: Callable[[float], None]) -> Matrix:
        """The kernel values of all pairs; ``done`` is told which share is done, where that takes long."""
        return self.comparison(graphs, choice)(graphs)

    def possible_choices(self, graphs: KernelGraphs) -> tuple[float, ...]:
        """The choices under which the kernel is defined for these graphs."""
        return self.choices

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """No messages yet: a sparse row per node, with its label and its neighbours."""
        x = check_features(x, self.in_channels)
        name = type(self).__name__
        if edge_weight is not None:
            raise DataError(f"{name} cannot use edge weights, but the graph has some; leave them out.")
        if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
            raise DataError(f"{name} needs a plain edge_index, but got a {type(edge_index).__name__}.")
        marks = x[:, self.label_columns]
        if not bool(((marks == 0) | (marks == 1)).all()):
            raise DataError(
                f"{name} was fitted to {marks.size(1)} columns of node labels, zeros and ones, but here they hold "
                f"other values; use data of the same kind."
            )
        return sparse_rows(marks != 0, edge_index)

    def graphs(self, state: Tensor, batch: Tensor | None, num_graphs: int | None) -> KernelGraphs:
        """The graphs of a batch, from the rows of :meth:`encode`."""
        return KernelGraphs.from_rows(state, int(self.label_columns.sum()), batch, num_graphs)

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """Compare the graphs with the kept ones."""
        if not len(self.dual):
            raise DataError(
                f"{type(self).__name__} has not been fitted to any graphs; fit it with pprgnn.training.train."
            )
        if self._comparison is None:
            kept = KernelGraphs.from_tensors({name: getattr(self, f"kept_{name}") for name in NAMES})
            self._comparison = self.comparison(kept, float(self.choice))
        values = self._comparison(self.graphs(state, batch, num_graphs))
        return decisions(values, self.dual.cpu().numpy(), self.intercept.cpu().numpy()).to(state.device)

    def read_labels(self, x: Tensor) -> int:
        """Find the columns that label nodes, in all of a data set; returns how many there are, 0: the degree."""
        columns = ((x == 0) | (x == 1)).all(0)
        if not self.uses_labels or bool((x[:1, columns] == x[:, columns]).all()):  # they tell nothing
            columns = torch.zeros_like(columns)
        self.label_columns.copy_(columns)
        return int(columns.sum())

    def keep(self, graphs: KernelGraphs, dual: Matrix, intercept: Matrix, choice: float) -> None:
        """Take over a machine that was fitted to these graphs; those that it does not need are left out."""
        support = np.flatnonzero(dual.any(axis=1))
        for name, tensor in graphs.take(support).to_tensors().items():
            setattr(self, f"kept_{name}", tensor.to(self.dual.device))
        self.dual.data = torch.from_numpy(dual[support]).to(self.dual.device)
        self.intercept.data.copy_(torch.from_numpy(intercept))
        self.choice.fill_(choice)
        self._comparison = None

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in ("dual", *(f"kept_{each}" for each in NAMES)):  # as many as it was fitted to
            if prefix + name in state_dict:
                own = getattr(self, name)
                own.data = own.new_empty(state_dict[prefix + name].shape)
        self._comparison = None
        super()._load_from_state_dict(state_dict, prefix, *args)


def decisions(values: Matrix, dual: Matrix, intercept: Matrix) -> Tensor:
    """Logits from kernel values, one row per graph: it depends on no other row, to the last bit."""
    columns = [(values * weights).sum(axis=1) + shift for weights, shift in zip(dual.T, intercept, strict=True)]
    if len(columns) == 1:
        columns = [-columns[0] / 2, columns[0] / 2]
    return torch.from_numpy(np.stack(columns, axis=1)).to(torch.get_default_dtype())


def normalized(values: Matrix, rows: Matrix, columns: Matrix) -> Matrix:
    """Divided by √(k(G, G) k(H, H)); a graph in which the kernel sees nothing is like no other."""
    scale = np.sqrt(np.outer(rows, columns))
    return np.divide(values, scale, out=np.zeros_like(values), where=scale > 0)


class GraphletNet(KernelNet):
    """The graphlet kernel: the cosine between the numbers of triples of nodes with 0, 1, 2 and 3 edges.

    All triples are counted, none is sampled. Labels and directions are not used.

    Args:
        connected: Count connected triples only.
    """

    uses_labels = False

    def __init__(
        self, in_channels: int, num_classes: int, task: str = "graph", *, connected: bool = False
    ) -> None:
        super().__init__(in_channels, num_classes, task)
        self.connected = connected

    def comparison(self, graphs: KernelGraphs, choice: float) -> Comparison:
        mine = self.counts(graphs)

        def compare(others: KernelGraphs) -> Matrix:
            theirs = self.counts(others)
            values = np.einsum("ik,jk->ij", theirs, mine)  # no BLAS: a row must not depend on their number
            return normalized(values, (theirs**2).sum(1), (mine**2).sum(1))

        return compare

    def counts(self, graphs: KernelGraphs) -> Matrix:
        """A row per graph: the number of triples with 0, 1, 2, 3 edges, or with 2 and 3."""
        both = graphs.adjacency.maximum(graphs.adjacency.T).tocsr()
        both.setdiag(0)
        degree, nodes = both.sum(axis=1), graphs.sizes
        edges = graphs.sums(degree) / 2
        three = graphs.sums((both @ both).multiply(both).sum(axis=1)) / 6
        pairs = graphs.sums(degree * (degree - 1)) / 2  # of edges that meet: three in a triangle
        two = pairs - 3 * three
        one = edges * (nodes - 2) - 2 * two - 3 * three
        none = nodes * (nodes - 1) * (nodes - 2) / 6 - one - two - three
        return np.stack([two, three] if self.connected else [none, one, two, three], axis=1)


class WeisfeilerLehmanNet(KernelNet):
    """The Weisfeiler-Lehman subtree kernel: how many nodes look alike, up to so many hops away.

    Args:
        iterations: How many rounds of colour refinement; of several, cross-validation chooses.
    """

    choice_name = "iterations"

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: str = "graph",
        *,
        iterations: float | tuple[float, ...] = (1, 2, 3, 4, 5),
    ) -> None:
        super().__init__(in_channels, num_classes, task)
        several = tuple(iterations) if isinstance(iterations, tuple | list) else (iterations,)
        if any(each != int(each) or each < 1 for each in several):
            raise ValueError(f"The iterations must be whole numbers from 1 on, but came as {iterations}.")
        self.choices = tuple(map(int, several))

    def comparison(self, graphs: KernelGraphs, choice: float) -> Comparison:
        kernel = self._kernel(choice).fit(list(_for_grakel(graphs)))
        return lambda others: np.asarray(kernel.transform(list(_for_grakel(others))))

    def matrix(self, graphs: KernelGraphs, choice: float, done: Callable[[float], None]) -> Matrix:
        return np.asarray(self._kernel(choice).fit_transform(list(_for_grakel(graphs))))

    def _kernel(self, choice: float) -> Any:
        from grakel.kernels import WeisfeilerLehman

        return WeisfeilerLehman(n_iter=int(choice), normalize=True)


def _for_grakel(graphs: KernelGraphs) -> Iterator[list[dict[int, Any]]]:
    """Dictionaries of neighbours and labels: nodes without neighbours are there, too."""
    for adjacency, labels in graphs:
        cuts, ends = adjacency.indptr.tolist(), adjacency.indices.tolist()
        neighbours = {node: dict.fromkeys(ends[cuts[node] : cuts[node + 1]], 1.0) for node in range(len(labels))}
        yield [neighbours, {node: label.tobytes() for node, label in enumerate(labels)}]


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
        task: str = "graph",
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
