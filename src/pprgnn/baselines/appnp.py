"""PPNP, APPNP and GPR-GNN, as their papers build them: predict first, then propagate by PageRank."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import APPNP, MLP

from pprgnn.baselines.baseline import Baseline
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.kernel import multiply
from pprgnn.core.csr import csr_tensor, move, rows, sort_entries
from pprgnn.core.solution import ConvergenceWarning
from pprgnn.nn.features import TorchDropout, dropout
from pprgnn.nn.through_adjacency import through_adjacency

MAX_ITERATIONS = 10_000


class PredictThenPropagate(Baseline):
    """A perceptron on each node by itself, with dropout on its input and between its layers; then propagation.

    On node tasks the perceptron's outputs are logits; for graphs, pooling and a head follow. Weight decay is for
    the first layer; that of all others is ``training.recursion_weight_decay``, 0 in the paper.
    """

    def __init__(self, *shape: Any, **settings: Any) -> None:
        super().__init__(*shape, **settings)
        self.add_head(self.hidden)
        self.input_dropout = TorchDropout(self.dropout)
        self.mlp = MLP(self.layer_widths, dropout=self.dropout, norm=None)

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        return self.pagerank(self.mlp(self.input_dropout(x)), adj)

    @abstractmethod
    def pagerank(self, h: Tensor, adj: Adjacency) -> Tensor:
        """From what each node says by itself to what its neighbourhood says."""

    def slow_parameters(self) -> Iterator[torch.nn.Parameter]:
        yield from self.mlp.lins[1:].parameters()
        yield from self.head.parameters()


class APPNPNet(PredictThenPropagate):
    r"""Propagation by a few steps of the power iteration for personalised PageRank.

    .. math:: Z_0 = H = \mathrm{MLP}(X), \quad Z_{k+1} = (1 - \alpha) \tilde{A} Z_k + \alpha H

    Args:
        hops: The number of steps.
        alpha: The chance to return to the start in each of them.
        drop_entries: In training, each step also drops entries of Ã, at the rate ``dropout``.
    """

    def __init__(
        self, *shape: Any, hops: int = 10, alpha: float = 0.1, drop_entries: bool = False, **settings: Any
    ) -> None:
        super().__init__(*shape, **settings)
        self.steps = through_adjacency(APPNP(hops, alpha, normalize=False))
        self.drop_entries = drop_entries

    def pagerank(self, h: Tensor, adj: Adjacency) -> Tensor:
        """The steps; PyG's where edge weights want a gradient, too."""
        if adj.value.requires_grad:
            z: Tensor = self.steps(h, adj)
            return z
        rate = self.dropout if self.training and self.drop_entries else 0.0
        return power_iteration(adj, h, alpha=self.steps.alpha, hops=self.steps.K, dropout=rate)


class PPNPNet(PredictThenPropagate):
    r"""Propagation by the limit of infinitely many steps: personalised PageRank, solved to a tolerance.

    .. math:: Z = \alpha (I - (1 - \alpha) \tilde{A})^{-1} \mathrm{MLP}(X)

    Args:
        alpha: The chance to return to the start.
        solve_tol: ``tol`` of :func:`exact_pagerank`.
    """

    def __init__(self, *shape: Any, alpha: float = 0.1, solve_tol: float = 1e-6, **settings: Any) -> None:
        super().__init__(*shape, **settings)
        self.alpha, self.solve_tol = alpha, solve_tol

    def pagerank(self, h: Tensor, adj: Adjacency) -> Tensor:
        return exact_pagerank(adj, h, alpha=self.alpha, tol=self.solve_tol)


