"""Layers whose output is an equilibrium: IGNN, EIGNN and MGNNI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import zeros

from pprgnn.baselines.direct_ignn import MAX_STEPS, direct_equilibrium
from pprgnn.baselines.equilibrium import equilibrium
from pprgnn.baselines.fixed_point import Acceleration
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.depth import Fixed, Measured, resolve_depth
from pprgnn.core.solution import Solution
from pprgnn.nn.linear_output import AS_PUBLISHED
from pprgnn.nn.ppr_conv import PPRConv

ATTENTION_CHANNELS = 16  # of MGNNI
Scaling = Literal["normalized", "radius"]
Solver = Literal["core", "direct"]


class EquilibriumConv(PPRConv):
    r"""What layers of equilibria have in common with :class:`pprgnn.nn.PPRConv`, whose place they can take.

    Args:
        in_channels, out_channels, activation, tol, max_depth, smooth_input, cached, add_self_loops, normalize,
            bias: as in :class:`pprgnn.nn.PPRConv`.
        depth: An integer for exactly so many steps, or :obj:`None` for as many as the tolerance asks for.
        acceleration: :obj:`"anderson"`: go on from mixtures of earlier states where many steps are missing, which
            leads to the same equilibrium in fewer steps; :obj:`"none"`: plain steps only.
            (default: :obj:`"anderson"`)
        **kwargs: Further arguments of :class:`pprgnn.nn.PPRConv`; W is drawn at random by default, and
            :obj:`grad_terms` and :obj:`checkpoint` mean nothing here, since the gradient is that of the
            equilibrium and needs one state.
    """

    has_terms = False

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        *,
        acceleration: Acceleration = "anderson",
        **kwargs: Any,
    ) -> None:
        _check_choice("acceleration", acceleration, Acceleration)
        if kwargs.get("weight_scale", 1) != 1:
            raise ValueError(
                f"'{type(self).__name__}' bounds its weights itself, but weight_scale={kwargs['weight_scale']!r} "
                f"was given; leave it out."
            )
        if kwargs.get("output_activation", True) is not True:
            raise ValueError(
                f"The output of '{type(self).__name__}' is its equilibrium, but output_activation="
                f"{kwargs['output_activation']!r} was given; leave it out."
            )
        self.acceleration: Acceleration = acceleration
        for name in ("eps", "learn_eps"):
            kwargs.pop(name, None)  # nothing decays
        kwargs.setdefault("weight_init", "glorot")  # as their authors start
        rule = resolve_depth(kwargs.get("depth"))
        if not isinstance(rule, Fixed | Measured):
            raise ValueError(
                f"depth of '{type(self).__name__}' must be None or a number of steps, but came as {rule!r}; its "
                f"steps are repeated until they change nothing more."
            )
        self.steps = rule.k if isinstance(rule, Fixed) else None
        super().__init__(in_channels, out_channels, **(AS_PUBLISHED | kwargs))

    @contextmanager
    def _measuring(self) -> Iterator[None]:
        """Within it the depth is that of plain steps, which whoever repeats them one by one needs."""
        acceleration, self.acceleration = self.acceleration, "none"
        try:
            with super()._measuring():
                yield
        finally:
            self.acceleration = acceleration

    @property
    def eps(self) -> float:
        """0: nothing decays."""
        return 0.0

    def _solve(self, b: Tensor, adj: Adjacency) -> Solution:
        return equilibrium(
            b,
            self.recurrent_weight(),
            adj,
            activation=self.activation,
            hops=self.hops,
            steps=self.steps,
            tol=self.tol,
            max_depth=self.max_depth,
            accelerate=self.acceleration == "anderson",
        )

    def __repr__(self) -> str:
        depth = "" if self.steps is None else f", depth={self.steps}"
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}{self._own_repr()}{depth})"

    def _own_repr(self) -> str:
        return ""


class IGNNConv(EquilibriumConv):
    r"""The implicit layer of IGNN.

    From `"Implicit Graph Neural Networks" <https://arxiv.org/abs/2009.06211>`_:

    .. math::
        \mathbf{X} = \phi\left(\mathbf{\tilde{A}} \mathbf{X} \mathbf{W} + \mathbf{U} \mathbf{\Omega} + \mathbf{b}
        \right)

    Before each pass :math:`\mathbf{W}` is projected, so that the absolute sum of each of its columns is at most
    :math:`\kappa` over the spectral radius of :math:`\mathbf{\tilde{A}}`: the equilibrium is then unique, and
    repeating the equation leads there.

    In the published experiments :math:`\mathbf{\tilde{A}}` is normalised, but on PPI it is the plain adjacency
    matrix, without self-loops (:obj:`scaling="radius"`). Its spectral radius :math:`\rho` may be 100, which leaves
    :math:`\kappa / \rho` for a column of :math:`\mathbf{W}`: hubs count more, most nodes hear little of others,
    and of several graphs the one with the largest :math:`\rho` decides how large :math:`\mathbf{W}` may be.

    Args:
        in_channels, out_channels: as in :class:`EquilibriumConv`.
        kappa: How much a step may keep of a difference, below 1. (default: :obj:`0.95`)
        scaling: :obj:`"normalized"`: the matrix as :obj:`normalize` and :obj:`add_self_loops` say;
            :obj:`"radius"`: the plain one, whatever they say. (default: :obj:`"normalized"`)
        solver: :obj:`"core"`: on our fused kernels; :obj:`"direct"`: as the published code computes, for
            comparisons of speed: with its own rule when to stop instead of :obj:`tol`, and :obj:`max_depth` 300
            unless given. (default: :obj:`"core"`)
        **kwargs: The other arguments of :class:`EquilibriumConv`; the solver :obj:`"direct"` makes plain steps,
            whatever :obj:`acceleration` says.

    Example:
        >>> import torch
        >>> conv = IGNNConv(16, 32)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).shape
        torch.Size([3, 32])
        >>> conv.last_solution.converged
        True
    """

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        *,
        kappa: float = 0.95,
        scaling: Scaling = "normalized",
        solver: Solver = "core",
        acceleration: Acceleration = "anderson",
        **kwargs: Any,
    ) -> None:
        if not 0 < kappa < 1:
            raise ValueError(f"kappa must be between 0 and 1, but came as {kappa}.")
        _check_choice("solver", solver, Solver)
        _check_choice("scaling", scaling, Scaling)
        if scaling == "radius":
            kwargs |= {"normalize": False, "add_self_loops": False}
        if solver == "direct":
            kwargs.setdefault("max_depth", MAX_STEPS)
        self.kappa, self.scaling, self.solver = kappa, scaling, solver
        super().__init__(in_channels, out_channels, acceleration=acceleration, **kwargs)

    def _solve(self, b: Tensor, adj: Adjacency) -> Solution:
        with torch.no_grad():  # the parameter itself is moved: gradient descent goes on from there
            # At least the largest eigenvalue of |Ã|; a normalised one is similar to a matrix with row sums of 1.
            radius = 1.0 if adj.normalize else max(adj.norm_bound, 1e-30)
            projected = project_columns(self.weight, self.kappa / radius)
            if projected is not self.weight:
                self.weight.copy_(projected)
        if self.solver == "core":
            return super()._solve(b, adj)
        return direct_equilibrium(
            b, self.weight, adj, activation=self.activation, steps=self.steps, max_depth=self.max_depth
        )

    def _own_repr(self) -> str:
        scaling = f", scaling={self.scaling!r}" if self.scaling != "normalized" else ""
        return f", kappa={self.kappa:g}{scaling}" + (f", solver={self.solver!r}" if self.solver != "core" else "")


class EIGNNConv(EquilibriumConv):
    r"""The implicit layer of EIGNN; with several hops, of one scale of MGNNI.

    From `"EIGNN: Efficient Infinite-Depth Graph Neural Networks" <https://arxiv.org/abs/2202.10720>`_:

    .. math::
        \mathbf{Z} = \gamma \mathbf{\tilde{A}}^m \mathbf{Z} g(\mathbf{F}) + \mathbf{X} \mathbf{\Omega} +
        \mathbf{b}, \qquad g(\mathbf{F}) = \frac{\mathbf{F}^{\top} \mathbf{F}}{\| \mathbf{F}^{\top} \mathbf{F}
        \|_F}

    It converges for every :math:`\mathbf{F}` because :math:`\gamma < 1`.

    Args:
        in_channels, out_channels: as in :class:`EquilibriumConv`.
        gamma: How much of a message survives a step, below 1. (default: :obj:`0.8`)
        hops: How many hops a step makes. (default: :obj:`1`)
        **kwargs: The other arguments of it; the activation is the identity.

    Example:
        >>> import torch
        >>> conv = EIGNNConv(16, 32)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).shape
        torch.Size([3, 32])
    """

    # PAPER: solves by an eigendecomposition of the whole Ã, which takes n³ steps and n² numbers; repeating the
    # equation leads to the same equilibrium, in time linear in the edges and to the tolerance asked for.

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        *,
        gamma: float = 0.8,
        hops: int = 1,
        acceleration: Acceleration = "anderson",
        **kwargs: Any,
    ) -> None:
        if not 0 < gamma < 1:
            raise ValueError(f"gamma must be between 0 and 1, but came as {gamma}.")
        self.gamma, self.hops = gamma, hops
        kwargs["activation"] = "identity"
        super().__init__(in_channels, out_channels, acceleration=acceleration, **kwargs)

    def recurrent_weight(self) -> Tensor:
        """The weights γ g(F): symmetric, without negative eigenvalues, of norm γ at most."""
        square = self.weight.t() @ self.weight
        contracting: Tensor = square * (self.gamma / (torch.linalg.matrix_norm(square) + 1e-12))
        return contracting

    def _own_repr(self) -> str:
        return f", gamma={self.gamma:g}"


class MGNNIConv(torch.nn.Module):
    r"""The multiscale implicit layer of MGNNI.

    From `"MGNNI: Multiscale Graph Neural Networks with Implicit Layers" <https://arxiv.org/abs/2210.08353>`_: for
    each scale m an equilibrium as in :class:`EIGNNConv` that makes m hops in a step, all
    of the same input, and an attention over the scales for each node.

    Args:
        in_channels, out_channels: as in :class:`pprgnn.nn.PPRConv`.
        scales: Scales 1, 2, ... up to this one. (default: :obj:`2`)
        gamma: How much of a message survives a step, below 1. (default: :obj:`0.8`)
        bias: Whether to learn an additive bias. (default: :obj:`True`)
        **kwargs: As in :class:`EquilibriumConv`.

    Example:
        >>> import torch
        >>> conv = MGNNIConv(16, 32)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).shape
        torch.Size([3, 32])
    """

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        *,
        scales: int = 2,
        gamma: float = 0.8,
        bias: bool = True,
        acceleration: Acceleration = "anderson",
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if scales < 1:
            raise ValueError(f"scales must be >= 1, but came as {scales}.")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.lin: torch.nn.Module = torch.nn.Identity()
        if in_channels is not None:
            self.lin = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.bias = torch.nn.Parameter(torch.zeros(out_channels)) if bias else None
        options = {"gamma": gamma, "bias": False, "acceleration": acceleration} | kwargs
        self.scales = torch.nn.ModuleList(
            EIGNNConv(None, out_channels, hops=hops, **options) for hops in range(1, scales + 1)
        )
        self.attention = torch.nn.Sequential(
            torch.nn.Linear(out_channels, ATTENTION_CHANNELS),
            torch.nn.Tanh(),
            torch.nn.Linear(ATTENTION_CHANNELS, 1, bias=False),
        )

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        for part in (self.lin, *self.scales, self.attention[0], self.attention[2]):
            if not isinstance(part, torch.nn.Identity):
                part.reset_parameters()
        zeros(self.bias)

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Node features in, node features out."""
        b = self.lin(x) if self.bias is None else self.lin(x) + self.bias
        states = torch.stack([scale(b, edge_index, edge_weight) for scale in self.scales], dim=1)  # (n, scales, d)
        shares = self.attention(states).softmax(dim=1)  # (n, scales, 1)
        mixed: Tensor = (shares * states).sum(dim=1)
        return mixed


