"""GIND: implicit nonlinear diffusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pprgnn.baselines.baseline import Baseline, once_for
from pprgnn.baselines.fixed_point import Acceleration, fixed_point
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.kernel import multiply
from pprgnn.core.csr import csr_tensor, index_dtype
from pprgnn.errors import DataError
from pprgnn.nn.features import TorchDropout

REMEDY = "raise model.own.max_steps, or keep K small with a lower training.recursion_lr"


class GINDNet(Baseline):
    r"""The state after an endless nonlinear diffusion that the features hold back.

    From `"Optimization-Induced Graph Implicit Nonlinear Diffusion" <https://arxiv.org/abs/2206.14418>`_. With one
    row of :math:`\mathbf{G}` per edge, :math:`\mathbf{G}\mathbf{u}` being the differences of the two ends, weights
    of edges :math:`\mathbf{a}`, degrees :math:`\mathbf{D}` and :math:`\mathbf{b} = \mathbf{X}\mathbf{\Omega}`, the
    equilibrium is

    .. math::
        \mathbf{U} = \mathbf{b} - \mathbf{D}^{-1} \mathbf{G}^{\top} \mathbf{a} \tanh(\mathbf{G} \mathbf{U}
        \mathbf{K}^{\top}) \mathbf{K}

    It is the only minimum of the convex objective :math:`\frac{1}{2} \|\mathbf{D}^{1/2} (\mathbf{U} -
    \mathbf{b})\|^2 + \sum \mathbf{a} \log \cosh(\mathbf{G} \mathbf{U} \mathbf{K}^{\top})`, whatever
    :math:`\mathbf{K}` is. In the paper's words, :math:`\mathbf{Z} = \mathbf{D}^{1/2}(\mathbf{U} - \mathbf{b})` and
    the output is :math:`\mathbf{D}^{-1/2}\mathbf{Z} + \mathbf{b}`.

    It is found by descending on the objective with the best fixed step for ‖K‖₂: this is the paper's damped
    iteration, whose α is tuned there. The change in a step bounds the distance to the equilibrium. The gradient is
    exact, that of the implicit function theorem. Weights of edges must not be negative; directions do not matter.

    Args:
        input_dropout: On the features; ``dropout`` is in the head alone.
        self_loops: Count every node as a neighbour of its own, in the degrees: diffusion is weaker then.
        steady_tol: Error allowed, relative to the size of the state.
        max_steps: The cap; reaching it warns.
        acceleration: ``"anderson"``: mixtures of earlier states, to the same equilibrium in fewer steps; or
            ``"none"``.
    """

    # PAPER: left out are what its code has besides: a division of the flows on edges by their standard deviation
    # (the state would depend on the other graphs of a batch, and be no minimum), several diffusions in turn, a
    # second matrix for the features, a regulariser of tiny weight. Its gradient is that of a few last steps.

    defaults: ClassVar[dict[str, Any]] = {"hidden": 64, "dropout": 0.5, "pooling": "sum"}

    def __init__(
        self,
        *shape: Any,
        input_dropout: float = 0.0,
        self_loops: bool = True,
        steady_tol: float = 1e-3,
        max_steps: int = 500,
        acceleration: Acceleration = "anderson",
        **settings: Any,
    ) -> None:
        super().__init__(*shape, **settings)
        self.add_head(self.hidden, node_layers=1)
        if steady_tol <= 0 or max_steps < 1:
            raise ValueError(
                f"steady_tol must be above 0 and max_steps >= 1, but came as {steady_tol} and {max_steps}."
            )
        self.normalize, self.self_loops = None, self_loops  # degrees are taken from the matrix
        self.steady_tol, self.max_steps, self.acceleration = steady_tol, max_steps, acceleration
        self.input_dropout = TorchDropout(input_dropout)
        self.read = torch.nn.Linear(self.in_channels, self.hidden)
        self.diffusion = torch.nn.Linear(self.hidden, self.hidden, bias=False)  # K
        self.set_start()

    def set_start(self) -> None:
        torch.nn.init.kaiming_normal_(self.diffusion.weight, nonlinearity="relu")

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        """The equilibrium."""
        graph = incidence(adj) if adj.value.requires_grad else once_for(adj, "incidence", incidence)
        given, weight = adj.permute(self.read(self.input_dropout(x))), self.diffusion.weight

        def pulled_back(state: Tensor) -> Tensor:
            """The right-hand side of the equation."""
            flow = graph.differences(state @ weight.t()).tanh_()
            return given - graph.net_flow(flow) @ weight

        # The objective is 1-strongly convex in Z, with derivatives of slope 1 + ‖K‖² ‖D^-½ Gᵀ a G D^-½‖ at most.
        slope = 2 * float(torch.linalg.matrix_norm(weight.detach(), ord=2)) ** 2
        step = 2 / (2 + slope)
        state = fixed_point(
            pulled_back,
            given.detach(),
            step=step,
            tol=self.steady_tol,
            cap=self.max_steps,
            remedy=REMEDY,
            accelerate=self.acceleration == "anderson",
        )
        return adj.unpermute(state)

    @property
    def encode_is_deterministic(self) -> bool:
        return self.input_dropout.p == 0

    def slow_parameters(self) -> Any:
        """K."""
        return iter([self.diffusion.weight])


@dataclass(frozen=True)
class Incidence:
    """The edges of a graph as differences of their ends; nodes are in the inner order of its adjacency."""

    matrix: Tensor  # G, one row per edge
    matrix_t: Tensor
    weight: Tensor | None  # of each edge, as a column; None: all 1
    inverse_degree: Tensor  # as a column; 0 for a node of degree 0

    def differences(self, x: Tensor) -> Tensor:
        """G x."""
        result: Tensor = _Product.apply(x, self.matrix, self.matrix_t)  # type: ignore[no-untyped-call]
        return result

    def net_flow(self, flow: Tensor) -> Tensor:
        """D^-1 Gᵀ (a flow): what leaves each node, per degree."""
        weighted = flow if self.weight is None else flow * self.weight
        out: Tensor = _Product.apply(weighted, self.matrix_t, self.matrix)  # type: ignore[no-untyped-call]
        return out * self.inverse_degree


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, matrix_t: Tensor) -> Tensor:
        ctx.matrices = matrix, matrix_t
        return multiply(matrix, x.contiguous(), x.new_empty(matrix.size(0), x.size(1)))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        matrix, matrix_t = ctx.matrices
        return multiply(matrix_t, grad.contiguous(), grad.new_empty(matrix.size(1), grad.size(1))), None, None


def incidence(adj: Adjacency) -> Incidence:
    """Of an adjacency that is not normalised."""
    value, row, col, num_nodes = adj.value, adj.row, adj.col, adj.num_nodes
    if bool((value < 0).any()):
        raise DataError(
            "GIND needs weights of edges that are not negative, but the graph has such; leave them out."
        )
    degree = value.new_zeros(num_nodes).index_add(0, row, value / 2).index_add(0, col, value / 2)
    inverse = torch.where(degree > 0, 1 / degree.clamp(min=torch.finfo(degree.dtype).tiny), 0)
    between = (row != col).nonzero().flatten()
    row, col = row[between], col[between]
    edges, which = torch.unique(torch.minimum(row, col) * num_nodes + torch.maximum(row, col), return_inverse=True)
    weight = value.new_zeros(len(edges)).index_add(0, which, value[between] / 2)
    ends = torch.stack([edges // num_nodes, edges % num_nodes], dim=1).flatten()
    signs = value.new_tensor([1.0, -1.0]).repeat(len(edges))
    start = torch.arange(len(edges) + 1, device=ends.device) * 2
    order = torch.argsort(ends, stable=True)
    start_t = torch.cat([start[:1], torch.bincount(ends, minlength=num_nodes).cumsum(0)])
    matrix = _csr(start, ends, signs, num_nodes)
    matrix_t = _csr(start_t, order // 2, signs[order], len(edges))
    plain = not weight.requires_grad and bool((weight == 1).all())
    return Incidence(matrix, matrix_t, None if plain else weight[:, None], inverse[:, None])


def _csr(crow: Tensor, col: Tensor, value: Tensor, columns: int) -> Tensor:
    index = index_dtype(max(len(crow), columns), len(col))
    return csr_tensor(crow.to(index), col.to(index), value, columns)
