"""Anderson's acceleration: from the last few steps of an iteration to a better place to go on from."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pprgnn.core.backend.buffers import acquire, release

MEMORY = 5  # pairs that are remembered
WASTE = 0.25  # steps from rejected mixtures, as a part of those from accepted ones; beyond, there are no more


class Anderson:
    r"""Mixtures of the last results of an iteration :math:`x \leftarrow g(x)`.

    The mixture :math:`\sum_i \gamma_i g(x_i)` with :math:`\sum_i \gamma_i = 1` is that with the least
    :math:`\|\sum_i \gamma_i (g(x_i) - x_i)\|` over the last pairs, a little regularised towards the plain step
    :math:`g(x_k)`.

    Whoever uses it compares what a step from the mixture achieves with what is known of plain steps, and tells
    with :meth:`accept` or :meth:`reject`. After too many rejections :attr:`active` is ``False`` and plain steps
    are all that is left, so that it converges whenever they do. It takes ``2 * memory`` states, however many
    steps.

    Args:
        like: A state.
        memory: How many pairs are remembered.
    """

    def __init__(self, like: Tensor, memory: int = MEMORY) -> None:
        self.memory = memory
        self.results, self.residuals = (acquire(like.detach().expand(memory, *like.shape)) for _ in range(2))
        # Of the residuals with one another: a few numbers, wherever the states are.
        self.products = torch.zeros(memory, memory, dtype=torch.float64, device="cpu")
        self.count = 0  # pairs added since the last restart
        self.accepted = self.rejected = 0

    @property
    def active(self) -> bool:
        """Whether mixtures are still worth a try."""
        return self.rejected <= 1 + WASTE * self.accepted

    def add(self, x: Tensor, result: Tensor) -> None:
        """Remember that a step leads from ``x`` to ``result``; both are copied."""
        place, known = self.count % self.memory, min(self.count + 1, self.memory)
        self.results[place].copy_(result)
        residual = torch.sub(result, x, out=self.residuals[place])
        products = (self.residuals[:known].flatten(1) @ residual.flatten()).cpu().double()
        self.products[place, :known] = self.products[:known, place] = products
        self.count += 1

    def mix(self, out: Tensor) -> bool:
        """Write the mixture to ``out``; returns whether it is another one than the plain step."""
        known, last = min(self.count, self.memory), (self.count - 1) % self.memory
        out.copy_(self.results[last])
        others = [place for place in range(known) if place != last]
        if not others:
            return False
        # In differences to the last residual r: |r + Σ θ_i (r_i - r)|² is least. Tiny θ are the plain step.
        cross = self.products[last, last] - self.products[others, last]
        square = self.products[others][:, others] - self.products[last, last] + cross[:, None] + cross[None, :]
        floor = 10 * torch.finfo(out.dtype).eps * float(square.diagonal().max())
        square.diagonal().add_(floor)
        share, failed = torch.linalg.solve_ex(square, cross)
        if int(failed) or not bool(share.isfinite().all()):
            return False
        weights = torch.zeros(known, dtype=torch.float64, device="cpu")
        weights[others], weights[last] = share, 1 - share.sum()
        torch.mv(self.results[:known].flatten(1).t(), weights.to(out), out=out.view(-1))
        return True

    @property
    def residual(self) -> float:
        """‖g(x) - x‖ of the last pair."""
        last = (self.count - 1) % self.memory
        return math.sqrt(self.products[last, last])

    def amplification(self, moved: float) -> float:
        """‖Δx‖ / ‖Δ(g(x) - x)‖ of the last two pairs, given ‖Δx‖: how far a residual tells of an error there."""
        last, before = ((self.count - n) % self.memory for n in (1, 2))
        square = self.products[last, last] + self.products[before, before] - 2 * self.products[last, before]
        return moved / float(square) ** 0.5 if float(square) > 0 else 0.0

    def accept(self) -> None:
        """The mixture was no worse than a plain step would have been."""
        self.accepted += 1

    def reject(self, out: Tensor) -> None:
        """It was: ``out`` becomes the plain step that it took the place of, and memory starts anew."""
        self.rejected += 1
        out.copy_(self.results[(self.count - 1) % self.memory])
        self.count = 0

    def release(self) -> None:
        """Hand the memory over to the next solve."""
        release(self.results, self.residuals)
