"""The memory that makes adaptive depth cheap: what it checks, what it re-uses, and that it survives a restart."""

import json
import warnings

import pytest
import torch

from pprgnn import Adjacency, ConvergenceWarning, DepthMemory, Status, solve
from tests import reference
from tests.problems import ZOO, draw_b, draw_weight, ring

KARATE = ZOO["karate"].adjacency()
KARATE_DENSE = KARATE.to_dense()


def error(solution, b, weight, eps, a=KARATE_DENSE) -> float:
    truth = reference.limit(b.detach(), weight, a, eps, torch.relu)
    return float((solution.state.detach() - truth).norm() / b.detach().norm())


def learn(memory, b, weight, adj=KARATE, **options):
    """One training step; its depth may be re-used."""
    return solve(b.detach().requires_grad_(), weight, adj, depth=memory, **options)


def search(solution) -> int:
    """Products spent on the depth."""
    return solution.products - solution.depth


# ------------------------------------------------------------------------------------------- training steps
def test_the_first_step_is_checked_and_the_next_ones_are_like_it():
    memory, b, weight = DepthMemory(), draw_b(34, 3), draw_weight(3, 3.0)
    first = learn(memory, b, weight, eps=0.3)
    assert (first.status, memory.checks) == (Status.COMPARED, 1)
    assert search(first) > 0
    for _ in range(3):
        again = learn(memory, b, weight, eps=0.3)
        assert (again.status, search(again), memory.checks) == (Status.REUSED, 0, 1)
        assert again.depth <= first.depth + 1
        assert error(again, b, weight, 0.3) <= min(1e-5, again.estimated_error)
        assert again.error_bound is again.truncation_bound is again.measured_error is None


def changes():
    """From one step to another: name -> a function of (b, W, adj, eps)."""
    weak = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
    other, small = ZOO["karate"].adjacency(add_self_loops=True), ring(8).adjacency()
    return {
        "weights grow": lambda b, weight, adj, eps: (b, 8 * weight, adj, eps),
        "weights turn": lambda b, weight, adj, eps: (b, -weight, adj, eps),
        "input": lambda b, weight, adj, eps: (draw_b(34, 3, seed=5), weight, adj, eps),
        "channels": lambda b, weight, adj, eps: (b * weak, weight, adj, eps),
        "graph": lambda b, weight, adj, eps: (b, weight, other, eps),
        "size": lambda b, weight, adj, eps: (draw_b(8, 3), weight, small, eps),
        "rate": lambda b, weight, adj, eps: (b, weight, adj, 0.05),
    }


@pytest.mark.parametrize("change", changes())
def test_a_step_that_is_unlike_the_last_one_is_checked(change):
    memory, before = DepthMemory(), (draw_b(34, 3), draw_weight(3, 2.0), KARATE, 0.3)
    for step in (before, changes()[change](*before)):
        for _ in range(2):
            b, weight, adj, eps = step
            solution = learn(memory, b, weight, adj, eps=eps)
            assert error(solution, b, weight, eps, adj.to_dense()) <= 1e-5
    assert memory.checks == 2
    assert solution.status is Status.REUSED


def test_the_weights_may_turn_up_where_they_were_faint():
    """First an input in weak channels, then the same with a little in a strong one."""
    memory, weight = DepthMemory(), torch.diag(torch.tensor([0.5, 0.5, 4.0], dtype=torch.float64))
    for strong in (0.0, 1e-4, 1e-2, 1.0):
        b = draw_b(34, 3) * torch.tensor([1.0, 1.0, strong], dtype=torch.float64)
        assert error(learn(memory, b, weight, eps=0.25), b, weight, 0.25) <= 1e-5


@pytest.mark.parametrize("training", [False, True])
def test_nothing_is_learned_from_an_input_of_zeros(training):
    memory, b, weight = DepthMemory(), draw_b(34, 3), draw_weight(3, 3.0)
    for each in (0 * b, b, 0 * b, b):
        solution = solve(each.requires_grad_(training), weight, KARATE, eps=0.3, depth=memory)
        b.requires_grad_(False)
        assert float(each.detach().norm()) == 0 or error(solution, b, weight, 0.3) <= 1e-5


def test_inputs_that_always_change_are_checked_often_and_then_less_often():
    memory, weight, statuses = DepthMemory(), draw_weight(3, 3.0), []
    for seed in range(60):
        b = draw_b(34, 3, seed=seed)
        solution = learn(memory, b, weight, eps=0.3)
        assert error(solution, b, weight, 0.3) <= 1e-5
        statuses.append(solution.status is Status.REUSED)
    assert not any(statuses[:7])
    assert sum(statuses[20:]) >= 20


