"""The reference is right, too: against the same loop in mpmath, and its own bounds against more bits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from . import reference
from .problems import draw

MP = {
    "relu": lambda z: max(z, mpmath.mpf(0)),
    "leaky_relu": lambda z: z if z > 0 else mpmath.mpf(0.01) * z,
    "tanh": mpmath.tanh,
    "identity": lambda z: z,
    "softsign": lambda z: z / (1 + abs(z)),
    "steep": lambda z: mpmath.mpf(1.5) * z / (1 + abs(z)),
}


def by_mpmath(problem: reference.Dense, phi: str, depth: int) -> mpmath.matrix:
    a, b, weight = (mpmath.matrix(x.tolist()) for x in (problem.a, problem.b, problem.weight))
    eps = np.broadcast_to(problem.eps, problem.b.shape[1]).tolist()
    g = b * 0
    for n in range(depth, -1, -1):
        z = a * g * weight
        g = mpmath.matrix(
            [
                [MP[phi](z[i, j] / (1 + n * mpmath.mpf(eps[j])) + b[i, j]) for j in range(b.cols)]
                for i in range(b.rows)
            ]
        )
    return g


def problem(phi: str, seed: int = 0, weight: float = -4.0) -> reference.Dense:
    rng = np.random.default_rng(seed)
    a = rng.random((4, 4)) * (rng.random((4, 4)) < 0.6)
    b, turn = rng.standard_normal((4, 3)), 0.1 * rng.standard_normal((3, 3))
    return reference.Dense.of(b, weight * np.eye(3) + turn, a, np.array([0.1, 0.25, 0.3]), phi)


@pytest.mark.parametrize("phi", MP)
def test_mpmath_says_the_same(phi):
    with mpmath.workdps(70):
        wanted = by_mpmath(problem(phi), phi, 300)
        answer = reference.answer(problem(phi), 1e-25)
        assert answer.depth < 300
        found = [
            [mpmath.mpf(int(x)) / mpmath.mpf(2) ** answer.found.shift for x in row] for row in answer.found.state
        ]
        distance = mpmath.mnorm(mpmath.matrix(found) - wanted, "f")
        assert distance <= 1e-25 * problem(phi).size
        assert answer.accuracy <= 1e-25


@pytest.mark.parametrize("dtype", [np.float64, np.longdouble])
def test_its_own_bounds_hold(dtype):
    tried = 0
    for seed in range(120):
        attack = draw(seed)
        dense = attack.dense(attack.adjacency())
        depth = dense.depth(1e-6)
        if depth is None or depth > 300 or not dense.size:
            continue
        rough = reference.Floats(dense, depth, dtype)
        if (
            rough.rounding < 1e-3
            and (fine := reference.finite(dense, depth, 1e-6 * rough.rounding, 0.2)) is not None
        ):
            tried += 1
            rounded = rough.state.astype(np.float64)
            extra = float(np.abs(rounded).max(initial=0)) * 2e-16 * rounded.size / dense.size
            assert fine.error(rounded) <= rough.rounding + fine.accuracy + extra, f"seed {seed}"
    assert tried > 30