class GPRGNNNet(PredictThenPropagate):
    r"""Chien et al.'s network, with dropout before each layer and before the hops.

    .. math::
        \mathbf{Z} = \sum_{k=0}^{K} \gamma_k \mathbf{\tilde{A}}^k \mathrm{MLP}(\mathbf{X})

    The :math:`\gamma_k` are learned, from those of personalised PageRank on: :math:`\alpha (1 - \alpha)^k`, and
    :math:`(1 - \alpha)^K` for the last. Their weight decay is ``training.recursion_weight_decay``, 0 in the paper.
    :math:`\mathbf{Z}` holds the logits of nodes; for graphs, pooling and a head follow.

    Args:
        hops: :math:`K`.
        alpha: Of the PageRank that the weights start from.
    """

    def __init__(self, *shape: Any, hops: int = 10, alpha: float = 0.1, **settings: Any) -> None:
        super().__init__(*shape, **settings)
        self.hops, self.alpha = hops, alpha
        self.gamma = torch.nn.Parameter(torch.empty(hops + 1))
        self.set_start()

    def set_start(self) -> None:
        """The weights of the hops are PageRank's."""
        powers = (1 - self.alpha) ** torch.arange(self.hops + 1, dtype=torch.float64)
        powers[:-1] *= self.alpha
        with torch.no_grad():
            self.gamma.copy_(powers)

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        h = self.mlp(dropout(x, self.dropout, self.training))
        return self.pagerank(dropout(h, self.dropout, self.training), adj)

    def pagerank(self, h: Tensor, adj: Adjacency) -> Tensor:
        state: Tensor = self.gamma[-1] * h
        for weight in self.gamma[:-1].flip(0):  # Horner's rule: one product per hop, and no powers to keep
            state = adj @ state + weight * h
        return state

    def slow_parameters(self) -> Iterator[torch.nn.Parameter]:
        yield self.gamma


# ---------------------------------------------------------------------------------- PageRank of all rows at once
def exact_pagerank(adj: Adjacency, h: Tensor, *, alpha: float = 0.1, tol: float = 1e-6) -> Tensor:
    r"""Solve :math:`X = (1 - \alpha) \tilde{A} X + \alpha H`, with gradients for H and the edge weights.

    Args:
        adj: Ã, normalised: then there is a solution for every alpha.
        h: H, one row per node.
        alpha: The chance to return to the start, above 0.
        tol: How much of a column of αH, in its Euclidean norm, the equation may be off by; not reaching it warns.
    """
    if not 0.0 < alpha <= 1.0:
        raise ValueError(f"alpha must be above 0 and at most 1, but came as {alpha}.")
    if h.dim() != 2 or h.size(0) != adj.num_nodes:
        raise ValueError(f"h must have shape ({adj.num_nodes}, channels), but has {tuple(h.shape)}.")
    adj.check_like(h, "h")
    x: Tensor = _ExactPageRank.apply(h, adj.value, adj, alpha, tol)  # type: ignore[no-untyped-call]
    return x


def power_iteration(
    adj: Adjacency, h: Tensor, *, alpha: float = 0.1, hops: int = 10, dropout: float = 0.0
) -> Tensor:
    r"""Steps of :math:`Z \leftarrow (1 - \alpha) \tilde{A} Z + \alpha H` from Z = H on; a gradient for H alone.

    All steps are made in the matrix's own order of nodes, in two buffers that are used in turn. With ``dropout``
    each of them drops other entries of Ã, at this rate, and enlarges those that are left.
    """
    adj.check_like(h, "h")
    z: Tensor = _PowerIteration.apply(h, adj, alpha, hops, dropout)  # type: ignore[no-untyped-call]
    return z


