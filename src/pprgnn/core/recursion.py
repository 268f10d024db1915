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
from pprgnn.core.buffers import expect, give, place_of, take
from pprgnn.core.decay import decay, decay_gradient
from pprgnn.core.lent_buffers import lend, reclaim
from pprgnn.core.part import PartRows
from pprgnn.core.solution import Sketch
from pprgnn.core.twice import not_twice

PROBES = 2  # random vectors of a sketch
HOPS_AT_ONCE = 16  # of a sketch
SMALL_STATE = 1 << 20  # entries: up to so many, a copy of G⁽⁰⁾ for φ' is quicker than a mask of it
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

    def leave(self, x: Tensor, out: Tensor) -> Tensor:
        """A state in the caller's node order; in ``out`` if that is another one."""
        return self.adj.leave(x, out=out)

    @property
    def gauge(self) -> Tensor:
        """W: what a step does, beside the graph."""
        return self.weight

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

    def of_all_rows(self, norm: float, largest: float) -> tuple[float, float]:
        """A norm and a largest entry, from those of the rows that are here."""
        return self.adj.of_all_rows(norm, largest)

    def agreed(self, value: float) -> float:
        """That of the first process, where several hold the graph."""
        return self.adj.agreed(value)

    def bounds(self) -> StepBounds:
        """Bounds of its steps; the channel with the slowest decay counts."""
        weight, finfo = self.weight.detach(), torch.finfo(self.b.dtype)
        norm = float(torch.linalg.matrix_norm(weight, ord=2)) * (1 + 1e-5)  # rounding of the SVD
        sums = [float(weight.abs().sum(dim).max()) for dim in (0, 1)]
        absolute = min(math.sqrt(sums[0] * sums[1]) * (1 + 1e-5), math.sqrt(weight.size(0)) * norm)
        lipschitz, of_adj = self.activation.lipschitz, self.adj.norm_bound
        length = self.adj.longest_row + weight.size(0) + 8  # sparse sum, dense sum, βₙ, + B and φ
        scale = self.norm(self.b) or 1.0
        smallest = finfo.smallest_normal * finfo.eps * math.sqrt(self.b.numel())
        return StepBounds(
            rate=lipschitz * of_adj * self.agreed(norm),
            eps=float(self.eps.detach().min()),
            lipschitz=lipschitz,
            absolute_rate=lipschitz * of_adj * self.agreed(absolute),
            sum_length=length,
            underflow=self.agreed(lipschitz * length * (1 + absolute) * smallest / scale),
        )

    def guess(self, tol: float, max_depth: int) -> Sketch | None:
        """Where the linear influence of B has faded, from a sketch of it with a few random vectors.

        ‖∏βₙ Ãˡ |B| Wˡ‖ is estimated by ‖Rᵀ Ãˡ |B| Wˡ‖ with few random rows Rᵀ: a product with a thin matrix
        for each l instead of a pass. An estimate: φ may let more or less through.
        """
        scale = self.largest(self.b)
        if not scale:
            return Sketch(1, 0.0)
        bounds, entered = self.bounds(), self.entered()
        growing = max(bounds.rate - 1, 0.0) / bounds.eps  # so many levels can enlarge an influence, no more
        hops = min(bounds.depth(0.1 * tol, max_depth) or max_depth, int(1.5 * min(growing, max_depth)) + 16)
        generator = torch.Generator("cpu").manual_seed(0)
        # Not signs: on few nodes all of these may be orthogonal to what grows.
        rows = torch.randn(self.adj.identity[0], PROBES, generator=generator, device="cpu")
        probes, size = [self.adj.rows_of(rows.to(self.b)).contiguous()], entered.b.abs().div_(scale)
        terms: list[Tensor] = []  # Rᵀ Ãˡ |B| for l = 1, 2, ..., each with the log of a factor
        logs, log = [], 0.0
        while len(terms) < hops:
            for _ in range(min(hops - len(terms), HOPS_AT_ONCE)):
                probes.append(self.adj.product(probes[-1], torch.empty_like(probes[-1]), transposed=True))
                factor = self.largest(probes[-1]) or 1.0  # powers of Ã and W alone may leave every range
                probes[-1] /= factor
                log += math.log(factor)
                logs.append(log)
            together = self.adj.total(torch.cat(probes[1:], dim=1).t() @ size)  # a single pass over B
            terms.extend(torch.split(together.double(), PROBES))
            probes = probes[-1:]
        self.left(entered)
        weight, rates = self.weight.double(), self.eps.double()
        rows, sizes = weight.new_zeros(0, weight.size(0)), weight.new_zeros(0)
        for hop in range(hops - 1, -1, -1):  # Horner: the farthest term is multiplied by W most often
            rows = torch.cat([rows, terms[hop]]) @ (weight * decay(hop, rates))
            factors = rows.view(-1, PROBES, rows.size(1)).abs().amax((1, 2)).clamp_(min=1e-300)
            rows /= factors.repeat_interleave(PROBES)[:, None]
            sizes = torch.cat([sizes, sizes.new_tensor([logs[hop]])]) + factors.log()
        sizes += rows.view(hops, -1).norm(dim=1).log() - math.log(self.norm(size) * math.sqrt(PROBES))
        seen = (sizes.flip(0) > math.log(0.1 * tol)).nonzero()  # for l = 1, 2, ...
        return Sketch(int(seen[-1]) + 2 if len(seen) else 1, math.exp(min(float(sizes.max()), 700.0)))

    def without_input(self) -> Problem:
        """The same steps without B."""
        return replace(self, b=torch.zeros_like(self.b))

    def step(self, n: int, g: Tensor, out: Tensor, product: Tensor) -> Tensor:
        """G⁽ⁿ⁾ into ``out``, from g = G⁽ⁿ⁺¹⁾; ``product`` is scratch."""
        rows, library = self.adj.rows, kernel.library_for(self)
        if library is not None:  # the three lines below, fused; of a part of a graph in two parts
            near = PartRows.whole(self.adj.matrix) if rows is None else rows
            near.exchange.start(g)
            kernel.step(library, self, near, n, g, None, out)
            if rows is not None:
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