def _check_choice(name: str, value: str, kind: Any) -> None:
    if value not in get_args(kind):
        raise ValueError(f"{name} must be {' or '.join(map(repr, get_args(kind)))}, but came as {value!r}.")


def project_columns(matrix: Tensor, radius: float) -> Tensor:
    """The nearest matrix (in the Frobenius norm) whose columns have absolute sums of at most ``radius``.

    A column outside the ball is shrunk towards 0 by its own threshold θ, which solves Σ max(|aᵢ| - θ, 0) = radius;
    sorting the column gives θ exactly.

    Example:
        >>> import torch
        >>> project_columns(torch.tensor([[3.0, 0.5], [1.0, 0.0]]), 1.0)
        tensor([[1.0000, 0.5000],
                [0.0000, 0.0000]])
    """
    if not radius > 0:
        raise ValueError(f"radius must be > 0, but came as {radius}.")
    size = matrix.abs()
    outside = size.sum(0) > radius  # (columns,)
    if not bool(outside.any()):
        return matrix
    descending = size[:, outside].sort(dim=0, descending=True).values
    count = torch.arange(1, matrix.size(0) + 1, dtype=matrix.dtype, device=matrix.device).unsqueeze(1)
    candidates = (descending.cumsum(0) - radius) / count  # θ if the `count` largest entries stay
    kept = (descending > candidates).sum(0)  # so many do
    theta = candidates.gather(0, (kept - 1).unsqueeze(0))  # (1, columns outside)
    shrunk = matrix.clone()
    shrunk[:, outside] = matrix[:, outside].sign() * (size[:, outside] - theta).clamp(min=0)
    return shrunk
