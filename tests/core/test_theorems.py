"""What the method promises, on random problems: limits, bounds, units, symmetries; where the paper's rule fails.

Depths are compared with a pass so deep that nothing changes any more.
"""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pprgnn import Adjacency, Certificate, ConvergenceWarning, Influence, Measured, Status, solve
from pprgnn.core.activation import resolve_activation
from pprgnn.core.problem import Problem
from tests import reference
from tests.problems import ACTIVATIONS, ZOO, draw_b, draw_eps, draw_weight, random_graph, ring

SEEDS = st.integers(0, 10**6)
BOUNDED = st.sampled_from(["relu", "leaky_relu_0.3", "tanh", "identity", "softsign", "steep"])


class Drawn:
    """A random problem: graph, matrix, b, weight, eps and φ."""

    def __init__(self, seed, directed, normalize, norm, base, per_channel, name):
        graph = random_graph(seed, 3 + seed % 6, directed=directed, weighted=seed % 2 == 0)
        self.adj = graph.adjacency(normalize=normalize, add_self_loops=True)
        self.a = self.adj.to_dense()
        self.channels = 1 + seed % 3
        self.b = draw_b(graph.num_nodes, self.channels, seed)
        self.weight = draw_weight(self.channels, norm, seed)
        self.eps = draw_eps(self.channels, per_channel, base)
        self.phi = ACTIVATIONS[name]

    def solve(self, **options):
        return solve(self.b, self.weight, self.adj, eps=self.eps, activation=self.phi.activation, **options)

    def limit(self):
        return reference.limit(self.b, self.weight, self.a, self.eps, self.phi.plain)

    def error(self, state) -> float:
        return float((state - self.limit()).norm() / self.b.norm())


PROBLEMS = st.builds(
    Drawn,
    seed=SEEDS,
    directed=st.booleans(),
    normalize=st.sampled_from(["sym", "row"]),
    norm=st.floats(0.05, 5.0),
    base=st.floats(0.2, 2.0),
    per_channel=st.booleans(),
    name=BOUNDED,
)


# ---------------------------------------------------------------------------------------------- Theorem 1
@given(problem=PROBLEMS, start_seed=SEEDS, size=st.floats(0, 1e3))
def test_the_limit_is_unique_whatever_the_start(problem, start_seed, size):
    start = size * draw_b(*problem.b.shape, start_seed)
    arguments = (problem.b, problem.weight, problem.a, problem.eps, problem.phi.plain)
    from_start = reference.states(*arguments, depth=300, start=start)[0]
    solution = problem.solve(tol=1e-9)
    assert solution.converged
    assert float((solution.state - from_start).norm() / problem.b.norm()) <= 1e-9 + 1e-12


# ---------------------------------------------------------------------------------------------- Theorem 2
def influence(e, weight, a, alphas, phi):
    for alpha in alphas:
        e = phi(alpha * (a @ e @ weight))
    return e


@given(seed=SEEDS, hops=st.integers(1, 8), eps=st.floats(0.05, 2.0))
def test_order_of_the_decay_does_not_matter_for_relu(seed, hops, eps):
    a = random_graph(seed, 6, directed=True, weighted=True).adjacency(normalize="row").to_dense()
    weight, start = draw_weight(2, 2.0, seed), draw_b(6, 2, seed)
    alphas = [1 / (1 + n * eps) for n in range(hops)]
    one = influence(start, weight, a, alphas, torch.relu)
    other = influence(start, weight, a, alphas[::-1], torch.relu)
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_order_of_the_decay_does_matter_for_tanh():
    one = torch.ones(1, 1, dtype=torch.float64)
    there = influence(one, one, one, [1.0, 0.5], torch.tanh)  # tanh(tanh(1) / 2)
    back = influence(one, one, one, [0.5, 1.0], torch.tanh)  # tanh(tanh(1 / 2))
    assert float((there - back).abs()) > 0.05


