"""A network that reads labels: spread over the graph by an infinite-depth layer, weighed by a small head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pprgnn.nn.linear_output import AS_PUBLISHED
from pprgnn.nn.network import Network, check_features
from pprgnn.nn.ppr_conv import PPRConv, WeightInit

LEAST_SHARE, LEAST_SUM = 1e-2, 1e-6  # what a logarithm takes for nothing


class LabelNet(Network):
    r"""Known labels of some nodes in, logits of all nodes out; it starts as label propagation.

    The input has a column for each class, and one that tells who has a label at all. All of them spread alike;
    what arrives of a class, beside what arrives of that last column, is its share. With :math:`\mathbf{s}` the
    logarithms of the shares and :math:`t` that of the last column, the logits are :math:`a \mathbf{s} +
    f(\mathbf{s}, t)`, at first with :math:`a = 1` and :math:`f = 0`: a perceptron whose last layer starts at 0.
    What spreads should stay positive: use ReLU.

    Args:
        in_channels: ``num_classes + 1``.
        num_classes: Number of outputs.
        hidden: Width of the perceptron.
        dropout: In the perceptron.
        weight_init: How W starts: a number ``w`` stands for w·I, ``"identity"`` for 1.
        layer: The class of the infinite-depth layer.
        **conv: Options of it, such as ``eps``.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        hidden: int = 64,
        dropout: float = 0.0,
        *,
        weight_init: WeightInit = "identity",
        layer: Callable[..., PPRConv] = PPRConv,
        **conv: Any,
    ) -> None:
        super().__init__()
        if in_channels != num_classes + 1:
            raise ValueError(
                f"This network reads a column for each of {num_classes} classes and one more, but in_channels is "
                f"{in_channels}; give it labels alone (data.features = 'labels')."
            )
        self.in_channels, self.num_classes = in_channels, num_classes
        self.conv = layer(None, in_channels, weight_init=weight_init, **(AS_PUBLISHED | {"bias": False} | conv))
        self.scale = torch.nn.Parameter(torch.empty(()))
        self.norm = torch.nn.LayerNorm(in_channels)
        self.lin = torch.nn.Linear(in_channels, hidden)
        self.dropout = torch.nn.Dropout(dropout)
        self.out = torch.nn.Linear(hidden, num_classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        super().reset_parameters()
        torch.nn.init.ones_(self.scale)
        torch.nn.init.zeros_(self.out.weight)
        torch.nn.init.zeros_(self.out.bias)

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """The labels, spread."""
        state: Tensor = self.conv(check_features(x, self.in_channels), edge_index, edge_weight)
        return state

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """The head, row by row."""
        amounts = state.clamp(min=0.0)
        total = amounts[:, -1:] + LEAST_SUM
        shares = (amounts[:, :-1] / total + LEAST_SHARE).log()
        seen = self.norm(torch.cat([shares, total.log()], dim=1))
        correction: Tensor = self.out(self.dropout(self.lin(seen).relu()))
        return self.scale * shares + correction

    @property
    def encode_is_deterministic(self) -> bool:
        """Dropout comes after the messages."""
        return True
