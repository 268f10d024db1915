"""Three ways to compute the same layer, forward and backward. Each is prepared once, outside the timing.

- ours: :func:`pprgnn.solve`, default rule, its depth re-used (:class:`pprgnn.DepthMemory`) as in training.
- pyg, (a): a loop over PyG's ``GCNConv``, autograd through the last N steps.
- coo, (b): plain torch in the d × n layout of the paper's code, COO products, autograd through the last N steps.

(a) and (b) search their depth in every forward pass, as the paper does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import pprgnn
from benchmarks.shapes import Shape

TOL = 1e-5  # relative to max|B| in the influence search, to ‖B‖ for ours
GRAD_TERMS = 5
MAX_HOPS = 300


@dataclass(frozen=True)
class Result:
    """What one forward and backward pass gave, node-major (n, d) whatever the layout inside."""

    state: Tensor
    grad_b: Tensor
    grad_weight: Tensor
    depth: int
    products: int  # sparse products, forward (search included) and backward


class Ours:
    """``pprgnn.solve``. The first run measures the depth, the following ones re-use it."""

    name, label = "ours", "ours"

    def __init__(self, shape: Shape, max_hops: int = MAX_HOPS) -> None:
        self.eps, self.upstream = shape.eps, shape.upstream
        self.adj = pprgnn.Adjacency.from_edge_index(shape.edge_index, num_nodes=shape.num_nodes)
        _ = self.adj.matrix_t, self.adj.norm_bound  # both are computed at first use, once per graph
        self.b = shape.b.clone().requires_grad_()
        self.weight = shape.weight.clone().requires_grad_()
        self.memory = pprgnn.DepthMemory()

    def run(self) -> Result:
        self.b.grad = self.weight.grad = None
        solution = pprgnn.solve(
            self.b, self.weight, self.adj, eps=self.eps, depth=self.memory, tol=TOL, grad_terms=GRAD_TERMS
        )
        solution.state.backward(self.upstream)
        products = solution.products + min(GRAD_TERMS, solution.depth)
        return Result(solution.state.detach(), self.b.grad, self.weight.grad, solution.depth, products)


class _Unrolled:
    """The paper's procedure, given one step G -> Ã G W and B in any layout."""

    def __init__(self, b: Tensor, eps: float, max_hops: int) -> None:
        self.b, self.eps, self.max_hops = b.clone().requires_grad_(), eps, max_hops

    def search(self, propagate: Callable[[Tensor], Tensor]) -> int:
        """k of the influence rule: E⁽ˡ⁺¹⁾ = relu(α_{l+1} Ã E⁽ˡ⁾ W) until max|E| < tol · max|B|."""
        influence = self.b
        threshold = TOL * float(self.b.abs().max())
        for hop in range(self.max_hops + 1):
            influence = torch.relu(propagate(influence) / (1 + (hop + 1) * self.eps))
            if float(influence.abs().max()) < threshold:
                break
        return hop  # after hop + 1 products

    def forward(self, propagate: Callable[[Tensor], Tensor]) -> tuple[Tensor, int, int]:
        """State, depth and sparse products of the search and of the k + N steps."""
        with torch.no_grad():
            hop = self.search(propagate)
            depth = hop + GRAD_TERMS
            g = torch.relu(self.b)  # the step from zero needs no product
            for n in range(depth - 1, GRAD_TERMS - 1, -1):
                g = torch.relu(propagate(g) / (1 + n * self.eps) + self.b)
        for n in range(GRAD_TERMS - 1, -1, -1):
            g = torch.relu(propagate(g) / (1 + n * self.eps) + self.b)
        return g, depth, hop + 1 + depth


class PyG(_Unrolled):
    """(a) the direct formulation with ``torch_geometric.nn.GCNConv``; gather and scatter per edge."""

    name, label = "pyg", "(a) PyG GCNConv"

    def __init__(self, shape: Shape, max_hops: int = MAX_HOPS) -> None:
        from torch_geometric.nn import GCNConv  # here: the other contestants' processes need not load PyG

        super().__init__(shape.b, shape.eps, max_hops)
        self.edge_index, self.upstream = shape.edge_index, shape.upstream
        self.conv = GCNConv(shape.channels, shape.channels, bias=False, cached=True, add_self_loops=False)
        with torch.no_grad():
            self.conv.lin.weight.copy_(shape.weight.t())  # its linear map is x @ weight.t()
            self.conv(self.b, self.edge_index)  # fills the cache of normalised weights

    def run(self) -> Result:
        self.b.grad = self.conv.lin.weight.grad = None
        state, depth, products = self.forward(lambda g: self.conv(g, self.edge_index))
        state.backward(self.upstream)
        products += GRAD_TERMS  # GCNConv multiplies by W first, so the oldest step needs Ãᵀ for W's gradient, too
        return Result(state.detach(), self.b.grad, self.conv.lin.weight.grad.t(), depth, products)


def coo_adjacency(shape: Shape) -> Tensor:
    """Ã as a COO tensor: its transposed view, by which torch multiplies several times faster; it is symmetric."""
    source, target = shape.edge_index
    degree = torch.bincount(target, minlength=shape.num_nodes).float()
    scale = torch.where(degree > 0, degree.clamp_min(1).rsqrt(), 0.0)
    return torch.sparse_coo_tensor(
        torch.stack([target, source]),
        scale[target] * scale[source],
        size=(shape.num_nodes, shape.num_nodes),
        check_invariants=False,  # said explicitly: torch warns when it is left open
    ).t()


class Coo(_Unrolled):
    """(b) plain torch as in the published code: state d × n, W on the left, transposed view of a COO tensor."""

    name, label = "coo", "(b) torch COO, d × n"

    def __init__(self, shape: Shape, max_hops: int = MAX_HOPS) -> None:
        super().__init__(shape.b.t().contiguous(), shape.eps, max_hops)
        self.upstream = shape.upstream.t().contiguous()
        self.weight = shape.weight.t().contiguous().requires_grad_()  # Gᵀ = relu(β Wᵀ Gᵀ Ãᵀ + Bᵀ)
        self.adj = coo_adjacency(shape)

    def run(self) -> Result:
        self.b.grad = self.weight.grad = None
        state, depth, products = self.forward(lambda g: torch.sparse.mm(self.adj, (self.weight @ g).t()).t())
        state.backward(self.upstream)
        products += GRAD_TERMS  # W first, so W's gradient of the oldest step needs a product, too
        return Result(state.detach().t(), self.b.grad.t(), self.weight.grad.t(), depth, products)


Contestant = Ours | PyG | Coo
CONTESTANTS = {kind.name: kind for kind in (Ours, PyG, Coo)}


class Disagreement(RuntimeError):
    """A contestant computes something else than ours."""


def relative_difference(x: Tensor, reference: Tensor) -> float:
    """‖x - reference‖ / ‖reference‖."""
    return float(torch.linalg.vector_norm(x - reference) / torch.linalg.vector_norm(reference))


def check_agreement(result: Result, ours: Result, who: str) -> dict[str, float]:
    """Raise unless state and gradients are those of ours: a timing of another function means nothing."""
    differences = {
        field: relative_difference(getattr(result, field), getattr(ours, field))
        for field in ("state", "grad_b", "grad_weight")
    }
    for field, allowed in (("state", 1e-3), ("grad_b", 0.03), ("grad_weight", 0.03)):
        if not differences[field] < allowed:
            raise Disagreement(f"{who}: {field} differs from ours by {differences[field]:.1e}, allowed {allowed}")
    return differences
