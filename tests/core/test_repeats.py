"""``checkpoint=True``: the same gradient, from few states however many terms it has."""

import pytest
import torch

from pprgnn import Measured, solve
from pprgnn.core import problem as problems
from pprgnn.core.backend import buffers, kernel
from pprgnn.core.backend.buffers import buffer_index
from tests.problems import ZOO, draw_b, draw_weight

GRAPH = ZOO["directed_weighted"]


@pytest.fixture(autouse=True)
def pool_everything(monkeypatch):
    monkeypatch.setattr(buffers, "SMALL", 0)
    buffers.release_buffers()
    yield
    buffers.release_buffers()


def gradients(depth, terms, reorder=False, checkpoint=True, twice=False):
    inputs = [t.requires_grad_() for t in (draw_b(6, 3), draw_weight(3, 2.0), torch.tensor(0.5).double())]
    b, weight, eps = inputs
    adj = GRAPH.adjacency(reorder=reorder)
    out = solve(b, weight, adj, eps=eps, depth=depth, grad_terms=terms, checkpoint=checkpoint).state
    loss = (out**2).sum()
    if twice:
        torch.autograd.grad(loss, inputs, retain_graph=True)
        solve(draw_b(6, 3, 5), weight, adj, depth=9)  # would show in the second pass if it wrote to kept states
    return torch.autograd.grad(loss, inputs)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("reorder", [False, True])
@pytest.mark.parametrize(
    ("depth", "terms"), [(9, 2), (9, 3), (9, 5), (4, 4), (4, 5), (4, 9), (2, None), (9, None)]
)
def test_gradients_are_those_of_states_kept(depth, terms, reorder, twice):
    found = gradients(depth, terms, reorder, twice=twice)
    for one, other in zip(found, gradients(depth, terms, reorder, checkpoint=False), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.skipif(kernel.library_name() == "torch", reason="the kernel was not built")
@pytest.mark.parametrize("terms", [3, 5, 8])
def test_buffers_do_not_grow_with_the_terms(terms, monkeypatch):
    fresh = []
    monkeypatch.setattr(buffers, "_on_huge_pages", lambda tensor: fresh.append(tensor.shape) or tensor)
    gradients(9, terms)
    assert len(fresh) <= 6  # the output, G⁽ᴺ⁾, Z̄, B̄, and two for states that are repeated


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("keep", range(6))
def test_no_state_is_written_over_the_one_it_comes_from_or_one_that_is_kept(keep, ends):
    kept = {0, keep} if ends else set(range(keep + 1))
    for depth in range(keep, keep + 6):
        holds = {}
        for n in range(depth, -1, -1):
            place = buffer_index(n, keep, ends)
            assert place <= (2 if ends else max(keep, 1))
            assert holds.get(place) is None or holds[place] not in {n + 1, *kept}
            holds[place] = n
        assert {buffer_index(n, keep, ends): n for n in kept} == {
            place: holds[place] for place in range(len(kept))
        }


def test_measuring_needs_no_more_buffers_for_more_terms(monkeypatch):
    fresh = []
    monkeypatch.setattr(buffers, "_on_huge_pages", lambda tensor: fresh.append(tensor.shape) or tensor)
    for terms in (3, 9):
        fresh.clear()
        buffers.release_buffers()
        with torch.no_grad():
            adj = GRAPH.adjacency()
            problem = problems.Problem(
                draw_b(6, 3), draw_weight(3, 2.0), torch.tensor(0.5).double(), adj, solve_activation()
            )
            Measured().choose(problem, 1e-5, 500, terms)
        assert len(fresh) == 5


def solve_activation():
    from pprgnn.core.activation import resolve_activation

    return resolve_activation("relu")