def drifting(steps: int, growth: float, turn: float, tol: float = 1e-5):
    """A simulated training run: step by step W grows by ``growth`` and turns by ``turn`` in all, and so does b."""
    memory, start, direction = DepthMemory(), draw_weight(3, 2.0), draw_weight(3, 2.0, seed=7)
    b_start, b_direction = draw_b(34, 3), draw_b(34, 3, seed=7)
    for progress in torch.linspace(0, 1, steps, dtype=torch.float64).tolist():
        weight = (1 + growth * progress) * (start + turn * progress * direction)
        b = b_start + turn * progress * b_direction
        yield b, weight, learn(memory, b, weight, eps=0.25, tol=tol)


@pytest.mark.parametrize(("growth", "turn"), [(0.0, 0.0), (0.5, 0.0), (0.5, 0.5), (2.0, 0.5)])
def test_checks_cost_little_over_a_training_run(growth, turn):
    spent = work = 0
    for _, _, solution in drifting(200, growth, turn):
        spent += search(solution)
        work += solution.depth + 10  # five backward terms cost two products each
    assert spent <= 0.15 * work


@pytest.mark.parametrize(("growth", "turn"), [(0.0, 0.2), (0.5, 0.0), (2.0, 0.0), (0.5, 0.2)])
@pytest.mark.parametrize("tol", [1e-3, 1e-5])
def test_reused_depths_are_good_enough_while_the_weights_drift(growth, turn, tol):
    reused = 0
    for step, (b, weight, solution) in enumerate(drifting(120, growth, turn, tol=tol)):
        reused += solution.status is Status.REUSED
        if step % 3 == 0:
            assert error(solution, b, weight, 0.25) <= tol
    assert reused >= 90


def chain(length, dtype=torch.float32):
    ends = torch.stack([torch.arange(length - 1), torch.arange(1, length)])
    return Adjacency.from_edge_index(torch.cat([ends, ends.flip(0)], dim=1), num_nodes=length, dtype=dtype)


def test_a_depth_does_not_run_away_where_the_state_is_saturated():
    """By ‖W‖₂ the error should grow a thousandfold in each step; tanh does not let it."""
    memory, adj, b = DepthMemory(), chain(100), torch.zeros(100, 4)
    b[0] = 1.0
    depths = []
    for step in range(40):
        weight = min(1 + 0.15 * step, 4.5) * torch.eye(4)
        depths.append(learn(memory, b, weight, adj, eps=0.02, activation="tanh", max_depth=2000).depth)
    assert max(depths) < 1000
    assert depths[-1] < 600


def test_delicate_steps_that_are_alike_are_not_all_checked():
    """Linear growth of some e^13 in float32: rounding might decide between branches, and a closer look tells."""
    memory, adj, b = DepthMemory(), chain(100), torch.zeros(100, 4)
    b[0] = 1.0
    statuses = [
        learn(memory, b, (2.3 + 1e-5 * step) * torch.eye(4), adj, eps=0.025, activation="tanh").status
        for step in range(40)
    ]
    assert memory._delicate
    assert statuses[0] is Status.COMPARED
    assert statuses.count(Status.REUSED) >= 30
    assert memory.checks >= 2


def test_small_entries_that_grow_are_seen_where_they_matter():
    """Linear growth of e^36: all nodes but the head have next to no input, and it decides about their states."""
    memory, adj = DepthMemory(), chain(80)
    rest = torch.randn(80, 4, generator=torch.Generator().manual_seed(1))
    head = torch.zeros(80, 4)
    head[0] = 1.0
    for step in range(66):
        b, weight = head + rest * 10 ** (-9 + step / 20), -(3 + 1e-4 * step) * torch.eye(4)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            state = learn(memory, b, weight, adj, eps=0.025, activation="tanh").state
        exact = solve(b.double(), weight.double(), adj.to(torch.float64), eps=0.025, activation="tanh", depth=480)
        error = float((state.detach().double() - exact.state).norm() / b.norm())
        assert said or error <= 1e-4


def test_where_rounding_decides_every_step_says_so():
    """W = -6·I: the branch is chosen by rounding, and steps that are alike must not hide it."""
    memory, b = DepthMemory(), draw_b(30, 2).float()
    half = torch.randint(0, 30, (2, 60), generator=torch.Generator().manual_seed(0))
    adj = Adjacency.from_edge_index(torch.cat([half, half.flip(0)], dim=1), num_nodes=30)
    for _ in range(5):
        with pytest.warns(ConvergenceWarning):
            assert not learn(memory, b, -6 * torch.eye(2), adj, eps=0.06, activation="tanh").converged


