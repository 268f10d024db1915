"""structure2vec: a few rounds of embedded mean field."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from pprgnn.baselines.baseline import Task, TaskNetwork
from pprgnn.core.adjacency import Adjacency


class Structure2VecNet(TaskNetwork):
    """Embedded mean field: μ ← relu(W₁x_v + W₂ Σ_u μ_u) over the neighbours u, ``rounds`` times from μ = 0.

    From `"Discriminative Embeddings of Latent Variable Models for Structured Data"
    <https://arxiv.org/abs/1603.05629>`_. All rounds share their weights, and a node sees ``rounds - 1`` hops far.
    The sum over neighbours is as published: states grow with (largest eigenvalue of A · ‖W₂‖) to the power of
    ``rounds - 1``, so that on graphs with large degrees training starts from huge states; ``aggregate="mean"``
    keeps them small.

    Args:
        in_channels: Features per node.
        num_classes: Number of outputs.
        task: ``"node"``: a linear layer follows; ``"graph"``: pooling, a layer with ReLU, and a linear layer.
        hidden: Width of the states.
        dropout: Before the linear layer.
        pooling: Nodes to graph.
        rounds: Of mean field.
        aggregate: ``"sum"`` as published, or ``"mean"``, over the neighbours; both weigh them by the edges.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Task = "node",
        *,
        hidden: int = 64,
        dropout: float = 0.5,
        pooling: str = "sum",
        rounds: int = 4,
        aggregate: Literal["sum", "mean"] = "sum",
    ) -> None:
        super().__init__(in_channels, num_classes, task, hidden, dropout=dropout, pooling=pooling, node_layers=1)
        if rounds < 1:
            raise ValueError(f"rounds must be >= 1, but came as {rounds}.")
        self.rounds, self.self_loops = rounds, False
        self.normalize = "row" if aggregate == "mean" else None
        self.read = torch.nn.Linear(in_channels, hidden)
        self.mix = torch.nn.Linear(hidden, hidden, bias=False)

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        """All rounds."""
        given = self.read(x)
        state: Tensor = given.relu()
        for _ in range(self.rounds - 1):
            state = (given + self.mix(adj @ state)).relu()
        return state

    @property
    def encode_is_deterministic(self) -> bool:
        """Dropout is in the head only."""
        return True
