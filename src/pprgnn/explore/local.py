"""The way back through the nodes around one alone, where the whole graph would take too long.

The forward pass is that of the whole graph: states and slopes are known and exact. Going back, only the nodes with
the largest possible influence are followed. What comes over paths that leave them is missing: the contributions
then do not add up to the score, and the difference is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import cumsum

from pprgnn.core.activation import Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.buffers import acquire, release
from pprgnn.core.backend.kernel import multiply
from pprgnn.core.backend.passes import permuted, step
from pprgnn.core.csr import csr_tensor
from pprgnn.core.problem import Problem, as_eps
from pprgnn.core.recursion import Gradients, ascend, descend
from pprgnn.core.solution import Solution, Status
from pprgnn.data.sparse_features import row_of_entries, take_rows, to_dense
from pprgnn.explore.traced import Traced, check_asker, trace
from pprgnn.nn.network import Network
from pprgnn.nn.ppr_conv import PPRConv
from pprgnn.nn.through_adjacency import SolvingAdjacency
from pprgnn.training.attribution import learned_rows
from pprgnn.training.batches import Batch
from pprgnn.training.model import Model, largest_norm, smallest_eps

NEGLIGIBLE = 1e-3  # of the possible influence: longer ways do not help to choose nodes


class LocalGraph:
    """Answers of a network of recursions that treats rows one by one between them.

    Of the gradients of its ``layers`` so many ``terms`` are used (``None``: all), and so many ``rows`` followed.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        layers: Sequence[tuple[PPRConv, int]],
        terms: int | None,
        rows: int,
    ) -> None:
        assert isinstance(batch.edges, Adjacency)
        self.model, self.batch, self.rows, self.adj = model, batch, rows, batch.edges
        self.depths = {int(layer.handle): depth for layer, depth in layers}
        self.terms = {key: depth + 1 if terms is None else terms for key, depth in self.depths.items()}
        self.weights = _walk_weights(layers)
        matrix = self.adj.matrix_t
        self.sizes = csr_tensor(matrix.crow_indices(), matrix.col_indices(), matrix.values().abs())
        recorder = _Recorder(self.adj, self.depths, self.terms)
        with torch.no_grad():
            model.network.encode(batch.x, recorder)
        self.states = recorder.states
        self.x = (learned_rows(model.network) if batch.x is None else batch.x).detach()

    def followed(self, row: int, rows: int) -> tuple[Tensor, float]:
        """Which nodes, at most so many, in the inner order; and their share of the possible influence."""
        adj = self.adj
        if rows >= adj.num_nodes:
            return torch.arange(adj.num_nodes, device=adj.value.device), 1.0
        walk = adj.value.new_zeros(adj.num_nodes, 1)
        walk[row if adj.rank is None else int(adj.rank[row])] = 1.0
        total, product = walk * self.weights[0], torch.empty_like(walk)
        for weight in self.weights[1:]:
            check_asker()
            walk, product = multiply(self.sizes, walk, out=product), walk
            total.add_(walk, alpha=weight)
        total = total.flatten()
        values, nodes = total.topk(rows)
        nodes = nodes[values > 0]
        share = float(values.sum(dtype=torch.float64) / total.sum(dtype=torch.float64))
        return nodes.sort().values, share if len(nodes) == rows else 1.0

    def trace(self, row: int, target: int, all_nodes: bool) -> Traced:
        """Where the score of a class comes from, as far as it is followed."""
        inner, share = self.followed(row, self.adj.num_nodes if all_nodes else self.rows)
        around = _Around(self, inner)
        nodes = inner if self.adj.order is None else self.adj.order[inner].long()
        place = int((nodes == row).nonzero())
        network = self.model.network
        with torch.enable_grad():
            x = to_dense(take_rows(self.x, nodes)).requires_grad_(True)
            with _rows(network, x, self.batch.x is None):
                state = network.encode(None if self.batch.x is None else x, around)
                logits = network.decode(state[place : place + 1])[0]
                score, found, biases = trace(self.model, logits, target, x)
        contributions = torch.zeros(self.adj.num_nodes, dtype=torch.float64)
        contributions[nodes.cpu()] = found
        missing = abs(score - float(found.sum()) - biases) / max(abs(score), 1e-30)
        return Traced(score, contributions, biases, self._left_out(len(nodes), share, missing), share < 1)

    def _left_out(self, followed: int, share: float, missing: float) -> str:
        parts = []
        if share < 1:
            parts.append(
                f"Followed were the {followed:,} nodes with the largest possible influence, which have "
                f"{share:.1%} of it; inputs and biases leave {missing:.1%} of the score unexplained."
            )
        cut = [
            f"{self.terms[key]} of {depth + 1}" for key, depth in self.depths.items() if self.terms[key] <= depth
        ]
        if cut:
            parts.append(f"Memory allows {', '.join(cut)} terms of the gradient, so longer ways are missing.")
        return " ".join(parts)


