"""Five ways to compute the same layer, forward and backward, at the same depth. Preparing them is not timed.

- ours: :func:`pprgnn.solve`.
- csr: the best that plain torch allows: CSR products into buffers that exist, nodes in our order, adjoint by hand.
- pyg-csr: a loop over PyG's ``GCNConv`` on a CSR ``adj_t``, autograd through the last N steps.
- pyg: the same on an edge list, PyG's usual format: gather and scatter per edge.
- coo: plain torch in the d × n layout of the paper's code, COO products, autograd through the last N steps.

The paper finds its depth by a search in every forward pass: ``search`` of the others, timed apart. Ours without a
given depth re-uses what it has measured (:class:`pprgnn.DepthMemory`), as in training.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
    products: int  # sparse products, forward and backward
    rank: Tensor | None = None  # where each node is, if the rows are not in the order of the shape

    def in_order(self, field: str) -> Tensor:
        """One of the three tensors with its rows in the order of the shape."""
        tensor: Tensor = getattr(self, field)
        return tensor if self.rank is None or field == "grad_weight" else tensor[self.rank]


class Ours:
    """``pprgnn.solve``. Without a depth, the first run measures it and the following ones re-use it."""

    name, label = "ours", "ours"

    def __init__(self, shape: Shape, depth: int | None = None) -> None:
        self.eps, self.upstream = shape.eps, shape.upstream
        self.adj = pprgnn.Adjacency.from_edge_index(shape.edge_index, num_nodes=shape.num_nodes)
        _ = self.adj.matrix_t, self.adj.norm_bound  # both are computed at first use, once per graph
        self.b = shape.b.clone().requires_grad_()
        self.weight = shape.weight.clone().requires_grad_()
        self.depth: int | pprgnn.DepthMemory = pprgnn.DepthMemory() if depth is None else depth

    def at(self, depth: int) -> Ours:
        """The same problem, prepared already, at a given depth."""
        fixed = copy.copy(self)
        fixed.depth = depth
        return fixed

    def run(self) -> Result:
        self.b.grad = self.weight.grad = None
        solution = pprgnn.solve(
            self.b, self.weight, self.adj, eps=self.eps, depth=self.depth, tol=TOL, grad_terms=GRAD_TERMS
        )
        solution.state.backward(self.upstream)
        products = solution.products + min(GRAD_TERMS, solution.depth)
        return Result(solution.state.detach(), self.b.grad, self.weight.grad, solution.depth, products)


class _Rival:
    """The paper's procedure, given one product G -> Ã G W and B in any layout."""

    def __init__(self, b: Tensor, eps: float, depth: int) -> None:
        if depth < GRAD_TERMS:
            raise ValueError(f"A contestant needs a depth of at least {GRAD_TERMS} terms, but came {depth}.")
        self.b, self.eps, self.depth = b.clone().requires_grad_(), eps, depth

    def propagate(self, g: Tensor) -> Tensor:
        """Ã G W."""
        raise NotImplementedError

    @torch.no_grad()
    def search(self) -> int:
        """k of the influence rule: E⁽ˡ⁺¹⁾ = relu(α_{l+1} Ã E⁽ˡ⁾ W) until max|E| < tol · max|B|; k + 1 products."""
        influence = self.b
        threshold = TOL * float(self.b.abs().max())
        for hop in range(MAX_HOPS + 1):
            influence = self.propagate(influence).div_(1 + (hop + 1) * self.eps).relu_()
            if float(influence.max()) < threshold:  # nothing is below 0
                break
        return hop


class _Unrolled(_Rival):
    """With autograd through the last N steps."""

    def step(self, n: int, g: Tensor) -> Tensor:
        return torch.relu(self.propagate(g) / (1 + n * self.eps) + self.b)

    def forward(self) -> Tensor:
        with torch.no_grad():
            g = torch.relu(self.b)  # the step from zero needs no product
            for n in range(self.depth - 1, GRAD_TERMS - 1, -1):
                g = self.step(n, g)
        for n in range(GRAD_TERMS - 1, -1, -1):
            g = self.step(n, g)
        return g


