"""Networks to put together: infinite-depth layers with the usual options, for nodes and for graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pprgnn.core.activation import Activation, resolve_activation
from pprgnn.errors import DataError
from pprgnn.nn.features import Dropout
from pprgnn.nn.linear_output import AS_PUBLISHED
from pprgnn.nn.network import GraphHead, Network, check_features, learned_rows, start_small
from pprgnn.nn.ppr_conv import PPRConv

NORMS = ("batch", "layer", "graph", "pair")
JUMPS = (None, "last", "cat", "max")


class StackedNet(Network):
    """The message passing of :class:`NodeNet` and :class:`GraphNet`; they add the head.

    Args:
        in_channels: Number of features per node, or ``None`` with ``num_nodes``.
        num_classes: Number of outputs.
        hidden: Width of every layer.
        layers: Number of infinite-depth layers.
        activation: as in :class:`PPRConv`.
        norm: ``"batch"``, ``"layer"`` (each node by itself), ``"graph"`` or ``"pair"`` (over all nodes) after each
            layer.
        input_dropout: Dropout of the features.
        dropout: Dropout between layers and in the head.
        residual: Add the input of each layer to its output, through a linear map where the widths differ.
        jk: What the head sees: the ``"last"`` layer, all side by side (``"cat"``) or their maximum (``"max"``).
        num_nodes: Learn a row for each of so many nodes instead of reading features.
        input_layer: Put a linear layer with the activation before the first infinite-depth layer.
        layer: The class of the infinite-depth layer, such as :class:`pprgnn.baselines.ignn.IGNNConv`.
        eps, learn_eps, depth, tol, max_depth, grad_terms, checkpoint: as in :class:`PPRConv`, but ``eps`` is 0.25.
        smooth_input, add_self_loops, normalize, bias: as in :class:`PPRConv`.
        weight_init: How W starts: ``"glorot"``, ``"identity"``, with which a layer starts as personalised PageRank
            and needs few labels, or a number ``w`` for w·I: from 2.0 messages fade later.
        **conv: Further options of the layer.
    """

    def __init__(
        self,
        in_channels: int | None,
        num_classes: int,
        *,
        hidden: int = 64,
        layers: int = 1,
        activation: str | Activation | None = "relu",
        norm: str | None = None,
        input_dropout: float = 0.0,
        dropout: float = 0.5,
        residual: bool = False,
        jk: str | None = None,
        num_nodes: int | None = None,
        input_layer: bool = False,
        layer: Callable[..., PPRConv] = PPRConv,
        **conv: Any,
    ) -> None:
        super().__init__()
        _check(in_channels, num_nodes, layers, norm, jk)
        self.in_channels, self.num_nodes, self.num_classes = in_channels, num_nodes, num_classes
        self.hidden, self.norm, self.residual, self.jk = hidden, norm, residual, jk
        self.separable = norm != "graph"
        self.activation = resolve_activation(activation)
        self.input_dropout = Dropout(input_dropout)
        self.dropout = Dropout(dropout)
        self.embedding = None if num_nodes is None else torch.nn.Embedding(num_nodes, hidden)
        width = hidden if in_channels is None else in_channels
        self.input_layer = torch.nn.Linear(width, hidden) if input_layer else None
        # A learned row is a linear map of the one-hot identity: a second map right behind it would add nothing.
        first = None if in_channels is None and not input_layer else hidden if input_layer else in_channels
        own = {"eps": 0.25, "weight_init": "glorot", "max_depth": 500, **conv, "activation": self.activation}
        options: dict[str, Any] = AS_PUBLISHED | own
        sizes = [first] + [hidden] * (layers - 1)
        self.convs = torch.nn.ModuleList(layer(size, hidden, **options) for size in sizes)
        self.norms = torch.nn.ModuleList(norm_layer(norm, hidden) for _ in sizes)
        self.skips = torch.nn.ModuleList(
            torch.nn.Identity() if size in (None, hidden) else torch.nn.Linear(size, hidden, bias=False)
            for size in (sizes if residual else [])
        )

        if self.embedding is not None:
            start_small(self.embedding.weight)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.embedding is not None:
            start_small(self.embedding.weight)

    @property
    def state_channels(self) -> int:
        """Width of what :meth:`encode` returns."""
        return self.hidden * (len(self.convs) if self.jk == "cat" else 1)

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """All layers, one after the other."""
        state = self.input_dropout(self._input(x, edge_index))
        if self.input_layer is not None:
            state = self.activation.function(self.input_layer(state))
        states: list[Tensor] = []
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            first = i == 0 and self.input_layer is None  # has had its own dropout
            out = norm(conv(state if first else self.dropout(state), edge_index, edge_weight))
            state = out + self.skips[i](state) if self.residual else out
            states.append(state)
        if self.jk == "cat":
            return torch.cat(states, dim=1)
        return torch.stack(states).amax(0) if self.jk == "max" else state

    def _input(self, x: Tensor | None, edge_index: Any) -> Tensor:
        if self.embedding is None:
            assert self.in_channels is not None
            # A residual connection of the same width would add the features themselves.
            sparse = not self.residual or self.in_channels != self.hidden
            return check_features(x, self.in_channels, sparse=sparse)
        assert self.num_nodes is not None
        return learned_rows(self.embedding.weight, x, edge_index, self.num_nodes)

    @property
    def encode_is_deterministic(self) -> bool:
        """Whether no layer has dropout before it or batch norm behind it."""
        inner_dropout = self.dropout.p > 0 and (len(self.convs) > 1 or self.input_layer is not None)
        return not (self.input_dropout.p > 0 or inner_dropout or self.norm == "batch")


class NodeNet(StackedNet):
    """Infinite-depth layers, dropout and a linear layer: logits for every node. Options: :class:`StackedNet`.

    Example:
        >>> import torch
        >>> net = NodeNet(16, 7, hidden=32, eps=(1.0, 0.25, 0.06))
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> net(torch.randn(3, 16), edge_index).shape
        torch.Size([3, 7])
    """

    def __init__(self, in_channels: int | None, num_classes: int, **options: Any) -> None:
        super().__init__(in_channels, num_classes, **options)
        self.head = torch.nn.Linear(self.state_channels, num_classes)


class GraphNet(StackedNet):
    """Infinite-depth layers, pooling and linear layers: logits for every graph.

    Args:
        pooling: ``"sum"``, ``"mean"``, ``"max"`` or another of PyG's aggregations by name.
        head_layers: Number of linear layers after the pooling, with ReLU and dropout between them.
        **options: as in :class:`StackedNet`.
    """

    def __init__(
        self, in_channels: int, num_classes: int, *, pooling: str = "sum", head_layers: int = 2, **options: Any
    ) -> None:
        if options.get("num_nodes") is not None:
            raise ValueError("A network for graphs must read features, but got num_nodes; train with features.")
        if options.get("norm") in ("graph", "pair"):
            raise ValueError(
                f"norm={options['norm']!r} would mix the graphs of a batch; use 'batch' or 'layer' for graphs."
            )
        super().__init__(in_channels, num_classes, **options)
        self.head = GraphHead(
            self.state_channels, num_classes, pooling=pooling, layers=head_layers, dropout=self.dropout.p
        )


def _check(in_channels: int | None, num_nodes: int | None, layers: int, norm: str | None, jk: str | None) -> None:
    if (in_channels is None) == (num_nodes is None):
        raise DataError(
            f"A network either reads features (in_channels) or learns a row for each node (num_nodes), but got "
            f"in_channels={in_channels} and num_nodes={num_nodes}; give one of them."
        )
    if layers < 1:
        raise ValueError(f"layers must be >= 1, but came as {layers}.")
    if norm is not None and norm not in NORMS:
        raise ValueError(f"norm must be one of {', '.join(NORMS)} or None, but came as {norm!r}.")
    if jk not in JUMPS:
        raise ValueError(f"jk must be 'last', 'cat', 'max' or None, but came as {jk!r}.")


def norm_layer(norm: str | None, channels: int) -> torch.nn.Module:
    """A normalisation by its name; ``None``: none."""
    from torch_geometric.nn.norm import GraphNorm, PairNorm

    if norm is None:
        return torch.nn.Identity()
    kinds: dict[str, Any] = {"batch": torch.nn.BatchNorm1d, "layer": torch.nn.LayerNorm, "graph": GraphNorm}
    layer: torch.nn.Module = PairNorm() if norm == "pair" else kinds[norm](channels)
    return layer


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
