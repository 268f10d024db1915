"""The depth rules as values, what each reports, and the memory that makes measuring cheap."""

import pytest
import torch

from pprgnn import (
    Adjacency,
    Certificate,
    ConvergenceWarning,
    DepthMemory,
    Fixed,
    Influence,
    Measured,
    Status,
    solve,
)
from tests import reference
from tests.problems import ZOO, draw_b, draw_weight, ring

KARATE = ZOO["karate"].adjacency()
KARATE_DENSE = KARATE.to_dense()


def error(solution, b, weight, eps, a=KARATE_DENSE) -> float:
    truth = reference.limit(b, weight, a, eps, torch.relu)
    return float((solution.state.detach() - truth).norm() / b.norm())


# --------------------------------------------------------------------------------------------------- values
def test_rules_are_values():
    for rule in (Measured, Certificate, Influence):
        assert rule() == rule()
        assert hash(rule()) == hash(rule())
        assert repr(rule()) == f"{rule.__name__}()"
    assert Fixed(3) == Fixed(3) != Fixed(4)
    assert len({Fixed(3), Fixed(3), Fixed(4), Measured(), Measured(), Certificate()}) == 4
    assert repr(Fixed(3)) == "Fixed(k=3)"
    with pytest.raises(AttributeError):
        Fixed(3).k = 4


def test_an_integer_is_a_fixed_depth_and_none_is_measured():
    b, weight = draw_b(34, 3), draw_weight(3, 2.0)
    assert torch.equal(solve(b, weight, KARATE, depth=6).state, solve(b, weight, KARATE, depth=Fixed(6)).state)
    default, measured = solve(b, weight, KARATE), solve(b, weight, KARATE, depth=Measured())
    assert (default.depth, default.error_bound) == (measured.depth, measured.error_bound)
    with pytest.raises(ValueError, match="A depth must be >= 0, but came as -2"):
        Fixed(-2)


def test_fixed_ignores_the_cap():
    assert solve(draw_b(34, 3), draw_weight(3, 2.0), KARATE, depth=20, max_depth=5).depth == 20


# ------------------------------------------------------------------------------------------- what they report
def test_certificate_is_the_smallest_depth_it_can_prove_and_costs_no_product():
    b, weight = draw_b(34, 3), draw_weight(3, 3.0)
    solution = solve(b, weight, KARATE, eps=0.3, depth=Certificate())
    proofs = [reference.certificate(k, KARATE_DENSE, weight, 0.3) for k in range(solution.depth + 1)]
    assert proofs[-1] <= 1e-5 < proofs[-2]
    assert solution.error_bound == pytest.approx(proofs[-1], rel=1e-2)
    assert solution.products == solution.depth


def test_influence_follows_the_equation_of_the_paper():
    b, weight, eps = draw_b(34, 3), draw_weight(3, 3.0), 0.3
    solution = solve(b, weight, KARATE, eps=eps, depth=Influence(), tol=1e-4)
    e, hop = b, 0
    while True:
        e = torch.relu(KARATE_DENSE @ e @ weight / (1 + (hop + 1) * eps))
        if float(e.abs().max()) < 1e-4 * float(b.abs().max()):
            break
        hop += 1
    assert (solution.depth, solution.status) == (hop, Status.INFLUENCE)
    assert solution.error_bound is None
    assert solution.measured_error is None
    assert solution.products == hop + 1 + hop  # the search costs as much as the pass


def test_measured_is_a_proof_where_the_certificate_reaches():
    b, weight = draw_b(34, 3), draw_weight(3, 4.0)
    solution = solve(b, weight, KARATE, eps=0.25)
    certified = solve(b, weight, KARATE, eps=0.25, depth=Certificate())
    assert solution.status is Status.MEASURED
    assert solution.depth < certified.depth  # that is what measuring is for
    true = error(solution, b, weight, 0.25)
    assert true <= solution.error_bound <= 1e-5
    assert solution.measured_error == pytest.approx(true, abs=1e-6)


def not_normal() -> torch.Tensor:
    """‖W‖₂ > 6, yet its powers fade like 0.5ⁿ: the certificate is hopeless, the truth is quick."""
    return torch.tensor([[0.5, 6.0], [0.0, 0.5]], dtype=torch.float64)


@pytest.mark.parametrize("learning", [False, True])
def test_compared_where_the_certificate_is_beyond_the_cap(learning):
    b = draw_b(34, 2).abs()
    solution = solve(b.clone().requires_grad_(learning), not_normal(), KARATE, eps=0.01, max_depth=100)
    assert solution.status is Status.COMPARED
    assert solution.converged
    assert solution.error_bound is None  # two depths that agree prove nothing
    # The solution itself is off by this much, not some deeper pass that the search has seen.
    truth = reference.states(b, not_normal(), KARATE_DENSE, 0.01, torch.relu, 2500)[0]
    true = float((solution.state.detach() - truth).norm() / b.norm())
    assert true <= 1e-5
    assert solution.measured_error == pytest.approx(true, rel=0.1, abs=1e-12)


