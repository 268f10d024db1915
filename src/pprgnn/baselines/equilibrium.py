"""Equilibria X = φ(ÃᵐXW + B): the recursion without decay, which only converges when its steps contract.

What other implicit networks solve (IGNN, EIGNN, MGNNI), on the matrices, buffers and kernel of our own recursion.
Steps are run in bundles; after each, the last two states tell how far the equilibrium still is. Where many are
missing, bundles can go on from mixtures of the last few (Anderson's acceleration). The gradient is the implicit
one: it needs the equilibrium alone, whatever it took to get there.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pprgnn.baselines.fixed_point import Anderson
from pprgnn.core.activation import Activation, resolve_activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.adjoint import refuse_twice
from pprgnn.core.backend import kernel
from pprgnn.core.backend.buffers import acquire, release
from pprgnn.core.backend.kernel import multiply
from pprgnn.core.backend.passes import in_inner_order
from pprgnn.core.problem import Problem, check_inputs, finite
from pprgnn.core.solution import ConvergenceWarning, Solution, Status

BUNDLE = 4  # steps before the first look; later bundles are as long as the contraction seen so far suggests
LONGEST_BUNDLE = 32
WORTH_MIXING = 24  # plain steps that must be missing: a mixture costs about as much as one or two of them


def equilibrium(
    b: Tensor,
    weight: Tensor,
    adj: Adjacency,
    *,
    activation: str | Activation | None = "relu",
    hops: int = 1,
    steps: int | None = None,
    tol: float = 1e-5,
    max_depth: int = 500,
    accelerate: bool = False,
) -> Solution:
    r"""Solve X = φ(Ãᵐ X W + B) for X, by repeating it from X = 0. Differentiable in ``b``, ``weight`` and ``adj``.

    There is one equilibrium if ‖Ãᵐ‖₂ times the largest absolute column sum of W, or ‖W‖₂, is below 1; ``weight``
    is taken as it is. The gradient is that of the equilibrium itself and needs one state of memory.

    Args:
        b: shape (num_nodes, channels).
        weight: W, shape (channels, channels).
        adj: the graph.
        activation: as in :func:`pprgnn.solve`.
        hops: m, how many hops a step makes.
        steps: run exactly so many instead of looking at the tolerance.
        tol: error allowed, relative to ‖b‖ (in the gradient, to that of the incoming one): an estimate from the
            contraction seen, and a proof where :attr:`Solution.truncation_bound` says so (in exact arithmetic).
        max_depth: the cap; reaching it warns.
        accelerate: go on from mixtures of earlier states where many steps are missing, here and in the gradient.
            It takes memory for eleven more states; ``depth`` and ``products`` count every step, those from
            rejected mixtures as well.

    Example:
        >>> import torch, pprgnn
        >>> adj = pprgnn.Adjacency.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> solution = equilibrium(torch.eye(3), 0.5 * torch.eye(3), adj, activation="identity")
        >>> inverse = torch.linalg.inv(torch.eye(3) - 0.5 * adj.to_dense())
        >>> bool(torch.allclose(solution.state, inverse, atol=1e-5))
        True
    """
    phi = resolve_activation(activation)
    check_inputs(b, weight, adj, tol, max_depth)
    if hops < 1:
        raise ValueError(f"hops must be >= 1, but came as {hops}.")
    if steps is not None and steps < 0:
        raise ValueError(f"steps must be >= 0, but came as {steps}.")
    if b.numel() == 0:
        return Solution(b, 0, Status.CERTIFIED, truncation_bound=0.0)
    search = _Search(tol, max_depth, steps, accelerate)
    state: Tensor = _Equilibrium.apply(  # type: ignore[no-untyped-call]
        b.contiguous(), weight, adj.value, adj, phi, hops, search
    )
    if not finite(state.detach()):
        search.status = Status.NOT_FINITE
    search.warn(weight)
    return Solution(
        state=state,
        depth=search.steps,
        status=search.status,
        truncation_bound=search.bound,
        estimated_error=search.estimate,
        products=search.steps * hops,
    )


@dataclass
class _Search:
    """How far the equilibrium is, and how many steps that took."""

    tol: float
    max_depth: int
    fixed: int | None = None
    accelerate: bool = False
    steps: int = 0
    status: Status = Status.CAPPED
    estimate: float | None = None  # relative error, from the contraction seen
    bound: float | None = None  # relative error, proved

    def settled(self, change: float, bound: float | None, estimate: float | None) -> bool:
        """Whether it is over: the state does not change, is near enough, or is no number any more."""
        self.bound, self.estimate = bound, estimate
        known = [error for error in (bound, estimate) if error is not None]
        if not math.isfinite(change):
            self.status = Status.NOT_FINITE
        elif change == 0 or (bound is not None and bound <= self.tol):
            self.status = Status.CERTIFIED
        elif known and min(known) <= self.tol:
            self.status = Status.COMPARED
        return self.status is not Status.CAPPED

    def missing(self, contraction: float | None) -> int:
        """How many steps are, if the contraction goes on as it was."""
        known = [error for error in (self.bound, self.estimate) if error is not None]
        if contraction is None or not 0 < contraction < 1 or not known or not math.isfinite(min(known)):
            return BUNDLE
        return math.ceil(math.log(self.tol / min(known)) / math.log(contraction))

    def warn(self, weight: Tensor, what: str = "The equilibrium") -> None:
        if self.status.converged:
            return
        columns = float(weight.detach().abs().sum(0).max())
        if self.status is Status.NOT_FINITE:
            message = f"{what} overflowed {weight.dtype} (largest column sum of |W|: {columns:.3g})"
        else:
            message = (
                f"{what} did not come within tol = {self.tol:g} in max_depth = {self.max_depth} steps (largest "
                f"column sum of |W|: {columns:.3g})"
            )
        warnings.warn(
            f"{message}; keep W smaller (IGNN: kappa, EIGNN and MGNNI: gamma), or raise max_depth or tol.",
            ConvergenceWarning,
            stacklevel=4,
        )


class _Equilibrium(torch.autograd.Function):
    """X = φ(ÃᵐXW + B). Backward: V = φ'(Z) ⊙ ((Ãᵀ)ᵐ V Wᵀ + X̄), then B̄ = V and W̄ = Xᵀ(Ãᵀ)ᵐV."""

    @staticmethod
    def forward(
        ctx: Any,
        b: Tensor,
        weight: Tensor,
        value: Tensor,  # = adj.value: an argument of its own so that autograd sees it
        adj: Adjacency,
        activation: Activation,
        hops: int,
        search: _Search,
    ) -> Tensor:
        given = Problem(b, weight, torch.zeros_like(weight[0, 0]), adj, activation)
        with in_inner_order(given) as problem:
            state, spare = _Iteration(problem, adj.matrix, problem.b, weight, hops, search).run()
        if adj.order is not None:
            adj.unpermute(state, out=spare)
            state, spare = spare, state
        release(spare)
        ctx.adj, ctx.activation, ctx.hops = adj, activation, hops
        ctx.tol, ctx.max_depth, ctx.accelerate = search.tol, search.max_depth, search.accelerate
        learned = value if ctx.needs_input_grad[2] else None
        ctx.save_for_backward(weight, state, None if activation.from_output else b, learned)
        return state

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, out, b, value = ctx.saved_tensors
        with torch.no_grad():
            gradients = _Equilibrium._gradients(ctx, grad, weight, out, b)
        sources = (grad, out, weight, value)
        return (*refuse_twice(gradients, sources, "an equilibrium"), None, None, None, None)

    @staticmethod
    def _gradients(
        ctx: Any, grad: Tensor, weight: Tensor, out: Tensor, b: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        adj, hops = ctx.adj, ctx.hops
        grad = grad.contiguous()
        state, incoming = (adj.permute(x) for x in (out, grad))
        at = state
        if b is not None:  # φ' needs its input: repeat the last step up to φ
            at = torch.addmm(adj.permute(b), _hop(adj.matrix, state, hops), weight)
        problem = Problem(incoming, weight, torch.zeros_like(weight[0, 0]), adj, ctx.activation)
        search = _Search(ctx.tol, ctx.max_depth, accelerate=ctx.accelerate)
        v, product = _Iteration(problem, adj.matrix_t, incoming, weight.t(), hops, search, at).run()
        search.warn(weight, "The gradient of an equilibrium")
        b_bar, weight_bar, value_bar = None, None, None
        if ctx.needs_input_grad[1]:
            weight_bar = state.t() @ _hop(adj.matrix_t, v, hops, product)
        if ctx.needs_input_grad[2]:  # one term for each of the m factors
            value_bar = torch.zeros_like(adj.value)
            right = state @ weight
            for hop in range(hops):
                left = _hop(adj.matrix_t, v, hop) if hop else v
                value_bar += adj.edge_gradient(left, _hop(adj.matrix, right, hops - 1 - hop))
        if ctx.needs_input_grad[0]:
            b_bar = v if adj.order is None else adj.unpermute(v, out=product)
        release(*(buffer for buffer in (v, product) if buffer is not b_bar))
        return b_bar, weight_bar, value_bar


def _hop(matrix: Tensor, x: Tensor, hops: int, out: Tensor | None = None) -> Tensor:
    """Mᵐ x."""
    for hop in range(hops):
        x = multiply(matrix, x, out if hop == hops - 1 and out is not None else torch.empty_like(x))
    return x


class _Iteration:
    """Repeats X ← φ(MᵐXW + B), or with ``at`` X ← φ'(at) ⊙ (MᵐXW + B), until the search is settled.

    All in the inner node order, in two buffers, and fused where the kernel can.
    """

    def __init__(
        self,
        problem: Problem,
        matrix: Tensor,
        b: Tensor,
        weight: Tensor,
        hops: int,
        search: _Search,
        at: Tensor | None = None,
    ) -> None:
        self.matrix, self.b, self.weight, self.hops, self.at = matrix, b, weight.contiguous(), hops, at
        self.activation, self.search = problem.activation, search
        self.library = kernel.library_for(problem) if hops == 1 else None
        self.last, self.before = acquire(b), acquire(b)
        self.products = [acquire(b) for _ in range(0 if self.library else min(hops, 2))]
        self.started = False
        self.scale = float(torch.linalg.vector_norm(b)) or 1.0
        # By how much a step contracts at least, in each of the norms of _sizes.
        factor = problem.activation.lipschitz * problem.adj.norm_bound**hops
        size = weight.detach().abs()
        largest = (size.sum(0).max(), torch.linalg.matrix_norm(size), size.sum(1).max())
        self.rates = [factor * float(each) for each in largest]

    def run(self) -> tuple[Tensor, Tensor]:
        """X, and a buffer that is free again."""
        search = self.search
        if search.fixed is not None:
            self._steps(search.fixed)
            search.status = Status.FIXED
        else:
            self._until_settled()
        release(*self.products)
        return self.last, self.before

    def _until_settled(self) -> None:
        search = self.search
        previous, bundle, mixing = None, BUNDLE, search.accelerate
        while search.steps < search.max_depth:
            bundle = min(bundle, search.max_depth - search.steps)
            self._steps(bundle)
            columns = self._change()
            change = float(torch.linalg.vector_norm(columns))
            contraction = None if previous is None else (change / previous) ** (1 / bundle) if previous else 0.0
            estimate = search.estimate
            if contraction is not None and contraction < 1:
                estimate = change * contraction / (1 - contraction)
            if search.settled(change, self._bound(columns), estimate):
                break
            missing = search.missing(contraction)
            if mixing and missing > WORTH_MIXING:
                assert contraction is not None
                if self._accelerated(1 / (1 - contraction**BUNDLE)):
                    break
                mixing, previous, bundle = False, None, BUNDLE  # plain steps are all that is left
                continue
            previous, bundle = change, min(max(missing, 1), LONGEST_BUNDLE)

    def _accelerated(self, amplification: float) -> bool:
        """Bundles from mixtures of earlier states; whether they led anywhere.

        A bundle from a mixture counts only if it ends with no larger change than so many more plain steps are
        proved to end with; otherwise the state from before it comes back. The error of a state is estimated as
        ``amplification`` times the change by a bundle: the largest that was seen, between any two bundles.
        """
        search, mixing, x, moved = self.search, Anderson(self.last), acquire(self.last), 0.0
        least, norm = min((rate, number) for number, rate in enumerate(self.rates))
        least = min(least, 0.99)  # where nothing is proved: hardly at all
        while search.steps < search.max_depth and mixing.active:
            x.copy_(self.last)
            count = min(BUNDLE, search.max_depth - search.steps)
            self._steps(count)
            columns = self._change()
            if not mixing.accepts(_sizes(columns)[norm], least**count, self.last):
                continue
            mixing.add(x, self.last)
            if mixing.count > 1:
                amplification = max(amplification, mixing.amplification(moved))
            change = float(torch.linalg.vector_norm(columns))
            if search.settled(change, self._bound(columns), mixing.residual / self.scale * amplification):
                break
            mixing.mixed = mixing.mix(self.last)
            moved = float(torch.dist(self.last, x))
        mixing.release()
        release(x)
        return search.status is not Status.CAPPED or search.steps >= search.max_depth

    def _bound(self, columns: Tensor) -> float | None:
        """Of the error in the Frobenius norm, from the last change; ``None``: there is no contraction."""
        proved = zip(self.rates, _sizes(columns), strict=True)
        return min((size * rate / (1 - rate) for rate, size in proved if rate < 1), default=None)

    def _steps(self, count: int) -> None:
        """So many more, the first ever from that of X = 0."""
        self.search.steps += count
        if self.library is not None:
            # The state to start from is at the end; both buffers in turn from there to the front.
            states = [self.last if (count - n) % 2 == 0 else self.before for n in range(count + 1)]
            phi = kernel.phi_number(self.activation)
            assert phi is not None
            kernel.iterate(self.library, self.matrix, self.b, self.weight, phi, states, self.at, self.started)
            if count % 2:
                self.last, self.before = self.before, self.last
        else:
            if not self.started:
                self._activate(self.last.copy_(self.b))
            for _ in range(count):
                x = self.last
                for hop in range(self.hops):
                    x = multiply(self.matrix, x, out=self.products[hop % 2])
                torch.addmm(self.b, x, self.weight, out=self.before)
                self._activate(self.before)
                self.last, self.before = self.before, self.last
        self.started = True

    def _change(self) -> Tensor:
        """By the last step, relative to B: the norm of each column."""
        torch.sub(self.last, self.before, out=self.before)
        norms: Tensor = torch.linalg.vector_norm(self.before, dim=0)
        return norms / self.scale

    def _activate(self, z: Tensor) -> None:
        if self.at is None:
            self.activation.apply_(z)
        else:
            self.activation.chain(z, self.at, out=z)


def _sizes(columns: Tensor) -> tuple[float, float, float]:
    """A change in three norms, each at least the Frobenius norm, from the norms of its columns.

    The largest column, times √columns: each column of X mixes columns with weights |W|; all of it; and the sum of
    all columns, in which the steps of the gradient contract.
    """
    largest = float(columns.max()) * math.sqrt(columns.numel())
    return largest, float(torch.linalg.vector_norm(columns)), float(columns.sum())
