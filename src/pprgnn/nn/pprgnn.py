"""A stack of infinite-depth layers in the manner of PyG's ``GCN``, ``GIN`` and ``GAT``."""

from __future__ import annotations

from typing import Any, Final

from torch_geometric.nn.models.basic_gnn import BasicGNN

from pprgnn.nn.ppr_conv import PPRConv


class PPRGNN(BasicGNN):  # type: ignore[misc]
    r"""Infinite-depth layers, one after the other, with PyG's usual options in between.

    Args:
        in_channels: Size of each input sample, or :obj:`-1` to derive it from the first input.
        hidden_channels: Size of each hidden sample.
        num_layers: Number of layers, each infinitely deep: one is often enough.
        out_channels: If given, a linear layer of this size follows the last one and its :obj:`act`.
        dropout, act, act_first, act_kwargs, norm, norm_kwargs, jk: as in
            :class:`torch_geometric.nn.models.GCN`.
        **kwargs: Additional arguments of :class:`PPRConv`, such as :obj:`eps` or :obj:`learn_eps`.

    Example:
        >>> import torch
        >>> model = PPRGNN(16, 32, num_layers=2, out_channels=7, eps=0.5, dropout=0.5)
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> model(torch.randn(3, 16), edge_index).shape
        torch.Size([3, 7])
    """

    supports_edge_weight: Final[bool] = True
    supports_edge_attr: Final[bool] = False

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        dropout: float = 0.0,
        *,
        jk: str | None = None,
        **kwargs: Any,
    ) -> None:
        if out_channels is not None and jk is None:
            jk = "last"
        super().__init__(in_channels, hidden_channels, num_layers, out_channels, dropout, jk=jk, **kwargs)

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> PPRConv:
        """One layer of the stack."""
        return PPRConv(in_channels, out_channels, **kwargs)