def test_measured_takes_the_certificate_when_a_search_cannot_pay():
    b, weight = draw_b(34, 3), draw_weight(3, 0.1)
    solution = solve(b, weight, KARATE)
    assert solution.status is Status.CERTIFIED
    assert solution.products == solution.depth <= 6
    assert error(solution, b, weight, 1.0) <= solution.error_bound <= 1e-5


def count_products(monkeypatch) -> list:
    monkeypatch.setenv("PPRGNN_KERNEL", "torch")  # the fused kernel makes its products where nobody can count
    calls, plain = [], Adjacency.product

    def counted(*args, **options):
        calls.append(1)
        return plain(*args, **options)

    monkeypatch.setattr(Adjacency, "product", counted)
    return calls


@pytest.mark.parametrize("rule", [Fixed(9), Measured(), Certificate(), Influence()], ids=str)
@pytest.mark.parametrize(("norm", "learning"), [(0.1, False), (3.0, False), (3.0, True)])
def test_every_sparse_product_is_reported(rule, norm, learning, monkeypatch):
    """PAPER: the published iteration counts leave out the search and the extra levels."""
    calls = count_products(monkeypatch)
    b = draw_b(34, 3).requires_grad_(learning)
    solution = solve(b, draw_weight(3, norm), KARATE, eps=0.3, depth=rule)
    assert solution.products == len(calls)


def test_every_product_of_a_comparison_is_reported(monkeypatch):
    calls = count_products(monkeypatch)
    assert solve(draw_b(34, 2), not_normal(), KARATE, eps=0.01, max_depth=100).products == len(calls)


# --------------------------------------------------------------------------------------------------- memory
def search(solution) -> int:
    """Products spent on choosing the depth."""
    return solution.products - solution.depth


def test_memory_measures_once_and_then_reuses():
    memory, b, weight = DepthMemory(), draw_b(34, 3), draw_weight(3, 3.0)
    first = solve(b, weight, KARATE, eps=0.3, depth=memory)
    assert (first.status, memory.measurements) == (Status.MEASURED, 1)
    assert search(first) > 0
    for _ in range(3):
        again = solve(b, weight, KARATE, eps=0.3, depth=memory)
        assert (again.status, search(again), memory.measurements) == (Status.REUSED, 0, 1)
        assert again.depth <= first.depth + 1
        assert error(again, b, weight, 0.3) <= 1e-5
        assert error(again, b, weight, 0.3) <= 1.1 * again.estimated_error
        assert again.error_bound is None  # nothing was proved


@pytest.mark.parametrize("factor", [2.0, 3.0, 4.0])
def test_memory_is_right_about_weights_that_doubled(factor):
    memory, b, weight = DepthMemory(), draw_b(34, 3), draw_weight(3, 1.0)
    solve(b, weight, KARATE, eps=0.5, depth=memory)
    assert error(solve(b, factor * weight, KARATE, eps=0.5, depth=memory), b, factor * weight, 0.5) <= 1e-4


@pytest.mark.parametrize("factor", [8.0, 20.0])
def test_memory_measures_again_when_the_weights_have_grown_a_lot(factor):
    memory, b, weight = DepthMemory(), draw_b(34, 3), draw_weight(3, 1.0)
    solve(b, weight, KARATE, eps=0.5, depth=memory)
    grown = solve(b, factor * weight, KARATE, eps=0.5, depth=memory)
    assert (grown.status, memory.measurements) == (Status.MEASURED, 2)
    assert error(grown, b, factor * weight, 0.5) <= 1e-5


@pytest.mark.parametrize("kind", ["centred", "ones_is_a_weak_direction"])
def test_memory_notices_growth_in_every_direction(kind):
    """The vector of ones may be in W's kernel, or an eigenvector that does not grow: no reason to be blind."""
    memory, b, ones = DepthMemory(), draw_b(34, 4), torch.full((4, 4), 0.25, dtype=torch.float64)
    centred = torch.eye(4, dtype=torch.float64) - ones
    for size in (0.5, 5.0):
        weight = size * centred + (0 if kind == "centred" else 0.3) * ones
        solution = solve(b, weight, KARATE, eps=0.2, depth=memory)
        assert error(solution, b, weight, 0.2) <= 1e-4


def test_memory_notices_a_smaller_eps():
    memory, b, weight = DepthMemory(), draw_b(34, 3), draw_weight(3, 3.0)
    shallow = solve(b, weight, KARATE, eps=2.0, depth=memory)
    deep = solve(b, weight, KARATE, eps=0.2, depth=memory)
    assert deep.depth > shallow.depth
    assert error(deep, b, weight, 0.2) <= 1e-4