def test_inputs_whose_norm_overflows_are_checked():
    memory, b, weight = DepthMemory(), draw_b(34, 3).float(), draw_weight(3, 1.0).float()
    for size in (1.0, 1.0, 3e37, 3e37, 1e-38):
        solution = learn(memory, size * b, weight, KARATE.to(torch.float32), eps=0.5)
        assert solution.depth < 60
        assert error(solution, size * b.double(), weight.double(), 0.5) <= 1e-4 or size < 1e-30


def test_a_layer_may_change_its_precision_and_its_width():
    memory, b, weight = DepthMemory(), draw_b(34, 3), draw_weight(3, 2.0)
    for dtype, width in ((torch.float32, 3), (torch.float64, 3), (torch.float64, 2), (torch.float32, 2)):
        given = b[:, :width].to(dtype), weight[:width, :width].to(dtype)
        solution = learn(memory, *given, KARATE.to(dtype), eps=0.3)
        assert error(solution, given[0].double(), given[1].double(), 0.3) <= 1e-5
    assert memory.checks == 4


# ------------------------------------------------------------------------------------ looking at some steps only
def test_after_the_first_steps_one_of_so_many_is_looked_at():
    memory, weight = DepthMemory(every=5), draw_weight(3, 2.0)
    unseen = []
    for step in range(48):
        weight, b = 1.01 * weight, draw_b(34, 3, seed=step)  # another input in every step, as of batches
        solution = learn(memory, b, weight, eps=0.3)
        assert solution.converged
        assert error(solution, b, weight, 0.3) <= 1e-4
        if solution.status is Status.REUSED and solution.estimated_error is None:
            assert search(solution) == 0
            unseen.append(step)
    assert unseen == [step for step in range(8, 48) if (step - 8) % 5 != 4]
    answer = solve(draw_b(34, 3), weight, KARATE, eps=0.3, depth=memory)
    assert answer.status in (Status.COMPARED, Status.CERTIFIED)  # an answer is measured, whatever training does


def test_every_step_is_looked_at_while_none_is_right():
    memory, b, weight = DepthMemory(every=5), draw_b(34, 3).abs(), 6 * torch.eye(3, dtype=torch.float64)
    for _ in range(12):
        with pytest.warns(ConvergenceWarning):
            assert learn(memory, b, weight, eps=0.05, max_depth=12).status is not Status.REUSED


# -------------------------------------------------------------------------------------------------- answers
def test_an_answer_is_measured_on_its_own_input_and_teaches_nothing():
    memory, b, weight = DepthMemory(), draw_b(34, 3), draw_weight(3, 3.0)
    learn(memory, b, weight, eps=0.3)
    before = memory.state()
    for seed in range(3):
        other = draw_b(34, 3, seed=seed)
        solution = solve(other, weight, KARATE, eps=0.3, depth=memory)
        assert solution.status in (Status.COMPARED, Status.CERTIFIED)
        assert error(solution, other, weight, 0.3) <= 1e-5
    assert through_json(memory.state())[0] == through_json(before)[0]


def test_an_answer_is_proved_where_that_costs_no_more():
    solution = solve(draw_b(34, 3), draw_weight(3, 0.5), KARATE, eps=1.0, depth=DepthMemory())
    assert solution.status is Status.CERTIFIED
    assert solution.truncation_bound <= 1e-5


def test_an_answer_is_not_fooled_by_a_channel_that_grows_slowly():
    adj, weight = ring(10).adjacency(), torch.diag(torch.tensor([0.0, 1.5], dtype=torch.float64))
    b = draw_b(10, 2)
    b[:, 1] = 1e-10
    memory = DepthMemory()
    learn(memory, b * torch.tensor([1.0, 0.0], dtype=torch.float64), weight, adj, eps=0.02)
    solution = solve(b, weight, adj, eps=0.02, depth=memory)
    assert error(solution, b, weight, 0.02, adj.to_dense()) <= 1e-5


# -------------------------------------------------------------------------------------------------- failures
def test_a_cap_that_is_too_low_is_said_in_every_step_but_not_searched_in_every_step():
    memory, b, weight = DepthMemory(), draw_b(34, 3).abs(), 6 * torch.eye(3, dtype=torch.float64)
    searches = []
    for _ in range(12):
        with pytest.warns(ConvergenceWarning, match="Raise max_depth"):
            solution = learn(memory, b, weight, eps=0.05, max_depth=12)
        assert solution.status is Status.CAPPED
        searches.append(search(solution))
    assert searches[0] > 0
    assert sum(each > 0 for each in searches) <= 4
    memory.forget()
    assert learn(memory, b, 0.01 * weight, eps=0.05, max_depth=12).converged


