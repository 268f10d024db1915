"""The adjoint: exact with all terms, exactly N with N terms, small, flat and repeatable."""

import gc
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from pprgnn import Adjacency, solve, solve_steps
from tests import reference
from tests.problems import ACTIVATIONS, ZOO, draw_b, draw_eps, draw_weight, random_graph, ring

GRAPH = ZOO["directed_weighted"]  # Ãᵀ ≠ Ã, so that a forgotten transpose shows
A = reference.dense_adjacency(GRAPH.edge_index, GRAPH.edge_weight, GRAPH.num_nodes)
EVERY_PHI = pytest.mark.parametrize("phi", ACTIVATIONS.values(), ids=str)
PER_CHANNEL = pytest.mark.parametrize("per_channel", [False, True], ids=["eps", "eps_per_channel"])


def inputs(norm: float, per_channel=False, channels=3, base=0.5) -> tuple[torch.Tensor, ...]:
    eps = torch.as_tensor(draw_eps(channels, per_channel, base), dtype=torch.float64)
    return tuple(t.requires_grad_() for t in (draw_b(6, channels), draw_weight(channels, norm), eps))


def ours(tensors, grad_out, depth, adj=None, **options) -> list[torch.Tensor]:
    b, weight, eps = (t.detach().clone().requires_grad_() for t in tensors)
    state = solve(b, weight, adj or GRAPH.adjacency(), eps=eps, depth=depth, **options).state
    return list(torch.autograd.grad(state, (b, weight, eps), grad_out))


def assert_same(actual, wanted, tolerance=1e-10):
    for one, other in zip(actual, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * (1 + float(other.abs().max())))


