"""φ, φ' and L: the solver's bounds and gradients are only as right as these three."""

import pytest
import torch

from pprgnn import Activation, leaky_relu, solve
from pprgnn.core.activation import IDENTITY, RELU, TANH, resolve_activation
from tests.problems import ACTIVATIONS, ZOO, draw_b, draw_weight

EVERY_PHI = pytest.mark.parametrize("phi", ACTIVATIONS.values(), ids=str)
POINTS = torch.cat([torch.linspace(-4, 4, 400, dtype=torch.float64), torch.tensor([-1e-3, 1e-3, -50.0, 50.0])])


@EVERY_PHI
def test_value(phi):
    activation = resolve_activation(phi.activation)
    wanted = phi.plain(POINTS)
    torch.testing.assert_close(activation.function(POINTS), wanted, rtol=1e-14, atol=1e-15)
    z = POINTS.clone()
    assert activation.apply_(z) is z  # in place
    torch.testing.assert_close(z, wanted, rtol=1e-14, atol=1e-15)
    assert float(activation.apply_(torch.zeros(1))) == 0.0


@EVERY_PHI
@pytest.mark.parametrize("aliased", [False, True])
def test_derivative(phi, aliased):
    """Against autograd of the plain function and against differences; ``out`` may be the gradient itself."""
    activation = resolve_activation(phi.activation)
    z = POINTS.clone().requires_grad_()
    grad = torch.linspace(-1, 2, len(POINTS), dtype=torch.float64)
    (wanted,) = torch.autograd.grad(phi.plain(z), z, grad)
    kept = activation.function(POINTS) if activation.from_output else POINTS
    given_grad = grad.clone()
    out = given_grad if aliased else torch.empty_like(grad)
    assert activation.chain(given_grad, kept, out=out) is out
    torch.testing.assert_close(out, wanted, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(grad * activation.derivative(kept), wanted, rtol=1e-10, atol=1e-12)

    if activation.from_output:  # what is kept of a state that may change
        given_grad = grad.clone()
        out = given_grad if aliased else torch.empty_like(grad)
        activation.chain(given_grad, activation.memo(kept), out=out)
        torch.testing.assert_close(out, wanted, rtol=1e-10, atol=1e-12)

    step = 1e-6
    slopes = (phi.plain(POINTS + step) - phi.plain(POINTS - step)) / (2 * step)
    torch.testing.assert_close(activation.derivative(kept), slopes, rtol=1e-6, atol=1e-8)


def test_no_gradient_is_none_whatever_arrives():
    state, grad = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([2.0, torch.inf, torch.nan])
    for kept in (state, RELU.memo(state)):
        assert RELU.chain(grad, kept, out=torch.empty(3)).tolist() == [2.0, 0.0, 0.0]


@EVERY_PHI
def test_lipschitz_constant_holds_and_is_tight(phi):
    activation = resolve_activation(phi.activation)
    assert activation.lipschitz == phi.lipschitz
    x, y = POINTS.unsqueeze(0), POINTS.unsqueeze(1)
    quotient = (phi.plain(x) - phi.plain(y)).abs() / (x - y).abs().clamp_min(1e-300)
    assert float(quotient.max()) <= activation.lipschitz * (1 + 1e-9)
    assert float(quotient.max()) >= 0.98 * activation.lipschitz


def test_names():
    assert resolve_activation("relu") is RELU
    assert resolve_activation("tanh") is TANH
    assert resolve_activation("identity") is resolve_activation(None) is IDENTITY
    assert resolve_activation(RELU) is RELU
    assert repr(RELU) == "Activation(relu, lipschitz=1)"
    assert repr(leaky_relu(0.2)) == "Activation(leaky_relu(0.2), lipschitz=1)"
    double = Activation(lambda z: 2 * z, lambda z: torch.full_like(z, 2.0), lipschitz=2.0, name="double")
    assert repr(double) == "Activation(double, lipschitz=2)"


@pytest.mark.parametrize(("slope", "name"), [(0.0, "relu"), (1.0, "identity")])
def test_leaky_relu_includes_relu_and_the_identity(slope, name):
    b, weight, adj = draw_b(7, 3), draw_weight(3, 2.0), ZOO["path"].adjacency()
    one, other = (solve(b, weight, adj, depth=5, activation=phi).state for phi in (leaky_relu(slope), name))
    assert torch.equal(one, other)


@pytest.mark.parametrize("slope", [-0.1, 1.5, float("nan")])
def test_leaky_relu_refuses_other_slopes(slope):
    with pytest.raises(ValueError, match=r"negative_slope must be in \[0, 1\], but came as"):
        leaky_relu(slope)


@pytest.mark.parametrize(
    ("function", "lipschitz", "message"),
    [
        (torch.sigmoid, 0.25, r"φ\(0\) = 0, but sigmoid\(0\) = \[0.5\]"),
        (torch.cos, 1.0, r"φ\(0\) = 0, but cos\(0\) = \[1.0\]"),
        (lambda z: z / z, 1.0, r"φ\(0\) = 0"),  # NaN at zero
        (lambda z: z.sum(), 1.0, r"must be element-wise"),
        (torch.tanh, 0.0, r"finite Lipschitz constant > 0, but lipschitz=0.0"),
        (torch.tanh, -1.0, r"finite Lipschitz constant > 0"),
        (torch.tanh, float("inf"), r"finite Lipschitz constant > 0, but lipschitz=inf"),
        (torch.tanh, float("nan"), r"finite Lipschitz constant > 0, but lipschitz=nan"),
    ],
)
def test_what_cannot_converge_is_refused(function, lipschitz, message):
    with pytest.raises(ValueError, match=message):
        Activation(function, torch.ones_like, lipschitz)


@pytest.mark.parametrize("activation", ["ReLU", "gelu", 3, torch.relu])
def test_unknown_activation(activation):
    with pytest.raises(ValueError, match=r"must be one of relu, leaky_relu, tanh, identity or a pprgnn"):
        resolve_activation(activation)
