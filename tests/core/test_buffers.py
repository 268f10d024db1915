"""Memory that is re-used between solves must never be memory that somebody still reads."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint as torch_checkpoint

import pprgnn
from pprgnn import Measured, solve
from pprgnn.core.backend import buffers
from tests import reference
from tests.problems import ACTIVATIONS, ZOO, draw_b, draw_weight

GRAPH = ZOO["directed_weighted"]
A = reference.dense_adjacency(GRAPH.edge_index, GRAPH.edge_weight, 6)
WEIGHT, EPS = draw_weight(3, 2.0), torch.tensor(0.5, dtype=torch.float64)
VARIANTS = pytest.mark.parametrize(
    ("name", "options"),
    [("relu", {}), ("tanh", {}), ("softsign", {}), ("relu", {"checkpoint": True}), ("relu", {"grad_terms": None})],
    ids=["relu", "tanh", "softsign", "checkpoint", "all_terms"],
)
REORDER = pytest.mark.parametrize("reorder", [False, True])


@pytest.fixture(autouse=True)
def pool_everything(monkeypatch):
    """Usually only states of a megabyte and more are kept; here every one: small problems show mistakes."""
    monkeypatch.setattr(buffers, "SMALL", 0)
    buffers.release_buffers()
    yield
    buffers.release_buffers()


class Run:
    """One solve whose state and gradients are known."""

    def __init__(self, seed, name, options, reorder):
        phi = ACTIVATIONS[name]
        self.inputs = [t.clone().requires_grad_() for t in (draw_b(6, 3, seed), WEIGHT, EPS)]
        self.grad_out = draw_b(6, 3, seed + 1)
        b, weight, eps = self.inputs
        self.state = solve(
            b, weight, GRAPH.adjacency(reorder=reorder), eps=eps, depth=9, activation=phi.activation, **options
        ).state
        plain = [t.detach() for t in self.inputs]
        self.wanted = reference.states(*plain[:2], A, plain[2], phi.plain, 9)[0]
        terms = options.get("grad_terms", 5)
        self.wanted_grads = reference.gradients(plain, self.grad_out, A, phi.plain, 9, terms)

    def check_state(self):
        torch.testing.assert_close(self.state.detach(), self.wanted, rtol=0, atol=1e-10)

    def check_gradients(self, retain_graph=False):
        found = torch.autograd.grad(self.state, self.inputs, self.grad_out, retain_graph=retain_graph)
        for one, other in zip(found, self.wanted_grads, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
        return found


@VARIANTS
@REORDER
def test_solves_do_not_disturb_each_other(name, options, reorder):
    runs = [Run(seed, name, options, reorder) for seed in range(4)]
    grads = {}
    for order in (2, 0, 3, 1):  # backward in another order than forward, with new solves in between
        grads[order] = runs[order].check_gradients()
        Run(10 + order, name, options, reorder).check_gradients()
        for run in runs:
            run.check_state()
    for order, found in grads.items():  # gradients handed out stay what they were
        for one, other in zip(found, runs[order].wanted_grads, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@VARIANTS
@REORDER
def test_a_retained_graph_keeps_its_states(name, options, reorder):
    run = Run(0, name, options, reorder)
    for seed in range(1, 4):
        run.check_gradients(retain_graph=True)
        other = Run(seed, name, options, reorder)
        solve(draw_b(6, 3, seed), WEIGHT, GRAPH.adjacency(reorder=reorder), depth=Measured())
        other.check_gradients()
        run.check_state()
    run.check_gradients()


@REORDER
def test_layers_on_top_of_each_other(reorder):
    adj = GRAPH.adjacency(reorder=reorder)
    for _ in range(3):
        b = draw_b(6, 3).requires_grad_()
        x = y = b
        for _ in range(3):
            x = solve(x, WEIGHT, adj, eps=0.5, depth=5, grad_terms=None).state
            y = reference.states(y, WEIGHT, A, 0.5, torch.relu, 5)[0]
        one, other = (torch.autograd.grad((out**2).sum(), b)[0] for out in (x, y))
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@REORDER
def test_training_goes_on_after_an_evaluation_in_inference_mode(reorder):
    """A tensor born in inference mode cannot be saved for backward, so it must not come back from the pool."""
    adj = GRAPH.adjacency(reorder=reorder)
    Run(0, "relu", {}, reorder).check_gradients()
    with torch.inference_mode():
        for _ in range(5):
            for rule in (7, Measured()):
                solve(draw_b(6, 3), WEIGHT, adj, eps=0.3, depth=rule)
                solve(draw_b(6, 3), WEIGHT, adj, eps=0.3, depth=rule, activation="tanh")
    for name in ("relu", "tanh"):
        Run(1, name, {}, reorder).check_gradients()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_torch_checkpoint_around_a_solve(use_reentrant):
    adj = GRAPH.adjacency()

    def layers(b):
        return solve(solve(b, WEIGHT, adj, depth=6).state, WEIGHT, adj, depth=6).state

    b = draw_b(6, 3).requires_grad_()
    (wanted,) = torch.autograd.grad(layers(b).sum(), b)
    for _ in range(3):
        b.grad = None
        torch_checkpoint(layers, b, use_reentrant=use_reentrant).sum().backward()
        torch.testing.assert_close(b.grad, wanted, rtol=0, atol=1e-12)


def kept() -> int:
    return sum(len(stock) for stock in buffers._free.values())


@VARIANTS
def test_what_is_kept_does_not_grow(name, options):
    for seed in range(3):
        Run(seed, name, options, False).check_gradients()
    before = kept()
    assert before > 0
    for seed in range(20):
        Run(seed, name, options, False).check_gradients()
    assert kept() <= before
    pprgnn.core.backend.buffers.release_buffers()
    assert kept() == 0


def test_only_the_latest_sizes_are_kept():
    adj = GRAPH.adjacency()
    for channels in range(1, 12):
        b = draw_b(6, channels).requires_grad_()
        solve(b, draw_weight(channels, 1.0), adj, depth=6).state.sum().backward()
    assert len(buffers._free) <= buffers.SIZES
    assert (6 * 11, torch.float64, None) in buffers._free


def test_small_states_are_left_to_the_allocator(monkeypatch):
    monkeypatch.setattr(buffers, "SMALL", 1 << 20)
    Run(0, "relu", {}, False).check_gradients()
    assert kept() == 0


def test_many_passes_at_once_do_not_fill_the_pool():
    b, weight = draw_b(6, 3).requires_grad_(), WEIGHT.clone().requires_grad_()
    states = [solve(b, weight, GRAPH.adjacency(), depth=9).state for _ in range(60)]
    sum(state.sum() for state in states).backward()
    del states
    solve(b, weight, GRAPH.adjacency(), depth=9)
    assert kept() <= 6 + buffers.SCRATCH  # G⁽⁰⁾ ... G⁽⁵⁾ and scratch


def test_outputs_and_saved_states_of_others_are_left_alone():
    b, weight = draw_b(6, 3).requires_grad_(), WEIGHT.clone().requires_grad_()
    state = solve(b, weight, GRAPH.adjacency(), depth=9).state
    held = [state.detach(), *(each for each in state.grad_fn.saved_tensors if each is not None)]
    before = [each.clone() for each in held]
    state.sum().backward()
    for seed in range(4):
        solve(draw_b(6, 3, seed).requires_grad_(), weight, GRAPH.adjacency(), depth=9).state.sum().backward()
    assert all(map(torch.equal, held, before))
