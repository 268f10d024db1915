"""Networks for certain tasks: those of the paper's experiments, as published, and one that reads labels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import elu

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.bounds import StepBounds
from pprgnn.core.depth import Fixed
from pprgnn.core.power_series import sum_of_hops
from pprgnn.nn.features import Dropout
from pprgnn.nn.linear_output import AS_PUBLISHED
from pprgnn.nn.network import GraphHead, Network, check_features, learned_rows, ppr_layers
from pprgnn.nn.ppr_conv import PPRConv, WeightInit

LEAST_SHARE, LEAST_SUM = 1e-2, 1e-6  # what a logarithm takes for nothing
Layer: TypeAlias = Callable[..., PPRConv]  # infinite-depth layers that can take the place of ours


class _TaskNet(Network):
    @property
    def encode_is_deterministic(self) -> bool:
        """Dropout, if there is any, comes after the messages."""
        return True


class _PaperNet(_TaskNet):
    def reset_parameters(self) -> None:
        """Draw all parameters anew; W and Ω evenly from ±1/√(size of the layer), as the published code does."""
        super().reset_parameters()
        for _, layer in ppr_layers(self):
            bound = 1.0 / math.sqrt(layer.out_channels)
            for matrix in (layer.weight, *layer.lin.parameters()):
                torch.nn.init.uniform_(matrix, -bound, bound)


class PPINet(_PaperNet):
    """Five infinite-depth layers of width 4h, 2h, 2h, h and ``num_classes``, each beside a linear layer.

    For protein functions (PPI), several labels per node. ELU follows each but the last. ``**conv`` overrides
    options of :class:`PPRConv` such as ``eps`` (0.25) or ``tol``.
    """

    def __init__(
        self, in_channels: int, num_classes: int, hidden: int = 256, *, layer: Layer = PPRConv, **conv: Any
    ) -> None:
        super().__init__()
        options = AS_PUBLISHED | {"eps": 0.25, "smooth_input": True, "bias": False, "add_self_loops": False} | conv
        sizes = [in_channels, 4 * hidden, 2 * hidden, 2 * hidden, hidden, num_classes]
        pairs = list(itertools.pairwise(sizes))
        self.in_channels = in_channels
        self.convs = torch.nn.ModuleList(layer(size, out, **options) for size, out in pairs)
        self.skips = torch.nn.ModuleList(torch.nn.Linear(size, out) for size, out in pairs)
        self.reset_parameters()

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """All of the network: its last layer still passes messages."""
        state = check_features(x, self.in_channels, sparse=True)
        for conv, skip in zip(self.convs, self.skips, strict=True):
            state = conv(state, edge_index, edge_weight) + skip(state)
            if conv is not self.convs[-1]:
                state = elu(state)
        return state

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """Nothing is left to do."""
        return state


class CoPurchaseNet(_PaperNet):
    """One infinite-depth layer over nodes without features, then dropout and a linear layer.

    For the co-purchase graph (Amazon). A linear map of the one-hot identity is a learned row for each node: the
    network is bound to one graph. ``**conv`` overrides options of :class:`PPRConv` such as ``eps`` (0.06).
    """

    def __init__(
        self,
        num_nodes: int,
        num_classes: int,
        hidden: int = 128,
        dropout: float = 0.5,
        *,
        layer: Layer = PPRConv,
        **conv: Any,
    ) -> None:
        super().__init__()
        options = AS_PUBLISHED | {"eps": 0.06, "smooth_input": True, "bias": False, "add_self_loops": False} | conv
        self.num_nodes: int = num_nodes
        self.embedding = torch.nn.Embedding(num_nodes, hidden)
        self.conv = layer(None, hidden, **options)
        self.dropout = Dropout(dropout)
        self.head = torch.nn.Linear(hidden, num_classes, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew; the rows are the Ω of the published code."""
        super().reset_parameters()
        bound = 1.0 / math.sqrt(self.conv.out_channels)
        torch.nn.init.uniform_(self.embedding.weight, -bound, bound)

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        rows = learned_rows(self.embedding.weight, x, edge_index, self.num_nodes)
        state: Tensor = self.conv(rows, edge_index, edge_weight)
        return state