def test_rounding_is_said_in_every_step():
    edges = torch.randint(0, 30, (2, 120), generator=torch.Generator().manual_seed(3))
    adj = Adjacency.from_edge_index(edges, num_nodes=30, add_self_loops=True, dtype=torch.float32)
    memory, b, weight = DepthMemory(), draw_b(30, 4).float(), -6 * torch.eye(4)
    for _ in range(4):
        with pytest.warns(ConvergenceWarning, match=r"Rounding errors in torch.float32 exceed tol.*float64"):
            solution = learn(memory, b, weight, adj, eps=0.06)
        assert solution.status is Status.ROUNDING


def test_roundings_of_a_state_that_is_much_larger_than_its_input_are_no_reason_to_warn():
    memory, b, weight = DepthMemory(), draw_b(34, 3).abs().float(), 6 * torch.eye(3)
    for training in (True, True, False):
        given = b.clone().requires_grad_(training)
        solution = solve(given, weight, KARATE.to(torch.float32), eps=0.3, depth=memory)
        truth = reference.limit(b.double(), weight.double(), KARATE_DENSE, 0.3, torch.relu)
        assert float((solution.state.detach() - truth).norm() / truth.norm()) <= 1e-5
        assert solution.converged


# --------------------------------------------------------------------------------------------------- restart
def through_json(state: dict) -> tuple[dict, dict]:
    values = {key: value for key, value in state.items() if key != "tensors"}
    tensors = {key: value.clone() for key, value in state["tensors"].items()}
    return json.loads(json.dumps(values, allow_nan=False)), tensors


def restored(memory: DepthMemory) -> DepthMemory:
    values, tensors = through_json(memory.state())
    again = DepthMemory(every=memory.every)
    again.restore({**values, "tensors": tensors})
    return again


def run(memory: DepthMemory, steps: range) -> list:
    """A simulated training run: W grows and turns, there are two graphs, and evaluations now and then."""
    start, direction = draw_weight(3, 2.0), draw_weight(3, 2.0, seed=7)
    seen = []
    for step in steps:
        weight = (1 + 0.05 * step) * (start + 0.02 * step * direction)
        b = draw_b(34, 3, seed=step // 12).requires_grad_(step % 4 != 0)
        adj = KARATE if step % 9 else ZOO["karate"].adjacency(add_self_loops=True)
        solution = solve(b, weight, adj, eps=0.25, depth=memory)
        seen.append((solution.depth, solution.status, solution.products, solution.estimated_error))
    return seen


@pytest.mark.parametrize(("stop", "every"), [(1, 1), (2, 1), (5, 1), (11, 1), (17, 1), (14, 4), (17, 4)])
def test_a_restored_memory_makes_the_very_same_choices(stop, every):
    whole = DepthMemory(every=every)
    expected = run(whole, range(24))
    assert whole.checks > 2  # else there is little to get wrong
    first = DepthMemory(every=every)
    seen = run(first, range(stop))
    second = restored(first)
    assert seen + run(second, range(stop, 24)) == expected
    assert second.checks == whole.checks


def test_a_failure_survives_a_restart():
    first, b, weight = DepthMemory(), draw_b(34, 3).abs(), 6 * torch.eye(3, dtype=torch.float64)
    with pytest.warns(ConvergenceWarning):
        learn(first, b, weight, eps=0.05, max_depth=12)
    for memory in (restored(first), first):
        with pytest.warns(ConvergenceWarning, match="Raise max_depth"):
            again = learn(memory, b, weight, eps=0.05, max_depth=12)
        assert search(again) == 0
        assert again.measured_error is None  # nothing was measured here
        assert again.estimated_error > 1e-5


def test_a_state_is_a_copy():
    memory = DepthMemory()
    run(memory, range(3))
    state = memory.state()
    kept = through_json(state)
    run(memory, range(3, 8))
    assert through_json(state)[0] == kept[0]
    assert all(torch.equal(state["tensors"][name], each) for name, each in kept[1].items())


@pytest.mark.parametrize(
    "change", [{"last": 3}, {"needed": None}, {"tensors": {}}, {"work": "much"}, {"checks": []}]
)
def test_anything_else_is_refused_and_changes_nothing(change):
    memory = DepthMemory(share=0.2)
    run(memory, range(4))
    before = memory.state()
    for wrong in (before | change, {}):
        with pytest.raises(ValueError, match="This is not the state of a DepthMemory"):
            memory.restore(wrong)
    assert through_json(memory.state())[0] == through_json(before)[0]
    assert memory.share == 0.2