class _PowerIteration(torch.autograd.Function):
    """H̄ takes the same steps back, with the transposes; no states are kept, but the entries that are left."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, adj: Adjacency, alpha: float, hops: int, dropout: float) -> Tensor:
        ctx.adj, ctx.alpha = adj, alpha
        crow, col, value = adj.matrix.crow_indices(), adj.matrix.col_indices(), adj.matrix.values()
        ctx.values = [torch.nn.functional.dropout(value, dropout) if dropout else None for _ in range(hops)]
        h = adj.permute(h).contiguous()
        z, product = h.clone(), torch.empty_like(h)
        for each in ctx.values:
            matrix = adj.matrix if each is None else csr_tensor(crow, col, each)
            z, product = multiply(matrix, z, out=product).mul_(1 - alpha).add_(h, alpha=alpha), z
        return adj.unpermute(z)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        adj: Adjacency = ctx.adj
        if any(each is not None for each in ctx.values):
            crow, col = adj.matrix.crow_indices(), adj.matrix.col_indices()
            crow_t, col_t, source = sort_entries(col, rows(crow), adj.num_nodes)
        z_bar = adj.permute(grad).clone()
        h_bar, product = torch.zeros_like(z_bar), torch.empty_like(z_bar)
        for each in reversed(ctx.values):
            h_bar.add_(z_bar, alpha=ctx.alpha)
            matrix_t = adj.matrix_t if each is None else csr_tensor(crow_t, col_t, move(each, source))
            z_bar, product = multiply(matrix_t, z_bar, out=product).mul_(1 - ctx.alpha), z_bar
        return adj.unpermute(h_bar.add_(z_bar)), None, None, None, None


class _ExactPageRank(torch.autograd.Function):
    """X = αM⁻¹H with M = I - (1-α)Ã; Λ = M⁻ᵀX̄ gives H̄ = αΛ and Ā_ij = (1-α)⟨Λ_i, X_j⟩."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, value: Tensor, adj: Adjacency, alpha: float, tol: float) -> Tensor:
        ctx.adj, ctx.alpha, ctx.tol = adj, alpha, tol
        x = _solve(adj.matrix, adj.is_symmetric, adj.permute(h) * alpha, alpha, tol)
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None)
        return adj.unpermute(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        adj: Adjacency = ctx.adj
        solution = _solve(adj.matrix_t, adj.is_symmetric, adj.permute(grad), ctx.alpha, ctx.tol)
        grad_h = adj.unpermute(solution) * ctx.alpha if ctx.needs_input_grad[0] else None
        grad_value = None
        if ctx.needs_input_grad[1]:
            grad_value = adj.edge_gradient(solution, ctx.saved_tensors[0]) * (1 - ctx.alpha)
        return grad_h, grad_value, None, None, None


def _solve(matrix: Tensor, symmetric: bool, b: Tensor, alpha: float, tol: float) -> Tensor:
    """M⁻¹b; conjugate gradients take the root of the steps that the power series takes, but need symmetry."""
    b = b.contiguous()
    x, left = (_conjugate_gradients if symmetric else _power_series)(matrix, b, 1 - alpha, tol)
    if not left <= tol:
        warnings.warn(
            f"Personalised PageRank left {left:.1e} of its right-hand side unexplained after {MAX_ITERATIONS} "
            f"steps, more than tol = {tol:g}; raise alpha (now {alpha:g}) or tol, or normalise the adjacency.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return x


def _power_series(matrix: Tensor, b: Tensor, damping: float, tol: float) -> tuple[Tensor, float]:
    """Σ (damping Ã)ⁿ b: Ã is similar to a matrix with row sums 1, so it converges for every directed graph."""
    x, r, product = torch.zeros_like(b), b.clone(), torch.empty_like(b)
    size, left = b.norm(dim=0), 1.0
    for _ in range(MAX_ITERATIONS):
        x += r
        r, product = multiply(matrix, r, out=product).mul_(damping), r
        left = _share(r.norm(dim=0), size)
        if not tol < left < torch.inf:
            break
    return x, left


def _conjugate_gradients(matrix: Tensor, b: Tensor, damping: float, tol: float) -> tuple[Tensor, float]:
    """All columns at once, each with its own step lengths; no eigenvalue of Ã is outside [-1, 1]."""
    x, r, p, product = torch.zeros_like(b), b.clone(), b.clone(), torch.empty_like(b)
    square = b.square().sum(0)
    size, left = square.sqrt(), 1.0
    for _ in range(MAX_ITERATIONS):
        multiply(matrix, p, out=product)
        torch.sub(p, product, alpha=damping, out=product)
        step = _quotient(square, (p * product).sum(0))
        x.addcmul_(p, step)
        r.addcmul_(product, step, value=-1)
        old, square = square, r.square().sum(0)
        left = _share(square.sqrt(), size)
        if not tol < left < torch.inf:
            break
        p.mul_(_quotient(square, old)).add_(r)
    return x, left


def _share(part: Tensor, whole: Tensor) -> float:
    return float(_quotient(part, whole).max()) if part.numel() else 0.0


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    """0 where b is: a column that is solved stays as it is."""
    return torch.where(b == 0, 0.0, a / torch.where(b == 0, 1.0, b))
