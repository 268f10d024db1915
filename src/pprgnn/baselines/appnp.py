"""PPNP and APPNP, as their paper builds them: predict first, then propagate by personalised PageRank."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.nn import APPNP, MLP

from pprgnn.baselines.exact_pagerank import dropping_power_iteration, exact_pagerank, power_iteration
from pprgnn.baselines.task_network import TaskNetwork
from pprgnn.core.adjacency import Adjacency
from pprgnn.nn.dropout import TorchDropout
from pprgnn.nn.network import check_features
from pprgnn.nn.through_adjacency import as_adjacency, through_adjacency


class PredictThenPropagate(TaskNetwork):
    """A perceptron on each node by itself, with dropout on its input and between its layers; then propagation.

    On node tasks the perceptron's outputs are logits; for graphs, pooling and a head follow. Weight decay is for
    the first layer; that of all others is ``training.recursion_weight_decay``, 0 in the paper.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["node", "graph"],
        *,
        hidden: int,
        layers: int,
        dropout: float,
        pooling: str,
    ) -> None:
        super().__init__(task, hidden, num_classes, pooling=pooling, dropout=dropout)
        self.in_channels = in_channels
        out = hidden if self.for_graphs else num_classes
        self.dropout = TorchDropout(dropout)
        self.mlp = MLP([in_channels, *[hidden] * (layers - 1), out], dropout=dropout, norm=None)

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """The perceptron, then the propagation."""
        x = check_features(x, self.in_channels, sparse=True)
        adj = as_adjacency(edge_index, edge_weight, x.size(0), x.dtype, **self.adjacency_options)
        return self.propagate(self.mlp(self.dropout(x)), adj)

    @abstractmethod
    def propagate(self, h: Tensor, adj: Adjacency) -> Tensor:
        """From what each node says by itself to what its neighbourhood says."""

    @property
    def encode_is_deterministic(self) -> bool:
        """Without dropout."""
        return self.dropout.p == 0

    @property
    def adjacency_options(self) -> dict[str, Any]:
        """With self-loops, symmetrically normalised."""
        return {"normalize": "sym", "add_self_loops": True}

    def slow_parameters(self) -> Iterator[torch.nn.Parameter]:
        """All but those of the first layer."""
        yield from self.mlp.lins[1:].parameters()
        yield from self.head.parameters()


class APPNPNet(PredictThenPropagate):
    r"""Propagation by a few steps of the power iteration for personalised PageRank.

    .. math:: Z_0 = H = \mathrm{MLP}(X), \quad Z_{k+1} = (1 - \alpha) \tilde{A} Z_k + \alpha H

    Args:
        hops: The number of steps.
        alpha: The chance to return to the start in each of them.
        drop_entries: In training, each step also drops entries of Ã, at the rate ``dropout``.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["node", "graph"] = "node",
        *,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        pooling: str = "sum",
        hops: int = 10,
        alpha: float = 0.1,
        drop_entries: bool = False,
    ) -> None:
        super().__init__(
            in_channels, num_classes, task, hidden=hidden, layers=layers, dropout=dropout, pooling=pooling
        )
        self.steps = through_adjacency(APPNP(hops, alpha, normalize=False))
        self.drop_entries = drop_entries

    def propagate(self, h: Tensor, adj: Adjacency) -> Tensor:
        """The steps; PyG's where edge weights want a gradient, too."""
        if adj.value.requires_grad:
            z: Tensor = self.steps(h, adj)
            return z
        alpha, hops, rate = self.steps.alpha, self.steps.K, self.dropout.p
        if self.training and self.drop_entries and rate:
            return dropping_power_iteration(adj, h, alpha=alpha, hops=hops, dropout=rate)
        return power_iteration(adj, h, alpha=alpha, hops=hops)


class PPNPNet(PredictThenPropagate):
    r"""Propagation by the limit of infinitely many steps: personalised PageRank, solved to a tolerance.

    .. math:: Z = \alpha (I - (1 - \alpha) \tilde{A})^{-1} \mathrm{MLP}(X)

    Args:
        alpha: The chance to return to the start.
        solve_tol: ``tol`` of :func:`exact_pagerank`.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Literal["node", "graph"] = "node",
        *,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        pooling: str = "sum",
        alpha: float = 0.1,
        solve_tol: float = 1e-6,
    ) -> None:
        super().__init__(
            in_channels, num_classes, task, hidden=hidden, layers=layers, dropout=dropout, pooling=pooling
        )
        self.alpha, self.solve_tol = alpha, solve_tol

    def propagate(self, h: Tensor, adj: Adjacency) -> Tensor:
        """The solution."""
        return exact_pagerank(adj, h, alpha=self.alpha, tol=self.solve_tol)