def test_memory_measures_again_on_a_graph_of_another_size():
    memory, weight = DepthMemory(), draw_weight(3, 3.0)
    solve(draw_b(34, 3), weight, KARATE, eps=0.3, depth=memory)
    small = ring(8).adjacency()
    other = solve(draw_b(8, 3), weight, small, eps=0.3, depth=memory)
    assert (other.status, memory.measurements) == (Status.MEASURED, 2)
    similar = solve(draw_b(9, 3), weight, ring(9).adjacency(), eps=0.3, depth=memory)  # as in mini-batches
    assert (similar.status, memory.measurements) == (Status.REUSED, 2)


def test_memory_can_forget():
    memory, b, weight = DepthMemory(), draw_b(34, 3), draw_weight(3, 3.0)
    for measurements in (1, 2):
        solution = solve(b, weight, KARATE, eps=0.3, depth=memory)
        assert (solution.status, memory.measurements) == (Status.MEASURED, measurements)
        memory.forget()


def test_memory_goes_deeper_when_the_weights_grow_a_little():
    memory, b, weight = DepthMemory(), draw_b(34, 3), draw_weight(3, 3.0)
    first = solve(b, weight, KARATE, eps=0.3, depth=memory)
    depths = [first.depth]
    for percent in range(2, 50, 2):
        grown = solve(b, (1 + percent / 100) * weight, KARATE, eps=0.3, depth=memory)
        if grown.status is not Status.REUSED:
            break  # more than it can tell from the old measurement
        assert search(grown) == 0
        assert error(grown, b, (1 + percent / 100) * weight, 0.3) <= 2e-5
        depths.append(grown.depth)
    assert depths == sorted(depths)
    assert depths[-1] > first.depth
    assert solve(b, 0.6 * weight, KARATE, eps=0.3, depth=memory).depth < first.depth


def test_memory_keeps_nothing_of_a_failure():
    memory, b, weight = DepthMemory(), draw_b(34, 3).abs(), 6 * torch.eye(3, dtype=torch.float64)
    with pytest.warns(ConvergenceWarning):
        solve(b, weight, KARATE, eps=0.05, depth=memory, max_depth=7)
    assert solve(b, weight, KARATE, eps=0.05, depth=memory).status is Status.MEASURED


def drifting(steps: int, growth: float, turn: float, learning: bool, tol: float = 1e-5):
    """A simulated training run: step by step W grows by ``growth`` and turns by ``turn`` in all, and so does b."""
    memory, start, direction = DepthMemory(), draw_weight(3, 2.0), draw_weight(3, 2.0, seed=7)
    b_start, b_direction = draw_b(34, 3), draw_b(34, 3, seed=7)
    for progress in torch.linspace(0, 1, steps, dtype=torch.float64).tolist():
        weight = (1 + growth * progress) * (start + turn * progress * direction)
        b = (b_start + turn * progress * b_direction).requires_grad_(learning)
        yield b.detach(), weight, solve(b, weight, KARATE, eps=0.25, depth=memory, tol=tol)


@pytest.mark.parametrize(
    ("growth", "turn", "learning"),
    [(0.0, 0.0, True), (0.5, 0.0, True), (0.5, 0.5, True), (2.0, 0.5, True), (0.0, 0.2, False), (0.5, 0.0, False)],
)
def test_measuring_costs_little_over_a_training_run(growth, turn, learning):
    spent = work = 0
    for _, _, solution in drifting(200, growth, turn, learning):
        spent += search(solution)
        work += solution.depth + (10 if learning else 0)  # five backward terms cost two products each
    assert spent <= 0.15 * work


@pytest.mark.parametrize(("growth", "turn"), [(0.0, 0.2), (0.5, 0.0), (2.0, 0.0), (0.5, 0.2)])
@pytest.mark.parametrize("tol", [1e-3, 1e-5])
def test_reused_depth_is_good_enough_while_the_weights_drift(growth, turn, tol):
    reused = 0
    for step, (b, weight, solution) in enumerate(drifting(120, growth, turn, learning=False, tol=tol)):
        reused += solution.status is Status.REUSED
        if step % 3 == 0:
            assert error(solution, b, weight, 0.25) <= (10 * tol if solution.status is Status.REUSED else tol)
    assert reused >= 60


def test_memory_does_not_search_in_every_step_when_the_cap_is_too_low():
    memory, b, weight = DepthMemory(), draw_b(34, 3), draw_weight(3, 6.0)
    searches, statuses = [], []
    for _ in range(10):
        with pytest.warns(ConvergenceWarning):
            solution = solve(b, weight, KARATE, eps=0.05, depth=memory, max_depth=6)
        searches.append(solution.products - solution.depth)
        statuses.append(solution.status)
    assert searches[0] > 0
    assert not any(searches[1:])
    assert set(statuses) == {Status.CAPPED}
    # Smaller weights converge within the cap; the memory finds out as soon as it may measure again.
    memory.forget()
    assert solve(b, 0.01 * weight, KARATE, eps=0.05, depth=memory, max_depth=6).converged
