"""GIN, as its paper builds it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn import MLP, BatchNorm, GINConv
from torch_geometric.nn.resolver import aggregation_resolver

from pprgnn.baselines.baseline import Baseline, Task
from pprgnn.core.adjacency import Adjacency
from pprgnn.nn.network import check_batch
from pprgnn.nn.through_adjacency import through_adjacency


class GINNet(Baseline):
    r"""Sums of neighbours through perceptrons: tells apart all that the Weisfeiler-Leman test does.

    .. math:: H_{l+1} = \mathrm{ReLU}(\mathrm{BN}(\mathrm{MLP}_l((1 + \epsilon_l) H_l + A H_l)))

    The MLPs have two layers with batch norm between them. The logits are the sum of a linear map of every
    :math:`H_l`, that of the features included, each with dropout; for graphs, nodes are pooled first. The paper
    counts the features as a layer: its five layers are ``layers=4`` here.

    Args:
        train_eps: Learn :math:`\epsilon_l`, which is 0 otherwise.
    """

    normalize, self_loops = None, False  # plain sums over the neighbours
    sparse_input = False

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        task: Task = "node",
        *,
        hidden: int = 64,
        layers: int = 4,
        dropout: float = 0.5,
        pooling: str = "sum",
        train_eps: bool = False,
    ) -> None:
        super().__init__()
        if task not in ("node", "graph"):
            raise ValueError(f"task must be 'node' or 'graph', but came as {task!r}.")
        self.in_channels = in_channels
        self.widths = widths = [in_channels, *[hidden] * layers]
        single = {"allow_single_element": True}  # the last batch may hold one graph of one node
        self.convs = torch.nn.ModuleList(
            through_adjacency(GINConv(MLP([width, hidden, hidden], norm_kwargs=single), train_eps=train_eps))
            for width in widths[:-1]
        )
        self.norms = torch.nn.ModuleList(BatchNorm(hidden, **single) for _ in self.convs)
        self.pooling = aggregation_resolver(pooling) if task == "graph" else None
        self.heads = torch.nn.ModuleList(torch.nn.Linear(width, num_classes) for width in widths)
        self.dropout = torch.nn.Dropout(dropout)

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        """The states of all layers, side by side."""
        states = [x]
        for conv, norm in zip(self.convs, self.norms, strict=True):
            states.append(norm(conv(states[-1], adj)).relu_())
        return torch.cat(states, dim=1)

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """Pooling for graphs; then the sum of one linear map per layer."""
        if self.pooling is not None:
            state = self.pooling(state, check_batch(batch, state), dim_size=num_graphs)
        parts = torch.split_with_sizes(state, self.widths, dim=1)
        logits = [self.dropout(head(part)) for head, part in zip(self.heads, parts, strict=True)]
        return torch.stack(logits).sum(0)

    @property
    def encode_is_deterministic(self) -> bool:
        """``False``: batch norm depends on what else is in the batch."""
        return False
