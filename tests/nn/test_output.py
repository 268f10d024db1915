"""The output of the layer by default: no activation at the root, a mean over hops, a slow W, and its bounds."""

import copy
import math
import pickle

import pytest
import torch
from torch.autograd import gradcheck
from torch.func import functional_call

from pprgnn import Adjacency, Certificate, Measured
from pprgnn.core.solution import ConvergenceWarning
from pprgnn.nn import PPRGNN, PPRConv, freeze_depth
from pprgnn.nn.linear_output import AS_PUBLISHED, LastStep, mean_scale, of_first_hop, of_root
from tests import reference

EDGES = torch.tensor([[0, 1, 1, 2, 3, 3, 4, 5, 5, 2], [1, 0, 2, 1, 3, 4, 3, 4, 0, 5]])
N = 7  # node 6 has no edge


def features(channels=4):
    return torch.randn(N, channels, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def layer(seed=1, **options):
    torch.manual_seed(seed)
    conv = PPRConv(4, 5, **{"tol": 1e-10, **options}).double()
    with torch.no_grad():
        conv.weight.add_(torch.randn_like(conv.weight) * 0.3 / conv.weight_scale)
        torch.nn.init.normal_(conv.bias)
    return conv


def pieces(conv, x):
    """B, W and the dense Ã of a layer on the graph of this file."""
    a = reference.dense_adjacency(EDGES, None, N, "sym", add_self_loops=True)
    return (conv.lin(x) + conv.bias).detach(), conv.recurrent_weight().detach(), a


def expected(conv, x, depth=None):
    b, weight, a = pieces(conv, x)
    eps = conv.eps.detach() if isinstance(conv.eps, torch.Tensor) else conv.eps
    phi = conv.activation.function
    if depth is None:
        deep = reference.states(b, weight, a, eps, phi, 300)[1]
    else:
        deep = reference.states(b, weight, a, eps, phi, depth)[1] if depth else torch.zeros_like(b)
    return conv.scaled(a @ deep @ weight + b).detach()


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "tanh", "identity"])
@pytest.mark.parametrize("eps", [1.0, (1.0, 0.3)])
def test_equals_the_dense_recursion_without_its_last_activation(activation, eps):
    conv, x = layer(activation=activation, eps=eps), features()
    out = conv(x, EDGES)
    torch.testing.assert_close(out, expected(conv, x), atol=1e-8, rtol=1e-8)
    assert bool((out < 0).any())


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_a_given_depth_is_that_many_hops(depth):
    conv, x = layer(depth=depth), features()
    torch.testing.assert_close(conv(x, EDGES), expected(conv, x, depth))
    assert conv.last_solution.depth == conv.last_solution.products == depth
    torch.testing.assert_close(conv._forward_message_passing(x, EDGES, None), expected(conv, x, depth))