# --------------------------------------------------------------------------------------------------- bounds
@given(problem=PROBLEMS, depth=st.integers(0, 40))
def test_certificate_is_never_below_the_true_error(problem, depth):
    activation = resolve_activation(problem.phi.activation)
    eps = torch.as_tensor(problem.eps, dtype=torch.float64)
    bounds = Problem(problem.b, problem.weight, eps, problem.adj, activation).bounds()
    bound = bounds.error(depth)
    assert problem.error(problem.solve(depth=depth).state) <= bound + 1e-11
    # ... and it is the formula of the method, up to the margins for rounding
    true = reference.certificate(depth, problem.a, problem.weight, float(eps.min()), problem.phi.lipschitz)
    if true < float("inf"):
        assert true <= bound * (1 + 1e-12)


@given(problem=PROBLEMS, tol=st.sampled_from([1e-2, 1e-5, 1e-9]))
def test_certified_solution_keeps_its_promise(problem, tol):
    solution = problem.solve(depth=Certificate(), tol=tol)
    assert solution.status is Status.CERTIFIED
    assert problem.error(solution.state) <= solution.error_bound + 1e-12
    assert solution.truncation_bound <= tol


@given(problem=PROBLEMS, tol=st.sampled_from([1e-2, 1e-5, 1e-9]), learning=st.booleans())
def test_measured_solution_keeps_its_promise(problem, tol, learning):
    problem.b.requires_grad_(learning)
    solution = problem.solve(tol=tol)
    problem.b.requires_grad_(False)
    assert solution.status in (Status.MEASURED, Status.CERTIFIED)
    assert problem.error(solution.state.detach()) <= solution.error_bound + 1e-12
    assert solution.truncation_bound <= tol
    certified = problem.solve(depth=Certificate(), tol=0.1 * tol).depth
    assert solution.depth <= certified + 5 * learning  # measuring never asks for more than the proof does


def test_certificate_needs_the_lipschitz_constant():
    """PAPER: Theorem 1 speaks of any Lipschitz φ and proves it for L = 1."""
    b, weight, adj = 0.01 * draw_b(34, 3), draw_weight(3, 2.0), ZOO["karate"].adjacency()
    gentle, steep = (
        solve(b, weight, adj, depth=Certificate(), activation=ACTIVATIONS[name].activation)
        for name in ("softsign", "steep")
    )
    assert steep.depth > gentle.depth


# ---------------------------------------------------------------------------------------------------- units
@pytest.mark.parametrize("rule", [Measured(), Certificate(), Influence()], ids=str)
@pytest.mark.parametrize("name", ["relu", "leaky_relu_0.3", "identity"])
@pytest.mark.parametrize("norm", [0.5, 3.0])
def test_depth_does_not_depend_on_the_units_of_b(rule, name, norm):
    b, weight, adj = draw_b(34, 3).abs(), draw_weight(3, norm), ZOO["karate"].adjacency()
    options = {"eps": 0.3, "depth": rule, "activation": ACTIVATIONS[name].activation}
    usual = solve(b, weight, adj, **options)
    assert usual.depth > 1
    for unit in (1e6, 1e-6):
        other = solve(unit * b, weight, adj, **options)
        assert (other.depth, other.status) == (usual.depth, usual.status)


@pytest.mark.parametrize("rule", [Measured(), Certificate(), Influence()], ids=str)
@pytest.mark.parametrize("unit", [2.0**80, 2.0**-80], ids=["2^80", "2^-80"])
def test_depth_does_not_depend_on_units_whose_squares_leave_single_precision(rule, unit):
    b, weight = draw_b(34, 3).abs().float(), draw_weight(3, 3.0).float()
    adj = ZOO["karate"].adjacency(dtype=torch.float32)
    usual, other = (solve(u * b, weight, adj, eps=0.3, depth=rule) for u in (1.0, unit))
    assert torch.equal(other.state, unit * usual.state)
    assert other.depth == usual.depth


