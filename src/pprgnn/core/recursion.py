"""The recursion G⁽ⁿ⁾ = φ(βₙ Ã G⁽ⁿ⁺¹⁾ W + B) from n = k down to 0, and its truncated adjoint.

Nothing here allocates in a loop: states alternate between buffers, and βₙ is folded into W, so that a step is one
sparse product, one dense product and one in-place activation.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pprgnn.core import kernel
from pprgnn.core.activation import Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.bounds import StepBounds
from pprgnn.core.buffers import give, place_of, take
from pprgnn.core.decay import decay, decay_gradient
from pprgnn.core.part import PartRows

FEW_TERMS = 8  # up to so many, states are found anew for each term: the steps grow as the square


@dataclass(frozen=True)
class Problem:
    """One recursion to solve. Steps need ``b`` in the inner node order of ``adj``: see :meth:`entered`."""

    b: Tensor  # (n, d)
    weight: Tensor  # (d, d)
    eps: Tensor  # () or (d,)
    adj: Adjacency
    activation: Activation

    def detach(self) -> Problem:
        """The same numbers without their autograd history."""
        return Problem(self.b.detach(), self.weight.detach(), self.eps.detach(), self.adj, self.activation)

    def entered(self) -> Problem:
        """The same problem with ``b`` in the inner node order (itself when that is the caller's)."""
        if self.adj.order is None:
            return self
        return replace(self, b=self.adj.enter(self.b, out=take(self.b)))

    def left(self, entered: Problem) -> None:
        """Give back what :meth:`entered` took."""
        if entered.b is not self.b:
            give(entered.b)

    @property
    def gauge(self) -> Tensor:
        """W: its norm tells how strong a step is."""
        return self.weight

    @property
    def drift(self) -> float:
        """Any: how the error of this recursion depends on ‖W‖ is well understood."""
        return math.inf

    @property
    def graph(self) -> tuple[int, int, int]:
        """Numbers of nodes and edges and a fingerprint: whether it is the graph of before."""
        return self.adj.identity

    def norm(self, x: Tensor) -> float:
        """‖x‖_F of all rows."""
        return self.adj.norm(x)

    def largest(self, x: Tensor) -> float:
        """The largest entry of all rows, without sign."""
        return self.adj.largest(x)

    def agreed(self, value: float) -> float:
        """That of the first process, where several hold the graph."""
        return self.adj.agreed(value)

    def bounds(self) -> StepBounds:
        """Bounds of its steps; the channel with the slowest decay counts."""
        norm = float(torch.linalg.matrix_norm(self.weight.detach(), ord=2)) * (1 + 1e-5)  # rounding of the SVD
        norm = self.agreed(norm)
        lipschitz = self.activation.lipschitz
        return StepBounds(lipschitz * self.adj.norm_bound * norm, float(self.eps.detach().min()), lipschitz)

    def without_input(self) -> Problem:
        """The same steps without B."""
        return replace(self, b=torch.zeros_like(self.b))

    def step(self, n: int, g: Tensor, out: Tensor, product: Tensor) -> Tensor:
        """G⁽ⁿ⁾ into ``out``, from g = G⁽ⁿ⁺¹⁾; ``product`` is scratch."""
        rows, library = self.adj.rows, kernel.library_for(self)
        if rows is not None and library is not None:  # the three lines below, fused, in two parts
            rows.exchange.start(g)
            kernel.step(library, self, rows, n, g, None, out)
            kernel.step(library, self, rows, n, g, rows.exchange.wait(), out)
            return out
        self.adj.product(g, out=product)  # Ã G⁽ⁿ⁺¹⁾
        torch.addmm(self.b, product, self.weight * decay(n, self.eps), out=out)  # ... W βₙ + B
        return self.activation.apply_(out)  # φ

    def descend(
        self, depth: int, keep: int, buffers: list[Tensor], leave: bool = False, ends: bool = False
    ) -> list[Tensor]:
        """Run n = depth ... 0 from G⁽ᵈᵉᵖᵗʰ⁺¹⁾ = 0 and return G⁽⁰⁾ ... G⁽ᵏᵉᵉᵖ⁾ in the first buffers.

        Needs ``max(keep, 1) + 1`` buffers: the far states alternate between two. Of the ``ends`` alone, G⁽⁰⁾ and
        G⁽ᵏᵉᵉᵖ⁾, three at most. With ``leave``, G⁽⁰⁾ comes out in the caller's node order.
        """

        def buffer(n: int) -> Tensor:
            return buffers[place_of(n, keep, ends)]

        library = kernel.library_for(self)
        if library is not None and self.adj.rows is None:
            kernel.forward(library, self, [buffer(n) for n in range(depth + 1)], self.adj.order if leave else None)
        else:
            product = take(self.b)
            self.activation.apply_(buffer(depth).copy_(self.b))  # G⁽ᵏ⁾ = φ(B): no sparse product
            for n in range(depth - 1, -1, -1):
                self.step(n, buffer(n + 1), buffer(n), product)
            if leave and self.adj.order is not None:
                self.adj.leave(buffers[0], out=product)
                buffers[0], product = product, buffers[0]
            give(product)
        return buffers[: min(keep, 1) + 1 if ends else keep + 1]


class Recursion(torch.autograd.Function):
    """G⁽⁰⁾ at a given depth, with a gradient of exactly ``terms`` terms.

    Kept for the backward pass: G⁽⁰⁾ ... G⁽ᵗᵉʳᵐˢ⁾, or with ``checkpoint`` only the last of them and the output,
    whatever the depth.
    """

    @staticmethod
    def forward(
        ctx: Any,
        b: Tensor,
        weight: Tensor,
        eps: Tensor,
        value: Tensor,  # = adj.value: an argument of its own so that autograd sees it
        adj: Adjacency,
        activation: Activation,
        depth: int,
        terms: int,
        checkpoint: bool,
    ) -> Tensor:
        given = Problem(b, weight, eps, adj, activation)
        problem = given.entered()
        keep = min(terms, depth)
        ctx.repeats = checkpoint and keep > 1
        buffers = [take(b) for _ in range(3 if ctx.repeats else max(keep, 1) + 1)]
        out, *kept = problem.descend(depth, keep, buffers, leave=True, ends=ctx.repeats)
        ctx.adj, ctx.activation, ctx.depth, ctx.terms = adj, activation, depth, terms
        given.left(problem)
        give(*buffers[1 + len(kept) :])
        # b is needed again to repeat steps, and to recover z when φ' cannot be read off φ(z).
        needs_b = ctx.repeats or not activation.from_output
        ctx.save_for_backward(weight, eps, b if needs_b else None, out, *kept)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        weight, eps, b, *states = ctx.saved_tensors
        given, kept = Problem(states[0] if b is None else b, weight, eps, ctx.adj, ctx.activation), states[1:]
        needs = ctx.needs_input_grad[:4]
        # So that the output can go as soon as it has been read; older versions of torch keep it until the end.
        getattr(ctx, "maybe_clear_saved_tensors", lambda: None)()
        gradients = pull_back(given, states, grad_out, ctx.depth, ctx.terms, needs, ctx.repeats)
        if not _graph_is_kept():
            give(*kept)
        return (*gradients, None, None, None, None, None)


def _graph_is_kept() -> bool:
    """Whether this backward pass runs with retain_graph, so that the states are needed once more."""
    ask = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return True if ask is None else bool(ask())


Gradients = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def pull_back(
    given: Problem,
    states: list[Tensor],
    grad_out: Tensor,
    depth: int,
    terms: int,
    needs: Sequence[bool],
    repeats: bool,
) -> Gradients:
    """Gradients of b, weight, eps and the edge values, those that are needed, of a pass of this depth.

    ``states`` are G⁽⁰⁾ in the caller's node order and what was kept: all up to G⁽ᵗᵉʳᵐˢ⁾ or, when the pass
    ``repeats`` its last steps, the last of them. ``b`` is read only then, and when φ' does not follow from φ(z).
    """
    problem = given.entered() if repeats or not given.activation.from_output else given
    library = None if needs[3] else kernel.library_for(problem)
    few = min(terms, depth) <= FEW_TERMS
    if repeats and few and library is not None and problem.adj.rows is None:
        gradients = _repeated_adjoint(library, problem, grad_out, states, depth, terms, needs)
        given.left(problem)
        return gradients
    out, *kept = states
    scratch = [take(out) for _ in range(3)]
    repeated = [take(out) for _ in range(min(terms, depth) - 1)] if repeats else []
    kept = [*repeated, *kept]
    for n in range(len(repeated), 0, -1):  # G⁽ᴺ⁾ is there; walk down to G⁽¹⁾ once more
        problem.step(n, kept[n], kept[n - 1], scratch[0])
    gradients = _adjoint(problem, grad_out, [out, *kept], scratch, depth, terms, needs)
    given.left(problem)
    give(*repeated, *(buffer for buffer in scratch if buffer is not gradients[0]))
    return gradients


def _repeated_adjoint(
    library: ctypes.CDLL,
    problem: Problem,
    grad_out: Tensor,
    states: list[Tensor],
    depth: int,
    terms: int,
    needs: Sequence[bool],
) -> Gradients:
    """The adjoint with each state found anew from G⁽ᴺ⁾: four buffers for N(N - 1)/2 steps, whatever N is.

    ``states``, G⁽⁰⁾ and G⁽ᴺ⁾, is emptied, so that G⁽⁰⁾ can go before the fourth buffer comes.
    """
    adj, weight, last = problem.adj, problem.weight, min(terms, depth)
    there, back = PartRows.whole(adj.matrix), PartRows.whole(adj.matrix_t)
    sums = (torch.zeros_like(weight), torch.zeros_like(weight[0]))
    out, farthest = states
    states.clear()
    room: list[Tensor] = []  # buffers that are free at the moment

    def spare() -> Tensor:
        return room.pop() if room else take(farthest)

    def state(level: int) -> Tensor:
        g = farthest
        for n in range(last - 1, level - 1, -1):
            above = spare()
            kernel.step(library, problem, there, n, g, None, above)
            if g is not farthest:
                room.append(g)
            g = above
        return g

    below = state(1)
    z = spare()
    if adj.order is None:
        problem.activation.chain(grad_out.contiguous(), out, out=z)
    else:
        g = adj.enter(out, out=spare())
        problem.activation.chain(adj.enter(grad_out, out=z), g, out=z)
        room.append(g)
    del out
    b_bar = spare().copy_(z)
    for n in range(last):
        following = spare() if below is farthest else below  # row by row: Z̄ takes the place of a state
        kernel.adjoint_step(library, problem, back, n, n + 1 == terms, z, None, below, following, b_bar, *sums)
        room.append(z)
        z = following
        if n + 1 < last:
            below = state(n + 2)
    if adj.rank is not None:
        b_bar, z = adj.leave(b_bar, out=z), b_bar
    give(z, *room)
    eps_bar = sums[1] if problem.eps.dim() else sums[1].sum()
    return b_bar if needs[0] else None, sums[0] if needs[1] else None, eps_bar if needs[2] else None, None


def _adjoint(
    problem: Problem,
    grad_out: Tensor,
    states: list[Tensor],
    scratch: list[Tensor],
    depth: int,
    terms: int,
    needs: Sequence[bool],
) -> Gradients:
    """Section 3 of the method, one line per equation."""
    adj, weight, eps, phi = problem.adj, problem.weight, problem.eps, problem.activation
    needs_b, needs_weight, needs_eps, needs_value = needs
    z_bar, product, b_bar = scratch
    weight_bar, eps_bar = torch.zeros_like(weight), torch.zeros_like(eps)
    value_bar = torch.zeros_like(adj.value)
    library = None if needs_value else kernel.library_for(problem)
    if library is not None and adj.rows_t is not None:
        per_channel = torch.zeros_like(weight[0])
        sums = (weight_bar, per_channel)
        _fused_terms(library, problem, grad_out.contiguous(), states, scratch, min(terms, depth), terms, sums)
        eps_bar = per_channel if eps.dim() else per_channel.sum()
    elif library is not None:  # the loop below, fused
        products = min(terms, depth)
        weight_bar, eps_bar = kernel.adjoint(
            library, problem, products, terms, states, grad_out.contiguous(), [z_bar, product], b_bar
        )
    else:
        g, g_bar = states[0], grad_out.contiguous()
        if adj.order is not None:  # both are in the caller's order
            g, g_bar = adj.enter(g, out=product), adj.enter(g_bar, out=z_bar)
        for n in range(min(terms, depth + 1)):
            below = states[n + 1] if n < depth else None  # G⁽ⁿ⁺¹⁾, or None for the zero it starts from
            if not phi.from_output:  # φ' needs z itself: repeat the step up to φ
                g = _pre_activation(problem, n, below, product)
            phi.chain(g_bar, g, out=z_bar)  # Z̄ = φ'(Z⁽ⁿ⁾) ⊙ Ḡ⁽ⁿ⁾
            if needs_b:
                b_bar.copy_(z_bar) if n == 0 else b_bar.add_(z_bar)  # B̄ += Z̄
            if below is None:
                break
            beta = decay(n, eps)
            if needs_value:  # Ā_ij += ⟨Z̄_i, βₙ (G⁽ⁿ⁺¹⁾ W)_j⟩ on existing edges
                value_bar += adj.edge_gradient(z_bar, torch.mm(below, weight * beta, out=product))
            adj.product(z_bar, product, transposed=True)  # P = Ãᵀ Z̄; PAPER: βₙ goes with Z⁽ⁿ⁾, not with G⁽ⁿ⁾
            outer = below.t() @ product  # (d, d)
            weight_bar += outer * beta  # W̄ += G⁽ⁿ⁺¹⁾ᵀ P βₙ
            # ε̄ += dβₙ/dε · Z̄ᵀ(Ã G⁽ⁿ⁺¹⁾ W), read off the d × d matrix: no further pass over the nodes
            per_channel = decay_gradient(n, eps) * (outer * weight).sum(0)
            eps_bar += per_channel if eps.dim() else per_channel.sum()
            if n + 1 < terms:
                torch.mm(product, (weight * beta).t(), out=z_bar)  # Ḡ⁽ⁿ⁺¹⁾ = P βₙ Wᵀ
                g, g_bar = below, z_bar

    return (
        adj.leave(b_bar, out=product) if needs_b else None,
        weight_bar if needs_weight else None,
        eps_bar if needs_eps else None,
        value_bar if needs_value else None,
    )


def _fused_terms(
    library: ctypes.CDLL,
    problem: Problem,
    grad_out: Tensor,
    states: list[Tensor],
    scratch: list[Tensor],
    products: int,
    terms: int,
    sums: tuple[Tensor, Tensor],
) -> None:
    """All terms on a part of a graph: what needs no rows of others is computed while those travel."""
    rows = problem.adj.rows_t
    assert rows is not None
    z, following, b_bar = scratch
    b_bar.copy_(problem.activation.chain(grad_out, states[0], out=z))
    for n in range(products):
        rows.exchange.start(z)
        for wait in (lambda: None, rows.exchange.wait):
            kernel.adjoint_step(
                library, problem, rows, n, n + 1 == terms, z, wait(), states[n + 1], following, b_bar, *sums
            )
        z, following = following, z


def _pre_activation(problem: Problem, n: int, below: Tensor | None, product: Tensor) -> Tensor:
    """Z⁽ⁿ⁾ = βₙ Ã G⁽ⁿ⁺¹⁾ W + B."""
    if below is None:
        return problem.b
    problem.adj.product(below, out=product)
    return torch.addmm(problem.b, product, problem.weight * decay(n, problem.eps))
