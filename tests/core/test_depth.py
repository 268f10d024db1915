"""The depth rules as values, and what each reports."""

import pytest
import torch

from pprgnn import (
    Adjacency,
    Certificate,
    Fixed,
    Influence,
    Measured,
    Status,
    solve,
)
from tests import reference
from tests.problems import ZOO, draw_b, draw_weight

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
    assert (default.depth, default.truncation_bound) == (measured.depth, measured.truncation_bound)
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
    assert solution.truncation_bound == pytest.approx(proofs[-1], rel=1e-2)
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
    assert true <= solution.truncation_bound <= 1e-5
    assert solution.truncation_bound < solution.error_bound  # rounding comes on top
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
    assert error(solution, b, weight, 1.0) <= solution.truncation_bound <= 1e-5


def count_products(monkeypatch) -> list:
    monkeypatch.setenv("PPRGNN_KERNEL", "torch")  # the fused kernel makes its products where nobody can count
    calls, plain = [], Adjacency.product

    def counted(adj, x, *args, **options):
        if x.size(1) > 2:  # a sketch has two columns
            calls.append(1)
        return plain(adj, x, *args, **options)

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
    weight = torch.block_diag(not_normal(), 0.1 * torch.eye(1, dtype=torch.float64))
    assert solve(draw_b(34, 3), weight, KARATE, eps=0.01, max_depth=100).products == len(calls)
