"""Layers whose output is an equilibrium: what IGNN, EIGNN and MGNNI share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

from torch import Tensor

from pprgnn.baselines.equilibrium import equilibrium
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.checks import resolve_depth
from pprgnn.core.depth import Fixed, Measured
from pprgnn.core.solution import Solution
from pprgnn.nn.linear_output import AS_PUBLISHED
from pprgnn.nn.ppr_conv import PPRConv

Acceleration = Literal["anderson", "none"]


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
        if acceleration not in get_args(Acceleration):
            raise ValueError(f"acceleration must be 'anderson' or 'none', but came as {acceleration!r}.")
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
