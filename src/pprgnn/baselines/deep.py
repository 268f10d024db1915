"""Networks that look farther than a GCN does: DropEdge, PairNorm, GDC, GCNII, JK-Net."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import ModuleList
from torch_geometric.data import Data
from torch_geometric.nn import GCN2Conv, GCNConv, JumpingKnowledge, PairNorm
from torch_geometric.transforms import GDC
from torch_geometric.utils import dropout_edge

from pprgnn.baselines.baseline import Baseline, once_for
from pprgnn.baselines.classic import GCNNet
from pprgnn.core.adjacency import Adjacency
from pprgnn.errors import DataError
from pprgnn.nn.features import dropout
from pprgnn.nn.through_adjacency import as_adjacency, through_adjacency

MOST_NODES = 20_000  # of GDC: the dense matrices then take 8 GB, and the inverse some minutes


class DropEdgeNet(GCNNet):
    """A GCN that is trained on a random part of the edges, drawn and normalised anew for every pass.

    Each direction of an edge is dropped on its own, self-loops stay. Evaluation uses all edges.

    Args:
        drop_rate: The probability of an edge to be dropped.
    """

    defaults: ClassVar[dict[str, Any]] = {"hidden": 64, "layers": 4, "dropout": 0.5, "pooling": "sum"}
    plain_edges = True

    def __init__(self, *shape: Any, drop_rate: float = 0.5, **settings: Any) -> None:
        super().__init__(*shape, **settings)
        if not 0 <= drop_rate < 1:
            raise ValueError(f"drop_rate must be at least 0 and below 1, but came as {drop_rate}.")
        self.drop_rate = drop_rate

    def adjacency(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Adjacency:
        """Of all edges, or in training of those that are left."""
        if not self.training or self.drop_rate == 0:
            return as_adjacency(edge_index, edge_weight, x.size(0), x.dtype, normalize="sym", add_self_loops=True)
        if isinstance(edge_index, Adjacency):
            raise DataError("DropEdge normalises what is left: it needs a plain edge_index, but got an Adjacency.")
        edge_index, kept = dropout_edge(edge_index, self.drop_rate)
        if edge_weight is not None:
            edge_weight = edge_weight[kept]
        return Adjacency.from_edge_index(  # not reordered: that takes longer than the products of one step
            edge_index, edge_weight, x.size(0), normalize="sym", add_self_loops=True, reorder=False, dtype=x.dtype
        )

    @property
    def encode_is_deterministic(self) -> bool:
        return super().encode_is_deterministic and self.drop_rate == 0


class PairNormNet(GCNNet):
    r"""A GCN with PairNorm between each layer and its ReLU, so that states cannot become alike.

    .. math::
        \mathbf{x}^\prime_i = s \frac{\mathbf{x}_i - \bar{\mathbf{x}}}{\sqrt{\frac{1}{n} \sum_j \Vert \mathbf{x}_j
        - \bar{\mathbf{x}} \Vert^2}}

    The mean is that of all nodes of a pass, so graphs that share a pass would change each other: it is for nodes.

    Args:
        scale: :math:`s`; the sum of the squared distances of all pairs is :math:`2 n^2 s^2`.
        individually: Scale each row to the length :math:`s` instead: PN-SI, which the paper uses with GCN.
    """

    defaults: ClassVar[dict[str, Any]] = {"hidden": 64, "layers": 2, "dropout": 0.6}
    tasks, only = ("node",), "PairNorm is for node tasks, because it mixes the graphs of a pass: "

    def __init__(self, *shape: Any, scale: float = 1.0, individually: bool = True, **settings: Any) -> None:
        super().__init__(*shape, **settings)
        self.norms = ModuleList(PairNorm(scale, individually) for _ in range(self.hidden_layers))


class GDCNet(GCNNet):
    r"""A GCN on the graph of personalised PageRank: its largest entries per node, with weights that sum to 1.

    .. math::
        \mathbf{S} = \alpha \left(\mathbf{I} - (1 - \alpha) \mathbf{\tilde{A}}\right)^{-1}

    :math:`\mathbf{S}` is computed once per graph, and dense while it is computed: not for large graphs.

    Args:
        alpha: How likely a walk of PageRank returns to its start.
        keep: How many entries are kept per node.
    """

    defaults: ClassVar[dict[str, Any]] = {"hidden": 16, "layers": 2, "dropout": 0.5}
    tasks, only = ("node",), "GDC is for node tasks, because it takes long for every new graph: "
    normalize, self_loops = None, False  # diffusion does both

    def __init__(self, *shape: Any, alpha: float = 0.05, keep: int = 128, **settings: Any) -> None:
        super().__init__(*shape, **settings)
        self.options = (alpha, keep)

    def adjacency(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Adjacency:
        """Of the new graph."""
        adj = super().adjacency(x, edge_index, edge_weight)
        return once_for(adj, ("gdc", *self.options), self._rewire)

    @torch.no_grad()
    def _rewire(self, adj: Adjacency) -> Adjacency:
        n = adj.num_nodes
        if n > MOST_NODES:
            raise DataError(
                f"GDC needs a dense matrix of all pairs of nodes for a while, which is too much for {n} nodes (at "
                f"most {MOST_NODES}); choose a system that diffuses as it goes, such as APPNP or GPR-GNN."
            )
        if n == 1:  # PyG takes its matrix for a number
            return Adjacency.from_edge_index(
                torch.zeros(2, 1).to(adj.col), None, 1, normalize=None, dtype=adj.dtype
            )
        row, col = (index if adj.order is None else adj.order[index] for index in (adj.row, adj.col))
        alpha, keep = self.options
        diffusion = GDC(
            diffusion_kwargs={"method": "ppr", "alpha": alpha},
            sparsification_kwargs={"method": "topk", "k": keep, "dim": 0},
        )
        new = diffusion(Data(edge_index=torch.stack([col, row]), edge_attr=adj.value, num_nodes=n))
        return Adjacency.from_edge_index(new.edge_index, new.edge_attr, n, normalize=None, dtype=adj.dtype)


class GCNIINet(Baseline):
    r"""Chen et al.'s deep network, with dropout before each layer; for graphs, pooling and a head follow.

    .. math::
        \mathbf{H}^{(\ell)} = \mathrm{ReLU}\left(\left((1 - \alpha) \mathbf{\tilde{A}} \mathbf{H}^{(\ell - 1)} +
        \alpha \mathbf{H}^{(0)}\right)\left((1 - \beta_\ell) \mathbf{I} + \beta_\ell \mathbf{W}^{(\ell)}\right)
        \right), \qquad \beta_\ell = \log(\theta / \ell + 1)

    with a linear layer and ReLU for :math:`\mathbf{H}^{(0)}` and a linear layer at the end. The weight decay of
    all :math:`\mathbf{W}^{(\ell)}` is ``training.recursion_weight_decay``.

    Args:
        residual: Add :math:`\mathbf{H}^{(\ell - 1)}` to each layer before ReLU, as the authors do on PPI.
        alpha: How much of the first state is in every layer.
        theta: How far the layers are from the identity.
        shared_weights: One weight matrix for both terms; otherwise one for each, the paper's GCNII*.
    """

    defaults: ClassVar[dict[str, Any]] = {"hidden": 64, "layers": 64, "dropout": 0.6, "pooling": "sum"}

    def __init__(
        self,
        *shape: Any,
        residual: bool = False,
        alpha: float = 0.1,
        theta: float = 0.5,
        shared_weights: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(*shape, **settings)
        self.add_head(self.hidden, node_layers=1)
        self.residual = residual
        self.first = torch.nn.Linear(self.in_channels, self.hidden)
        self.convs = ModuleList(
            through_adjacency(GCN2Conv(self.hidden, alpha, theta, number, shared_weights, normalize=False))
            for number in range(1, self.layers + 1)
        )

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        first: Tensor = self.first(dropout(x, self.dropout, self.training)).relu()
        state = first
        for conv in self.convs:
            state = dropout(state, self.dropout, self.training)
            new = conv(state, first, adj)
            state = (new + state if self.residual else new).relu()
        return state

    def slow_parameters(self) -> Iterator[torch.nn.Parameter]:
        return self.convs.parameters()


class JKNet(Baseline):
    r"""Xu et al.'s jumping knowledge over layers of GCN, with dropout before each of them.

    .. math::
        \mathbf{H}^{(\ell)} = \mathrm{ReLU}(\mathbf{\tilde{A}} \mathbf{H}^{(\ell - 1)} \mathbf{W}^{(\ell)} +
        \mathbf{b}^{(\ell)}), \qquad \mathbf{H} = \mathrm{JK}(\mathbf{H}^{(1)}, \ldots, \mathbf{H}^{(L)})

    A linear layer gives the logits of nodes; for graphs, pooling and a head follow.

    Args:
        mode: ``"cat"``: the states of all layers side by side; ``"max"``: the largest of each channel; ``"lstm"``:
            a weighted sum, with attention from an LSTM over the layers.
    """

    defaults: ClassVar[dict[str, Any]] = {"hidden": 64, "layers": 4, "dropout": 0.5, "pooling": "sum"}

    def __init__(self, *shape: Any, mode: Literal["cat", "max", "lstm"] = "cat", **settings: Any) -> None:
        super().__init__(*shape, **settings)
        if mode not in ("cat", "max", "lstm"):
            raise ValueError(f"mode must be 'cat', 'max' or 'lstm', but came as {mode!r}.")
        self.add_head(self.layers * self.hidden if mode == "cat" else self.hidden, node_layers=1)
        self.convs = ModuleList(
            through_adjacency(GCNConv(width, self.hidden, normalize=False))
            for width in (self.in_channels, *[self.hidden] * (self.layers - 1))
        )
        self.jump = JumpingKnowledge(mode, self.hidden, self.layers)

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        states: list[Tensor] = []
        for conv in self.convs:
            x = conv(dropout(x, self.dropout, self.training), adj).relu()
            states.append(x)
        jumped: Tensor = self.jump(states)
        return jumped
