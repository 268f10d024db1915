"""Label propagation: what the labels of training nodes alone tell about all others."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from pprgnn.baselines.baseline import Baseline
from pprgnn.core.adjacency import Adjacency

LEAST = 1e-6  # probabilities are at least so far from 0 and 1


class LabelPropagationNet(Baseline):
    r"""Each node's classes are a mean over the training nodes, weighted by how well they are reached.

    The labels :math:`Y` of training nodes, one row of zeros and ones each, and a column of ones :math:`m` for
    these nodes spread along the edges, from :math:`[F, f] = (1 - \alpha) [Y, m]` on:

    .. math:: [F, f] \leftarrow \alpha \tilde{A} [F, f] + (1 - \alpha) [Y, m]

    The share of class c is :math:`(F_c + \tau p_c) / (f + \tau)`, a number between 0 and 1 on which a threshold
    works: that among the training nodes, :math:`p_c`, where little arrives. Nothing is learned by gradients;
    :class:`pprgnn.training.grid_fit.LabelTraining` chooses α, τ and the normalisation of Ã on the validation
    part.

    Args:
        *shape: As of :class:`Baseline`; ``in_channels`` is ``num_classes + 1``, the labels and the column of ones.
        damping: α; of several, validation chooses.
        prior_weight: τ, in units of the share of nodes that are training nodes; of several, validation chooses.
        spread: How Ã is normalised: ``"sym"``, ``"row"``, or ``"both"``: validation chooses.
        steps: How often labels take a step.
    """

    defaults: ClassVar[dict[str, Any]] = {}
    tasks, only = ("node",), "Label propagation labels nodes: "
    sparse_input = False
    encode_is_deterministic = True
    several: Tensor

    def __init__(
        self,
        *shape: Any,
        damping: float | tuple[float, ...] = (0.5, 0.8, 0.9, 0.95, 0.99),
        prior_weight: float | tuple[float, ...] = (0.01, 0.1, 1.0, 10.0),
        spread: Literal["both", "sym", "row"] = "both",
        steps: int = 30,
    ) -> None:
        super().__init__(*shape)
        several = (damping, prior_weight)
        self.dampings, self.prior_weights = (each if isinstance(each, tuple) else (each,) for each in several)
        if not (all(0 < each < 1 for each in self.dampings) and all(each > 0 for each in self.prior_weights)):
            raise ValueError(
                f"damping must be between 0 and 1 and prior_weight above 0, but came as {damping} and "
                f"{prior_weight}."
            )
        self.steps = steps
        self.spreads: tuple[Literal["sym", "row"], ...] = ("sym", "row") if spread == "both" else (spread,)
        start = torch.tensor([self.dampings[0], self.prior_weights[0], float(self.spreads[0] == "row")])
        self.chosen = torch.nn.Parameter(start, requires_grad=False)  # α, τ, and whether rows are normalised
        self.prior = torch.nn.Parameter(torch.full((self.num_classes,), 1 / self.num_classes), requires_grad=False)
        self.register_buffer("several", torch.tensor(False))  # labels of a node

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        """The labels, spread."""
        damping, given = float(self.chosen[0]), adj.permute(x).detach().contiguous()
        state, spare = given, torch.empty_like(given)
        for step in range(self.steps):
            product = adj.product(state, out=spare).mul_(damping).add_(given)
            state, spare = product, state if step else torch.empty_like(given)
        return adj.unpermute(state * (1 - damping))

    def weights(self, damping: float) -> list[float]:
        """How much labels from 0, 1, ... steps away count in what :meth:`encode` returns."""
        return [(1 - damping) * damping**step for step in range(self.steps + 1)]

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """The logarithms of the shares; with several labels, of their odds."""
        arrived, pull = state[:, self.num_classes, None], self.chosen[1]
        share = (state[:, : self.num_classes] + pull * self.prior) / (arrived + pull)
        share = share.clamp(LEAST, 1 - LEAST)
        return share.logit() if bool(self.several) else share.log()

    @property
    def adjacency_options(self) -> dict[str, Any]:
        """Without self-loops: labels leave."""
        return {"normalize": "row" if float(self.chosen[2]) else "sym", "add_self_loops": False}
