"""What is known about the steps of a recursion, and what follows for the error of k of them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class StepBounds:
    """cₙ = βₙ · rate and what is built from it (sections 2 and 5 of the method). Errors are relative to ‖B‖.

    Args:
        rate: by how much a step without its decay enlarges a difference at most: L ‖Ã‖₂ ‖W‖₂. Infinite: unknown.
        eps: the slowest decay.
        lipschitz: L, the constant of φ.
        offset: ‖f(0)‖ / ‖B‖ for steps φ(βₙ f(G) + B); 0 where f is linear.
        absolute_rate: the same as ``rate`` for the absolute values: L ‖|Ã|‖₂ ‖|W|‖₂. Infinite: unknown.
        sum_length: how many rounded operations make up an entry of a step, at most.
        underflow: what numbers too small for their type can add to the error of a step.
    """

    rate: float
    eps: float
    lipschitz: float
    offset: float = 0.0
    absolute_rate: float = math.inf
    sum_length: int = 0
    underflow: float = 0.0

    def decay(self, n: int) -> float:
        """βₙ."""
        return 1 / (1 + n * self.eps)

    def step(self, n: int) -> float:
        """cₙ."""
        return self.rate * self.decay(n)

    def error(self, depth: int) -> float:
        """certificate(depth) = (∏_{n<depth} cₙ) · ‖G⁽ᵏ⁾ - φ(B)‖ / ‖B‖ at most; infinite while c >= 1."""
        return self._error(sum(self._log_step(n) for n in range(depth)), depth)

    def depth(self, tol: float, max_depth: int, levels: int = 0) -> int | None:
        """The smallest depth that certifies G⁽⁰⁾ ... G⁽ˡᵉᵛᵉˡˢ⁾ to ``tol``, or ``None`` beyond ``max_depth``.

        G⁽ⁿ⁾ lacks the factors c₀ ... cₙ₋₁. The cₙ fall, so of all levels the first or the last is the worst.
        """
        if not self.rate < math.inf:
            return None
        if self.rate == 0:
            return levels + (self.offset > 0)
        last_level = -min(0.0, sum(self._log_step(n) for n in range(levels)))
        log_product = 0.0
        for k in range(max(max_depth, levels) + 1):
            if k >= levels and self._error(log_product + last_level, k) <= tol:
                return k
            log_product += self._log_step(k)
        return None

    def _log_step(self, n: int) -> float:
        step = self.step(n)
        return math.log(step) if step > 0 else -math.inf

    def _error(self, log_product: float, depth: int) -> float:
        """The product times a bound of ‖G⁽ᵏ⁾ - φ(B)‖ <= L βₖ (‖f(0)‖ + Lip(f) ‖G⁽ᵏ⁺¹⁾‖)."""
        following = self.step(depth + 1)
        if not following < 1 or log_product > 700:
            return math.inf
        size = self.lipschitz * (1 + self.decay(depth + 1) * self.offset) / (1 - following)  # of G⁽ᵏ⁺¹⁾
        return math.exp(log_product) * (self.lipschitz * self.decay(depth) * self.offset + self.step(depth) * size)