class ExpertCsr(_Rival):
    """The strongest plain torch: what its operations can do for this layer by an author who spares no effort.

    CSR with 32-bit indices, nodes in the order that ours finds (data and results stay in it, ours changes order
    in every pass), no allocation in a step, βₙ inside the dense product, φ in place, truncated adjoint by hand. Of
    torch's two CSR products it takes the one that is faster here. Tried and no faster: the d × n layout, Ã(GW)
    instead of (ÃG)W, an addition fused with φ. ``torch.compile`` refuses sparse tensors, and compiling the dense
    half of a step made it slower.
    """

    name, label = "csr", "expert CSR"

    def __init__(self, shape: Shape, depth: int) -> None:
        adj = pprgnn.Adjacency.from_edge_index(shape.edge_index, num_nodes=shape.num_nodes)
        self.matrix, self.matrix_t, self.rank = adj.matrix, adj.matrix_t, adj.rank
        super().__init__(adj.permute(shape.b), shape.eps, depth)
        self.upstream = adj.permute(shape.upstream)
        self.weight = shape.weight.clone().requires_grad_()
        self.states = [torch.zeros_like(shape.b) for _ in range(GRAD_TERMS + 1)]  # G⁽⁰⁾ ... G⁽ᴺ⁾
        self.scratch, self.z_bar, self.b_bar = (torch.zeros_like(shape.b) for _ in range(3))
        self.product = min((self.into_buffer, self.into_new), key=self.seconds)

    def into_buffer(self, matrix: Tensor, x: Tensor) -> Tensor:
        """MKL's."""
        return torch.addmm(self.scratch, matrix, x, beta=0, out=self.scratch)

    def into_new(self, matrix: Tensor, x: Tensor) -> Tensor:
        """Torch's own, which has no place for an ``out``."""
        return torch.sparse.mm(matrix, x, "sum")

    def seconds(self, product: Callable[[Tensor, Tensor], Tensor]) -> float:
        samples = []
        for _ in range(4):
            start = time.perf_counter()
            product(self.matrix, self.b.detach())
            samples.append(time.perf_counter() - start)
        return min(samples)

    def propagate(self, g: Tensor) -> Tensor:
        return torch.mm(self.product(self.matrix, g), self.weight, out=self.z_bar)

    def place(self, n: int) -> Tensor:
        """Where G⁽ⁿ⁾ goes: those that the adjoint does not need take turns in two buffers."""
        return self.states[n if n <= GRAD_TERMS else GRAD_TERMS - (n - GRAD_TERMS) % 2]

    def forward(self, b: Tensor, weight: Tensor) -> Tensor:
        g = torch.clamp_min(b, 0, out=self.place(self.depth))
        for n in range(self.depth - 1, -1, -1):
            product = self.product(self.matrix, g)
            g = torch.addmm(b, product, weight, alpha=1 / (1 + n * self.eps), out=self.place(n)).relu_()
        return g

    def adjoint(self, grad: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        relu_backward, z = torch.ops.aten.threshold_backward.grad_input, self.z_bar
        relu_backward(grad, self.states[0], 0, grad_input=z)
        b_bar, weight_bar = self.b_bar.copy_(z), torch.zeros_like(weight)
        for n in range(GRAD_TERMS):
            beta, below = 1 / (1 + n * self.eps), self.states[n + 1]
            product = self.product(self.matrix_t, z)
            weight_bar.addmm_(below.t(), product, alpha=beta)
            if n + 1 < GRAD_TERMS:
                torch.addmm(z, product, weight.t(), beta=0, alpha=beta, out=z)
                b_bar.add_(relu_backward(z, below, 0, grad_input=z))
        return b_bar, weight_bar

    def run(self) -> Result:
        state = _ByHand.apply(self.b, self.weight, self)
        grad_b, grad_weight = torch.autograd.grad(state, (self.b, self.weight), self.upstream)
        products = self.depth + GRAD_TERMS
        return Result(state.detach(), grad_b, grad_weight, self.depth, products, self.rank)


class _ByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, b: Tensor, weight: Tensor, engine: ExpertCsr) -> Tensor:
        ctx.engine = engine
        ctx.save_for_backward(weight)
        return engine.forward(b, weight).detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *ctx.engine.adjoint(grad, *ctx.saved_tensors), None


