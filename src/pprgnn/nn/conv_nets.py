"""Networks of any convolution by name: infinitely deep, or a stack of a few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.nn import MLP, GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, SAGEConv, TransformerConv

from pprgnn.core.activation import Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.depth import DepthRule
from pprgnn.errors import DataError
from pprgnn.nn.features import Dropout
from pprgnn.nn.infinite_depth import InfiniteDepth
from pprgnn.nn.network import GraphHead, Network, check_features

ConvName = Literal["gcn", "gat", "gatv2", "gin", "sage", "graph", "transformer"]
PLAIN = {"gcn": GCNConv, "sage": SAGEConv, "graph": GraphConv}
WITH_HEADS = {"gat": GATConv, "gatv2": GATv2Conv, "transformer": TransformerConv}
WITH_WEIGHTS = ("gcn", "graph")  # read the weights of edges
SUMMING = ("gin", "sage", "graph")  # sum over the neighbours first


def conv_of(name: str, in_channels: int, channels: int, heads: int) -> torch.nn.Module:
    """A convolution of PyG; heads share the width."""
    made: torch.nn.Module
    if name in WITH_HEADS:
        if channels % heads:
            raise ValueError(
                f"The width must be a multiple of the heads, but hidden is {channels} and heads is {heads}; "
                f"change one of them."
            )
        made = WITH_HEADS[name](in_channels, channels // heads, heads=heads)
    elif name == "gin":
        made = GINConv(MLP([in_channels, channels, channels], norm=None))
    elif name in PLAIN:
        made = PLAIN[name](in_channels, channels)
    else:
        raise ValueError(f"conv must be one of {', '.join([*PLAIN, 'gin', *WITH_HEADS])}, but came as {name!r}.")
    return made


class ConvNet(Network):
    """What both kinds have in common: dropout, then layers, then a head."""

    def __init__(
        self,
        layer: Callable[[int], torch.nn.Module],  # for an input of so many channels
        in_channels: int,
        num_classes: int,
        task: str,
        conv: str,
        hidden: int,
        layers: int,
        dropout: float,
        input_dropout: float,
        pooling: str,
    ) -> None:
        super().__init__()
        if task not in ("node", "graph"):
            raise ValueError(f"task must be 'node' or 'graph', but came as {task!r}.")
        if layers < 1:
            raise ValueError(f"layers must be >= 1, but came as {layers}.")
        self.in_channels, self.conv = in_channels, conv
        self.dropout, self.input_dropout = Dropout(dropout), Dropout(input_dropout)
        self.convs = torch.nn.ModuleList(layer(size) for size in [in_channels, *[hidden] * (layers - 1)])
        if task == "graph":
            self.head = GraphHead(hidden, num_classes, pooling=pooling, dropout=dropout)
        else:
            self.head = torch.nn.Linear(hidden, num_classes)

    @property
    def linear_first(self) -> bool:
        """Whether the first layer begins with a linear map, and not with sums over the neighbours."""
        return isinstance(self.convs[0], InfiniteDepth) or self.conv not in SUMMING

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """All layers, one after the other."""
        state = check_features(x, self.in_channels, sparse=self.linear_first)
        if isinstance(edge_index, Adjacency):
            raise DataError(f"{type(self).__name__} needs a plain edge_index, but got a pprgnn.Adjacency.")
        if edge_weight is not None and self.conv not in WITH_WEIGHTS:
            raise DataError(
                f"conv = {self.conv!r} cannot use edge weights, but the graph has some; leave them out or choose "
                f"one of {', '.join(WITH_WEIGHTS)}."
            )
        weights = [] if edge_weight is None else [edge_weight]
        for number, layer in enumerate(self.convs):
            state = layer((self.dropout if number else self.input_dropout)(state), edge_index, *weights)
            state = state if isinstance(layer, InfiniteDepth) else torch.relu(state)
        return state

    @property
    def encode_is_deterministic(self) -> bool:
        return not (self.input_dropout.p > 0 or (self.dropout.p > 0 and len(self.convs) > 1))

    @property
    def adjacency_options(self) -> dict[str, Any] | None:
        """``None``: PyG's convolutions want a plain ``edge_index``."""
        return None

    def slow_parameters(self) -> Iterator[torch.nn.Parameter]:
        for layer in self.convs:
            yield from (layer.conv if isinstance(layer, InfiniteDepth) else layer).parameters()


class InfiniteConvNet(ConvNet):
    """:class:`InfiniteDepth` layers around a convolution by name.

    Args:
        in_channels: Number of features per node.
        num_classes: Number of outputs.
        task: ``"node"`` or ``"graph"``.
        conv: ``"gcn"``, ``"gat"``, ``"gatv2"``, ``"gin"``, ``"sage"``, ``"graph"`` or ``"transformer"``.
        heads: Of those that have heads; they share the width.
        hidden: Width of the states.
        layers: Number of layers, each infinitely deep.
        dropout: Between layers and before the head.
        input_dropout: Of the features.
        pooling: From nodes to graphs.
        eps, learn_eps, activation, depth, max_depth, grad_terms: As in :class:`InfiniteDepth`.

    Example:
        >>> import torch
        >>> net = InfiniteConvNet(16, 7, conv="gat", hidden=32, eps=0.5)
        >>> net(torch.randn(3, 16), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).shape
        torch.Size([3, 7])
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["node", "graph"] = "node",
        *,
        conv: ConvName = "gcn",
        heads: int = 4,
        hidden: int = 64,
        layers: int = 1,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        pooling: str = "sum",
        eps: float | Sequence[float] = 1.0,
        learn_eps: bool | Literal["channel"] = False,
        activation: str | Activation | None = "relu",
        depth: int | DepthRule | None = None,
        max_depth: int = 500,
        grad_terms: int | None = 5,
    ) -> None:

        def layer(size: int) -> torch.nn.Module:
            return InfiniteDepth(
                conv_of(conv, hidden, hidden, heads),
                size,
                channels=hidden,
                eps=eps,
                learn_eps=learn_eps,
                activation=activation,
                depth=depth,
                max_depth=max_depth,
                grad_terms=grad_terms,
            )

        sizes = (hidden, layers, dropout, input_dropout, pooling)
        super().__init__(layer, in_channels, num_classes, task, conv, *sizes)


class ConvStack(ConvNet):
    """A few convolutions with weights of their own, ReLU and dropout: the usual network.

    Args:
        in_channels, num_classes, task, conv, heads, hidden, layers, dropout, input_dropout, pooling: As in
            :class:`InfiniteConvNet`; every layer reaches one hop farther.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["node", "graph"] = "node",
        *,
        conv: ConvName = "gcn",
        heads: int = 4,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        pooling: str = "sum",
    ) -> None:
        sizes = (hidden, layers, dropout, input_dropout, pooling)

        def layer(size: int) -> torch.nn.Module:
            return conv_of(conv, size, hidden, heads)

        super().__init__(layer, in_channels, num_classes, task, conv, *sizes)
