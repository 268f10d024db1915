"""The slow and obviously right version: dense, float64, plain loops and plain autograd; nothing of the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Phi = Callable[[Tensor], Tensor]


def dense_adjacency(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    num_nodes: int,
    normalize: str | None = "sym",
    add_self_loops: bool = False,
) -> Tensor:
    """Entry (i, j) is the weight of the edge j -> i, normalised entry by entry."""
    a = [[0.0] * num_nodes for _ in range(num_nodes)]
    has_loop = set()
    for e, (source, target) in enumerate(edge_index.t().tolist()):
        a[target][source] += 1.0 if edge_weight is None else float(edge_weight[e])
        if source == target:
            has_loop.add(source)
    if add_self_loops:
        for i in range(num_nodes):
            if i not in has_loop:
                a[i][i] = 1.0
    degree = [sum(row) for row in a]
    for i in range(num_nodes):
        for j in range(num_nodes):
            if normalize == "sym":
                a[i][j] = a[i][j] / (degree[i] * degree[j]) ** 0.5 if degree[i] > 0 and degree[j] > 0 else 0.0
            elif normalize == "row":
                a[i][j] = a[i][j] / degree[i] if degree[i] > 0 else 0.0
    return torch.tensor(a, dtype=torch.float64).reshape(num_nodes, num_nodes)


def states(
    b: Tensor,
    weight: Tensor,
    a: Tensor,
    eps: float | Tensor,
    phi: Phi,
    depth: int,
    start: Tensor | None = None,
) -> list[Tensor]:
    """G⁽⁰⁾ ... G⁽ᵈᵉᵖᵗʰ⁾ from G⁽ᵈᵉᵖᵗʰ⁺¹⁾ = start (0 by default); plain autograd may run through it."""
    g = torch.zeros_like(b) if start is None else start
    result = []
    for n in range(depth, -1, -1):
        g = phi((a @ g @ weight) / (1 + n * eps) + b)
        result.append(g)
    return result[::-1]


def limit(b: Tensor, weight: Tensor, a: Tensor, eps: float | Tensor, phi: Phi, depth: int = 400) -> Tensor:
    """G⁽⁰⁾ of a pass so deep that nothing changes any more; it checks that itself, with an odd depth, too."""
    deep, deeper = (states(b, weight, a, eps, phi, k)[0] for k in (depth, depth + 51))
    assert (deep - deeper).norm() <= 1e-11 * max(1.0, float(deep.norm())), "the reference is not deep enough"
    return deeper


def gradients(
    inputs: Sequence[Tensor],
    grad_out: Tensor,
    a: Tensor,
    phi: Phi,
    depth: int,
    terms: int | None = None,
) -> list[Tensor]:
    """Gradients of (b, weight, eps) by autograd through the unrolled loop.

    With ``terms`` = N only the levels N-1 ... 0 are differentiated: G⁽ᴺ⁾ is detached.
    """
    b, weight, eps = (t.detach().clone().requires_grad_() for t in inputs)
    everything = states(b, weight, a, eps, phi, depth)
    out = everything[0]
    if terms is not None and terms <= depth:
        g = everything[terms].detach()
        for n in range(terms - 1, -1, -1):
            g = phi((a @ g @ weight) / (1 + n * eps) + b)
        out = g
    found = torch.autograd.grad(out, (b, weight, eps), grad_out, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for t, g in zip((b, weight, eps), found, strict=True)]


def spectral_norm(a: Tensor) -> float:
    return float(torch.linalg.matrix_norm(a, ord=2))


def step_bound(n: int, a: Tensor, weight: Tensor, eps: float, lipschitz: float = 1.0) -> float:
    """cₙ = βₙ L ‖Ã‖₂ ‖W‖₂."""
    return lipschitz * spectral_norm(a) * spectral_norm(weight) / (1 + n * eps)


def certificate(depth: int, a: Tensor, weight: Tensor, eps: float, lipschitz: float = 1.0) -> float:
    """The bound of the method's section 2, divided by ‖B‖."""
    following = step_bound(depth + 1, a, weight, eps, lipschitz)
    if following >= 1:
        return float("inf")
    product = 1.0
    for n in range(depth + 1):
        product *= step_bound(n, a, weight, eps, lipschitz)
    return product * lipschitz / (1 - following)