class PaperGraphNet(_PaperNet):
    """Three infinite-depth layers, the sum over each graph, and a head of two linear layers.

    For graph classification (MUTAG and the like). ``**conv`` overrides options of :class:`PPRConv`.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        hidden: int = 64,
        dropout: float = 0.5,
        *,
        layer: Layer = PPRConv,
        **conv: Any,
    ) -> None:
        super().__init__()
        options = AS_PUBLISHED | {"eps": 1.0, "smooth_input": True, "bias": False} | conv
        self.in_channels = in_channels
        self.convs = torch.nn.ModuleList(layer(size, hidden, **options) for size in (in_channels, hidden, hidden))
        self.head = GraphHead(hidden, num_classes, pooling="sum", layers=2, dropout=dropout)
        self.reset_parameters()

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        state = check_features(x, self.in_channels, sparse=True)
        for conv in self.convs:
            state = conv(state, edge_index, edge_weight)
        return state


class _SpreadingConv(PPRConv):
    """W = w·I with one learned w > 0, in place of a matrix."""

    def reset_parameters(self) -> None:
        self.weight = torch.nn.Parameter(self.weight.new_empty(self.out_channels, self.out_channels))
        super().reset_parameters()
        start = 1.0 if isinstance(self.weight_init, str) else float(self.weight_init)
        if not start > 0:
            raise ValueError(f"LabelNet starts at W = w·I with w > 0, but weight_init came as {start:g}.")
        self.weight = torch.nn.Parameter(self.weight.new_tensor(math.log(start)))

    @property
    def strength(self) -> Tensor:
        """w; a step changes it by a factor."""
        return self.weight.exp()

    def recurrent_weight(self) -> Tensor:
        return self.strength * torch.eye(self.out_channels, dtype=self.weight.dtype, device=self.weight.device)


class LabelNet(_TaskNet):
    r"""Known labels of some nodes in, logits of all nodes out; it starts as label propagation.

    The input has a column for each class, and one that tells who has a label at all. All of them spread alike;
    what arrives of a class, beside what arrives of that last column, is its share. With :math:`\mathbf{s}` the
    logarithms of the shares and :math:`t` that of the last column, the logits are :math:`a \mathbf{s} +
    f(\mathbf{s}, t)`, at first with :math:`a = 1` and :math:`f = 0`: a perceptron whose last layer starts at 0.
    What spreads should stay positive: use ReLU. Then the recursion is a power series, since :math:`\mathbf{W} = w
    \mathbf{I}`: training computes the hops of the scored nodes once, and :meth:`encode` takes those, too.

    Args:
        in_channels: ``num_classes + 1``.
        num_classes: Number of outputs.
        hidden: Width of the perceptron.
        dropout: In the perceptron.
        weight_init: How W = w·I starts: a number ``w``, ``"identity"`` for 1.
        layer: The class of the infinite-depth layer; another one than ours learns all of W.
        **conv: Options of it, such as ``eps``.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        hidden: int = 64,
        dropout: float = 0.0,
        *,
        weight_init: WeightInit = "identity",
        layer: Layer = PPRConv,
        **conv: Any,
    ) -> None:
        super().__init__()
        if in_channels != num_classes + 1:
            raise ValueError(
                f"This network reads a column for each of {num_classes} classes and one more, but in_channels is "
                f"{in_channels}; give it labels alone (data.features = 'labels')."
            )
        self.in_channels, self.num_classes = in_channels, num_classes
        layer = _SpreadingConv if layer is PPRConv else layer
        self.conv = layer(None, in_channels, weight_init=weight_init, **(AS_PUBLISHED | {"bias": False} | conv))
        self.scale = torch.nn.Parameter(torch.empty(()))
        self.norm = torch.nn.LayerNorm(in_channels)
        self.lin = torch.nn.Linear(in_channels, hidden)
        self.dropout = torch.nn.Dropout(dropout)
        self.out = torch.nn.Linear(hidden, num_classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        torch.nn.init.ones_(self.scale)
        torch.nn.init.zeros_(self.out.weight)
        torch.nn.init.zeros_(self.out.bias)

    def output_bias(self, num_classes: int) -> None:
        """None: its last bias is a correction, which starts at 0, of shares that are input."""

    def hops_needed(self, adj: Adjacency) -> int | None:
        """How many hops the state is made of at the present ε and w.

        ``None``: it is no power series, or of more than ``max_depth``, which the recursion warns about.
        """
        conv = self.conv
        phi = conv.activation.name
        # Where no entry is negative, no state is.
        linear = phi == "identity" or (phi == "relu" and adj.all_true(bool((adj.value >= 0).all())))
        if not (isinstance(conv, _SpreadingConv) and linear and torch.as_tensor(conv.eps).numel() == 1):
            return None
        if isinstance(conv.depth_rule, Fixed):
            return conv.depth_rule.k
        eps = torch.as_tensor(conv.eps).item()
        bounds = StepBounds(conv.strength.item() * adj.norm_bound, eps, 1.0)
        return bounds.depth(conv.tol, conv.max_depth)

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """From labels and edges; or, with ``None`` for the edges, from hops of shape (rows, hops, in_channels)."""
        if edge_index is None:
            assert x is not None
            return sum_of_hops(x, self.conv.strength, torch.as_tensor(self.conv.eps))
        state: Tensor = self.conv(check_features(x, self.in_channels), edge_index, edge_weight)
        return state

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        amounts = state.clamp(min=0.0)
        total = amounts[:, -1:] + LEAST_SUM
        shares = (amounts[:, :-1] / total + LEAST_SHARE).log()
        seen = self.norm(torch.cat([shares, total.log()], dim=1))
        correction: Tensor = self.out(self.dropout(self.lin(seen).relu()))
        return self.scale * shares + correction