# ------------------------------------------------------------------------------------------ all terms: exact
@EVERY_PHI
@PER_CHANNEL
@pytest.mark.parametrize("norm", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("depth", [0, 5])
def test_gradcheck(phi, per_channel, norm, depth):
    adj = GRAPH.adjacency()

    def run(b, weight, eps):
        options = {"depth": depth, "grad_terms": None, "activation": phi.activation}
        return solve(b, weight, adj, eps=eps, **options).state

    assert gradcheck(run, inputs(norm, per_channel, channels=2))


@pytest.mark.parametrize("phi", [ACTIVATIONS[name] for name in ("relu", "tanh", "softsign")], ids=str)
@pytest.mark.parametrize("reorder", [False, True])
@pytest.mark.parametrize("normalize", ["sym", None])
def test_gradcheck_of_edge_weights(phi, reorder, normalize):
    def run(edge_weight):
        adj = Adjacency.from_edge_index(GRAPH.edge_index, edge_weight, 6, normalize=normalize, reorder=reorder)
        options = {"depth": 4, "grad_terms": None, "activation": phi.activation}
        return solve(draw_b(6, 2), draw_weight(2, 2.0), adj, **options).state

    assert gradcheck(run, GRAPH.edge_weight.clone().requires_grad_())


@EVERY_PHI
@PER_CHANNEL
@pytest.mark.parametrize("norm", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("depth", [0, 1, 2, 12])
def test_stored_checkpointed_and_unrolled_agree(phi, per_channel, norm, depth):
    tensors, grad_out = inputs(norm, per_channel), draw_b(6, 3, seed=1)
    wanted = reference.gradients(tensors, grad_out, A, phi.plain, depth)
    for checkpoint in (False, True):
        options = {"grad_terms": None, "checkpoint": checkpoint, "activation": phi.activation}
        assert_same(ours(tensors, grad_out, depth, **options), wanted)


def test_each_gradient_alone_is_the_same_as_together():
    """What is not needed is skipped; that must not change the rest."""
    tensors, grad_out = inputs(2.0), draw_b(6, 3, seed=1)
    together = ours(tensors, grad_out, 8, grad_terms=4)
    for i in range(3):
        alone = [t.detach().clone().requires_grad_(i == j) for j, t in enumerate(tensors)]
        state = solve(alone[0], alone[1], GRAPH.adjacency(), eps=alone[2], depth=8, grad_terms=4).state
        assert torch.equal(torch.autograd.grad(state, alone[i], grad_out)[0], together[i])


def test_adaptive_depth_gives_the_gradient_of_the_infinite_model():
    tensors, grad_out = inputs(2.0), draw_b(6, 3, seed=1)
    wanted = reference.gradients(tensors, grad_out, A, torch.relu, 200)
    assert_same(ours(tensors, grad_out, None, tol=1e-12, grad_terms=None), wanted, 1e-9)


# --------------------------------------------------------------------------------------------- exactly N terms
@pytest.mark.parametrize("name", ["relu", "leaky_relu_0.3", "tanh", "softsign"])
@PER_CHANNEL
@pytest.mark.parametrize("checkpoint", [False, True])
def test_n_terms_are_exactly_n_terms(name, per_channel, checkpoint):
    phi, grad_out, depth = ACTIVATIONS[name], draw_b(6, 3, seed=1), 12
    tensors = inputs(2.0, per_channel, base=0.1)  # a slow decay: every term matters
    options = {"checkpoint": checkpoint, "activation": phi.activation}
    found = {n: ours(tensors, grad_out, depth, grad_terms=n, **options) for n in range(1, 9)}
    for n in range(1, 8):
        assert_same(found[n], reference.gradients(tensors, grad_out, A, phi.plain, depth, terms=n))
        for one, other in zip(found[n], found[n + 1], strict=True):
            assert float((one - other).norm()) > 1e-8  # a hundred times what assert_same lets pass


def test_five_terms_are_the_default_whatever_the_scale_of_the_loss():
    """PAPER: the published code stopped on an absolute change, so that a mean loss got one term."""
    tensors, grad_out = inputs(2.0), draw_b(6, 3, seed=1)
    wanted = reference.gradients(tensors, grad_out, A, torch.relu, 12, terms=5)
    assert_same(ours(tensors, grad_out, 12), wanted)
    tiny = [g * 1e9 for g in ours(tensors, grad_out * 1e-9, 12)]
    assert_same(tiny, wanted)


@pytest.mark.parametrize("terms", [4, 5, 6, 50])
def test_more_terms_than_levels_is_the_exact_gradient(terms):
    tensors, grad_out = inputs(2.0), draw_b(6, 3, seed=1)
    wanted = reference.gradients(tensors, grad_out, A, torch.relu, 3)
    for checkpoint in (False, True):
        assert_same(ours(tensors, grad_out, 3, grad_terms=terms, checkpoint=checkpoint), wanted)


@given(
    seed=st.integers(0, 10**6),
    terms=st.integers(1, 8),
    norm=st.floats(0.1, 4.0),
    eps=st.floats(0.2, 2.0),
    name=st.sampled_from(["relu", "leaky_relu_0.3", "tanh", "identity"]),
)
def test_what_truncation_leaves_out_is_below_its_bound(seed, terms, norm, eps, name):
    graph = random_graph(seed, 6, directed=True, weighted=True)
    b, weight, grad_out = draw_b(6, 2, seed), draw_weight(2, norm, seed), draw_b(6, 2, seed + 1)
    adj = graph.adjacency(normalize="row")
    a = adj.to_dense()
    following = reference.step_bound(terms, a, weight, eps)
    if following >= 0.999:
        return  # the bound speaks only about c_N < 1
    product = 1.0
    for n in range(terms):
        product *= reference.step_bound(n, a, weight, eps)
    tensors, phi = (b, weight, torch.tensor(eps, dtype=torch.float64)), ACTIVATIONS[name]
    exact = reference.gradients(tensors, grad_out, a, phi.plain, 60)[0]
    truncated = ours(tensors, grad_out, 60, adj=adj, grad_terms=terms, activation=phi.activation)[0]
    assert float((truncated - exact).norm()) <= float(grad_out.norm()) * product / (1 - following) + 1e-12


# ---------------------------------------------------------------------------------------------- what is kept
def saved_numbers(depth, grad_terms, checkpoint=False, activation="relu") -> tuple[int, int]:
    """How many tensors of the size of a state, and how many bytes, autograd keeps for the backward pass."""
    kept = {}

    def pack(tensor):
        kept[len(kept)] = tensor.numel()
        return tensor

    b, weight, eps = inputs(2.0)
    adj = GRAPH.adjacency()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        options = {"grad_terms": grad_terms, "checkpoint": checkpoint, "activation": activation}
        solve(b, weight, adj, eps=eps, depth=depth, **options)
    return sum(size == b.numel() for size in kept.values()), sum(kept.values())


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("activation", ["relu", ACTIVATIONS["softsign"].activation])
def test_memory_does_not_depend_on_depth(checkpoint, activation):
    shallow, deep = (saved_numbers(depth, 5, checkpoint, activation) for depth in (10, 200))
    assert shallow == deep


def test_states_kept_are_those_of_the_terms():
    assert saved_numbers(50, 5)[0] == 6  # G⁽⁰⁾ ... G⁽⁵⁾
    assert saved_numbers(50, 1)[0] == 2
    assert saved_numbers(50, 5, checkpoint=True)[0] == 3  # b, G⁽⁰⁾, G⁽⁵⁾
    assert saved_numbers(50, None, checkpoint=True)[1] < saved_numbers(50, None)[1] / 5


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory of the process from /proc")
@pytest.mark.parametrize("checkpoint", [False, True])
def test_memory_is_flat_over_many_steps(checkpoint):
    """An output kept by ctx itself is a cycle through C++, unseen by the garbage collector: weigh the process."""
    graph = ring(2000)
    adj = graph.adjacency(dtype=torch.float32)
    b, weight = torch.rand(2000, 64, requires_grad=True), torch.eye(64).requires_grad_()

    def live_tensors() -> int:
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    def megabytes() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

    def steps(count: int) -> None:
        for _ in range(count):
            solve(b, weight, adj, depth=3, grad_terms=3, checkpoint=checkpoint).state.sum().backward()
            b.grad = weight.grad = None

    gc.collect()
    gc.disable()
    try:
        steps(20)
        tensors, size = live_tensors(), megabytes()
        steps(200)  # a leak of the states would be about 2 MB a step
        assert live_tensors() <= tensors + 5
        assert megabytes() <= size + 40
    finally:
        gc.enable()


# --------------------------------------------------------------------------------------------- good manners
@pytest.mark.parametrize("reorder", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("name", ["relu", "tanh", "identity", "softsign"])
def test_backward_twice_gives_the_same_and_leaves_its_inputs_alone(reorder, checkpoint, name):
    b, weight, eps = inputs(2.0)
    edge_weight = GRAPH.edge_weight.clone().requires_grad_()
    adj = Adjacency.from_edge_index(GRAPH.edge_index, edge_weight, 6, reorder=reorder)
    activation = ACTIVATIONS[name].activation
    state = solve(b, weight, adj, eps=eps, depth=8, checkpoint=checkpoint, activation=activation).state
    grad_out = draw_b(6, 3, seed=1)
    before = [t.detach().clone() for t in (grad_out, state, b, weight, eps)]
    sought = (b, weight, eps, edge_weight)
    first = torch.autograd.grad(state, sought, grad_out, retain_graph=True)
    copies = [g.clone() for g in first]
    second = torch.autograd.grad(state, sought, grad_out)
    for one, kept, other in zip(first, copies, second, strict=True):
        assert torch.equal(one, kept)  # the second pass did not write into the first one's result
        assert torch.equal(one, other)
    for now, then in zip((grad_out, state, b, weight, eps), before, strict=True):
        assert torch.equal(now.detach(), then)


def test_gradient_that_is_not_contiguous():
    tensors, grad_out = inputs(2.0), draw_b(3, 6, seed=1).t()
    assert_same(ours(tensors, grad_out, 8), ours(tensors, grad_out.contiguous(), 8))
    ones = torch.ones(1, 1, dtype=torch.float64)
    assert_same(ours(tensors, ones.expand(6, 3), 8), ours(tensors, ones.repeat(6, 3), 8))


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "tanh", "identity", "softsign"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_output_belongs_to_the_caller(activation, checkpoint):
    """In-place operations behind a layer are common, and change neither its states nor its gradients."""
    b, weight, _ = inputs(2.0)

    def gradients(change):
        phi = ACTIVATIONS[activation].activation
        state = solve(b, weight, GRAPH.adjacency(), depth=8, activation=phi, checkpoint=checkpoint).state
        return torch.autograd.grad((change(state) ** 2).sum(), (b, weight))

    expected = gradients(lambda state: torch.relu(state * 2))
    for one, other in zip(gradients(lambda state: state.mul_(2).relu_()), expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("loss", [torch.sum, lambda state: (state**2).sum()], ids=["sum", "squares"])
@pytest.mark.parametrize("of", [0, 1, 2])
def test_second_derivatives_are_refused_and_never_ignored(loss, of):
    b, weight, eps = inputs(2.0)
    state = solve(b, weight, GRAPH.adjacency(), eps=eps, depth=8).state
    grads = torch.autograd.grad(loss(state), (b, weight, eps), create_graph=True)
    with pytest.raises(RuntimeError, match=r"cannot be differentiated again.*solve_steps"):
        torch.autograd.grad(sum((grad**2).sum() for grad in grads), (b, weight, eps)[of], allow_unused=True)


def test_second_derivatives_through_a_frozen_layer_are_refused():
    b, weight, _ = inputs(2.0)
    state = solve(b, weight.detach(), GRAPH.adjacency(), depth=8).state
    (grad,) = torch.autograd.grad(state.sum(), b, create_graph=True)
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        (grad**2).sum().backward()


def test_second_derivatives_of_steps_are_right():
    """What the error message recommends."""
    b, weight, _ = inputs(0.8)
    edge_weight = torch.rand(GRAPH.edge_index.size(1), dtype=torch.float64).add_(0.5).requires_grad_()

    def state(b, weight, edge_weight):
        adj = Adjacency.from_edge_index(GRAPH.edge_index, edge_weight, GRAPH.num_nodes, reorder=True)
        return solve_steps(b, lambda g: adj @ g @ weight, depth=3, grad_terms=None, activation="tanh").state

    assert torch.autograd.gradgradcheck(state, (b, weight, edge_weight))


def test_tensors_that_autograd_has_saved_are_not_overwritten():
    b, weight, _ = inputs(2.0)
    seen = []

    def pack(tensor):
        seen.append((tensor, tensor.detach().clone()))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        state = solve(b, weight, GRAPH.adjacency(), depth=8).state
    state.sum().backward()
    for seed in range(5):
        solve(draw_b(*b.shape, seed).requires_grad_(), weight, GRAPH.adjacency(), depth=8).state.sum().backward()
    assert all(torch.equal(kept, copy) for kept, copy in seen)
