"""PairNorm: a GCN whose states are kept apart."""

from __future__ import annotations

from typing import Literal

import torch
from torch_geometric.nn import PairNorm

from pprgnn.baselines.gcn import GCNNet


class PairNormNet(GCNNet):
    r"""A GCN with PairNorm between each layer and its ReLU, so that states cannot become alike.

    .. math::
        \mathbf{x}^\prime_i = s \frac{\mathbf{x}_i - \bar{\mathbf{x}}}{\sqrt{\frac{1}{n} \sum_j \Vert \mathbf{x}_j
        - \bar{\mathbf{x}} \Vert^2}}

    The mean is that of all nodes of a pass, so graphs that share a pass would change each other: it is for nodes.

    Args:
        scale: :math:`s`; the sum of the squared distances of all pairs is :math:`2 n^2 s^2`.
        individually: Scale each row to the length :math:`s` instead: PN-SI, which the paper uses with GCN.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["node"] = "node",
        *,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.6,
        scale: float = 1.0,
        individually: bool = True,
    ) -> None:
        if task != "node":
            raise ValueError(
                f"PairNorm is for node tasks, because it mixes the graphs of a pass; task is {task!r}."
            )
        super().__init__(in_channels, num_classes, hidden=hidden, layers=layers, dropout=dropout)
        self.norms = torch.nn.ModuleList(PairNorm(scale, individually) for _ in range(self.hidden_layers))
