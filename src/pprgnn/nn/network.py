"""What every network here has in common: message passing first (``encode``), then the head (``decode``)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.resolver import aggregation_resolver

from pprgnn.core.adjacency import Adjacency
from pprgnn.data.sparse_features import to_dense
from pprgnn.errors import DataError
from pprgnn.nn.features import Dropout
from pprgnn.nn.ppr_conv import PPRConv
from pprgnn.nn.through_adjacency import SolvingAdjacency

SMALL = 1e-3  # beside the usual size of rows


def ppr_layers(module: torch.nn.Module) -> list[tuple[str, PPRConv]]:
    """Every :class:`PPRConv` in ``module`` with its name, in the order of the module."""
    return [(name, layer) for name, layer in module.named_modules() if isinstance(layer, PPRConv)]


class Network(torch.nn.Module):
    """A network that can be trained: ``forward`` is ``decode(encode(...))``.

    All message passing happens in :meth:`encode`. Where :attr:`encode_is_deterministic`, its result can be shared
    by a training step and an evaluation with the same weights. On node tasks :meth:`decode` treats rows one by
    one, so that it may be given some rows only.

    Attributes:
        num_nodes: The number of nodes when the network holds a learned row for each (``x`` is then ``None``).
        separable: Whether the rows of a graph do not depend, to within the tolerance, on other graphs of the pass.
    """

    num_nodes: int | None = None
    separable: bool = False
    head: Any
    dropout: Any

    @abstractmethod
    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """All message passing: one row per node."""

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """The head: rows of logits, one per node or one per graph. By default ``self.head``, after dropout."""
        for_graphs = isinstance(self.head, GraphHead)  # which has dropout of its own
        logits: Tensor = self.head(state, batch, num_graphs) if for_graphs else self.head(self.dropout(state))
        return logits

    def forward(
        self,
        x: Tensor | None,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        num_graphs: int | None = None,
    ) -> Tensor:
        """Logits of every node, or of every graph of a batch."""
        return self.decode(self.encode(x, edge_index, edge_weight), batch, num_graphs)

    @property
    @abstractmethod
    def encode_is_deterministic(self) -> bool:
        """Whether :meth:`encode` has neither dropout nor batch norm: it then is the same in training.

        The same to within ``tol``, that is, because the depth found last may differ by a little.
        """

    @property
    def adjacency_options(self) -> dict[str, Any] | None:
        """How to build the :class:`pprgnn.Adjacency` for :meth:`encode`; ``None``: it wants an ``edge_index``."""
        layers = ppr_layers(self)
        if not layers:
            return None
        conv = layers[0][1]
        return {"normalize": conv.normalization, "add_self_loops": conv.add_self_loops}

    def slow_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Those that ``training.recursion_lr`` and ``recursion_weight_decay`` are for: W of the recursions."""
        return (layer.weight for _, layer in ppr_layers(self))

    def row_parameters(self) -> list[str]:
        """Names of the parameters with a row for each node."""
        return [] if self.num_nodes is None else ["embedding.weight"]

    def set_rows(self, rows: Tensor) -> None:
        """Put other learned rows in the place of those that are there: of some nodes, or of all again."""
        assert isinstance(self.embedding, torch.nn.Embedding)
        self.embedding.weight = torch.nn.Parameter(rows)
        self.num_nodes = self.embedding.num_embeddings = len(rows)

    def output_bias(self, num_classes: int) -> torch.nn.Parameter | None:
        """What is added to every row of logits: the last layer's bias, if it has an entry for each class."""
        for module in (getattr(self, "head", None), self):
            layers = [] if module is None else [each for each in module.modules() if not is_norm(each)]
            own = [bias for each in layers if isinstance(bias := getattr(each, "bias", None), torch.nn.Parameter)]
            if own:
                return own[-1] if own[-1].shape == (num_classes,) else None
        return None

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for child in self.children():
            _reset(child)


def is_norm(module: torch.nn.Module) -> bool:
    """Whether it normalises states, as torch's and PyG's BatchNorm and LayerNorm do."""
    return "Norm" in type(module).__name__


def _reset(module: torch.nn.Module) -> None:
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        reset()
    else:
        for child in module.children():
            _reset(child)


