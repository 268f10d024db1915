"""EIGNN: an equilibrium of a linear layer, with weights that contract by construction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pprgnn.baselines.equilibrium_conv import Acceleration, EquilibriumConv


class EIGNNConv(EquilibriumConv):
    r"""The implicit layer of EIGNN; with several hops, of one scale of MGNNI.

    From `"EIGNN: Efficient Infinite-Depth Graph Neural Networks" <https://arxiv.org/abs/2202.10720>`_:

    .. math::
        \mathbf{Z} = \gamma \mathbf{\tilde{A}}^m \mathbf{Z} g(\mathbf{F}) + \mathbf{X} \mathbf{\Omega} +
        \mathbf{b}, \qquad g(\mathbf{F}) = \frac{\mathbf{F}^{\top} \mathbf{F}}{\| \mathbf{F}^{\top} \mathbf{F}
        \|_F}

    It converges for every :math:`\mathbf{F}` because :math:`\gamma < 1`.

    Args:
        in_channels, out_channels: as in :class:`~pprgnn.baselines.equilibrium_conv.EquilibriumConv`.
        gamma: How much of a message survives a step, below 1. (default: :obj:`0.8`)
        hops: How many hops a step makes. (default: :obj:`1`)
        acceleration: as there.
        **kwargs: The other arguments of it; the activation is the identity.

    Example:
        >>> import torch
        >>> conv = EIGNNConv(16, 32)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).shape
        torch.Size([3, 32])
    """

    # PAPER: solves by an eigendecomposition of the whole Ã, which takes n³ steps and n² numbers; repeating the
    # equation leads to the same equilibrium, in time linear in the edges and to the tolerance asked for.

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        *,
        gamma: float = 0.8,
        hops: int = 1,
        acceleration: Acceleration = "anderson",
        **kwargs: Any,
    ) -> None:
        if not 0 < gamma < 1:
            raise ValueError(f"gamma must be between 0 and 1, but came as {gamma}.")
        self.gamma, self.hops = gamma, hops
        options = kwargs | {"activation": "identity"}
        super().__init__(in_channels, out_channels, acceleration=acceleration, **options)

    def recurrent_weight(self) -> Tensor:
        """The weights γ g(F): symmetric, without negative eigenvalues, of norm γ at most."""
        square = self.weight.t() @ self.weight
        contracting: Tensor = square * (self.gamma / (torch.linalg.matrix_norm(square) + 1e-12))
        return contracting

    def _own_repr(self) -> str:
        return f", gamma={self.gamma:g}"
