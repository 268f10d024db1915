"""What a depth memory knows survives a restart: it recognises its graph and goes on choosing as before."""

import json
import subprocess
import sys

import pytest
import torch

from pprgnn import Adjacency, ConvergenceWarning, DepthMemory, solve
from tests.problems import ZOO, draw_b, draw_weight


def karate(**options) -> Adjacency:
    return ZOO["karate"].adjacency(**options)


def through_json(state: dict) -> dict:
    tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
    assert set(tensors) <= {"direction", "probe"}
    values = {key: value for key, value in state.items() if key not in tensors}
    return json.loads(json.dumps(values, allow_nan=False)) | {key: value.clone() for key, value in tensors.items()}


# --------------------------------------------------------------------------------------------- fingerprints
def test_equal_graphs_have_equal_fingerprints():
    one, other = karate(), karate()
    assert one is not other
    assert one.fingerprint == other.fingerprint
    tensors, facts = one.state()
    assert Adjacency.from_state(tensors, facts).fingerprint == one.fingerprint


def test_the_fingerprint_is_the_same_in_another_process():
    code = "from tests.problems import ZOO; print(ZOO['karate'].adjacency().fingerprint)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(out) == karate().fingerprint


def test_different_graphs_of_one_size_have_different_fingerprints():
    here = torch.arange(12)
    seen = set()
    for shift in range(1, 6):  # circulant graphs, alike in every sum
        edges = torch.stack([here, (here + shift) % 12])
        seen.add(Adjacency.from_edge_index(torch.cat([edges, edges.flip(0)], 1), num_nodes=12).fingerprint)
    swapped = torch.tensor([[0, 1, 2], [1, 2, 0]])
    for edges in (swapped, swapped.flip(0)):
        for weight in ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0, 2.0, 3.0000002]):
            seen.add(Adjacency.from_edge_index(edges, torch.tensor(weight), 3, normalize=None).fingerprint)
    seen |= {karate().fingerprint, karate(add_self_loops=True).fingerprint, karate(normalize="row").fingerprint}
    seen |= {karate(dtype=torch.float32).fingerprint}
    assert len(seen) == 5 + 6 + 4


def test_the_fingerprint_is_computed_once(monkeypatch):
    adj = karate()
    first = adj.fingerprint
    monkeypatch.setattr("pprgnn.core.adjacency.fingerprint", None)
    assert adj.fingerprint == first


def test_an_equal_graph_built_anew_is_not_another_graph():
    memory, b, weight = DepthMemory(), draw_b(34, 3), draw_weight(3, 3.0)
    solve(b, weight, karate(), eps=0.3, depth=memory)
    again = solve(b, weight, karate(), eps=0.3, depth=memory)
    other = solve(b, weight, karate(normalize="row"), eps=0.3, depth=memory)
    assert again.estimated_error <= 1e-5
    assert other.depth > again.depth  # a guess on another graph is made with a margin
    assert other.estimated_error <= 1e-6


# --------------------------------------------------------------------------------------------------- resume
def run(memory: DepthMemory, steps: range) -> list:
    """A simulated training run: W grows and turns, there are two graphs, and evaluations now and then."""
    start, direction = draw_weight(3, 2.0), draw_weight(3, 2.0, seed=7)
    seen = []
    for step in steps:
        weight = (1 + 0.05 * step) * (start + 0.02 * step * direction)
        b = draw_b(34, 3).requires_grad_(step % 3 != 0)
        adj = karate() if step % 5 else karate(add_self_loops=True)
        solution = solve(b, weight, adj, eps=0.25, depth=memory)
        seen.append((solution.depth, solution.status, solution.products, solution.estimated_error))
    return seen


@pytest.mark.parametrize("stop", [1, 2, 5, 11, 17])
def test_a_restored_memory_makes_the_very_same_choices(stop):
    whole = DepthMemory()
    expected = run(whole, range(24))
    assert whole.measurements > 1  # else there is little to get wrong
    first, second = DepthMemory(), DepthMemory()
    seen = run(first, range(stop))
    second.restore(through_json(first.state()))
    assert seen + run(second, range(stop, 24)) == expected
    assert second.measurements == whole.measurements


def test_a_failure_is_remembered():
    first, b, weight = DepthMemory(), draw_b(34, 3), draw_weight(3, 6.0)
    with pytest.warns(ConvergenceWarning):
        solve(b, weight, karate(), eps=0.05, depth=first, max_depth=6)
    second = DepthMemory()
    second.restore(through_json(first.state()))
    for memory in (first, second):
        with pytest.warns(ConvergenceWarning, match="error"):
            solution = solve(b, weight, karate(), eps=0.05, depth=memory, max_depth=6)
        assert solution.products == solution.depth  # no second search


def test_what_is_not_finite_is_remembered_too():
    first, b, weight = DepthMemory(), draw_b(34, 3).float() * 1e30, 1e6 * torch.eye(3)
    with pytest.warns(ConvergenceWarning):
        solve(b, weight, karate(dtype=torch.float32), eps=0.05, depth=first, max_depth=20)
    second = DepthMemory()
    second.restore(through_json(first.state()))
    assert repr(second._last_depth) == repr(first._last_depth)


def test_a_state_is_a_copy():
    memory = DepthMemory()
    run(memory, range(2))
    state = memory.state()
    kept = through_json(state)
    run(memory, range(2, 8))
    assert torch.equal(state["direction"], kept["direction"])
    assert state["curve"] == kept["curve"]


def test_a_new_memory_has_a_state():
    first, second = DepthMemory(share=0.2), DepthMemory(share=0.3)
    second.restore(through_json(first.state()))
    assert second.share == 0.3
    assert run(second, range(3))


@pytest.mark.parametrize("change", [{"curve": 3}, {"last_depth": {"k": 1}}, {"probe": None}, {"graph": [1]}])
def test_anything_else_is_refused_and_changes_nothing(change):
    memory = DepthMemory()
    run(memory, range(3))
    before = through_json(memory.state())
    for wrong in (before | change, {}):
        with pytest.raises(ValueError, match="This is not the state of a DepthMemory"):
            memory.restore(wrong)
    assert memory.state()["curve"] == before["curve"]
    assert memory.measurements == before["measurements"]


def test_graphs_of_two_sizes_have_memories_of_their_own():
    from pprgnn.core.depth_memories import DepthMemories

    memories, weight = DepthMemories(), draw_weight(3, 3.0)
    rings = [Adjacency.from_edge_index(torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])) for n in (8, 80)]
    for _ in range(3):  # back and forth
        for ring in rings:
            b = draw_b(ring.num_nodes, 3)
            solve(b, weight, ring.to(b.dtype), eps=0.5, depth=memories)
            solve(b.requires_grad_(), weight, ring.to(b.dtype), eps=0.5, depth=memories)
    assert sorted(memories.memories) == ["4", "7"]
    assert memories.measurements == 3  # without a gradient, with one, and for the other size
    again = DepthMemories()
    again.restore(memories.state())
    assert again.measurements == 3
    for ring in rings:
        b = draw_b(ring.num_nodes, 3)
        one, other = (solve(b, weight, ring.to(b.dtype), eps=0.5, depth=each) for each in (memories, again))
        assert (one.depth, one.status) == (other.depth, other.status)
