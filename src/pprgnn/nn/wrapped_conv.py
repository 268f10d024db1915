"""What a convolution needs to be repeated: equal widths, a direction, one mask of dropout, and to be looked at."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.inits import reset

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.csr import fingerprint
from pprgnn.core.entries import check_memory
from pprgnn.nn.infinite_layer import InfiniteLayer
from pprgnn.nn.through_adjacency import dense_parts

_TURNED = {"source_to_target": "target_to_source", "target_to_source": "source_to_target"}


class BothDirections(torch.nn.Module):
    """The mean of a convolution along the edges and one against them, each with weights of its own."""

    def __init__(self, conv: MessagePassing) -> None:
        super().__init__()
        self.along, self.against = conv, copy.deepcopy(conv)
        reset(self.against)
        self.against.flow = _TURNED[conv.flow]

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        reset(self.along)
        reset(self.against)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Both, with the same arguments."""
        out: Tensor = 0.5 * (self.along(x, *args, **kwargs) + self.against(x, *args, **kwargs))
        return out


def directed(conv: torch.nn.Module, direction: str) -> torch.nn.Module:
    """The convolution along the edges, against them, or both."""
    if direction == "in":
        return conv
    if direction not in ("out", "both"):
        raise ValueError(f"direction must be 'in', 'out' or 'both', but came as {direction!r}.")
    if not isinstance(conv, MessagePassing):
        raise ValueError(
            f"direction={direction!r} needs a convolution of PyG whose flow can be turned, but "
            f"{type(conv).__name__} is none; turn the edges instead: edge_index.flip(0)."
        )
    if direction == "both":
        return BothDirections(conv)
    conv.flow = _TURNED[conv.flow]
    turned: torch.nn.Module = conv
    return turned


def width_of(conv: torch.nn.Module, channels: int | None) -> int | None:
    """The number of channels of the state, as far as it can be told before there is an input."""
    if channels is not None and channels < 1:
        raise ValueError(f"channels must be >= 1, but came as {channels}.")
    takes, returns = (getattr(conv, name, None) for name in ("in_channels", "out_channels"))
    takes = takes[0] if isinstance(takes, tuple) and takes else takes
    heads: Any = getattr(conv, "heads", None) if getattr(conv, "concat", False) else None
    if isinstance(returns, int) and isinstance(heads, int):
        returns *= heads
    told = [width for width in (takes, returns, channels) if isinstance(width, int) and width > 0]
    if len(set(told)) > 1:
        asked = "" if channels is None else f", and channels={channels} was given"
        raise ValueError(
            f"A recursion needs a convolution that returns as many channels as it takes, but "
            f"{type(conv).__name__} takes {takes} and returns {returns}{asked}; make them equal (with heads side "
            f"by side, out_channels times heads counts) and use in_channels for an input of another width."
        )
    return told[0] if told else None


def check_inside(conv: torch.nn.Module) -> None:
    """Raise if there is something in it that cannot be repeated."""
    if not isinstance(conv, torch.nn.Module):
        raise ValueError(f"conv must be a module such as GCNConv(64, 64), but came as {type(conv).__name__}.")
    for name, part in conv.named_modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"conv must not contain batch norm, because its statistics would mix all steps of the recursion, "
                f"but {name or type(conv).__name__} is {type(part).__name__}; use LayerNorm there, or batch norm "
                f"behind this layer."
            )
        if isinstance(part, InfiniteLayer):
            raise ValueError(f"{type(part).__name__} is infinitely deep already; use it as it is.")


def check_nodes(edge_index: Any, num_nodes: int) -> None:
    """Raise if an ``edge_index`` names nodes that are not there; convolutions would crash, or worse."""
    plain = isinstance(edge_index, Tensor) and edge_index.layout == torch.strided
    if not plain or edge_index.is_floating_point() or edge_index.numel() == 0:
        return
    edge_index = as_plain(edge_index)
    check_memory(edge_index, "edge_index")
    smallest, largest = (int(end) for end in edge_index.aminmax())
    if smallest < 0 or largest >= num_nodes:
        raise ValueError(
            f"Node ids must be in 0 ... {num_nodes - 1}, but the edges name nodes {smallest} to {largest}; "
            f"renumber the nodes or give x a row for each of them."
        )


def draws_at_random(conv: torch.nn.Module) -> bool:
    """Whether it has dropout, as far as one can tell from outside."""
    rates = [getattr(part, name, 0.0) for part in conv.modules() for name in ("p", "dropout")]
    flat = [each for rate in rates for each in (rate if isinstance(rate, list | tuple) else [rate])]
    return any(isinstance(rate, float | int) and rate > 0 for rate in flat)


def same_randomness(function: Callable[[Tensor], Tensor], device: torch.device) -> Callable[[Tensor], Tensor]:
    """One dropout mask for all steps of a pass: otherwise there would be no limit to converge to."""
    on_gpu = device.type == "cuda"
    start = torch.cuda.get_rng_state(device) if on_gpu else torch.get_rng_state()

    def repeated(g: Tensor) -> Tensor:
        if on_gpu:
            torch.cuda.set_rng_state(start, device)
        else:
            torch.set_rng_state(start)
        return function(g)

    return repeated


@dataclass
class Call:
    """A convolution on its arguments: a function of the state; an error if the result cannot be the next one.

    Args:
        conv: The convolution.
        args, kwargs: Its arguments behind the state.
        function: What it does, of the state alone.
    """

    conv: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    function: Callable[[Tensor], Tensor]

    def __call__(self, g: Tensor) -> Tensor:
        name = type(self.conv).__name__
        try:
            out = self.function(g)
        except (AssertionError, IndexError, RuntimeError, ValueError) as error:
            if g.dim() == 2:
                raise
            raise ValueError(
                f"{name} does not take several sets of features at once, shape {tuple(g.shape)}, with this graph "
                f"({error or type(error).__name__}); call the layer once for each of them."
            ) from error
        if not isinstance(out, Tensor) or out.shape != g.shape:
            raise ValueError(
                f"{name} must return the shape it is given, {tuple(g.shape)}, but returned {shape_of(out)}; make "
                f"it as wide as its input."
            )
        return out

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor among the arguments, also those in dictionaries."""
        return list(_tensors_of((*self.args, *self.kwargs.values())))

    def graph(self, b: Tensor) -> tuple[int, int, int]:
        """Numbers of nodes and edges, and a number that tells graphs apart, by their edges and what is on them.

        Learned weights are no part of it: they move with every step.
        """
        given = [part for t in self.tensors if not t.requires_grad for part in dense_parts(t)]
        edges = sum(t.size(-1) for t in given if t.dim() == 2 and not t.is_floating_point())
        return b.size(-2), edges, fingerprint(*given)


def _tensors_of(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield as_plain(value)
        elif isinstance(value, Adjacency):
            yield value.value
        elif isinstance(value, Mapping):
            yield from _tensors_of(value.values())


def as_plain(value: Any) -> Any:
    """The plain tensor that is in PyG's ``EdgeIndex``; anything else as it is."""
    return value.as_tensor() if isinstance(value, EdgeIndex) else value


def shape_of(value: Any) -> str:
    """In words, for messages."""
    return f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


@contextmanager
def without_masks(layer: torch.nn.Module) -> Iterator[None]:
    """Within it, the convolutions of a layer work as if nobody explained them."""
    parts = [part for part in layer.modules() if isinstance(part, MessagePassing) and part.explain]
    for part in parts:
        part.explain = False
    try:
        yield
    finally:
        for part in parts:
            part.explain = True