def run(
    given: Problem, depth: int, terms: int, checkpoint: bool, room: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """G⁽⁰⁾ in the caller's node order, and what its gradient needs: G⁽¹⁾ ... G⁽ᵗᵉʳᵐˢ⁾, or the last of them.

    All but G⁽⁰⁾ go to the tensors in ``room``, if it is given. Otherwise the memory of all of them serves later
    solves as soon as nobody refers to it any more.
    """
    reclaim()
    problem, keep = given.entered(), min(terms, depth)
    ends = checkpoint and keep > 1
    count, needed = (2, 3) if ends else (keep + 1, max(keep, 1) + 1)  # states and buffers
    expect(count)
    buffers = [take(given.b), *(room or ())[: count - 1]]
    buffers += [take(given.b) for _ in range(needed - len(buffers))]
    states = problem.descend(depth, keep, buffers, leave=True, ends=ends)
    given.left(problem)
    give(*buffers[count:])
    return [lend(states[0]), *(map(lend, states[1:]) if room is None else states[1:])]


class Recursion(torch.autograd.Function):
    """G⁽⁰⁾ of a pass that was run, with a gradient of exactly ``terms`` terms.

    Kept for the backward pass: G⁽¹⁾ ... G⁽ᵗᵉʳᵐˢ⁾, or with ``checkpoint`` only the last of them, whatever the
    depth; and what φ' needs of G⁽⁰⁾, which belongs to the caller and may be overwritten.
    """

    @staticmethod
    def forward(
        ctx: Any,
        b: Tensor,
        weight: Tensor,
        eps: Tensor,
        value: Tensor,  # = adj.value: an argument of its own so that autograd sees it
        trace: Tensor,  # nothing of b, but with its history: b itself is not kept
        adj: Adjacency,
        activation: Activation,
        depth: int,
        terms: int,
        checkpoint: bool,
        states: list[Tensor],
    ) -> Tensor:
        out, *kept = states
        ctx.adj, ctx.activation, ctx.depth, ctx.terms = adj, activation, depth, terms
        ctx.repeats = checkpoint and min(terms, depth) > 1
        # b is needed again to repeat steps, and to recover z when φ' cannot be read off φ(z).
        needs_b = ctx.repeats or not activation.from_output
        memo = None
        if terms and activation.from_output:
            memo = out.clone() if out.numel() <= SMALL_STATE else activation.memo(out)
        learned = value if ctx.needs_input_grad[3] else None  # else it may be a tensor of inference mode
        ctx.save_for_backward(weight, eps, learned, trace, b if needs_b else None, memo, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        weight, eps, value, trace, b, memo, *kept = ctx.saved_tensors
        given = Problem(grad_out if b is None else b, weight, eps, ctx.adj, ctx.activation)
        needs = ctx.needs_input_grad[:4]
        # So that states can go as soon as they have been read; older versions of torch keep them until the end.
        getattr(ctx, "maybe_clear_saved_tensors", lambda: None)()
        with torch.no_grad():
            gradients = pull_back(given, memo, kept, grad_out, ctx.depth, ctx.terms, needs, ctx.repeats)
        return (*not_twice(gradients, (grad_out, weight, eps, value, trace), "a solve"), *(None,) * 7)


Gradients = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def pull_back(
    given: Problem,
    memo: Tensor | None,
    kept: list[Tensor],
    grad_out: Tensor,
    depth: int,
    terms: int,
    needs: Sequence[bool],
    repeats: bool,
) -> Gradients:
    """Gradients of b, weight, eps and the edge values, those that are needed, of a pass of this depth.

    ``memo`` is G⁽⁰⁾ in the caller's node order, or what φ' needs of it; ``kept`` are the states up to G⁽ᵗᵉʳᵐˢ⁾ or,
    when the pass ``repeats`` its last steps, the last of them; it is emptied. ``b`` is read only then, and when
    φ' does not follow from φ(z).
    """
    reads_b = repeats or not given.activation.from_output
    problem = given.entered() if reads_b else given
    library = None if needs[3] else kernel.library_for(problem)
    few, room = min(terms, depth) <= FEW_TERMS, take(grad_out)
    if repeats and few and library is not None and problem.adj.rows is None:
        z_bar = _first_z_bar(problem, memo, None, grad_out, room)
        gradients = _repeated_adjoint(library, problem, z_bar, kept, [room], depth, terms, needs)
    else:
        repeated = [take(grad_out) for _ in range(min(terms, depth) - 1)] if repeats else []
        states = [*repeated, *kept]
        for n in range(len(repeated), 0, -1):  # G⁽ᴺ⁾ is there; walk down to G⁽¹⁾ once more
            problem.step(n, states[n], states[n - 1], room)
        z_bar = _first_z_bar(problem, memo, states[0] if depth else None, grad_out, room)
        scratch = [z_bar, room, take(grad_out)]
        gradients = _adjoint(problem, states, scratch, depth, terms, needs)
        give(*repeated, *(buffer for buffer in scratch if buffer is not gradients[0]))
    given.left(problem)
    return gradients


def _first_z_bar(
    problem: Problem, memo: Tensor | None, below: Tensor | None, grad_out: Tensor, room: Tensor
) -> Tensor:
    """Z̄⁽⁰⁾ = φ'(Z⁽⁰⁾) ⊙ Ḡ⁽⁰⁾ in the inner node order; ``below`` is G⁽¹⁾."""
    adj, phi, out = problem.adj, problem.activation, take(grad_out)
    if phi.from_output:
        assert memo is not None
        if adj.order is None:
            return phi.chain(grad_out.contiguous(), memo, out=out)
        return adj.enter(phi.chain(grad_out.contiguous(), memo, out=room), out=out)
    z = _pre_activation(problem, 0, below, room)
    return phi.chain(adj.enter(grad_out.contiguous()), z, out=out)


def _repeated_adjoint(
    library: ctypes.CDLL,
    problem: Problem,
    z: Tensor,
    kept: list[Tensor],
    room: list[Tensor],
    depth: int,
    terms: int,
    needs: Sequence[bool],
) -> Gradients:
    """The adjoint with each state found anew from G⁽ᴺ⁾: four buffers for N(N - 1)/2 steps, whatever N is.

    ``room`` holds the buffers that are free at the moment.
    """
    adj, weight, last = problem.adj, problem.weight.contiguous(), min(terms, depth)
    there, back = PartRows.whole(adj.matrix), PartRows.whole(adj.matrix_t)
    sums = (torch.zeros_like(weight), torch.zeros_like(weight[0]))
    (farthest,) = kept

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
    states: list[Tensor],
    scratch: list[Tensor],
    depth: int,
    terms: int,
    needs: Sequence[bool],
) -> Gradients:
    """Section 3 of the method, one line per equation; ``states`` are G⁽¹⁾, G⁽²⁾, ..., ``scratch[0]`` is Z̄⁽⁰⁾."""
    adj, weight, eps, phi = problem.adj, problem.weight, problem.eps, problem.activation
    needs_b, needs_weight, needs_eps, needs_value = needs
    z_bar, product, b_bar = scratch
    weight_bar, eps_bar = torch.zeros_like(weight), torch.zeros_like(eps)
    value_bar = torch.zeros_like(adj.value)
    library = None if needs_value else kernel.library_for(problem)
    if library is not None and adj.rows_t is not None:
        weight_bar, per_channel = (torch.zeros_like(each.contiguous()) for each in (weight, weight[0]))
        _fused_terms(library, problem, states, scratch, min(terms, depth), terms, (weight_bar, per_channel))
        eps_bar = per_channel if eps.dim() else per_channel.sum()
    elif library is not None:  # the loop below, fused
        weight_bar, eps_bar = kernel.adjoint(
            library, problem, min(terms, depth), terms, states, [z_bar, product], b_bar
        )
    else:
        b_bar.copy_(z_bar)
        for n in range(min(terms, depth)):
            below, beta = states[n], decay(n, eps)  # G⁽ⁿ⁺¹⁾, βₙ
            if needs_value:  # Ā_ij += ⟨Z̄_i, βₙ (G⁽ⁿ⁺¹⁾ W)_j⟩ on existing edges
                value_bar += adj.edge_gradient(z_bar, torch.mm(below, weight * beta, out=product))
            adj.product(z_bar, product, transposed=True)  # P = Ãᵀ Z̄; PAPER: βₙ goes with Z⁽ⁿ⁾, not with G⁽ⁿ⁾
            outer = below.t() @ product  # (d, d)
            weight_bar += outer * beta  # W̄ += G⁽ⁿ⁺¹⁾ᵀ P βₙ
            # ε̄ += dβₙ/dε · Z̄ᵀ(Ã G⁽ⁿ⁺¹⁾ W), read off the d × d matrix: no further pass over the nodes
            per_channel = decay_gradient(n, eps) * (outer * weight).sum(0)
            eps_bar += per_channel if eps.dim() else per_channel.sum()
            if n + 1 == terms:
                break
            torch.mm(product, (weight * beta).t(), out=z_bar)  # Ḡ⁽ⁿ⁺¹⁾ = P βₙ Wᵀ
            if not phi.from_output:  # φ' needs z itself: repeat the step up to φ
                below = _pre_activation(problem, n + 1, states[n + 1] if n + 1 < depth else None, product)
            phi.chain(z_bar, below, out=z_bar)  # Z̄ = φ'(Z⁽ⁿ⁺¹⁾) ⊙ Ḡ⁽ⁿ⁺¹⁾
            b_bar.add_(z_bar)  # B̄ += Z̄

    return (
        adj.leave(b_bar, out=product) if needs_b else None,
        weight_bar if needs_weight else None,
        eps_bar if needs_eps else None,
        value_bar if needs_value else None,
    )


def _fused_terms(
    library: ctypes.CDLL,
    problem: Problem,
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
    b_bar.copy_(z)
    for n in range(products):
        rows.exchange.start(z)
        for wait in (lambda: None, rows.exchange.wait):
            kernel.adjoint_step(
                library, problem, rows, n, n + 1 == terms, z, wait(), states[n], following, b_bar, *sums
            )
        z, following = following, z


def _pre_activation(problem: Problem, n: int, below: Tensor | None, product: Tensor) -> Tensor:
    """Z⁽ⁿ⁾ = βₙ Ã G⁽ⁿ⁺¹⁾ W + B."""
    if below is None:
        return problem.b
    problem.adj.product(below, out=product)
    return torch.addmm(problem.b, product, problem.weight * decay(n, problem.eps))
