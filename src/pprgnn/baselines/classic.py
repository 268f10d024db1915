"""Networks of a few layers, as their papers build them: MLP, Structure-free, GCN, GAT, GIN, DGCNN."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Conv1d, Dropout, Flatten, Linear, MaxPool1d, Module, ModuleList, ReLU, Sequential
from torch.nn import functional as F
from torch_geometric.nn import MLP, BatchNorm, GATConv, GCNConv, GINConv, SortAggregation
from torch_geometric.nn.resolver import aggregation_resolver

from pprgnn.baselines.baseline import Baseline
from pprgnn.core.adjacency import Adjacency
from pprgnn.errors import DataError
from pprgnn.nn.features import TorchDropout, dropout
from pprgnn.nn.network import check_batch
from pprgnn.nn.stacked import norm_layer
from pprgnn.nn.through_adjacency import through_adjacency

LEAST_NODES = 10  # DGCNN: with fewer, nothing is left for the second convolution
ROUNDING = 1e-4


class MLPNet(Baseline):
    """Linear layers with ReLU, and dropout before each; for graphs, pooling and a head follow.

    No message passes, so edges and their weights change nothing; all layers belong to the head, which is given the
    labelled rows only.
    """

    plain_edges = True
    encode_is_deterministic = True

    def __init__(self, *shape: Any, **settings: Any) -> None:
        super().__init__(*shape, **settings)
        self.add_head(self.hidden)
        self.input_dropout = TorchDropout(self.dropout)
        self.mlp = MLP(self.layer_widths, dropout=self.dropout, norm=None, plain_last=not self.for_graphs)

    def propagate(self, x: Tensor, adj: Any) -> Tensor:
        return x

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        return super().decode(self.mlp(self.input_dropout(state)), batch, num_graphs)


class StructureFreeNet(Baseline):
    """A graph as the multiset of its nodes.

    From `"A Fair Comparison of Graph Neural Networks for Graph Classification"
    <https://arxiv.org/abs/1912.09893>`_, whose baselines these are.

    With ``per_node``, a layer with ReLU on each node, the sum over the nodes, a layer with ReLU and a linear one:
    what they use on social networks and ENZYMES. Without, the sum of the features comes first, a histogram of the
    kinds of atoms where these are one-hot, and a layer with ReLU and a linear one follow: what they use on
    molecules. Dropout is before the last layer; the authors have none. Edges and their weights change nothing.

    Args:
        per_node: Whether a layer comes before the sum.
    """

    defaults: ClassVar[dict[str, Any]] = {"hidden": 64, "dropout": 0.0, "pooling": "sum"}
    tasks, only = ("graph",), "It labels graphs, for nodes use MLP: "
    plain_edges = True
    sparse_input = False
    encode_is_deterministic = True

    def __init__(self, *shape: Any, per_node: bool = True, **settings: Any) -> None:
        super().__init__(*shape, **settings)
        self.node_layer: Module = torch.nn.Identity()
        if per_node:
            self.node_layer = Sequential(Linear(self.in_channels, self.hidden), ReLU())
        self.pool = aggregation_resolver(self.pooling)
        self.head = Sequential(
            Linear(self.hidden if per_node else self.in_channels, self.hidden),
            ReLU(),
            Dropout(self.dropout),
            Linear(self.hidden, self.num_classes),
        )

    def propagate(self, x: Tensor, adj: Any) -> Tensor:
        return x

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        pooled = self.pool(self.node_layer(state), check_batch(batch, state), dim_size=num_graphs)
        logits: Tensor = self.head(pooled)
        return logits


class GCNNet(Baseline):
    r"""Kipf and Welling's network, with dropout before each layer; for graphs, pooling and a head follow.

    .. math::
        \mathbf{X}^{(\ell + 1)} = \mathrm{ReLU}(\mathbf{\tilde{A}} \mathbf{X}^{(\ell)} \mathbf{W}^{(\ell)} +
        \mathbf{b}^{(\ell)})

    The last layer of a node task has no ReLU: it gives the logits. ``norm`` (``"batch"``, ``"layer"``) comes
    before each ReLU, and with ``residual`` a linear map of a layer's input is added to its output; Kipf and
    Welling have neither. Weight decay is for the first layer; that of all others is
    ``training.recursion_weight_decay``, 0 in the paper.
    """

    defaults: ClassVar[dict[str, Any]] = {"hidden": 16, "layers": 2, "dropout": 0.5, "pooling": "sum"}

    def __init__(self, *shape: Any, norm: str = "none", residual: bool = False, **settings: Any) -> None:
        super().__init__(*shape, **settings)
        self.add_head(self.hidden)
        widths = self.layer_widths
        self.convs = ModuleList(through_adjacency(GCNConv(*ends, normalize=False)) for ends in pairwise(widths))
        self.skips = ModuleList(Linear(*ends, bias=False) for ends in (pairwise(widths) if residual else ()))
        self.normalizes = norm != "none"
        self.norms = ModuleList(
            norm_layer(norm if self.normalizes else None, width) for width in widths[1 : 1 + self.hidden_layers]
        )

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        for number, conv in enumerate(self.convs, 1):
            x = dropout(x, self.dropout, self.training)
            x = conv(x, adj) + self.skips[number - 1](x) if self.skips else conv(x, adj)
            if number <= self.hidden_layers:
                x = self.norms[number - 1](x).relu()
        return x

    @property
    def hidden_layers(self) -> int:
        """All, or of a node task all but the last one, which gives the logits."""
        return len(self.convs) - (not self.for_graphs)

    @property
    def encode_is_deterministic(self) -> bool:
        return self.dropout == 0 and not self.normalizes

    def slow_parameters(self) -> Iterator[torch.nn.Parameter]:
        for part in (self.convs[1:], self.skips[1:], self.head):
            yield from part.parameters()


class GATNet(Baseline):
    r"""Veličković et al.'s network, with dropout before each layer; for graphs, pooling and a head follow.

    .. math::
        \mathbf{x}^\prime_i = \mathrm{ELU}\left(\sum_{j \in \mathcal{N}(i) \cup \{i\}} \alpha_{ij} \mathbf{W}
        \mathbf{x}_j\right), \qquad \alpha_{ij} = \mathrm{softmax}_j\left(\mathrm{LeakyReLU}(\mathbf{a}^\top
        [\mathbf{W} \mathbf{x}_i \,\Vert\, \mathbf{W} \mathbf{x}_j])\right)

    for each head; heads are put side by side. The last layer of a node task averages them instead, without ELU: it
    gives the logits. Note that ``hidden`` is the width of one head.

    With ``skip``, as the authors have it on PPI, a linear map of the input of each hidden layer but the first is
    added to its output, before ELU. ``residual`` does so around every layer, and ``norm`` (``"batch"``,
    ``"layer"``) comes before each ELU; the authors have neither.

    Args:
        heads: Heads of the hidden layers.
        output_heads: Heads of the last layer of a node task.
        attention_dropout: Dropout of the attention.
        skip: Skip connections around the hidden layers that lie between others.
    """

    defaults: ClassVar[dict[str, Any]] = {"hidden": 8, "layers": 2, "dropout": 0.6, "pooling": "sum"}
    plain_edges = True

    def __init__(
        self,
        *shape: Any,
        heads: int = 8,
        output_heads: int = 1,
        attention_dropout: float = 0.6,
        skip: bool = False,
        norm: str = "none",
        residual: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(*shape, **settings)
        width = heads * self.hidden
        self.add_head(width)
        self.attention_dropout = attention_dropout
        inner = self.layers if self.for_graphs else self.layers - 1
        widths = [self.in_channels, *[width] * inner]
        self.convs = ModuleList(
            GATConv(
                widths[number],
                self.hidden,
                heads,
                dropout=attention_dropout,
                residual=residual or (skip and number > 0),
            )
            for number in range(inner)
        )
        if not self.for_graphs:
            options = {"concat": False, "dropout": attention_dropout, "residual": residual}
            self.convs.append(GATConv(widths[-1], self.num_classes, output_heads, **options))
        self.normalizes = norm != "none"
        self.norms = ModuleList(norm_layer(norm if self.normalizes else None, width) for _ in range(inner))

    def adjacency(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Any:
        """The edges themselves."""
        if isinstance(edge_index, Adjacency):
            raise DataError("GAT weighs edges itself: it needs a plain edge_index, but got a pprgnn.Adjacency.")
        if edge_weight is not None:
            raise DataError(
                "GAT cannot use edge weights, but the graph has some; leave them out or choose a system that can, "
                "such as GCN."
            )
        return edge_index

    def propagate(self, x: Tensor, adj: Any) -> Tensor:
        for number, conv in enumerate(self.convs):
            x = conv(dropout(x, self.dropout, self.training), adj)
            if number < len(self.norms):
                x = F.elu(self.norms[number](x))
        return x

    @property
    def encode_is_deterministic(self) -> bool:
        return self.dropout == 0 and self.attention_dropout == 0 and not self.normalizes


class GINNet(Baseline):
    r"""Sums of neighbours through perceptrons: tells apart all that the Weisfeiler-Leman test does.

    .. math:: H_{l+1} = \mathrm{ReLU}(\mathrm{BN}(\mathrm{MLP}_l((1 + \epsilon_l) H_l + A H_l)))

    The MLPs have two layers with batch norm between them. The logits are the sum of a linear map of every
    :math:`H_l`, that of the features included, each with dropout; for graphs, nodes are pooled first. The paper
    counts the features as a layer: its five layers are ``layers=4`` here.

    Args:
        train_eps: Learn :math:`\epsilon_l`, which is 0 otherwise.
    """

    defaults: ClassVar[dict[str, Any]] = {"hidden": 64, "layers": 4, "dropout": 0.5, "pooling": "sum"}
    normalize, self_loops = None, False  # plain sums over the neighbours
    sparse_input = False
    encode_is_deterministic = False  # batch norm depends on what else is in the batch

    def __init__(self, *shape: Any, train_eps: bool = False, **settings: Any) -> None:
        super().__init__(*shape, **settings)
        hidden, self.widths = self.hidden, [self.in_channels, *[self.hidden] * self.layers]
        single = {"allow_single_element": True}  # the last batch may hold one graph of one node
        self.convs = ModuleList(
            through_adjacency(GINConv(MLP([width, hidden, hidden], norm_kwargs=single), train_eps=train_eps))
            for width in self.widths[:-1]
        )
        self.norms = ModuleList(BatchNorm(hidden, **single) for _ in self.convs)
        self.pool = aggregation_resolver(self.pooling) if self.for_graphs else None
        self.heads = ModuleList(Linear(width, self.num_classes) for width in self.widths)
        self.head_dropout = Dropout(self.dropout)

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        states = [x]
        for conv, norm in zip(self.convs, self.norms, strict=True):
            states.append(norm(conv(states[-1], adj)).relu_())
        return torch.cat(states, dim=1)

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        if self.pool is not None:
            state = self.pool(state, check_batch(batch, state), dim_size=num_graphs)
        parts = torch.split_with_sizes(state, self.widths, dim=1)
        logits = [self.head_dropout(head(part)) for head, part in zip(self.heads, parts, strict=True)]
        return torch.stack(logits).sum(0)


class DGCNNet(Baseline):
    r"""Sorts the nodes of a graph by their states and reads the first ``k`` of them like a sequence.

    .. math:: H_{l+1} = \tanh(D^{-1}(A + I) H_l W_l)

    All :math:`H_l` side by side are a node's row; the last layer has one channel, by which nodes are sorted in
    descending order, and the channels before it break ties. Two convolutions along the nodes and a dense layer
    follow. Graphs with fewer than ``k`` nodes are filled up with rows of zeros.

    Args:
        typical_nodes: How many nodes three fifths of the graphs have at least; 30 if not known.
        k: How many nodes are kept; 0: ``typical_nodes``, but not fewer than 10.
    """

    defaults: ClassVar[dict[str, Any]] = {"hidden": 32, "layers": 4, "dropout": 0.5}
    tasks, only = ("graph",), "DGCNN labels graphs: "
    normalize = "row"  # averages over the neighbours and the node itself
    sparse_input = False
    encode_is_deterministic = True  # only the head has dropout

    def __init__(self, *shape: Any, typical_nodes: int | None = None, k: int = 0, **settings: Any) -> None:
        super().__init__(*shape, **settings)
        k = k or max(LEAST_NODES, typical_nodes or 30)
        if k < LEAST_NODES:
            raise ValueError(f"DGCNN must keep k >= {LEAST_NODES} nodes of a graph, but k came as {k}.")
        widths = [self.in_channels, *[self.hidden] * (self.layers - 1), 1]
        self.convs = ModuleList(
            through_adjacency(GCNConv(*ends, normalize=False, add_self_loops=False)) for ends in pairwise(widths)
        )
        self.row = sum(widths[1:])
        self.sort = SortAggregation(k)
        self.head = Sequential(
            Conv1d(1, 16, self.row, self.row),  # a linear map of each node
            ReLU(),
            MaxPool1d(2),
            Conv1d(16, 32, 5),
            ReLU(),
            Flatten(),
            Linear(32 * (k // 2 - 4), 128),
            ReLU(),
            Dropout(self.dropout),
            Linear(128, self.num_classes),
        )

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        states = [x]
        for conv in self.convs:
            states.append(conv(states[-1], adj).tanh_())
        return torch.cat(states[1:], dim=1)

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        # PyG sorts by the last column alone and would leave ties as nodes are numbered. States that are equal but
        # for rounding count as ties, so that the order of a sum does not decide.
        state_or_tie = torch.cat([state, (state / ROUNDING).round()], dim=1).detach()
        rank = torch.unique(state_or_tie.flip(1), dim=0, return_inverse=True)[1]
        ranked = torch.cat([state, rank.unsqueeze(1).to(state.dtype)], dim=1)
        kept = self.sort(ranked, check_batch(batch, state), dim_size=num_graphs)
        logits: Tensor = self.head(kept.view(-1, 1, self.sort.k, self.row + 1)[..., :-1].flatten(2))
        return logits