def test_an_activation_behind_it_makes_it_the_published_layer():
    conv, published = layer(output_scale=1), layer(output_scale=1, output_activation=True)
    torch.testing.assert_close(conv(features(), EDGES).relu(), published(features(), EDGES), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("rule", [Certificate(), Measured()])
@pytest.mark.parametrize("size", [0.1, 0.5])
@pytest.mark.parametrize("options", [{}, {"output_activation": True}, {"output_scale": 5.0}])
def test_bounds_hold_and_are_within_the_tolerance(rule, size, options):
    conv, x = layer(depth=rule, tol=1e-4, **options), features()
    with torch.no_grad():
        conv.weight.copy_(size * torch.randn(5, 5) / conv.weight_scale)
    with torch.no_grad(), conv._measuring():  # not with a depth of before
        out = conv(x, EDGES)
    found, (b, _, _) = conv.last_solution, pieces(conv, x)
    exact = expected(conv, x)
    if conv.output_activation:
        exact = conv.activation.function(exact)
    error = float((out.detach() - exact).norm() / b.norm())
    assert found.converged
    assert found.truncation_bound is not None
    if not conv.output_activation:
        assert found.truncation_bound <= 1e-4
    assert error <= (found.error_bound or found.truncation_bound) <= found.truncation_bound + 1e-9


def test_a_bound_in_single_precision_holds_for_the_numbers_as_computed():
    conv, x = layer(depth=Certificate(), tol=1e-4).float(), features()
    out = conv(x.float(), EDGES).detach().double()
    double = copy.deepcopy(conv).double()
    b = pieces(double, x)[0]
    found = conv.last_solution
    given = (conv.lin(x.float()) + conv.bias).detach().double()  # its own rounding is not that of the solve
    off = float((given - b).norm() / b.norm()) * 10
    assert float((out - expected(double, x)).norm() / b.norm()) <= found.error_bound + off


@pytest.mark.parametrize("options", [{}, {"eps": (1.0, 0.4), "learn_eps": True}, {"learn_eps": "channel"}])
def test_gradients_are_exact_with_all_terms(options):
    conv, x = layer(grad_terms=None, depth=14, **options), features().requires_grad_()
    assert gradcheck(lambda each: conv(each, EDGES), (x,))
    names = [name for name, _ in conv.named_parameters()]
    edge_weight = (torch.rand(EDGES.size(1), dtype=torch.float64) + 0.5).requires_grad_()

    def of(weight, *values):
        return functional_call(conv, dict(zip(names, values, strict=True)), (x.detach(), EDGES, weight))

    assert gradcheck(of, (edge_weight, *conv.parameters()))


@pytest.mark.parametrize("terms", [1, 2, 4])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_gradient_has_as_many_terms_as_asked_for(terms, checkpoint):
    conv, x = layer(grad_terms=terms, checkpoint=checkpoint, depth=9, learn_eps=True), features()
    conv(x, EDGES).square().sum().backward()
    b, weight, a = pieces(conv, x)
    weight, eps = weight.requires_grad_(), conv.eps.detach().requires_grad_()
    b = b.requires_grad_()
    g = reference.states(b, weight, a, eps, torch.relu, 9)[terms].detach()
    for n in range(terms - 1, -1, -1):
        g = a @ g @ weight / (1 + n * eps) + b
        g = g if n == 0 else g.relu()
    conv.scaled(g).square().sum().backward()
    torch.testing.assert_close(conv.weight.grad, weight.grad * conv.weight_scale)
    torch.testing.assert_close(conv.bias.grad, b.grad.sum(0))
    if terms > 1:  # β₀ does not depend on ε
        torch.testing.assert_close(conv.log_eps.grad, eps.grad * eps.detach())


@pytest.mark.parametrize("options", [{}, {"depth": 4}, {"depth": 1}, {"grad_terms": 1}, {"grad_terms": None}])
def test_compiled_code_gives_the_same_and_knows_as_much(options):
    conv = layer(**options)
    twin = copy.deepcopy(conv)
    fast = torch.compile(twin, fullgraph=True, backend="aot_eager")
    x = features()
    for each in (conv, fast):
        each(x, EDGES).square().sum().backward()
    torch.testing.assert_close(fast(x, EDGES), conv(x, EDGES), atol=1e-8, rtol=1e-8)
    for name, parameter in conv.named_parameters():
        torch.testing.assert_close(twin.get_parameter(name).grad, parameter.grad, atol=1e-7, rtol=1e-7)
    assert twin.last_solution.depth == conv.last_solution.depth
    assert twin.last_solution.status is conv.last_solution.status


@pytest.mark.parametrize("options", [{}, {"depth": 5}, {"depth": Certificate()}])
def test_an_exported_program_gives_the_same(options):
    conv, x = layer(**options).eval(), features()
    program = torch.export.export(conv, (x, EDGES)).module()
    torch.testing.assert_close(program(x, EDGES), conv(x, EDGES), atol=1e-8, rtol=1e-8)
    with torch.no_grad():
        before = conv(x, EDGES)
    freeze_depth(conv)
    torch.testing.assert_close(conv(x, EDGES), before, atol=1e-8, rtol=1e-8)


def test_transforms_of_functions_follow_it():
    conv, x = layer(), features()
    slope = torch.func.grad(lambda each: conv(each, EDGES).square().sum())(x)
    given = x.clone().requires_grad_()
    conv(given, EDGES).square().sum().backward()
    torch.testing.assert_close(slope, given.grad, atol=1e-7, rtol=1e-7)


# --------------------------------------------------------------------------------------------- what a file holds
def test_a_state_dict_keeps_the_factor_and_is_not_taken_for_another_kind():
    conv, published = layer(eps=0.3), layer(**AS_PUBLISHED)
    twin = layer(seed=2, eps=0.7)
    twin.load_state_dict(conv.state_dict())
    assert torch.equal(twin.output_scale, conv.output_scale)
    assert "output_scale" not in published.state_dict()
    with pytest.raises(
        ValueError, match=r"without output_scale, as of a layer as published, but this .* weight_sc"
    ):
        conv.load_state_dict(published.state_dict())
    with pytest.raises(ValueError, match="with output_scale, but this 'PPRConv' is one without"):
        published.load_state_dict(conv.state_dict())
    layer(seed=3, **AS_PUBLISHED).load_state_dict(published.state_dict())


def test_copies_and_layers_that_were_pickled_before_there_was_a_choice():
    conv, x = layer(), features()
    out = conv(x, EDGES)
    for twin in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        torch.testing.assert_close(twin(x, EDGES), out, atol=1e-8, rtol=1e-8)
    published = layer(**AS_PUBLISHED)
    state = published.__getstate__()
    del state["output_activation"], state["weight_scale"]
    state["_buffers"] = {}
    old = PPRConv.__new__(PPRConv)
    old.__setstate__(state)
    torch.testing.assert_close(old(x, EDGES), published(x, EDGES), atol=1e-8, rtol=1e-8)


def test_a_layer_from_the_meta_device_gets_its_factor():
    with torch.device("meta"):
        conv = PPRConv(4, 5, eps=(1.0, 0.25))
    conv.to_empty(device="cpu").reset_parameters()
    torch.testing.assert_close(conv.output_scale, PPRConv(4, 5, eps=(1.0, 0.25)).output_scale)


# ------------------------------------------------------------------------------------------------------- numbers
@pytest.mark.parametrize(("eps", "total"), [(1.0, math.e), (1e9, 2.0)])
def test_the_mean_divides_by_the_weight_of_all_hops(eps, total):
    assert mean_scale(eps) == pytest.approx(1 / total, rel=1e-6)
    conv = PPRConv(None, 2, eps=eps, bias=False, normalize="row", tol=1e-7)
    constant = torch.tensor([[1.0, 2.0]]).expand(6, 2)
    torch.testing.assert_close(conv(constant, EDGES), constant, atol=1e-5, rtol=1e-5)


def test_the_mean_takes_its_own_rate_for_each_channel():
    conv = PPRConv(3, 4, eps=(1.0, 0.25))
    wanted = [mean_scale(1.0)] * 2 + [mean_scale(0.25)] * 2
    torch.testing.assert_close(conv.output_scale, torch.tensor(wanted))


@pytest.mark.parametrize("eps", [torch.tensor(0.7), torch.tensor([0.2, 1.0, 5.0])])
def test_the_first_hop_is_the_root_of_a_recursion(eps):
    weight = torch.randn(3, 3)
    first, rate = of_first_hop(weight, eps)
    for n in range(5):
        torch.testing.assert_close(first / (1 + n * rate), weight / (1 + (n + 1) * eps))
    torch.testing.assert_close(of_root(first, rate), weight)


def test_a_step_enlarges_by_no_more_than_its_rate():
    adj = Adjacency.from_edge_index(EDGES, num_nodes=N, normalize="row", add_self_loops=True)
    for seed in range(20):
        torch.manual_seed(seed)
        weight, g = torch.randn(4, 4), torch.randn(N, 4)
        rate = LastStep.of(weight, adj).rate
        assert float((adj @ g @ weight).norm()) <= rate * float(g.norm())
    assert LastStep.of(torch.eye(4), Adjacency.from_edge_index(EDGES, num_nodes=N)).rate >= 1


@pytest.mark.parametrize("scale", ["sum", 0, float("nan"), None])
def test_a_factor_that_is_none_is_refused(scale):
    with pytest.raises(ValueError, match="output_scale must be 'mean' or a finite number other than 0, but came"):
        PPRConv(4, 3, output_scale=scale)


def test_a_stack_can_end_with_it():
    model = PPRGNN(4, 8, num_layers=2, out_channels=3)
    assert bool((model(features().float(), EDGES) < 0).any())


def test_a_warning_speaks_of_what_the_layer_was_asked_for():
    conv = layer(max_depth=6, eps=0.5, tol=1e-4)
    with torch.no_grad():
        conv.weight.mul_(20)
    norm = float(torch.linalg.matrix_norm(conv.recurrent_weight().detach(), ord=2))
    told = rf"tol = 0.0001 within max_depth = 6 .*W‖₂ = {norm:.3g}, smallest eps = 0.5"
    with pytest.warns(ConvergenceWarning, match=told):
        conv(features(), EDGES)
