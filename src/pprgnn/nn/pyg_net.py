"""PyG's own models behind the interface of the networks here."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pprgnn.core.adjacency import Adjacency
from pprgnn.errors import DataError
from pprgnn.nn.network import GraphHead, Network, check_features, check_nodes


class PyGNet(Network):
    """A model of PyG such as ``GCN`` or ``GraphSAGE``, to be trained as the networks here are.

    Args:
        model: The model; on node tasks its outputs are the logits.
        task: ``"node"`` or ``"graph"``; for graphs, pooling and a head follow.
        num_classes: Number of outputs; needed for graphs, checked for nodes.
        pooling, head_layers, dropout: of the head for graphs, as in :class:`GraphNet`.
        num_nodes: Learn ``model.in_channels`` features for each of so many nodes instead of reading them.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        task: Literal["node", "graph"] = "node",
        num_classes: int | None = None,
        *,
        pooling: str = "sum",
        head_layers: int = 2,
        dropout: float = 0.5,
        num_nodes: int | None = None,
    ) -> None:
        super().__init__()
        self.model, self.task = model, task
        self.in_channels: int = getattr(model, "in_channels", -1)
        self.num_nodes = num_nodes
        self.embedding = None if num_nodes is None else torch.nn.Embedding(num_nodes, self.in_channels)
        channels = getattr(model, "out_channels", None)
        self.head: GraphHead | None = None
        if task == "graph":
            if num_classes is None or channels is None:
                raise ValueError(
                    f"PyGNet needs num_classes and a model with out_channels to classify graphs, but got "
                    f"num_classes={num_classes} and out_channels={channels}."
                )
            self.head = GraphHead(channels, num_classes, pooling=pooling, layers=head_layers, dropout=dropout)
        elif task != "node":
            raise ValueError(f"task must be 'node' or 'graph', but came as {task!r}.")
        elif None not in (num_classes, channels) and num_classes != channels:
            raise ValueError(
                f"The model must have as many outputs as there are classes ({num_classes}), but has {channels}; "
                f"build it with out_channels={num_classes}."
            )

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """The whole PyG model."""
        if isinstance(edge_index, Adjacency):
            raise DataError(f"{type(self.model).__name__} needs a plain edge_index, but got a pprgnn.Adjacency.")
        if self.embedding is not None and self.num_nodes is not None:
            check_nodes(x, edge_index, self.num_nodes)
            x = self.embedding.weight
        elif x is None or self.in_channels > 0:  # else the first pass will tell
            x = check_features(x, self.in_channels)
        weighted = getattr(self.model, "supports_edge_weight", False)
        if edge_weight is not None and not weighted:
            raise DataError(
                f"{type(self.model).__name__} cannot use edge weights, but the graph has some; leave them out or "
                f"choose a model that can, such as GCN."
            )
        state: Tensor = (
            self.model(x, edge_index, edge_weight=edge_weight) if weighted else self.model(x, edge_index)
        )
        return state

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """Nothing for nodes; pooling and the linear layers for graphs."""
        logits: Tensor = state if self.head is None else self.head(state, batch, num_graphs)
        return logits

    @property
    def encode_is_deterministic(self) -> bool:
        """Whether the model surely has neither dropout nor batch norm; of models not PyG's own we cannot tell."""
        return isinstance(self.model, BasicGNN) and not any(_is_random(part) for part in self.model.modules())

    @property
    def adjacency_options(self) -> dict[str, Any] | None:
        """``None``: PyG's layers want a plain ``edge_index``."""
        return None


def _is_random(module: torch.nn.Module) -> bool:
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        return True
    rate = module.p if isinstance(module, torch.nn.Dropout) else getattr(module, "dropout", 0.0)
    return isinstance(rate, float | int) and rate > 0
