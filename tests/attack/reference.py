"""The infinite recursion by other means than the package: dense matrices, and as many bits as it takes.

An answer comes with a proved bound of its own error. It is computed in float64, in 80 bits or in integers (fixed
point), whichever is the first to prove that bound small enough. Nothing here imports the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from mpmath.libmp.libelefun import exp_fixed
from numpy.typing import NDArray

Array = NDArray[Any]
DEEPEST = 20_000
SAFE = 1 + 1e-6  # norms are rounded, too


# ---------------------------------------------------------------------------------------------- activations
@dataclass(frozen=True)
class Phi:
    """φ three times: for arrays of floats, for integers that stand for z·2^bits, and for torch with autograd."""

    plain: Callable[[Array], Array]
    fixed: Callable[[int, int], int]
    torch: Callable[[torch.Tensor], torch.Tensor]
    lipschitz: float = 1.0


def _fixed_leaky(z: int, _: int) -> int:
    top, bottom = (0.01).as_integer_ratio()
    return z if z > 0 else z * top // bottom


def _fixed_tanh(z: int, bits: int) -> int:
    guard = bits + 20
    q = 0 if abs(z) >> bits > guard else exp_fixed(-(abs(z) << 21), guard)  # exp(-2|z|)
    value = (((1 << guard) - q) << bits) // ((1 << guard) + q)
    return value if z > 0 else -value


def _fixed_softsign(z: int, bits: int) -> int:
    value = (abs(z) << bits) // ((1 << bits) + abs(z))
    return value if z > 0 else -value


def _torch_softsign(z: torch.Tensor) -> torch.Tensor:
    return z / (1 + z.abs())


PHIS = {
    "relu": Phi(lambda z: np.maximum(z, 0), lambda z, _: max(z, 0), torch.relu),
    "leaky_relu": Phi(
        lambda z: np.where(z > 0, z, 0.01 * z), _fixed_leaky, lambda z: torch.where(z > 0, z, 0.01 * z)
    ),
    "tanh": Phi(np.tanh, _fixed_tanh, torch.tanh),
    "identity": Phi(lambda z: z, lambda z, _: z, lambda z: z),
    "softsign": Phi(lambda z: z / (1 + np.abs(z)), _fixed_softsign, _torch_softsign),
    "steep": Phi(  # the only one with L > 1
        lambda z: 1.5 * (z / (1 + np.abs(z))),
        lambda z, bits: 3 * _fixed_softsign(z, bits) // 2,
        lambda z: 1.5 * _torch_softsign(z),
        lipschitz=1.5,
    ),
}


# -------------------------------------------------------------------------------------------------- problem
@dataclass(frozen=True)
class Dense:
    """A recursion with all its numbers, exact: G⁽ⁿ⁾ = φ(A G⁽ⁿ⁺¹⁾ W / (1 + n·eps) + B)."""

    b: Array
    weight: Array
    a: Array
    eps: Array  # () or (channels,)
    phi: Phi

    @classmethod
    def of(cls, b: Any, weight: Any, a: Any, eps: Any, phi: str) -> Dense:
        """From tensors of any floating-point type; float64 holds all of them exactly."""
        b, weight, a, eps = (np.asarray(torch.as_tensor(x).detach().double()) for x in (b, weight, a, eps))
        return cls(b, weight, a, eps.reshape(()) if eps.size == 1 else eps, PHIS[phi])

    @cached_property
    def size(self) -> float:
        """‖B‖_F, also where squares would leave the range of float64."""
        largest = float(np.abs(self.b).max(initial=0.0))
        return largest * float(np.linalg.norm(self.b / largest)) if largest else 0.0

    @cached_property
    def log_growth(self) -> Array:
        """log2 of ∏_{i<n} cᵢ for n = 0 ... DEEPEST + 1: what a difference at level n can grow to at the root."""
        rate = self.phi.lipschitz * _norm(self.a) * _norm(self.weight)
        if rate == 0:
            return np.concatenate([[0.0], np.full(DEEPEST + 1, -np.inf)])
        steps = math.log2(rate) - np.log2(1 + np.arange(DEEPEST + 1) * float(self.eps.min()))
        return np.concatenate([[0.0], np.cumsum(steps)])

    @cached_property
    def dies_at(self) -> int:
        """The level whose state no longer reaches the root, because Aᵐ or Wᵐ is zero; DEEPEST if there is none."""
        return min(_nilpotency(self.a), _nilpotency(self.weight))

    def depth(self, accuracy: float) -> int | None:
        """A depth whose distance to the infinite one is proved to be at most ``accuracy``·‖B‖, or None."""
        found = min(self.depth_by_norms(accuracy), self.dies_at)
        return None if found >= DEEPEST else found

    def depth_by_norms(self, accuracy: float) -> int:
        """The same from ‖A‖₂ and ‖W‖₂ alone; DEEPEST if there is none."""
        log, lipschitz = self.log_growth, self.phi.lipschitz
        if log[1] == -math.inf:  # no step carries anything
            return 0
        following = np.exp2(np.diff(log))[1:]  # c_{k+1} for k = 0, 1, ...
        log_error = log[1:-1] + np.log2(lipschitz / np.maximum(1 - following, 1e-300))
        good = np.flatnonzero((following < 0.9) & (log_error <= math.log2(accuracy)))
        return int(good[0]) if len(good) else DEEPEST

    def passes(self, depth: int, dtype: type) -> Iterator[tuple[int, Array]]:
        """Yield (n, G⁽ⁿ⁾) for n = depth ... 0, in ordinary floating-point numbers."""
        b, weight, a, eps = (x.astype(dtype) for x in (self.b, self.weight, self.a, self.eps))
        g = np.zeros_like(b)
        with np.errstate(all="ignore"):
            for n in range(depth, -1, -1):
                g = self.phi.plain((a @ g @ weight) / (1 + n * eps) + b)
                yield n, g


def _norm(matrix: Array) -> float:
    largest = float(np.abs(matrix).max(initial=0.0))
    return largest * float(np.linalg.norm(matrix / largest, 2)) * SAFE if largest else 0.0


def _nilpotency(matrix: Array) -> int:
    """The smallest m such that Mᵐ = 0, whatever the numbers in the place of its entries."""
    there, power = matrix != 0, np.eye(len(matrix), dtype=bool)
    for m in range(len(matrix) + 1):
        if not power.any():
            return m
        power = power @ there
    return DEEPEST


# --------------------------------------------------------------------------------------------------- answer
class Floats:
    """G⁽⁰⁾ at some depth, and how far rounding may have moved it (running error analysis)."""

    def __init__(self, problem: Dense, depth: int, dtype: type) -> None:
        self.size, self.state, error = problem.size, np.zeros_like(problem.b, dtype=dtype), 0.0
        unit, lipschitz = float(np.finfo(dtype).eps), problem.phi.lipschitz
        terms = int((problem.a != 0).sum(1).max(initial=0)) + len(problem.weight) + 8
        strength = _norm(np.abs(problem.a)) * _norm(np.abs(problem.weight))
        rate, eps = lipschitz * _norm(problem.a) * _norm(problem.weight), float(problem.eps.min())
        # Numbers too small for their type: an entry of A g, which W may enlarge, and one of the result.
        small = float(np.finfo(dtype).smallest_subnormal) * terms * math.sqrt(problem.b.size)
        small *= lipschitz * (1 + _norm(np.abs(problem.weight)))
        before = 0.0
        for n, g in problem.passes(depth, dtype):
            beta, norm = 1 / (1 + n * eps), float(_frobenius(g))
            fresh = unit * (lipschitz * terms * (beta * strength * before + problem.size) + 4 * norm) + small
            error, before, self.state = beta * rate * error + fresh * SAFE, norm, g
        self.rounding = error / problem.size if error < math.inf else math.inf

    def error(self, state: Any) -> float:
        """‖state - G⁽⁰⁾‖ / ‖B‖."""
        difference = np.asarray(torch.as_tensor(state).detach().double()).astype(np.longdouble) - self.state
        return float(_frobenius(difference) / self.size)


def _frobenius(x: Array) -> Any:
    wide = x.astype(np.longdouble)
    return np.sqrt((wide * wide).sum())


class Integers:
    """G⁽⁰⁾ at some depth in fixed point, ‖B‖ being about 2^bits: one rounding of one unit per entry and step."""

    def __init__(self, problem: Dense, depth: int, bits: int) -> None:
        self.shift = max(bits - math.frexp(problem.size)[1], 64)
        b = _scaled(problem.b, self.shift)
        weight, weight_at = _exact(problem.weight)
        a, a_at = _exact(problem.a)
        eps, eps_at = _exact(problem.eps.reshape(-1))
        eps, one = eps << max(eps_at, 0), 1 << max(-eps_at, 0)
        at = a_at + weight_at
        phi = np.frompyfunc(lambda z: problem.phi.fixed(z, self.shift), 1, 1)
        g = b * 0
        self.size = math.isqrt(int((b * b).sum()))
        scale, divide = one << max(at, 0), 1 << max(-at, 0)
        for n in range(depth, -1, -1):
            g = phi(((a @ g) @ weight) * scale // ((one + n * eps) * divide) + b)
        self.state = g

    def error(self, state: Any) -> float:
        """‖state - G⁽⁰⁾‖ / ‖B‖."""
        values = np.asarray(torch.as_tensor(state).detach().double())
        if not np.isfinite(values).all():
            return math.inf
        difference = _scaled(values, self.shift) - self.state
        return _ratio(math.isqrt(int((difference * difference).sum())), self.size)


def _exact(x: Array) -> tuple[Array, int]:
    """Integers and one exponent that give x exactly."""
    mantissa, exponent = np.frexp(x)
    lowest = int(exponent[x != 0].min(initial=0)) - 53
    whole = (mantissa * 2.0**53).astype(np.int64).astype(object)
    return whole << np.maximum(exponent - 53 - lowest, 0).astype(object), lowest


def _scaled(x: Array, shift: int) -> Array:
    whole, at = _exact(x)
    return whole << (at + shift) if at + shift >= 0 else whole >> -(at + shift)


def _ratio(top: int, bottom: int) -> float:
    if top.bit_length() - bottom.bit_length() > 1000:
        return math.inf
    more = max(0, 80 + bottom.bit_length() - top.bit_length())
    return math.ldexp(float((top << more) // bottom), -more)


@dataclass(frozen=True)
class Answer:
    """G⁽⁰⁾ of the infinite recursion up to ``accuracy``·‖B‖, proved."""

    problem: Dense
    found: Floats | Integers
    accuracy: float
    depth: int

    def error(self, state: Any) -> float:
        """At most so far is the state from the truth, relative to ‖B‖, but for ``accuracy``."""
        return self.found.error(state)


def answer(problem: Dense, accuracy: float, seconds: float = 2.0) -> Answer | None:
    """The infinite answer, or None where it takes too many steps or bits."""
    depth = problem.depth(accuracy / 4)
    return None if depth is None else finite(problem, depth, accuracy, seconds, accuracy / 4)


def finite(
    problem: Dense, depth: int, accuracy: float, seconds: float = 2.0, truncation: float = 0.0
) -> Answer | None:
    """The answer at this depth, in the cheapest arithmetic that proves it."""
    for dtype in (np.float64, np.longdouble):
        found = Floats(problem, depth, dtype)
        if found.rounding <= accuracy / 2:
            return Answer(problem, found, found.rounding + truncation, depth)
    nodes, channels = problem.b.shape
    growth = problem.log_growth[: depth + 1].max() + math.log2(depth + 1)
    bits = math.ceil(max(growth, 0) + math.log2((problem.phi.lipschitz + 4) * nodes * channels / accuracy)) + 8
    work = nodes * channels * (nodes + channels) * (60e-9 + 1e-12 * bits**1.6)
    if (depth + 1) * (work + nodes * channels * 8e-6) > seconds:
        return None
    return Answer(problem, Integers(problem, depth, bits), accuracy / 2 + truncation, depth)


# ------------------------------------------------------------------------------------- other things to check
def adjacency(
    edges: torch.Tensor, edge_weight: torch.Tensor | None, num_nodes: int, normalize: str | None, self_loops: bool
) -> torch.Tensor:
    """Entry (i, j) is the weight of the edges j -> i, in float64, normalised as the documentation says."""
    source, target = edges.long()
    weight = torch.ones(len(source)) if edge_weight is None else edge_weight
    a = torch.zeros(num_nodes, num_nodes, dtype=torch.float64)
    a = a.index_put((target, source), weight.double(), accumulate=True)
    if self_loops:
        lonely = torch.ones(num_nodes, dtype=torch.float64)
        lonely[source[source == target]] = 0
        a = a + torch.diag(lonely)
    degree = a.sum(1)
    safe = torch.where(degree > 0, degree, 1)
    if normalize == "row":
        return torch.where(degree > 0, 1 / safe, 0)[:, None] * a
    if normalize == "sym":
        scale = torch.where(degree > 0, safe**-0.5, 0)
        return scale[:, None] * a * scale
    return a


def unrolled(
    b: torch.Tensor,
    weight: torch.Tensor,
    a: torch.Tensor,
    eps: torch.Tensor,
    phi: str,
    depth: int,
    terms: int | None = None,
) -> torch.Tensor:
    """G⁽⁰⁾ with plain autograd through the last ``terms`` levels, or through all."""
    g = torch.zeros_like(b)
    for n in range(depth, -1, -1):
        if terms is not None and n == terms - 1:
            g = g.detach()
        g = PHIS[phi].torch((a @ g @ weight) / (1 + n * eps) + b)
    return g