def _walk_weights(layers: Sequence[tuple[PPRConv, int]]) -> list[float]:
    """How much influence a walk of n hops can have at most, beside one of none; as far as it matters."""
    weights = np.ones(1)
    for layer, depth in layers:
        norm, eps = largest_norm(layer) * layer.activation.lipschitz, smallest_eps(layer.eps)
        steps = np.cumprod([1.0, *(norm / (1 + n * eps) for n in range(depth))])
        weights = np.convolve(weights, steps)
        if layer.smooth_input:
            weights = np.append(0.0, weights)
    weights = weights / weights.sum()
    matters = int(np.searchsorted(weights.cumsum(), 1 - NEGLIGIBLE)) + 1
    return [float(weight) for weight in weights[:matters]]


@contextmanager
def _rows(network: Network, rows: Tensor, learned: bool) -> Iterator[None]:
    """Within it, where rows are learned, the network has these."""
    if not learned:
        yield
        return
    embedding: Any = network.embedding
    before = embedding._parameters.pop("weight")
    embedding.weight = rows
    try:
        yield
    finally:
        del embedding.weight
        embedding.register_parameter("weight", before)


class _Recorder(SolvingAdjacency):
    """The whole graph; keeps the states of its recursions, as far as they are needed on the way back."""

    def __init__(self, adj: Adjacency, depths: dict[int, int], terms: dict[int, int]) -> None:
        Adjacency.__init__(self, *adj.indices, adj.value, normalize=adj.normalize, order=adj.order, rank=adj.rank)
        self.nodes: Any = slice(None)
        self.depths, self.terms = depths, terms
        self.states: dict[int, list[Tensor]] = {}

    def solve(
        self, layer: Tensor, b: Tensor, weight: Tensor, eps: float | Tensor, activation: Activation
    ) -> Solution:
        """G⁽⁰⁾; all others are kept, those of ReLU and the like by their sign."""
        key = int(layer)
        depth, keep = self.depths[key], min(self.terms[key], self.depths[key])
        problem = permuted(Problem(b.contiguous(), weight, as_eps(eps, b, weight.size(0)), self, activation))
        by_sign = hasattr(activation, "slope")
        first, second, product = (acquire(b) for _ in range(3))
        kept: list[Tensor] = []

        def keep_and_step(n: int, g: Tensor) -> Tensor:  # all levels at once would need much memory
            if n < keep:
                kept.append(g > 0 if by_sign else g.clone())
            return step(problem, n, g, second if g is first else first, product)

        state = descend(keep_and_step, activation.apply_(first.copy_(problem.b)), range(depth))
        release(second if state is first else first, product)
        self.states[key] = [state, *reversed(kept)]
        return Solution(self.unpermute(state), depth, Status.FIXED, depth)


class _Around(SolvingAdjacency):
    """Some nodes of a graph and the entries of Ã among them; what recursions come to is known."""

    def __init__(self, graph: LocalGraph, inner: Tensor) -> None:
        matrix, symmetric = graph.adj.matrix, graph.adj.is_symmetric
        crow, col = matrix.crow_indices(), matrix.col_indices()
        place = torch.full((graph.adj.num_nodes,), -1, dtype=col.dtype, device=col.device)
        place[inner] = torch.arange(len(inner), dtype=col.dtype, device=col.device)
        rows = take_rows(matrix, inner)
        columns = place[rows.col_indices().long()]
        kept = columns >= 0
        counts = torch.bincount(row_of_entries(rows)[kept], minlength=len(inner))
        Adjacency.__init__(self, cumsum(counts).to(crow.dtype), columns[kept], rows.values()[kept])
        self._matrix_t = self.matrix if symmetric else None
        self.nodes: Any = slice(None)
        self.graph, self.inner = graph, inner
        self.is_whole = len(inner) == graph.adj.num_nodes

    def solve(
        self, layer: Tensor, b: Tensor, weight: Tensor, eps: float | Tensor, activation: Activation
    ) -> Solution:
        """The rows of the state that is known."""
        key, rates = int(layer), as_eps(eps, b, weight.size(0)).detach()
        problem = Problem(b.detach(), weight.detach(), rates, self, activation)
        state = _SomeRows.apply(b, problem, key)  # type: ignore[no-untyped-call]
        return Solution(state, self.graph.depths[key], Status.FIXED)


class _SomeRows(torch.autograd.Function):
    """Known rows of a state, with the adjoint of the recursion among them."""

    @staticmethod
    def forward(ctx: Any, b: Tensor, problem: Problem, key: int) -> Tensor:
        ctx.problem, ctx.key = problem, key
        around = problem.adj
        assert isinstance(around, _Around)
        return around.graph.states[key][0].index_select(0, around.inner)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        problem, around = ctx.problem, ctx.problem.adj
        graph, states = around.graph, around.graph.states[ctx.key]
        last = min(graph.terms[ctx.key], graph.depths[ctx.key] + 1)
        level, z_bar, product = scratch = [acquire(grad) for _ in range(3)]

        def state(n: int) -> Tensor:  # one level of states at a time
            check_asker()
            return level.copy_(states[n] if around.is_whole else states[n].index_select(0, around.inner))

        def term(n: int, z_bar: Tensor, below: Tensor) -> Tensor:
            return sums.add_term(problem, n, z_bar, below, lambda: below, product)

        try:
            problem.activation.chain(grad.contiguous(), state(0), out=z_bar)
            b_bar = z_bar.clone()
            sums = Gradients(b_bar, None, None)
            ascend(term, z_bar, state, last - 1)
        finally:
            release(*scratch)
        return b_bar, None, None
