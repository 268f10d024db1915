"""What every infinite-depth layer has: a decay rate, a rule for its depth, and what came of it.

And the layers inside a module: find them, set their tolerance, keep and freeze their depths.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.explain.algorithm import graphmask_explainer
from torch_geometric.nn.conv import MessagePassing

import pprgnn.nn.messages  # noqa: F401  # tells PyG's explainers how far these layers read
from pprgnn.core.activation import Activation, resolve_activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.adjoint import Adjoint, as_adjoint
from pprgnn.core.backend.buffers import handle_of
from pprgnn.core.depth import DepthRule, Fixed, Measured, resolve_depth
from pprgnn.core.depth_memory import DepthMemory
from pprgnn.core.problem import check_limits
from pprgnn.core.solution import Solution, Status
from pprgnn.core.solve import solve
from pprgnn.nn.layer_checks import as_rates
from pprgnn.nn.through_adjacency import SolvingAdjacency

Model = TypeVar("Model", bound=torch.nn.Module)


class InfiniteLayer(MessagePassing):  # type: ignore[misc]
    """The part that :class:`PPRConv` and :class:`InfiniteDepth` share; arguments as there.

    Attributes:
        last_solution: Depth, status and error of the last forward pass.
    """

    last_solution: Solution | None
    has_terms = True  # whether grad_terms cuts the gradient short

    def __init__(
        self,
        channels: int | None,
        eps: float | Sequence[float],
        learn_eps: bool | Literal["channel"],
        activation: str | Activation | None,
        depth: int | DepthRule | None,
        tol: float,
        max_depth: int,
        grad_terms: int | None,
        checkpoint: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_limits(tol, max_depth, grad_terms)
        if learn_eps not in (True, False, "channel"):
            raise ValueError(f"learn_eps must be True, False or 'channel', but came as {learn_eps!r}.")
        self.learn_eps = learn_eps
        self.activation = resolve_activation(activation)
        self.tol = tol
        self.max_depth = max_depth
        self.grad_terms = grad_terms
        self.checkpoint = checkpoint
        rule = resolve_depth(depth)
        self.depth_rule = DepthMemory(rule) if isinstance(rule, Measured) else rule
        self.depth = depth
        self.rates = as_rates(eps, channels)
        self._rate_channels = channels
        self.log_eps = None
        if learn_eps:  # ε > 0 by construction, and a step changes it by a factor
            shape = () if len(self.rates) == 1 else (len(self.rates),)
            if learn_eps == "channel":
                if channels is None:
                    raise ValueError("learn_eps='channel' needs the number of channels; give channels=...")
                shape = (channels,)
            self.log_eps = Parameter(torch.empty(shape))
        self.last_solution = None
        self.handle = handle_of(self)  # by which compiled code finds this layer

    def reset_parameters(self) -> None:
        """Start the rates anew and forget the depth."""
        super().reset_parameters()
        if self.log_eps is not None:
            start = torch.tensor(self.rates, dtype=torch.float64)
            if self.learn_eps == "channel":
                start = per_channel(start, self.log_eps.numel())
            with torch.no_grad():
                self.log_eps.copy_(start.log().view_as(self.log_eps))
        self.last_solution = None
        if isinstance(self.depth_rule, DepthMemory):
            self.depth_rule.forget()

    @property
    def eps(self) -> float | Tensor:
        """The decay rate: a number, or a tensor of shape () or (channels,) when it is learned or several."""
        if self.log_eps is not None:
            eps = self.log_eps.exp()
        elif len(self.rates) == 1:
            return self.rates[0]
        else:  # made of the exact numbers, so that it is right in every precision
            eps = next(self.parameters(), torch.empty(0)).new_tensor(self.rates)
        several = self._rate_channels is not None and eps.numel() not in (1, self._rate_channels)
        return per_channel(eps, self._rate_channels) if several and self._rate_channels else eps

    @property
    def adjoint(self) -> Adjoint:
        """How it is differentiated."""
        return as_adjoint(None, self.grad_terms, self.checkpoint)

    @property
    def explain(self) -> bool | None:
        """Whether an explainer looks at the messages, as everywhere in PyG."""
        return self._explain  # type: ignore[no-any-return]

    @explain.setter
    def explain(self, explain: bool | None) -> None:
        if explain and getattr(self.explain_message, "__func__", None) is graphmask_explainer.explain_message:
            del self.explain_message  # other explainers may come
            raise ValueError(
                f"GraphMaskExplainer normalises the messages of a layer, after which the many hops of "
                f"'{type(self).__name__}' no longer decay; use GNNExplainer, PGExplainer or CaptumExplainer."
            )
        MessagePassing.explain.fset(self, explain)

    @abstractmethod
    def weights(self) -> list[Tensor]:
        """The matrices that a step multiplies states by: their norms tell how strong it is."""

    def solve_product(self, b: Tensor, weight: Tensor, adj: Adjacency) -> Solution:
        """With the options of this layer, where a step is ÃGW."""
        if isinstance(adj, SolvingAdjacency):
            return adj.solve(self.handle, b, weight, self.eps, self.activation)
        return solve(
            b,
            weight,
            adj,
            eps=self.eps,
            depth=self.depth_rule,
            tol=self.tol,
            max_depth=self.max_depth,
            activation=self.activation,
            adjoint=self.adjoint,
        )

    @contextmanager
    def _measuring(self) -> Iterator[None]:
        """Within it, depths are measured on the very input, whatever was found on others before."""
        rule = self.depth_rule
        self.depth_rule = getattr(rule, "rule", rule)  # what the memory asks when it does not know
        try:
            yield
        finally:
            self.depth_rule = rule

    def hops_within(self, num_nodes: int) -> int:
        """How many hops away a node may be to have an influence, in a graph with so many nodes."""
        if not isinstance(self.depth_rule, Fixed):
            return num_nodes
        return self.depth_rule.k * getattr(self, "hops", 1) + getattr(self, "smooth_input", False)

    def __prepare_scriptable__(self) -> None:
        """Called by ``torch.jit.script``."""
        raise ValueError(
            f"torch.jit.script cannot follow '{type(self).__name__}', whose depth depends on its input; use "
            f"torch.compile or torch.export."
        )

    def _remember(self, solution: Solution) -> Tensor:
        self.last_solution = replace(solution, state=solution.state.detach())
        return solution.state

    def __getstate__(self) -> dict[str, Any]:
        # What can be found again is not copied or pickled: it may be as large as the graph.
        return {**super().__getstate__(), "last_solution": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.handle = handle_of(self)  # a copy is a layer of its own

    def _rates_repr(self) -> str:
        learned = {True: ", learn_eps=True", "channel": ", learn_eps='channel'"}.get(self.learn_eps, "")
        depth = "" if self.depth is None else f", depth={self.depth}"
        rates = ", ".join(f"{rate:g}" for rate in self.rates)
        return f"eps={rates if len(self.rates) == 1 else f'({rates})'}{learned}{depth}"


def per_channel(rates: Tensor, channels: int) -> Tensor:
    """One rate per channel, shape (channels,): neighbouring channels share one, all about equally often."""
    group = torch.arange(channels, device=rates.device) * len(rates) // channels
    return rates[group]


# ----------------------------------------------------------------------------------------- the layers in a module
def infinite_layers(module: torch.nn.Module) -> list[tuple[str, InfiniteLayer]]:
    """Every :class:`PPRConv` and :class:`InfiniteDepth` in ``module`` with its name, in their order."""
    return [(name, layer) for name, layer in module.named_modules() if isinstance(layer, InfiniteLayer)]


def set_tolerance(module: torch.nn.Module, tol: float) -> None:
    """Set the error that every infinite-depth layer in ``module`` may leave."""
    if not tol > 0:
        raise ValueError(f"tol must be > 0, but came as {tol}.")
    for _, layer in infinite_layers(module):
        layer.tol = tol


def look_every(module: torch.nn.Module, steps: int) -> None:
    """Look at the depth of every infinite-depth layer in one of so many training steps, after the first few."""
    for memory in _memories(module).values():
        memory.every = steps


@contextmanager
def measure_afresh(module: torch.nn.Module) -> Iterator[None]:
    """Within it, every solve measures its depth on its own input, and proves it where it can.

    What comes out depends on the weights and on the input alone, and the steps after do not depend on what
    happened in the block. For results that are kept, shown or handed on.
    """
    with ExitStack() as stack:
        for _, layer in infinite_layers(module):
            stack.enter_context(layer._measuring())
        yield


def depth_state(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What the layers remember about their depths: JSON values by layer, and tensors by ``layer/name``."""
    values: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for name, memory in _memories(module).items():
        values[name] = memory.state()
        own = values[name].pop("tensors")
        tensors |= {f"{name}/{key}": each for key, each in own.items()}
    return values, tensors


