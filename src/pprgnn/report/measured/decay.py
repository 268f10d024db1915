"""How much of a message is left after some hops: analytic, from rates and norms alone."""

from __future__ import annotations

import sys
from itertools import accumulate
from operator import mul

from pprgnn.report.measured.budget import Allowance
from pprgnn.report.measured.results import Decay, Missing
from pprgnn.report.measured.solves import Solve
from pprgnn.report.measured.trained_run import TrainedRun
from pprgnn.training.model import largest_norm

LITTLE, FARTHEST = 1e-4, 100
ALPHAS = (0.1, 0.2)


def decay(trained: TrainedRun, allowance: Allowance) -> list[Decay] | Missing:
    """For each layer, the products of its decay."""
    return [layer_decay(solve) for solve in trained.solves] or trained.without_recursion()


def layer_decay(solve: Solve) -> Decay:
    """Of one layer."""
    rates = solve.given.eps.flatten().double()
    low, middle, high = float(rates.min()), float(rates.median()), float(rates.max())
    slowest = _products(low, 1.0, FARTHEST)
    last = next((n for n, left in enumerate(slowest) if left <= LITTLE), FARTHEST)
    return Decay(
        layer=solve.name,
        eps=(low, middle, high),
        hops=list(range(last + 1)),
        ours=(slowest[: last + 1], _products(middle, 1.0, last), _products(high, 1.0, last)),
        with_weight=_products(low, largest_norm(solve.layer), last),
        appnp={f"{alpha:g}": [(1 - alpha) ** n for n in range(last + 1)] for alpha in ALPHAS},
    )


def _products(eps: float, strength: float, hops: int) -> list[float]:
    """∏ of strength · βᵢ over the first n hops, for n = 0 ... hops; the first hop has β₀ = 1."""
    products = accumulate((strength / (1 + i * eps) for i in range(hops)), mul, initial=1.0)
    return [min(each, sys.float_info.max) for each in products]