class PyG(_Unrolled):
    """The direct formulation with ``torch_geometric.nn.GCNConv``; gather and scatter per edge."""

    name, label = "pyg", "PyG, edge list"

    def __init__(self, shape: Shape, depth: int) -> None:
        from torch_geometric.nn import GCNConv  # here: the other contestants' processes need not load PyG

        super().__init__(shape.b, shape.eps, depth)
        self.edges, self.upstream = self.edges_of(shape), shape.upstream
        self.conv = GCNConv(shape.channels, shape.channels, bias=False, cached=True, add_self_loops=False)
        with torch.no_grad():
            self.conv.lin.weight.copy_(shape.weight.t())  # its linear map is x @ weight.t()
            self.conv(self.b, self.edges)  # fills the cache of normalised weights

    def edges_of(self, shape: Shape) -> Tensor:
        return shape.edge_index

    def propagate(self, g: Tensor) -> Tensor:
        return self.conv(g, self.edges)

    def run(self) -> Result:
        self.b.grad = self.conv.lin.weight.grad = None
        state = self.forward()
        state.backward(self.upstream)
        # GCNConv multiplies by W first, so the oldest step needs Ãᵀ for W's gradient, too.
        products = self.depth + GRAD_TERMS
        return Result(state.detach(), self.b.grad, self.conv.lin.weight.grad.t(), self.depth, products)


class PyGCsr(PyG):
    """What PyG's manual advises for speed: a sparse ``adj_t``, here torch's CSR; βₙ costs no pass of its own."""

    name, label = "pyg-csr", "PyG, CSR adj_t"

    def edges_of(self, shape: Shape) -> Tensor:
        from torch_geometric.utils import to_torch_csr_tensor

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
            return to_torch_csr_tensor(shape.edge_index.flip(0), size=(shape.num_nodes, shape.num_nodes))

    def step(self, n: int, g: Tensor) -> Tensor:
        return torch.relu(torch.add(self.b, self.propagate(g), alpha=1 / (1 + n * self.eps)))


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
    """Plain torch as in the published code: state d × n, W on the left, transposed view of a COO tensor."""

    name, label = "coo", "torch COO, d × n"

    def __init__(self, shape: Shape, depth: int) -> None:
        super().__init__(shape.b.t().contiguous(), shape.eps, depth)
        self.upstream = shape.upstream.t().contiguous()
        self.weight = shape.weight.t().contiguous().requires_grad_()  # Gᵀ = relu(β Wᵀ Gᵀ Ãᵀ + Bᵀ)
        self.adj = coo_adjacency(shape)

    def propagate(self, g: Tensor) -> Tensor:
        return torch.sparse.mm(self.adj, (self.weight @ g).t()).t()

    def run(self) -> Result:
        self.b.grad = self.weight.grad = None
        state = self.forward()
        state.backward(self.upstream)
        products = self.depth + GRAD_TERMS  # W first, so W's gradient of the oldest step needs a product, too
        return Result(state.detach().t(), self.b.grad.t(), self.weight.grad.t(), self.depth, products)


Rival = ExpertCsr | PyGCsr | PyG | Coo
Contestant = Ours | Rival
RIVALS = {kind.name: kind for kind in (ExpertCsr, PyGCsr, PyG, Coo)}
CONTESTANTS = {Ours.name: Ours, **RIVALS}


class Disagreement(RuntimeError):
    """A contestant computes something else than ours."""


def relative_difference(x: Tensor, reference: Tensor) -> float:
    """‖x - reference‖ / ‖reference‖."""
    return float(torch.linalg.vector_norm(x - reference) / torch.linalg.vector_norm(reference))


def check_agreement(result: Result, ours: Result, who: str) -> dict[str, float]:
    """Raise unless state and gradients are those of ours: a timing of another function means nothing."""
    differences = {
        field: relative_difference(result.in_order(field), ours.in_order(field))
        for field in ("state", "grad_b", "grad_weight")
    }
    for field, allowed in (("state", 1e-5), ("grad_b", 1e-3), ("grad_weight", 1e-3)):
        if not differences[field] < allowed:
            raise Disagreement(f"{who}: {field} differs from ours by {differences[field]:.1e}, allowed {allowed}")
    return differences
