"""MGNNI: equilibria that hop one, two, ... steps at a time, side by side."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import zeros

from pprgnn.baselines.eignn import EIGNNConv
from pprgnn.baselines.equilibrium_conv import Acceleration

ATTENTION_CHANNELS = 16


class MGNNIConv(torch.nn.Module):
    r"""The multiscale implicit layer of MGNNI.

    From `"MGNNI: Multiscale Graph Neural Networks with Implicit Layers" <https://arxiv.org/abs/2210.08353>`_: for
    each scale m an equilibrium as in :class:`~pprgnn.baselines.eignn.EIGNNConv` that makes m hops in a step, all
    of the same input, and an attention over the scales for each node.

    Args:
        in_channels, out_channels: as in :class:`pprgnn.nn.PPRConv`.
        scales: Scales 1, 2, ... up to this one. (default: :obj:`2`)
        gamma: How much of a message survives a step, below 1. (default: :obj:`0.8`)
        bias: Whether to learn an additive bias. (default: :obj:`True`)
        acceleration: as in :class:`~pprgnn.baselines.equilibrium_conv.EquilibriumConv`.
        **kwargs: as in :class:`~pprgnn.baselines.equilibrium_conv.EquilibriumConv`.

    Example:
        >>> import torch
        >>> conv = MGNNIConv(16, 32)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).shape
        torch.Size([3, 32])
    """

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        *,
        scales: int = 2,
        gamma: float = 0.8,
        bias: bool = True,
        acceleration: Acceleration = "anderson",
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if scales < 1:
            raise ValueError(f"scales must be >= 1, but came as {scales}.")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.lin: torch.nn.Module = torch.nn.Identity()
        if in_channels is not None:
            self.lin = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.bias = torch.nn.Parameter(torch.zeros(out_channels)) if bias else None
        options = {"gamma": gamma, "bias": False, "acceleration": acceleration} | kwargs
        self.scales = torch.nn.ModuleList(
            EIGNNConv(None, out_channels, hops=hops, **options) for hops in range(1, scales + 1)
        )
        self.attention = torch.nn.Sequential(
            torch.nn.Linear(out_channels, ATTENTION_CHANNELS),
            torch.nn.Tanh(),
            torch.nn.Linear(ATTENTION_CHANNELS, 1, bias=False),
        )

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        for part in (self.lin, *self.scales, self.attention[0], self.attention[2]):
            if not isinstance(part, torch.nn.Identity):
                part.reset_parameters()
        zeros(self.bias)

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Node features in, node features out."""
        b = self.lin(x) if self.bias is None else self.lin(x) + self.bias
        states = torch.stack([scale(b, edge_index, edge_weight) for scale in self.scales], dim=1)  # (n, scales, d)
        shares = self.attention(states).softmax(dim=1)  # (n, scales, 1)
        mixed: Tensor = (shares * states).sum(dim=1)
        return mixed
