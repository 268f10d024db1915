"""Passes of a recursion and of its adjoint in buffers: fused where the kernel can, by torch operations elsewhere.

Nothing here allocates in a loop: states alternate between buffers, and βₙ is folded into W, so that a step is one
sparse product, one dense product and one in-place activation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from pprgnn.core.backend import kernel
from pprgnn.core.backend.buffers import acquire, buffer_index, collect, release, release_later, reserve
from pprgnn.core.backend.kernel import PartRows
from pprgnn.core.problem import Problem, Recursion
from pprgnn.core.recursion import Gradients, ascend, descend, pre_activation

FEW_TERMS = 8  # up to so many, states are found anew for each term: the steps grow as the square
AnyRecursion = TypeVar("AnyRecursion", bound=Recursion)


# ---------------------------------------------------------------------------------------------------- node order
def permuted(problem: AnyRecursion, out: Tensor | None = None) -> AnyRecursion:
    """The same problem with ``b`` in the inner node order: itself where that is the caller's."""
    if not isinstance(problem, Problem) or problem.adj.order is None:
        return problem
    return replace(problem, b=problem.adj.permute(problem.b, out=out))


@contextmanager
def in_inner_order(problem: AnyRecursion) -> Iterator[AnyRecursion]:
    """Within it, :func:`permuted` in a buffer."""
    reordered = isinstance(problem, Problem) and problem.adj.order is not None
    inner = permuted(problem, acquire(problem.b)) if reordered else problem
    yield inner
    if reordered:
        release(inner.b)


def unpermute(problem: Recursion, x: Tensor, out: Tensor) -> Tensor:
    """A state in the caller's node order; in ``out`` if that is another one."""
    return problem.adj.unpermute(x, out=out) if isinstance(problem, Problem) else x


# ------------------------------------------------------------------------------------------------------- forward
def step(problem: Recursion, n: int, g: Tensor, out: Tensor, product: Tensor) -> Tensor:
    """:meth:`Recursion.step`, fused where the kernel can; on a part of a graph in two halves."""
    library = kernel.library_for(problem)
    if library is None or not isinstance(problem, Problem):
        return problem.step(n, g, out, product)
    rows = problem.adj.rows or PartRows.whole(problem.adj.matrix)
    for halo in rows.halves(g):
        kernel.descend(library, problem, rows, [out, g], n, halo, warm=True)
    return out


def run_pass(
    problem: Recursion,
    depth: int,
    keep: int,
    buffers: list[Tensor],
    caller_order: bool = False,
    ends: bool = False,
) -> list[Tensor]:
    """Run n = depth ... 0 from G⁽ᵈᵉᵖᵗʰ⁺¹⁾ = 0 and return G⁽⁰⁾ ... G⁽ᵏᵉᵉᵖ⁾ in the first buffers.

    Needs ``max(keep, 1) + 1`` buffers: the far states alternate between two. Of the ``ends`` alone, G⁽⁰⁾ and
    G⁽ᵏᵉᵉᵖ⁾, three at most. With ``caller_order``, G⁽⁰⁾ comes out in the caller's node order.
    """

    def buffer(n: int) -> Tensor:
        return buffers[buffer_index(n, keep, ends)]

    adj = problem.adj if isinstance(problem, Problem) else None
    library = kernel.library_for(problem)
    if library is not None and isinstance(problem, Problem) and problem.adj.rows is None:
        order = problem.adj.order if caller_order else None
        rows, states = PartRows.whole(problem.adj.matrix), [buffer(n) for n in range(depth + 1)]
        kernel.descend(library, problem, rows, states, order=order)
    else:
        product = problem.b if adj is None else acquire(problem.b)  # not read where a step is no product
        start = problem.activation.apply_(buffer(depth).copy_(problem.b))  # G⁽ᵏ⁾ = φ(B): no sparse product
        descend(lambda n, g: step(problem, n, g, buffer(n), product), start, range(depth))
        if caller_order and adj is not None and adj.order is not None:
            adj.unpermute(buffers[0], out=product)
            buffers[0], product = product, buffers[0]
        if adj is not None:
            release(product)
    return buffers[: min(keep, 1) + 1 if ends else keep + 1]


