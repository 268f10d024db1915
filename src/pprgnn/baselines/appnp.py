"""PPNP, APPNP and GPR-GNN, as their papers build them: predict first, then propagate by PageRank."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor
from torch_geometric.nn import APPNP, MLP

from pprgnn.baselines.baseline import Task, TaskNetwork
from pprgnn.baselines.exact_pagerank import dropping_power_iteration, exact_pagerank, power_iteration
from pprgnn.core.adjacency import Adjacency
from pprgnn.nn.features import TorchDropout, dropout
from pprgnn.nn.through_adjacency import through_adjacency


class PredictThenPropagate(TaskNetwork):
    """A perceptron on each node by itself, with dropout on its input and between its layers; then propagation.

    On node tasks the perceptron's outputs are logits; for graphs, pooling and a head follow. Weight decay is for
    the first layer; that of all others is ``training.recursion_weight_decay``, 0 in the paper.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Task,
        *,
        hidden: int,
        layers: int,
        dropout: float,
        pooling: str,
    ) -> None:
        super().__init__(in_channels, num_classes, task, hidden, dropout=dropout, pooling=pooling)
        out = hidden if self.for_graphs else num_classes
        self.input_dropout = TorchDropout(dropout)
        self.mlp = MLP([in_channels, *[hidden] * (layers - 1), out], dropout=dropout, norm=None)

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        """The perceptron, then PageRank."""
        return self.pagerank(self.predict(x), adj)

    def predict(self, x: Tensor) -> Tensor:
        """What each node says by itself."""
        predicted: Tensor = self.mlp(self.input_dropout(x))
        return predicted

    @abstractmethod
    def pagerank(self, h: Tensor, adj: Adjacency) -> Tensor:
        """From what each node says by itself to what its neighbourhood says."""

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
        task: Task = "node",
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

    def pagerank(self, h: Tensor, adj: Adjacency) -> Tensor:
        """The steps; PyG's where edge weights want a gradient, too."""
        if adj.value.requires_grad:
            z: Tensor = self.steps(h, adj)
            return z
        alpha, hops, rate = self.steps.alpha, self.steps.K, self.dropout
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
        task: Task = "node",
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

    def pagerank(self, h: Tensor, adj: Adjacency) -> Tensor:
        """The solution."""
        return exact_pagerank(adj, h, alpha=self.alpha, tol=self.solve_tol)


class GPRGNNNet(PredictThenPropagate):
    r"""Chien et al.'s network, with dropout before each layer and before the hops.

    .. math::
        \mathbf{Z} = \sum_{k=0}^{K} \gamma_k \mathbf{\tilde{A}}^k \mathrm{MLP}(\mathbf{X})

    The :math:`\gamma_k` are learned, from those of personalised PageRank on: :math:`\alpha (1 - \alpha)^k`, and
    :math:`(1 - \alpha)^K` for the last. Their weight decay is ``training.recursion_weight_decay``, 0 in the paper.
    :math:`\mathbf{Z}` holds the logits of nodes; for graphs, pooling and a head follow.

    Args:
        hops: :math:`K`.
        alpha: Of the PageRank that the weights start from.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Task = "node",
        *,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        pooling: str = "sum",
        hops: int = 10,
        alpha: float = 0.1,
    ) -> None:
        super().__init__(
            in_channels, num_classes, task, hidden=hidden, layers=layers, dropout=dropout, pooling=pooling
        )
        self.hops, self.alpha = hops, alpha
        self.gamma = torch.nn.Parameter(torch.empty(hops + 1))
        self._start()

    def reset_parameters(self) -> None:
        """Draw all parameters anew; the weights of the hops are PageRank's again."""
        super().reset_parameters()
        self._start()

    def _start(self) -> None:
        powers = (1 - self.alpha) ** torch.arange(self.hops + 1, dtype=torch.float64)
        powers[:-1] *= self.alpha
        with torch.no_grad():
            self.gamma.copy_(powers)

    def predict(self, x: Tensor) -> Tensor:
        """With dropout on what is predicted, too."""
        return dropout(self.mlp(dropout(x, self.dropout, self.training)), self.dropout, self.training)

    def pagerank(self, h: Tensor, adj: Adjacency) -> Tensor:
        """All hops."""
        state: Tensor = self.gamma[-1] * h
        for weight in self.gamma[:-1].flip(0):  # Horner's rule: one product per hop, and no powers to keep
            state = adj @ state + weight * h
        return state

    def slow_parameters(self) -> Iterator[torch.nn.Parameter]:
        """The weights of the hops."""
        yield self.gamma
