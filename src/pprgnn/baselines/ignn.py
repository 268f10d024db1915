"""IGNN: the equilibrium of one layer, kept unique by projecting its weights."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from pprgnn.baselines.direct_ignn import MAX_STEPS, direct_equilibrium
from pprgnn.baselines.equilibrium_conv import Acceleration, EquilibriumConv
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.solution import Solution

Scaling = Literal["normalized", "radius"]
Solver = Literal["core", "direct"]


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
        acceleration: as in :class:`EquilibriumConv`; the solver :obj:`"direct"` makes plain steps.
        **kwargs: The other arguments of :class:`EquilibriumConv`.

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
        if solver not in get_args(Solver):
            raise ValueError(f"solver must be 'core' or 'direct', but came as {solver!r}.")
        if scaling not in get_args(Scaling):
            raise ValueError(f"scaling must be 'normalized' or 'radius', but came as {scaling!r}.")
        if scaling == "radius":
            kwargs |= {"normalize": False, "add_self_loops": False}
        if solver == "direct":
            kwargs.setdefault("max_depth", MAX_STEPS)
        self.kappa, self.scaling, self.solver = kappa, scaling, solver
        super().__init__(in_channels, out_channels, acceleration=acceleration, **kwargs)

    def _solve(self, b: Tensor, adj: Adjacency) -> Solution:
        with torch.no_grad():  # the parameter itself is moved: gradient descent goes on from there
            projected = project_columns(self.weight, self.kappa / spectral_radius_bound(adj))
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


def spectral_radius_bound(adj: Adjacency) -> float:
    """At least the largest eigenvalue of |Ã|; a normalised matrix is similar to one whose rows add up to 1."""
    return 1.0 if adj.normalize else max(adj.norm_bound, 1e-30)


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
