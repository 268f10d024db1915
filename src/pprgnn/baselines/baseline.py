"""What the systems here share: features and edges in, messages along them, and a head for nodes or graphs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import Dropout, Identity, Linear, ReLU, Sequential

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.entries import Normalization
from pprgnn.nn.network import GraphHead, Network, check_features
from pprgnn.nn.through_adjacency import as_adjacency

Made = TypeVar("Made")


# What was made of the graphs in use; an entry disappears together with its graph.
_made: WeakKeyDictionary[Adjacency, dict[Hashable, Any]] = WeakKeyDictionary()


def once_for(adj: Adjacency, what: Hashable, make: Callable[[Adjacency], Made]) -> Made:
    """``make(adj)``, made once for each graph; ``what`` tells it from other things that are made of a graph."""
    made = _made.setdefault(adj, {})
    if what not in made:
        made[what] = make(adj)
    found: Made = made[what]
    return found


class Baseline(Network):
    """A network that passes its messages in :meth:`propagate`.

    Args:
        in_channels: Features per node.
        num_classes: Number of outputs.
        task: ``"node"`` or ``"graph"``; the first of :attr:`tasks` if not given.
        **settings: Those of :attr:`defaults` that are to differ: ``hidden``, the width of the states; ``layers``;
            ``dropout``, before each layer and in the head; ``pooling``, from nodes to graphs.

    Attributes:
        defaults: The settings that the system reads, besides the arguments of its own.
        tasks: What it can label.
        only: Why not both, at the beginning of a sentence.
        normalize: How Ã is normalised.
        self_loops: Whether Ã has self-loops.
        plain_edges: Whether it wants the ``edge_index`` as it is, and no Ã.
        sparse_input: Whether features may stay sparse, because a linear layer is the first to read them.
    """

    defaults: ClassVar[dict[str, Any]] = {"hidden": 64, "layers": 2, "dropout": 0.5, "pooling": "sum"}
    tasks: tuple[str, ...] = ("node", "graph")
    only: str = ""
    normalize: Normalization = "sym"
    self_loops: bool = True
    plain_edges: bool = False
    sparse_input: bool = True
    hidden: int
    layers: int
    dropout: float
    pooling: str
    __signature__: ClassVar[Signature]
    head: torch.nn.Module

    def __init_subclass__(cls) -> None:
        """Let the signature name all that the constructor takes: the defaults, and the arguments of its own."""
        super().__init_subclass__()
        given = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("in_channels", "num_classes")]
        task = Parameter("task", Parameter.POSITIONAL_OR_KEYWORD, default=cls.tasks[0])
        shared = [Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in cls.defaults.items()]
        own = signature(cls.__init__).parameters.values()
        cls.__signature__ = Signature(
            [*given, task, *shared, *(each for each in own if each.kind is Parameter.KEYWORD_ONLY)]
        )

    def __init__(self, in_channels: int, num_classes: int, task: str | None = None, **settings: Any) -> None:
        super().__init__()
        task = task or self.tasks[0]
        if task not in self.tasks:
            allowed = " or ".join(map(repr, self.tasks))
            raise ValueError(f"{self.only}task must be {allowed}, but came as {task!r}.")
        self.in_channels, self.num_classes, self.for_graphs = in_channels, num_classes, task == "graph"
        for name in settings:
            if name not in self.defaults:
                raise TypeError(f"{type(self).__name__} reads {', '.join(self.defaults)}, but was given {name!r}.")
        for name, value in (self.defaults | settings).items():
            setattr(self, name, value)

    @property
    def layer_widths(self) -> list[int]:
        """Of the features and of each layer; the last one gives the logits of nodes, or the states of graphs."""
        last = self.hidden if self.for_graphs else self.num_classes
        return [self.in_channels, *[self.hidden] * (self.layers - 1), last]

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        super().reset_parameters()
        self.set_start()

    def set_start(self) -> None:
        """Give values to the parameters that no layer of torch starts as it should."""

    def add_head(self, channels: int, node_layers: int = 0) -> None:
        """From states of so many channels to logits; 0 layers: the states are the logits of nodes."""
        self.head = Identity()
        if node_layers:  # drawn for graphs, too, so that a seed gives them the same weights as ever
            inner = [layer for _ in range(1, node_layers) for layer in (Linear(channels, channels), ReLU())]
            self.head = Sequential(*inner, Dropout(self.dropout), Linear(channels, self.num_classes))
        if self.for_graphs:
            self.head = GraphHead(channels, self.num_classes, pooling=self.pooling, dropout=self.dropout)

    def encode(self, x: Tensor | None, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        x = check_features(x, self.in_channels, sparse=self.sparse_input)
        return self.propagate(x, self.adjacency(x, edge_index, edge_weight))

    @abstractmethod
    def propagate(self, x: Tensor, adj: Any) -> Tensor:
        """From features to states, by what :meth:`adjacency` returns."""

    def adjacency(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Any:
        """What messages are multiplied by."""
        options = self.adjacency_options
        if options is None:
            return edge_index
        return as_adjacency(edge_index, edge_weight, x.size(0), x.dtype, **options)

    def decode(self, state: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        logits: Tensor = self.head(state, batch, num_graphs) if self.for_graphs else self.head(state)
        return logits

    @property
    def adjacency_options(self) -> dict[str, Any] | None:
        return None if self.plain_edges else {"normalize": self.normalize, "add_self_loops": self.self_loops}

    @property
    def encode_is_deterministic(self) -> bool:
        return self.dropout == 0
