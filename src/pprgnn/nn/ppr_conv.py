"""The infinite-depth layer for PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import glorot, reset, zeros
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor

from pprgnn.core.activation import Activation
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.depth import DepthRule
from pprgnn.core.entries import Normalization
from pprgnn.core.solution import Solution, weakest
from pprgnn.nn import compiled_layers
from pprgnn.nn.layer_checks import check_edges, check_input, check_options, check_weight_options
from pprgnn.nn.linear_output import OutputForm
from pprgnn.nn.messages import forward_by_messages, has_message_hooks
from pprgnn.nn.through_adjacency import adjacency_of

WeightInit: TypeAlias = Literal["identity", "glorot"] | float  # how W starts: as I, drawn, or as a multiple of I


class PPRConv(OutputForm):
    r"""The infinite-depth graph convolution (PPRGNN).

    From `"Transforming PageRank into an Infinite-Depth Graph Neural Network"
    <https://arxiv.org/abs/2207.00684>`_:

    .. math::
        \mathbf{G}^{(n)} = \phi\left(\beta_n \mathbf{\tilde{A}} \mathbf{G}^{(n+1)} \mathbf{W} + \mathbf{X}
        \mathbf{\Omega} + \mathbf{b}\right), \qquad \beta_n = \frac{1}{1 + n \epsilon}

    for :math:`n = \infty, \ldots, 1, 0`. It converges for every :math:`\mathbf{W}`. A depth rule chooses how deep
    the computation goes; :obj:`last_solution` tells how deep it went and what is known about the error.
    The defaults are for the place of a :class:`torch_geometric.nn.GCNConv`: the output is the argument of the last
    :math:`\phi`, divided by the weight of all hops. The layer as published, whose output is
    :math:`\mathbf{G}^{(0)}`, has :obj:`output_activation=True`, :obj:`output_scale=1` and :obj:`weight_scale=1`.

    Args:
        in_channels: Size of each input sample, :obj:`-1` to derive it from the first input, or :obj:`None` when
            the input is itself the term :math:`\mathbf{X} \mathbf{\Omega}`: the layer then has no
            :math:`\mathbf{\Omega}`.
        out_channels: Size of each output sample.
        eps: Decay rate: the smaller, the farther messages travel. Several, such as :obj:`(1.0, 0.25, 0.06)`,
            are shared out evenly: the first channels get the first rate, and so on. (default: :obj:`1.0`)
        learn_eps: :obj:`True` learns each rate given, :obj:`"channel"` one per channel, both starting at
            :obj:`eps`. (default: :obj:`False`)
        activation: :obj:`"relu"`, :obj:`"leaky_relu"`, :obj:`"tanh"`, :obj:`"identity"` or a
            :class:`pprgnn.Activation`. (default: :obj:`"relu"`)
        depth: A depth rule, an integer for the finite model of that many hops, or :obj:`None` for
            :class:`pprgnn.Measured`, re-used between steps. (default: :obj:`None`)
        tol: Error allowed, relative to the norm of the input term. (default: :obj:`1e-5`)
        max_depth: The cap; reaching it warns. (default: :obj:`500`)
        grad_terms: Terms of the gradient, :obj:`None` for all. Memory grows with it, not with depth.
            (default: :obj:`5`)
        checkpoint: Keep one state instead of :obj:`grad_terms`, and repeat those steps in the backward pass.
            (default: :obj:`False`)
        smooth_input: Feed :math:`\mathbf{\tilde{A}} \mathbf{X} \mathbf{\Omega}` instead of :math:`\mathbf{X}
            \mathbf{\Omega}`, as the paper's experiments do. (default: :obj:`False`)
        cached: Keep the adjacency of the first call for all others and refuse another graph: for transductive
            learning only. Without it the adjacency is still built only once as long as the same tensors come in.
            (default: :obj:`False`)
        add_self_loops: Give every node without a self-loop one of weight 1. (default: as :obj:`normalize`)
        normalize: :obj:`True` or :obj:`"sym"` for symmetric, :obj:`"row"` for row normalisation, :obj:`False` to
            take the weights as they are. (default: :obj:`True`)
        bias: Whether to learn an additive bias. (default: :obj:`True`)
        weight_init: How :math:`\mathbf{W}` starts: :obj:`"identity"`, with which the layer starts as personalised
            PageRank, a number :obj:`w` for :math:`w \mathbf{I}`, or :obj:`"glorot"`. (default: :obj:`"identity"`)
        weight_scale: :math:`\mathbf{W}` is this times the parameter :obj:`weight`. Below 1, a step of Adam changes
            :math:`\mathbf{W}` by so much less than other parameters. (default: :obj:`0.03`)
        output_activation: Whether :math:`\phi` is applied to the output, too. (default: :obj:`False`)
        output_scale: A factor of the output. :obj:`"mean"` divides by :math:`1 + \beta_0 + \beta_0 \beta_1 +
            \ldots` at the first :obj:`eps`, after which :math:`\mathbf{W} = \mathbf{I}` takes a weighted mean over
            all hops. (default: :obj:`"mean"`)
        **kwargs: Additional arguments of :class:`torch_geometric.nn.conv.MessagePassing`.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})` or, for one graph with several sets of features,
          :math:`(B, |\mathcal{V}|, F_{in})`, edge indices :math:`(2, |\mathcal{E}|)` or sparse matrix (transposed,
          as everywhere in PyG) or :class:`pprgnn.Adjacency`, edge weights :math:`(|\mathcal{E}|)` *(optional)*
        - **output:** node features :math:`(|\mathcal{V}|, F_{out})` or :math:`(B, |\mathcal{V}|, F_{out})`

    Example:
        >>> import torch
        >>> conv = PPRConv(16, 32, eps=0.25)
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> conv(torch.randn(3, 16), edge_index).shape
        torch.Size([3, 32])
        >>> conv.last_solution.converged
        True
    """

    hops = 1  # how many a step makes
    weight_scale = 1.0  # of layers that were pickled before there was a choice

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        eps: float | Sequence[float] = 1.0,
        *,
        learn_eps: bool | Literal["channel"] = False,
        activation: str | Activation | None = "relu",
        depth: int | DepthRule | None = None,
        tol: float = 1e-5,
        max_depth: int = 500,
        grad_terms: int | None = 5,
        checkpoint: bool = False,
        smooth_input: bool = False,
        cached: bool = False,
        add_self_loops: bool | None = None,
        normalize: bool | Literal["sym", "row"] = True,
        bias: bool = True,
        weight_init: WeightInit = "identity",
        weight_scale: float = 0.03,
        output_activation: bool = False,
        output_scale: float | Literal["mean"] = "mean",
        **kwargs: Any,
    ) -> None:
        check_options(self, out_channels, kwargs.setdefault("aggr", "add"), normalize, add_self_loops)
        check_weight_options(weight_init, weight_scale)
        super().__init__(
            out_channels, eps, learn_eps, activation, depth, tol, max_depth, grad_terms, checkpoint, **kwargs
        )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.smooth_input = smooth_input
        self.cached = cached
        self.add_self_loops = bool(normalize) if add_self_loops is None else add_self_loops
        self.normalize = normalize
        self.weight_init = weight_init
        self.weight_scale = float(weight_scale)
        self.set_output(output_activation, output_scale)

        self.lin: torch.nn.Module = torch.nn.Identity()
        if in_channels is not None:
            self.lin = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.weight = Parameter(torch.empty(out_channels, out_channels))
        self.bias = Parameter(torch.empty(out_channels)) if bias else None
        self._cached_adj: Adjacency | None = None
        self._cached_contents: tuple[Any, ...] = ()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew and forget the cached graph and depth."""
        super().reset_parameters()
        reset(self.lin)
        (glorot if self.weight_init == "glorot" else torch.nn.init.eye_)(self.weight)
        start = 1.0 if isinstance(self.weight_init, str) else self.weight_init
        with torch.no_grad():
            self.weight.mul_(start / self.weight_scale)  # W itself starts as weight_init says
        zeros(self.bias)
        self._cached_adj = None

    def forward(
        self, x: Tensor, edge_index: Tensor | SparseTensor | Adjacency, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Node features in, node features out; see :obj:`last_solution` for depth and error."""
        x = check_input(self, x)
        edge_index = check_edges(self, edge_index, edge_weight, x.size(-2))
        if self.explain or has_message_hooks(self):
            return self._forward_message_passing(x, edge_index, edge_weight)
        if type(self)._solve is PPRConv._solve and compiled_layers.is_needed(edge_index):
            return compiled_layers.forward_product(self, x, edge_index, edge_weight)
        if is_torch_sparse_tensor(edge_index) or torch.compiler.is_compiling():
            out: Tensor = compiled_layers.eager_only(self._plain_forward, x, edge_index, edge_weight)
            return out
        return self._plain_forward(x, edge_index, edge_weight)

    def _plain_forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
        # Autocast may have lowered it; sparse products need full precision.
        b: Tensor = self.lin(x).to(self.weight.dtype)
        adj = adjacency_of(self, edge_index, edge_weight, b)
        with torch.autocast(b.device.type, enabled=False):
            if b.dim() == 2:
                return self._remember(self._solution(b, adj))
            solutions = [self._solution(part, adj) for part in b]
        if not solutions:
            return b
        return self._remember(weakest(solutions, torch.stack([each.state for each in solutions])))

    def recurrent_weight(self) -> Tensor:
        """W as the recursion uses it: the parameter, times :obj:`weight_scale`."""
        return self.weight if self.weight_scale == 1 else self.weight * self.weight_scale

    def weights(self) -> list[Tensor]:
        """W alone."""
        return [self.recurrent_weight()]

    def _solution(self, b: Tensor, adj: Adjacency) -> Solution:
        return self._solve(self._input_term(b if not self.smooth_input else adj @ b), adj)

    def _solve(self, b: Tensor, adj: Adjacency) -> Solution:
        return self.solve_output(b, self.recurrent_weight(), adj)

    def _input_term(self, b: Tensor) -> Tensor:
        return b if self.bias is None else b + self.bias

    @property
    def normalization(self) -> Normalization:
        """How the adjacency is normalised, in the words of :class:`pprgnn.Adjacency`."""
        return None if self.normalize is False else "row" if self.normalize == "row" else "sym"

    _forward_message_passing = forward_by_messages

    def send(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """Ã x by messages along normalised edges: PyG looks for this call in the class."""
        out: Tensor = self.propagate(edge_index, x=x, edge_weight=edge_weight)
        return out

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        """One message; only explanations send them one by one."""
        return edge_weight.view(-1, 1) * x_j

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_cached_adj": None, "_cached_contents": ()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, {self._rates_repr()})"
