"""Element-wise activations φ, with what the solver must know about each of them.

The convergence bounds need φ(0) = 0 and a Lipschitz constant; the adjoint needs φ'. For the built-in ones φ'
follows from the output φ(z), so that a solve stores nothing beyond its states.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

_aten = torch.ops.aten


@dataclass(frozen=True)
class Activation:
    """An element-wise φ with φ(0) = 0.

    Args:
        function: φ itself, applied to a tensor.
        derivative: φ'. It receives the *input* z of φ, or its *output* φ(z) when ``from_output`` is set.
        lipschitz: a constant L with ``|φ(x) - φ(y)| <= L |x - y|``.
        from_output: whether ``derivative`` is a function of the output.
        name: what error messages and ``repr`` show.

    Example:
        >>> import torch
        >>> softsign = Activation(torch.nn.functional.softsign, lambda z: (1 + z.abs()) ** -2, lipschitz=1.0)
        >>> softsign
        Activation(softsign, lipschitz=1)
    """

    function: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]
    lipschitz: float
    from_output: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lipschitz) and self.lipschitz > 0):
            raise ValueError(
                f"An activation needs a finite Lipschitz constant > 0, but lipschitz={self.lipschitz}; "
                f"state the largest slope of the function."
            )
        if not self.name:
            object.__setattr__(self, "name", getattr(self.function, "__name__", "custom"))
        at_zero = self.function(torch.zeros(1))
        if at_zero.shape != (1,) or float(at_zero) != 0.0:
            raise ValueError(
                f"An activation must be element-wise with φ(0) = 0, but {self.name}(0) = {at_zero.tolist()}; "
                f"use ReLU, tanh, or subtract the value at zero."
            )

    def __repr__(self) -> str:
        return f"Activation({self.name}, lipschitz={self.lipschitz:g})"

    def apply_(self, z: Tensor) -> Tensor:
        """Overwrite z with φ(z)."""
        return z.copy_(self.function(z))

    def chain(self, grad: Tensor, kept: Tensor, out: Tensor) -> Tensor:
        """φ' ⊙ grad into ``out``; ``kept`` is φ's output or its :meth:`memo`, its input if not ``from_output``."""
        return torch.mul(grad, self.derivative(kept), out=out)

    def memo(self, output: Tensor) -> Tensor | None:
        """What φ' needs of an output that may change before the backward pass."""
        return output.clone() if self.from_output else None


@dataclass(frozen=True, repr=False)
class _Leaky(Activation):
    """φ(z) = z for z > 0, slope·z otherwise: ReLU (0), leaky ReLU and the identity (1) in one, fused."""

    slope: float = 0.0

    def apply_(self, z: Tensor) -> Tensor:
        if self.slope == 1.0:
            return z
        return z.relu_() if self.slope == 0.0 else torch.nn.functional.leaky_relu_(z, self.slope)

    def chain(self, grad: Tensor, kept: Tensor, out: Tensor) -> Tensor:
        if self.slope == 1.0:
            return out.copy_(grad)
        if kept.dtype == torch.bool:  # a state of ones and zeros is several times faster than torch.where
            kept = kept.to(grad.dtype) if out is grad else out.copy_(kept)
        if self.slope == 0.0:
            _aten.threshold_backward.grad_input(grad, kept, 0.0, grad_input=out)
        else:
            _aten.leaky_relu_backward.grad_input(grad, kept, self.slope, True, grad_input=out)
        return out

    def memo(self, output: Tensor) -> Tensor:
        return output > 0  # a quarter of the memory


@dataclass(frozen=True, repr=False)
class _Tanh(Activation):
    def apply_(self, z: Tensor) -> Tensor:
        return z.tanh_()

    def chain(self, grad: Tensor, kept: Tensor, out: Tensor) -> Tensor:
        _aten.tanh_backward.grad_input(grad, kept, grad_input=out)
        return out


# Named functions rather than lambdas: a layer must survive pickling.
def _leaky(z: Tensor, slope: float) -> Tensor:
    return torch.relu(z) if slope == 0.0 else torch.where(z > 0, z, slope * z)


def _leaky_derivative(g: Tensor, slope: float) -> Tensor:
    return torch.where(g > 0, torch.ones_like(g), slope)


def _tanh_derivative(g: Tensor) -> Tensor:
    return 1 - g * g


def leaky_relu(negative_slope: float = 0.01) -> Activation:
    """φ(z) = max(z, 0) + negative_slope · min(z, 0), for a slope in [0, 1]."""
    if not 0.0 <= negative_slope <= 1.0:
        raise ValueError(f"negative_slope must be in [0, 1], but came as {negative_slope}.")
    slope = float(negative_slope)
    name = {0.0: "relu", 1.0: "identity"}.get(slope, f"leaky_relu({slope})")
    return _Leaky(
        function=partial(_leaky, slope=slope),
        derivative=partial(_leaky_derivative, slope=slope),
        lipschitz=1.0,
        from_output=True,
        name=name,
        slope=slope,
    )


RELU = leaky_relu(0.0)
IDENTITY = leaky_relu(1.0)
TANH = _Tanh(torch.tanh, _tanh_derivative, lipschitz=1.0, from_output=True, name="tanh")

_BY_NAME = {"relu": RELU, "leaky_relu": leaky_relu(), "tanh": TANH, "identity": IDENTITY}


def resolve_activation(activation: str | Activation | None) -> Activation:
    """Return the activation of that name; ``None`` is the identity."""
    if isinstance(activation, Activation):
        return activation
    if activation is None:
        return IDENTITY
    if isinstance(activation, str) and activation in _BY_NAME:
        return _BY_NAME[activation]
    raise ValueError(
        f"activation must be one of {', '.join(_BY_NAME)} or a pprgnn.Activation, but came as {activation!r}; "
        f"wrap your own function as pprgnn.Activation(function, derivative, lipschitz=...)."
    )