def run(
    problem: Recursion, depth: int, terms: int, checkpoint: bool, room: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """G⁽⁰⁾ in the caller's node order, and what its gradient needs: G⁽¹⁾ ... G⁽ᵗᵉʳᵐˢ⁾, or the last of them.

    All but G⁽⁰⁾ go to the tensors in ``room``, if it is given. Otherwise the memory of all of them serves later
    solves as soon as nobody refers to it any more.
    """
    collect()
    keep = min(terms, depth)
    ends = checkpoint and keep > 1
    count, needed = (2, 3) if ends else (keep + 1, max(keep, 1) + 1)  # states and buffers
    reserve(count)
    with in_inner_order(problem) as inner:
        buffers = [acquire(problem.b), *(room or ())[: count - 1]]
        buffers += [acquire(problem.b) for _ in range(needed - len(buffers))]
        states = run_pass(inner, depth, keep, buffers, caller_order=True, ends=ends)
    release(*buffers[count:])
    return [release_later(states[0]), *(map(release_later, states[1:]) if room is None else states[1:])]


# ------------------------------------------------------------------------------------------------------- adjoint
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
    when the pass ``repeats`` its last steps, the last of them. ``b`` is read only then, and when φ' does not
    follow from φ(z).
    """
    adj, count, room = given.adj, min(terms, depth), acquire(grad_out)
    library = None if needs[3] else kernel.library_for(given)
    reads_b = repeats or not given.activation.from_output
    with in_inner_order(given) if reads_b else nullcontext(given) as problem:
        if repeats and count <= FEW_TERMS and library is not None and adj.rows is None:
            z_bar = _first_z_bar(problem, memo, None, grad_out, room)
            b_bar, sums = _repeated_adjoint(library, problem, z_bar, kept[0], [room], count, terms)
            return _needed(problem, sums, b_bar, needs)
        repeated = [acquire(grad_out) for _ in range(count - 1)] if repeats else []
        if repeated:  # G⁽ᴺ⁾ is there; walk down to G⁽¹⁾ once more
            descend(lambda n, g: step(problem, n, g, repeated[n - 1], room), kept[0], range(1, count))
        states = [*repeated, *kept]
        z_bar = _first_z_bar(problem, memo, states[0] if depth else None, grad_out, room)
        b_bar = acquire(grad_out)
        sums = _adjoint(library, problem, states, z_bar, room, b_bar, depth, terms, needs[3])
        gradients = _needed(problem, sums, adj.unpermute(b_bar, out=room) if needs[0] else None, needs)
    release(*repeated, *(buffer for buffer in (z_bar, room, b_bar) if buffer is not gradients.b))
    return gradients


def _first_z_bar(
    problem: Problem, memo: Tensor | None, below: Tensor | None, grad_out: Tensor, room: Tensor
) -> Tensor:
    """Z̄⁽⁰⁾ = φ'(Z⁽⁰⁾) ⊙ Ḡ⁽⁰⁾ in the inner node order; ``below`` is G⁽¹⁾."""
    adj, phi, out = problem.adj, problem.activation, acquire(grad_out)
    if phi.from_output:
        assert memo is not None
        if adj.order is None:
            return phi.chain(grad_out.contiguous(), memo, out=out)
        return adj.permute(phi.chain(grad_out.contiguous(), memo, out=room), out=out)
    z = pre_activation(problem, 0, below, None, room)
    return phi.chain(adj.permute(grad_out.contiguous()), z, out=out)


def _sums(problem: Problem, b_bar: Tensor, z_bar: Tensor, with_edges: bool = False) -> Gradients:
    """What the terms add to, with B̄ = Z̄⁽⁰⁾ so far."""
    weight, value_bar = problem.weight.contiguous(), torch.zeros_like(problem.adj.value) if with_edges else None
    return Gradients(b_bar.copy_(z_bar), torch.zeros_like(weight), weight.new_zeros(len(weight)), value_bar)


def _adjoint(
    library: ctypes.CDLL | None,
    problem: Problem,
    states: list[Tensor],
    z_bar: Tensor,
    room: Tensor,
    b_bar: Tensor,
    depth: int,
    terms: int,
    with_edges: bool,
) -> Gradients:
    """All terms; ``states`` are G⁽¹⁾, G⁽²⁾, ... Of a part of a graph, the rest is computed while rows travel."""
    adj, phi, count, free = problem.adj, problem.activation, min(terms, depth), [room]
    sums = _sums(problem, b_bar, z_bar, with_edges)
    rows = adj.rows_t or PartRows.whole(adj.matrix_t)
    if library is not None and adj.rows_t is None:  # the same loop, in C++
        kernel.ascend(library, problem, rows, sums, states[:count], [z_bar, room], terms)
        return sums

    def term(n: int, z: Tensor, below: Tensor) -> Tensor:
        def kept() -> Tensor:
            if phi.from_output:
                return below
            # φ' needs z itself: repeat the step up to φ
            return pre_activation(problem, n + 1, states[n + 1] if n + 1 < depth else None, None, room)

        if library is None:
            return sums.add_term(problem, n, z, below, None if n + 1 == terms else kept, room)
        following = free.pop()
        for halo in rows.halves(z):
            kernel.ascend(library, problem, rows, sums, [below], [z, following], terms, n, halo)
        free.append(z)
        return following

    ascend(term, z_bar, lambda n: states[n - 1], count)
    return sums


def _repeated_adjoint(
    library: ctypes.CDLL,
    problem: Problem,
    z_bar: Tensor,
    farthest: Tensor,
    room: list[Tensor],
    last: int,
    terms: int,
) -> tuple[Tensor, Gradients]:
    """With each state found anew from G⁽ᴺ⁾: four buffers for N(N - 1)/2 steps, whatever N is.

    ``room`` holds the buffers that are free at the moment. Returns B̄ in the caller's node order, and the sums.
    """
    adj = problem.adj
    there, back = PartRows.whole(adj.matrix), PartRows.whole(adj.matrix_t)

    def spare() -> Tensor:
        return room.pop() if room else acquire(farthest)

    def repeat(n: int, g: Tensor) -> Tensor:
        above = spare()
        kernel.descend(library, problem, there, [above, g], n, warm=True)
        if g is not farthest:
            room.append(g)
        return above

    def term(n: int, z: Tensor, below: Tensor) -> Tensor:
        following = spare() if below is farthest else below  # row by row: Z̄ takes the place of a state
        kernel.ascend(library, problem, back, sums, [below], [z, following], terms, n)
        room.append(z)
        return following

    b_bar = spare()
    sums = _sums(problem, b_bar, z_bar)
    z_bar = ascend(term, z_bar, lambda level: descend(repeat, farthest, range(level, last)), last)
    if adj.rank is not None:
        b_bar, z_bar = adj.unpermute(b_bar, out=z_bar), b_bar
    release(z_bar, *room)
    return b_bar, sums


def _needed(problem: Problem, sums: Gradients, b_bar: Tensor | None, needs: Sequence[bool]) -> Gradients:
    """Those that are asked for."""
    eps = sums.eps if sums.eps is None or problem.eps.dim() else sums.eps.sum()
    found = (b_bar, sums.weight, eps, sums.value)
    return Gradients(*(each if needed else None for each, needed in zip(found, needs, strict=True)))