# ----------------------------------------------------------------------------------------------- symmetries
@given(seed=SEEDS, directed=st.booleans(), reorder=st.booleans(), depth=st.sampled_from([0, 1, 7, None]))
def test_renaming_the_nodes_renames_the_rows(seed, directed, reorder, depth):
    graph = random_graph(seed, 8, directed=directed, weighted=True)
    b, weight = draw_b(8, 2, seed), draw_weight(2, 2.0, seed)
    new_name = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
    renamed = Adjacency.from_edge_index(
        new_name[graph.edge_index], graph.edge_weight, 8, add_self_loops=True, reorder=reorder
    )
    b_renamed = torch.empty_like(b).index_copy(0, new_name, b)
    here = solve(b, weight, graph.adjacency(add_self_loops=True), depth=depth, tol=1e-13).state
    there = solve(b_renamed, weight, renamed, depth=depth, tol=1e-13).state
    torch.testing.assert_close(there[new_name], here, rtol=0, atol=1e-11)


@settings(max_examples=20)
@given(seed=SEEDS, sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4), reorder=st.booleans())
def test_a_batch_equals_its_graphs_one_by_one(seed, sizes, reorder):
    graphs = [random_graph(seed + i, n, directed=False, weighted=True) for i, n in enumerate(sizes)]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    edges = torch.cat([g.edge_index + start for g, start in zip(graphs, starts, strict=True)], dim=1)
    batch = Adjacency.from_edge_index(
        edges, torch.cat([g.edge_weight for g in graphs]), sum(sizes), reorder=reorder
    )
    b, weight = draw_b(sum(sizes), 2, seed), draw_weight(2, 2.0, seed)
    parts = b.split(sizes)
    for depth, accuracy in ((5, 1e-13), (None, 1e-8)):
        together = solve(b, weight, batch, depth=depth, tol=1e-10).state
        alone = [
            solve(part, weight, g.adjacency(), depth=depth, tol=1e-10).state
            for part, g in zip(parts, graphs, strict=True)
        ]
        torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=accuracy)


# ------------------------------------------------------------------------------- where the paper's rule fails
def test_influence_is_blind_where_signs_cancel_and_the_others_are_not():
    adj, a = ring(8).adjacency(), ring(8).adjacency().to_dense()
    b, weight = torch.ones(8, 2, dtype=torch.float64), -6 * torch.eye(2, dtype=torch.float64)
    truth = reference.limit(b, weight, a, 0.25, torch.relu)
    blind = solve(b, weight, adj, eps=0.25, depth=Influence())
    assert blind.depth == 0
    assert float((blind.state - truth).norm() / b.norm()) > 0.8
    for rule in (Measured(), Certificate()):
        solution = solve(b, weight, adj, eps=0.25, depth=rule)
        assert float((solution.state - truth).norm() / b.norm()) <= solution.error_bound <= 1e-5


@pytest.mark.parametrize("max_depth", [2, 3, 10, 17, 18, 34, 35, 36, 60, 61, 70, 71, 100, 150])
@pytest.mark.parametrize("guess_b", ["constant", "random"])
def test_a_two_cycle_is_not_taken_for_convergence(max_depth, guess_b):
    """Depths of one parity agree with each other here while those of the other parity are 100 % away."""
    adj = ring(8).adjacency()
    b = torch.ones(8, 2, dtype=torch.float64) if guess_b == "constant" else draw_b(8, 2).abs()
    weight = -6 * torch.eye(2, dtype=torch.float64)
    last, before = (solve(b, weight, adj, eps=0.001, depth=k).state for k in (max_depth, max_depth - 1))
    assert float((last - before).norm() / b.norm()) > 0.1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = solve(b, weight, adj, eps=0.001, max_depth=max_depth)
    assert solution.status is Status.CAPPED
    assert solution.measured_error > 0.1
    assert [w.category for w in caught] == [ConvergenceWarning]