def restore_depth_state(module: torch.nn.Module, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Take back what :func:`depth_state` gave: training then goes on as if it had never stopped."""
    memories = _memories(module)
    if set(memories) != set(state):
        raise ValueError(
            f"The depths to restore must be those of the layers {sorted(memories)}, but are those of "
            f"{sorted(state)}; restore them into the network they came from."
        )
    for name, memory in memories.items():
        own = {key.removeprefix(f"{name}/"): each for key, each in tensors.items() if key.startswith(f"{name}/")}
        memory.restore({**state[name], "tensors": own})


def _memories(module: torch.nn.Module) -> dict[str, DepthMemory]:
    layers = infinite_layers(module)
    return {name: layer.depth_rule for name, layer in layers if isinstance(layer.depth_rule, DepthMemory)}


def freeze_depth(model: Model, depth: int | None = None) -> Model:
    """Give every infinite-depth layer in ``model`` the depth it found last, for good; returns the model.

    Args:
        model: A layer, or a network that contains some; it is changed.
        depth: A depth for all of them instead.

    Example:
        >>> import torch
        >>> from pprgnn.nn import PPRConv
        >>> conv, edge_index = PPRConv(16, 8, eps=0.5), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> _ = conv(torch.randn(3, 16), edge_index)
        >>> freeze_depth(conv).depth == conv.last_solution.depth
        True
    """
    layers = infinite_layers(model)
    if not layers:
        raise ValueError(f"freeze_depth needs infinite-depth layers, but {type(model).__name__} has none.")
    rules = [Fixed(_depth_of(name, layer) if depth is None else depth) for name, layer in layers]
    for (_, layer), rule in zip(layers, rules, strict=True):  # all or none
        layer.depth_rule, layer.depth = rule, rule.k
        if hasattr(layer, "steps"):  # a layer of equilibria
            layer.steps = rule.k
    return model


def _depth_of(name: str, layer: InfiniteLayer) -> int:
    if layer.last_solution is None:
        raise ValueError(
            f"The depth of layer {name or type(layer).__name__!r} is not known yet; run the model once on a "
            f"typical graph before freeze_depth, or give depth=..."
        )
    if layer.last_solution.status is Status.REUSED:
        raise ValueError(
            f"The last pass of layer {name or type(layer).__name__!r} was a training step, whose depth is an "
            f"estimate; run the model once with torch.no_grad() before freeze_depth, or give depth=..."
        )
    if getattr(layer, "acceleration", "none") != "none":  # a layer of equilibria
        raise ValueError(
            f"The depth of layer {name or type(layer).__name__!r} may count steps from mixtures of states, and as "
            f"many plain ones would not do; build it with acceleration='none', or give depth=..."
        )
    return layer.last_solution.depth
