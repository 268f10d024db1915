"""IGNN's equilibrium as its published code computes it, for comparisons of speed: states d × n, COO products."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from pprgnn.baselines.baseline import once_for
from pprgnn.core.activation import RELU, Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.problem import check_inputs, finite
from pprgnn.core.solution import ConvergenceWarning, Solution, Status

STOP = 3e-6  # the published rule: no number changes by more than this, however large or small they are
MAX_STEPS = 300


def direct_equilibrium(
    b: Tensor,
    weight: Tensor,
    adj: Adjacency,
    *,
    activation: Activation = RELU,
    steps: int | None = None,
    stop: float = STOP,
    max_depth: int = MAX_STEPS,
) -> Solution:
    """What :func:`~pprgnn.baselines.equilibrium.equilibrium` solves; it ends when no number changes by ``stop``.

    That is absolute, in the gradient as well: where gradients are small numbers, such as those of a mean over many
    nodes, few terms of them are left.
    """
    check_inputs(b, weight, adj, stop, max_depth)
    if adj.value.requires_grad and torch.is_grad_enabled():
        raise ValueError("solver='direct' has no gradient for edge weights, but they want one; use solver='core'.")
    if b.numel() == 0:
        return Solution(b, 0, Status.CERTIFIED, truncation_bound=0.0)
    phi = torch.relu if activation is RELU else activation.function
    # X = φ(WXA + B), so that W, A and B are the transposes of ours.
    w, a, bias = weight.t(), once_for(adj, "coo", _matrix), b.t()
    a_t = a.transpose(0, 1)
    with torch.no_grad():
        x, taken, settled = _iterate(
            lambda x: phi(_product(a_t, w, x) + bias),
            torch.zeros_like(bias),
            max_depth if steps is None else steps,
            stop if steps is None else 0.0,
        )
    z = _product(a_t, w, x) + bias  # one more, from which autograd takes the gradients of W and B
    out = phi(z)
    if z.requires_grad:
        (slope,) = torch.autograd.grad(out.sum(), z, retain_graph=True)
        _iterate_in_backward(z, slope, weight.detach().clone(), a, stop, max_depth)
    status = Status.FIXED if steps is not None else Status.COMPARED if settled else Status.CAPPED
    if not finite(out.detach()):
        status = Status.NOT_FINITE
    if not status.converged:
        _warn("IGNN's equilibrium", status, weight, stop, max_depth)
    return Solution(out.t(), taken, status, taken + 1)


def _iterate_in_backward(z: Tensor, slope: Tensor, weight: Tensor, a: Tensor, stop: float, max_depth: int) -> None:
    """Make the gradient of ``z`` that of the equilibrium: V = φ' ⊙ (WᵀVAᵀ) + V₀, where V₀ is that of one step."""

    def adjoint(grad: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            raise RuntimeError("solver='direct' has no second derivatives; leave out create_graph.")
        v, _, settled = _iterate(
            lambda v: slope * _product(a, weight, v) + grad, torch.zeros_like(grad), max_depth, stop
        )
        if not settled:
            _warn("The gradient of IGNN's equilibrium", Status.CAPPED, weight, stop, max_depth)
        return v

    z.register_hook(adjoint)  # type: ignore[no-untyped-call]


def _matrix(adj: Adjacency) -> Tensor:
    """Ãᵀ in COO, in the caller's order of nodes; not marked as coalesced, as in the published code."""
    row, col = (index if adj.order is None else adj.order[index] for index in (adj.row, adj.col))
    return torch.sparse_coo_tensor(
        torch.stack([col, row]),
        adj.value.detach(),
        (adj.num_nodes, adj.num_nodes),
        device=adj.device,
        check_invariants=False,  # said explicitly: torch warns when it is left open
    )


def _product(matrix: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    product: Tensor = torch.sparse.mm(matrix, (weight @ x).t())
    return product.t()


def _iterate(step: Callable[[Tensor], Tensor], x: Tensor, limit: int, stop: float) -> tuple[Tensor, int, bool]:
    """The last state, how many steps it took, and whether nothing changes any more."""
    for taken in range(1, limit + 1):
        new = step(x)
        change = torch.linalg.vector_norm(new - x, torch.inf)
        x = new
        if change < stop:
            return x, taken, True
    return x, limit, False


def _warn(what: str, status: Status, weight: Tensor, stop: float, max_depth: int) -> None:
    columns = float(weight.detach().abs().sum(0).max())
    happened = f"still changed by more than {stop:g} after max_depth = {max_depth} steps"
    remedy = ", or raise max_depth"
    if status is Status.NOT_FINITE:
        happened, remedy = f"overflowed {weight.dtype}", ""
    warnings.warn(
        f"{what} {happened} (largest column sum of |W|: {columns:.3g}); use a smaller kappa{remedy}.",
        ConvergenceWarning,
        stacklevel=3,
    )
