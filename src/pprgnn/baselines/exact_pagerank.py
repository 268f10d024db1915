"""Personalised PageRank of all rows at once, to a tolerance or in a number of steps, with its gradient."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.kernel import multiply
from pprgnn.core.csr import csr_tensor, move, rows, sort_entries
from pprgnn.core.solution import ConvergenceWarning

MAX_ITERATIONS = 10_000


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


def power_iteration(adj: Adjacency, h: Tensor, *, alpha: float = 0.1, hops: int = 10) -> Tensor:
    r"""Steps of :math:`Z \leftarrow (1 - \alpha) \tilde{A} Z + \alpha H` from Z = H on; a gradient for H alone.

    All steps are made in the matrix's own order of nodes, in two buffers that are used in turn.
    """
    adj.check_like(h, "h")
    z: Tensor = _PowerIteration.apply(h, adj, alpha, hops)  # type: ignore[no-untyped-call]
    return z


class _PowerIteration(torch.autograd.Function):
    """Z = p(Ã)H with a polynomial p, so H̄ = p(Ãᵀ)Z̄: the same steps with the transpose, and nothing to keep."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, adj: Adjacency, alpha: float, hops: int) -> Tensor:
        ctx.adj, ctx.alpha, ctx.hops = adj, alpha, hops
        return adj.unpermute(_steps(adj.matrix, adj.permute(h).contiguous(), alpha, hops))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        adj: Adjacency = ctx.adj
        start = adj.permute(grad).contiguous()
        return adj.unpermute(_steps(adj.matrix_t, start, ctx.alpha, ctx.hops)), None, None, None


def _steps(matrix: Tensor, h: Tensor, alpha: float, hops: int) -> Tensor:
    z, product = h.clone(), torch.empty_like(h)
    for _ in range(hops):
        z, product = multiply(matrix, z, out=product).mul_(1 - alpha).add_(h, alpha=alpha), z
    return z


def dropping_power_iteration(
    adj: Adjacency, h: Tensor, *, alpha: float = 0.1, hops: int = 10, dropout: float = 0.5
) -> Tensor:
    """As :func:`power_iteration`; each step drops other entries of Ã and enlarges those that are left."""
    adj.check_like(h, "h")
    z: Tensor = _DroppingSteps.apply(h, adj, alpha, hops, dropout)  # type: ignore[no-untyped-call]
    return z


class _DroppingSteps(torch.autograd.Function):
    """Keeps the entries of every step: H̄ takes the same steps back, with the transposes."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, adj: Adjacency, alpha: float, hops: int, dropout: float) -> Tensor:
        crow, col, value = adj.matrix.crow_indices(), adj.matrix.col_indices(), adj.matrix.values()
        ctx.adj, ctx.alpha = adj, alpha
        ctx.values = [torch.nn.functional.dropout(value, dropout) for _ in range(hops)]
        start = adj.permute(h).contiguous()
        z, product = start.clone(), torch.empty_like(start)
        for each in ctx.values:
            step = multiply(csr_tensor(crow, col, each), z, out=product)
            z, product = step.mul_(1 - alpha).add_(start, alpha=alpha), z
        return adj.unpermute(z)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        adj: Adjacency = ctx.adj
        crow, col = adj.matrix.crow_indices(), adj.matrix.col_indices()
        crow_t, col_t, source = sort_entries(col, rows(crow), adj.num_nodes)
        z_bar = adj.permute(grad).clone()
        h_bar, product = torch.zeros_like(z_bar), torch.empty_like(z_bar)
        for each in reversed(ctx.values):
            h_bar.add_(z_bar, alpha=ctx.alpha)
            step = multiply(csr_tensor(crow_t, col_t, move(each, source)), z_bar, out=product)
            z_bar, product = step.mul_(1 - ctx.alpha), z_bar
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