def check_features(x: Tensor | None, in_channels: int, *, sparse: bool = False) -> Tensor:
    """Return ``x`` if it has ``in_channels`` columns, or say what is wrong.

    It becomes dense, unless ``sparse`` says that the network does no more with it than dropout and a linear layer.
    """
    if x is None:
        raise DataError(
            f"This network reads {in_channels} features per node, but got none (x is None); give the nodes "
            f"features, or build the network with num_nodes to learn a row for each node."
        )
    if x.dim() != 2 or x.size(1) != in_channels:
        raise DataError(
            f"This network reads {in_channels} features per node, but x has shape {tuple(x.shape)}; use the data "
            f"it was made for, or build it with in_channels={x.size(-1)}."
        )
    return x if sparse and x.layout == torch.sparse_csr and not x.requires_grad else to_dense(x)


def check_nodes(x: Tensor | None, edge_index: Any, num_nodes: int) -> None:
    """Raise unless a network with a learned row for each of ``num_nodes`` nodes can be used here."""
    if x is not None:
        raise DataError(
            f"This network has a learned row for each of {num_nodes} nodes instead of features, but x has shape "
            f"{tuple(x.shape)}; pass x=None, or train with features."
        )
    if isinstance(edge_index, Adjacency):
        found = edge_index.num_nodes
    elif (
        isinstance(edge_index, Tensor) and edge_index.layout == torch.strided
    ):  # which nodes have no edge, an edge_index cannot tell
        return
    else:
        found = edge_index.size(0)
    if found != num_nodes:
        raise DataError(
            f"This network has a learned row for each of {num_nodes} nodes, so it cannot be used on another graph "
            f"(this one has {found}); train with features."
        )


def learned_rows(rows: Tensor, x: Tensor | None, edge_index: Any, num_nodes: int) -> Tensor:
    """Of a learned row for each of ``num_nodes`` nodes all, or those of a neighbourhood."""
    if isinstance(edge_index, SolvingAdjacency):
        return rows[edge_index.nodes]
    check_nodes(x, edge_index, num_nodes)
    return rows


def check_batch(batch: Tensor | None, state: Tensor) -> Tensor:
    """Return ``batch`` if it has the number of a graph for each row of ``state``, or say what is wrong."""
    if batch is None:
        raise DataError(
            "A network for graphs needs batch, the number of the graph of every node; for a single graph pass "
            "torch.zeros(num_nodes, dtype=torch.long)."
        )
    if batch.shape != state.shape[:1]:
        raise DataError(
            f"batch must hold one number for each of the {state.size(0)} nodes, but has shape "
            f"{tuple(batch.shape)}."
        )
    return batch


class GraphHead(torch.nn.Module):
    """Pooling over the nodes of each graph, then linear layers with ReLU and dropout between them."""

    def __init__(
        self, channels: int, num_classes: int, *, pooling: str = "sum", layers: int = 2, dropout: float = 0.5
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"head_layers must be >= 1, but came as {layers}.")
        self.pooling = aggregation_resolver(pooling)
        sizes = [channels] * layers
        self.hidden = torch.nn.ModuleList(torch.nn.Linear(size, size) for size in sizes[1:])
        self.dropout = Dropout(dropout)
        self.out = torch.nn.Linear(channels, num_classes)

    def forward(self, state: Tensor, batch: Tensor | None, num_graphs: int | None) -> Tensor:
        """One row of logits per graph."""
        pooled: Tensor = self.pooling(state, check_batch(batch, state), dim_size=num_graphs)
        for linear in self.hidden:
            pooled = self.dropout(linear(pooled).relu())
        if not self.hidden:
            pooled = self.dropout(pooled)
        logits: Tensor = self.out(pooled)
        return logits


def start_small(rows: Tensor) -> None:
    """Draw learned rows close to 0: until something is learned, what nodes tell their neighbours is noise."""
    bound = SMALL / math.sqrt(rows.size(1))
    torch.nn.init.uniform_(rows, -bound, bound)


class EmbeddedNet(Network):
    """A network whose features are learned: one row for each node of one graph."""

    def __init__(self, inner: Network, num_nodes: int, channels: int) -> None:
        super().__init__()
        self.inner = inner
        self.num_nodes: int = num_nodes
        self.embedding = torch.nn.Embedding(num_nodes, channels)
        start_small(self.embedding.weight)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        start_small(self.embedding.weight)

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        check_nodes(x, edge_index, self.num_nodes)
        return self.inner.encode(self.embedding.weight, edge_index, edge_weight)

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        return self.inner.decode(state, batch, num_graphs)

    def output_bias(self, num_classes: int) -> torch.nn.Parameter | None:
        return self.inner.output_bias(num_classes)

    @property
    def encode_is_deterministic(self) -> bool:
        return self.inner.encode_is_deterministic

    @property
    def adjacency_options(self) -> dict[str, Any] | None:
        return self.inner.adjacency_options

    def slow_parameters(self) -> Iterator[torch.nn.Parameter]:
        return self.inner.slow_parameters()
