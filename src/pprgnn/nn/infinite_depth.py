"""Any convolution of PyTorch Geometric, made infinitely deep."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import reset, zeros

from pprgnn.core.activation import Activation
from pprgnn.core.adjoint import Full
from pprgnn.core.depth import DepthRule, Fixed
from pprgnn.core.problem import as_eps
from pprgnn.core.steps import Steps
from pprgnn.nn import compiled_layers
from pprgnn.nn.infinite_layer import InfiniteLayer
from pprgnn.nn.known_convs import ConvAnalysis, analyze_conv, matrices_of
from pprgnn.nn.layer_checks import check_numbers, one_set_of_nodes
from pprgnn.nn.messages import MESSAGE_HOOKS
from pprgnn.nn.through_adjacency import contents_of
from pprgnn.nn.wrapped_conv import (
    Call,
    as_plain,
    check_inside,
    check_nodes,
    directed,
    same_randomness,
    shape_of,
    width_of,
    without_masks,
)


class InfiniteDepth(InfiniteLayer):
    r"""Turns a convolution into an infinitely deep one.

    .. math::
        \mathbf{G}^{(n)} = \phi\left(\beta_n \, \mathrm{conv}(\mathbf{G}^{(n+1)}) + \mathbf{B}\right), \qquad
        \beta_n = \frac{1}{1 + n \epsilon}

    for :math:`n = \infty, \ldots, 1, 0`; the output is :math:`\mathbf{G}^{(0)}`. It converges for every
    convolution whose Lipschitz constant is finite, whatever its weights. With a
    :class:`torch_geometric.nn.GCNConv` without bias inside it is :class:`PPRConv`.

    Args:
        conv: Any convolution that returns as many channels as it takes: :obj:`GCNConv`, :obj:`GATConv`,
            :obj:`GINConv`, :obj:`SAGEConv`, :obj:`TransformerConv`, :obj:`GINEConv`, :obj:`RGCNConv`, your own; or
            a :class:`torch_geometric.nn.HeteroConv` of such, whose states are dictionaries. Dropout inside it has
            one mask for all steps of a pass; batch norm is refused, because its statistics would mix the steps.
        in_channels: If given, :math:`\mathbf{B} = \mathbf{X} \mathbf{\Omega} + \mathbf{b}` with a linear map from
            so many channels (:obj:`-1`: as many as the first input has). Otherwise :math:`\mathbf{B} =
            \mathbf{X}`.
        channels: Width of the state, where it is needed and :obj:`conv` does not tell it.
        eps: Decay rate: the smaller, the farther messages travel. (default: :obj:`1.0`)
        learn_eps: As in :class:`PPRConv`. (default: :obj:`False`)
        activation: As in :class:`PPRConv`. (default: :obj:`"relu"`)
        depth: As in :class:`PPRConv`: by default measured. (default: :obj:`None`)
        tol: Error allowed, relative to the norm of :math:`\mathbf{B}`. (default: :obj:`1e-5`)
        max_depth: The cap; reaching it warns. (default: :obj:`500`)
        grad_terms: Through how many of the last steps the gradient goes, :obj:`None` for all. Memory grows with
            it, not with depth. (default: :obj:`5`)
        checkpoint: Keep the states alone of these steps, and repeat the steps in the backward pass.
            (default: :obj:`False`)
        direction: :obj:`"in"`: messages go along the edges; :obj:`"out"`: against them; :obj:`"both"`: the mean of
            both, each with weights of its own. (default: :obj:`"in"`)
        lipschitz: An upper bound of the Lipschitz constant of :obj:`conv` in the Frobenius norm, a number or a
            function of :math:`\mathbf{B}` and the other arguments of :meth:`forward`: depth is then proved. Known
            without it for :obj:`GCNConv`, :obj:`SAGEConv`, :obj:`GraphConv` and :obj:`GINConv`; elsewhere depths
            are compared with each other, and :obj:`last_solution.status` says so. (default: :obj:`None`)
        bias: Whether the linear map has a bias. (default: :obj:`True`)

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})` or a dictionary of them; all other arguments go
          to :obj:`conv` as they are
        - **output:** node features :math:`(|\mathcal{V}|, F)`, or a dictionary

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GATConv
        >>> layer = InfiniteDepth(GATConv(32, 8, heads=4), in_channels=16, eps=0.5)
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> layer(torch.randn(3, 16), edge_index).shape
        torch.Size([3, 32])
        >>> layer.last_solution.converged
        True
    """

    def __init__(
        self,
        conv: torch.nn.Module,
        in_channels: int | None = None,
        *,
        channels: int | None = None,
        eps: float | Sequence[float] = 1.0,
        learn_eps: bool | Literal["channel"] = False,
        activation: str | Activation | None = "relu",
        depth: int | DepthRule | None = None,
        tol: float = 1e-5,
        max_depth: int = 500,
        grad_terms: int | None = 5,
        checkpoint: bool = False,
        direction: Literal["in", "out", "both"] = "in",
        lipschitz: float | Callable[..., float] | None = None,
        bias: bool = True,
    ) -> None:
        channels = width_of(conv, channels)
        super().__init__(channels, eps, learn_eps, activation, depth, tol, max_depth, grad_terms, checkpoint)
        check_inside(conv)
        self.in_channels = in_channels
        self.direction = direction
        self.lipschitz = lipschitz
        self.conv = directed(conv, direction)
        self.flow: str = getattr(self.conv, "flow", "source_to_target")  # explainers go against it
        for name in MESSAGE_HOOKS:  # its messages are those of the convolution
            setattr(self, name, getattr(self.conv, name, OrderedDict()))
        self.lin: torch.nn.Module = torch.nn.Identity()
        self.bias = None
        self._explained_input: tuple[Any, ...] = ()
        self._explained_depth = 0
        if in_channels is not None:
            if channels is None:
                raise ValueError(
                    f"in_channels needs the width of {type(conv).__name__}, which does not tell it; give "
                    f"channels=... as well."
                )
            self.lin = Linear(in_channels, channels, bias=False, weight_initializer="glorot")
            self.bias = Parameter(torch.zeros(channels)) if bias else None
        super().reset_parameters()  # of this layer alone: the convolution comes with its weights

    @property
    def out_channels(self) -> int | None:
        """Width of the state, if it is known."""
        return self._rate_channels

    def reset_parameters(self) -> None:
        """Draw all parameters anew, those of the convolution included, and forget the depth."""
        super().reset_parameters()
        reset(self.conv)
        reset(self.lin)
        zeros(self.bias)

    def weights(self) -> list[Tensor]:
        return matrices_of(self.conv)

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Node features in, node features out; everything else goes to the convolution as it is."""
        x = one_set_of_nodes(type(self).__name__, x)
        self._check_hooks()
        if isinstance(x, Mapping):
            return self._forward_types(x, args, kwargs)
        b = self._input_term(x)
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            # they follow plain tensors alone
            args, kwargs = tuple(map(as_plain, args)), {name: as_plain(value) for name, value in kwargs.items()}
        if not torch.compiler.is_compiling():
            check_nodes(args[0] if args else kwargs.get("edge_index"), b.size(-2))
        return self._forward_joined(b, Call(self.conv, args, kwargs, lambda g: self.conv(g, *args, **kwargs)))

    def _check_hooks(self) -> None:
        hooks = [name for name in MESSAGE_HOOKS if getattr(self, name)]
        if any(getattr(self, name) is not getattr(self.conv, name, None) for name in hooks):
            raise ValueError(
                f"'{type(self).__name__}' sends no messages of its own; register hooks on the convolutions in "
                f"{type(self.conv).__name__} instead."
            )

    def _input_term(self, x: Tensor) -> Tensor:
        check_numbers(type(self).__name__, x)
        if x.dim() < 2:
            raise ValueError(f"x must have shape (num_nodes, channels), but is {shape_of(x)}.")
        if x.size(-2) == 0:
            raise ValueError("The graph has no nodes; x needs a row for each of them (edges may be absent).")
        b: Tensor = self.lin(x)
        if self.out_channels is not None and b.size(-1) != self.out_channels:
            raise ValueError(
                f"x must have {self.out_channels} columns, as many as {type(self.conv).__name__} returns, but has "
                f"{b.size(-1)}; give in_channels={b.size(-1)} to have a linear map before it."
            )
        return b if self.bias is None else b + self.bias

    def _forward_types(
        self, x: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Tensor]:
        """A state per type of node: all of them, one below the other, are one state."""
        if self.in_channels is not None:
            raise ValueError(
                "A dictionary of node types needs a linear map for each; leave in_channels out and put PyG's "
                "HeteroDictLinear before this layer."
            )
        widths = {tuple(each.shape[1:]) for each in x.values()}
        if len(widths) != 1:
            raise ValueError(
                f"All types of nodes must have states of the same width, but they have {sorted(widths)}; put "
                f"PyG's HeteroDictLinear before this layer."
            )
        kinds, sizes = list(x), [len(each) for each in x.values()]
        together = self._input_term(torch.cat(list(x.values())))

        def function(g: Tensor) -> Tensor:
            state = dict(zip(kinds, torch.split(g, sizes), strict=True))
            out = self.conv(state, *args, **kwargs)
            # A type that no edge leads to gets no message.
            parts = [torch.zeros_like(state[kind]) if out.get(kind) is None else out[kind] for kind in kinds]
            return torch.cat(parts)

        state = self._forward_joined(together, Call(self.conv, args, kwargs, function))
        return dict(zip(kinds, torch.split(state, sizes), strict=True))

    def _forward_joined(self, b: Tensor, call: Call) -> Tensor:
        b = b.to(next((p.dtype for p in self.parameters()), b.dtype))  # autocast may have lowered it
        with torch.autocast(b.device.type, enabled=False):
            if torch.compiler.is_compiling():
                return compiled_layers.forward_steps(self, b, call)
            if any(getattr(part, "explain", None) for part in self.modules()):
                return self._explained(b, call)
            known = analyze_conv(self.conv, b, call.args, call.kwargs)
            if known is not None and known.weight is not None:
                return self._remember(self.solve_product(b, known.weight.contiguous(), known.adj))
            wants_grad = any(each.requires_grad for each in (b, *self.parameters(), *call.tensors))
            solution = self.problem(b, self.eps, call, known).solve(
                self.depth_rule, self.tol, self.max_depth, self.adjoint, wants_grad
            )
        state = self._remember(solution)
        return state.clone() if state.requires_grad else state  # φ keeps its output, which others may overwrite

    def problem(self, b: Tensor, eps: float | Tensor, call: Call, known: ConvAnalysis | None = None) -> Steps:
        """The recursion as the depth rules see it."""
        function = call if known is None else replace(call, function=known.function)
        return Steps(
            b,
            same_randomness(function, b.device) if self.training else function,
            as_eps(eps, b, b.size(-1)),
            self.activation,
            lambda: self._lipschitz(known, b, call),
            self._numbers,
            cache(lambda: call.graph(b)),
        )

    def _lipschitz(self, known: ConvAnalysis | None, b: Tensor, call: Call) -> float | None:
        if self.lipschitz is None:
            return None if known is None else known.lipschitz(known.adj.norm_bound)
        given = self.lipschitz(b, *call.args, **call.kwargs) if callable(self.lipschitz) else self.lipschitz
        if not float(given) >= 0:  # also refuses NaN
            raise ValueError(f"lipschitz must be a number >= 0, but came as {given}.")
        return float(given)

    def _numbers(self) -> Tensor:
        parameters = [each.detach().flatten() for each in self.conv.parameters()]
        return torch.cat(parameters) if parameters else torch.ones(1)

    def _explained(self, b: Tensor, call: Call) -> Tensor:
        """With masks on every message and all of the gradient, as deep as the layer is without masks."""
        given = (self.tol, self.max_depth, *contents_of(b, *call.tensors, *self.parameters()))
        if given != self._explained_input:  # else nothing but the masks has changed
            with without_masks(self), torch.no_grad(), self._measuring():
                known = analyze_conv(self.conv, b, call.args, call.kwargs)
                problem = self.problem(b, self.eps, call, known)
                solution = problem.solve(self.depth_rule, self.tol, self.max_depth, Full())
            self._remember(solution)
            self._explained_input, self._explained_depth = given, solution.depth
        problem = self.problem(b, self.eps, call)
        return problem.solve(Fixed(self._explained_depth), self.tol, self.max_depth, Full()).state

    def __repr__(self) -> str:
        width = "" if self.in_channels is None else f"{self.in_channels}, "
        inner = repr(self.conv).replace("\n", "\n  ")
        return f"{type(self).__name__}({inner}, {width}{self._rates_repr()})"
