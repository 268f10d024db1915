"""solve: equal to the dense reference, within its tolerance when it chooses the depth, loud when it cannot."""

import pytest
import torch

import pprgnn
from pprgnn import Certificate, ConvergenceWarning, Fixed, Influence, Measured, Solution, Status, solve
from tests import reference
from tests.problems import ACTIVATIONS, ZOO, draw_b, draw_eps, draw_weight

EVERY_GRAPH = pytest.mark.parametrize("graph", ZOO.values(), ids=str)
EVERY_PHI = pytest.mark.parametrize("phi", ACTIVATIONS.values(), ids=str)


def dense(graph) -> torch.Tensor:
    return reference.dense_adjacency(graph.edge_index, graph.edge_weight, graph.num_nodes)


def relative(difference: torch.Tensor, b: torch.Tensor) -> float:
    return float(difference.norm() / b.norm())


# ------------------------------------------------------------------------------------------------ the value
@EVERY_GRAPH
@EVERY_PHI
@pytest.mark.parametrize("per_channel", [False, True], ids=["eps", "eps_per_channel"])
def test_fixed_depth_equals_the_reference(graph, phi, per_channel):
    b, weight, eps = draw_b(graph.num_nodes, 3), draw_weight(3, 2.0), draw_eps(3, per_channel)
    adj, a = graph.adjacency(), dense(graph)
    for depth in (0, 1, 2, 3, 17):
        solution = solve(b, weight, adj, eps=eps, depth=depth, activation=phi.activation)
        wanted = reference.states(b, weight, a, eps, phi.plain, depth)[0]
        torch.testing.assert_close(solution.state, wanted, rtol=1e-10, atol=1e-10)
        assert (solution.depth, solution.status, solution.products) == (depth, Status.FIXED, depth)


@EVERY_GRAPH
@EVERY_PHI
def test_default_is_within_its_tolerance_of_the_infinite_model(graph, phi):
    b, weight, adj, a = draw_b(graph.num_nodes, 3), draw_weight(3, 2.5), graph.adjacency(), dense(graph)
    wanted = reference.limit(b, weight, a, 0.4, phi.plain)
    for tol in (1e-3, 1e-8):
        solution = solve(b, weight, adj, eps=0.4, tol=tol, activation=phi.activation)
        error = relative(solution.state - wanted, b)
        assert solution.status in (Status.MEASURED, Status.CERTIFIED)
        assert error <= solution.error_bound + 1e-12
        assert solution.error_bound <= tol


@pytest.mark.parametrize("rule", [Measured(), Certificate()], ids=str)
@pytest.mark.parametrize("grad_terms", [1, 5, None])
def test_with_gradients_the_error_bound_is_that_of_the_deeper_pass(rule, grad_terms):
    graph, eps = ZOO["karate"], draw_eps(3, per_channel=True, base=0.3)
    b, weight = draw_b(34, 3).requires_grad_(), draw_weight(3, 3.0)
    solution = solve(b, weight, graph.adjacency(), eps=eps, depth=rule, grad_terms=grad_terms)
    wanted = reference.limit(b.detach(), weight, dense(graph), eps, torch.relu)
    assert relative(solution.state.detach() - wanted, b.detach()) <= solution.error_bound <= 1e-5
    same_depth = reference.states(b.detach(), weight, dense(graph), eps, torch.relu, solution.depth)[0]
    torch.testing.assert_close(solution.state.detach(), same_depth, rtol=0, atol=1e-10)


@pytest.mark.parametrize("norm", [0.1, 1.0, 3.0, 6.0])
@pytest.mark.parametrize("eps", [0.1, 1.0])
@pytest.mark.parametrize("rule", [Certificate(), Measured(), Influence()], ids=repr)
def test_every_state_that_an_n_term_gradient_uses_is_converged(rule, norm, eps):
    """And it costs fewer than N levels more, where the paper takes N."""
    terms = 7
    graph = ZOO["karate"]
    b, weight, adj = draw_b(34, 3), draw_weight(3, norm), graph.adjacency()
    plain = solve(b, weight, adj, eps=eps, depth=rule)
    learning = solve(b.clone().requires_grad_(), weight, adj, eps=eps, depth=rule, grad_terms=terms)
    used = reference.states(b, weight, dense(graph), eps, torch.relu, learning.depth)[: terms + 1]
    truth = reference.states(b, weight, dense(graph), eps, torch.relu, 600)[: terms + 1]
    assert len(used) == terms + 1
    assert terms <= learning.depth <= plain.depth + terms
    if not isinstance(rule, Influence):  # which promises nothing
        for state, converged in zip(used, truth, strict=True):
            assert float((state - converged).norm() / b.norm()) <= 1e-5
        if norm == 3.0:
            assert learning.depth < plain.depth + terms


def test_the_finite_model_stays_finite():
    b, weight, adj = draw_b(34, 3).requires_grad_(), draw_weight(3, 3.0), ZOO["karate"].adjacency()
    assert solve(b, weight, adj, depth=4).depth == 4
    with torch.no_grad():
        plain = solve(b, weight, adj, depth=Certificate())
    assert plain.depth == solve(b.detach(), weight, adj, depth=Certificate()).depth


@EVERY_PHI
def test_depth_zero_is_phi_of_b(phi):
    b = draw_b(7, 3)
    solution = solve(b, draw_weight(3, 9.0), ZOO["path"].adjacency(), depth=0, activation=phi.activation)
    torch.testing.assert_close(solution.state, phi.plain(b), rtol=0, atol=1e-15)
    assert solution.products == 0


def test_inputs_need_not_be_contiguous_and_are_not_written_to():
    adj, weight = ZOO["karate"].adjacency(), draw_weight(3, 2.0)
    for b in (draw_b(3, 34).t(), draw_b(34, 6)[:, ::2], draw_b(1, 3).expand(34, 3)):
        for w in (weight, weight.t().contiguous().t()):
            before = b.clone(), w.clone()
            state = solve(b, w, adj, depth=9).state
            assert torch.equal(state, solve(b.contiguous(), weight, adj, depth=9).state)
            assert torch.equal(before[0], b)
            assert torch.equal(before[1], w)


def test_single_precision():
    graph = ZOO["karate"]
    b, weight = draw_b(34, 3), draw_weight(3, 2.0)
    solution = solve(b.float(), weight.float(), graph.adjacency(dtype=torch.float32), eps=0.5)
    assert solution.state.dtype == torch.float32
    wanted = reference.limit(b, weight, dense(graph), 0.5, torch.relu)
    assert relative(solution.state.double() - wanted, b) <= 1.2e-5


def test_zero_b_is_solved_by_every_rule():
    adj = ZOO["karate"].adjacency(dtype=torch.float32)
    for rule in (Measured(), Certificate(), Fixed(3), Influence()):
        solution = solve(torch.zeros(34, 3), torch.eye(3), adj, depth=rule)
        assert solution.converged
        assert not solution.state.any()


# ------------------------------------------------------------------------------------------- trouble, loudly
def test_overflow_warns():
    adj = ZOO["karate"].adjacency(dtype=torch.float32)
    b, weight = draw_b(34, 3).abs().float(), torch.full((3, 3), 1e20)
    message = r"overflowed torch.float32 \(‖W‖₂ = 3e\+20.*larger eps"
    for rule in (None, Measured(), Certificate(), 10):
        with pytest.warns(ConvergenceWarning, match=message) as record:
            solution = solve(b, weight, adj, eps=1e-3, depth=rule)
        assert solution.status is Status.NOT_FINITE
        assert not solution.converged
        assert record[0].filename == __file__


def test_large_but_finite_numbers_are_not_called_an_overflow():
    b = torch.full((7, 3), 2e38)  # each fits float32, their sum does not
    solution = solve(b, torch.zeros(3, 3), ZOO["path"].adjacency(dtype=torch.float32))
    assert torch.equal(solution.state, b)
    assert solution.converged


@pytest.mark.parametrize("rule", [None, Measured(), Certificate(), Influence()], ids=str)
def test_cap_warns(rule):
    b, weight, adj = draw_b(34, 3).abs(), 6 * torch.eye(3, dtype=torch.float64), ZOO["karate"].adjacency()
    with pytest.warns(ConvergenceWarning, match=r"tol = 1e-05 within max_depth = 7.*‖W‖₂ = 6.*Raise max_depth"):
        solution = solve(b, weight, adj, eps=0.05, depth=rule, max_depth=7)
    assert (solution.status, solution.depth, solution.converged) == (Status.CAPPED, 7, False)


def test_smallest_possible_cap():
    b, weight, adj = draw_b(34, 3), draw_weight(3, 6.0), ZOO["karate"].adjacency()
    with pytest.warns(ConvergenceWarning):
        assert solve(b, weight, adj, eps=0.05, max_depth=1).depth == 1


def test_solution_shows_what_is_known():
    adj, b = ZOO["path"].adjacency(), draw_b(7, 3)
    assert repr(solve(b, draw_weight(3, 2.0), adj, depth=4)) == "Solution(7×3, depth=4, FIXED, products=4)"
    shown = repr(solve(b, draw_weight(3, 2.0), adj))
    assert shown.startswith("Solution(7×3, depth=")
    assert "MEASURED, truncation_bound=" in shown
    assert ", error_bound=" in shown
    assert ", measured_error=" in shown
    assert repr(Solution(b, 3, Status.REUSED, 9, estimated_error=2e-6)) == (
        "Solution(7×3, depth=3, REUSED, estimated_error=2.0e-06, products=9)"
    )
    for status in Status:
        assert status.value.endswith(".")  # a status is a sentence


# ---------------------------------------------------------------------------------------------- bad arguments
B, WEIGHT, ADJ = draw_b(7, 3), draw_weight(3, 2.0), ZOO["path"].adjacency()
NAN = float("nan")


def with_entry(tensor: torch.Tensor, place: tuple[int, int], value: float) -> torch.Tensor:
    changed = tensor.clone()
    changed[place] = value
    return changed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"b": B[:6]}, r"b must have one row per node, shape \(7, channels\), but has shape \(6, 3\)"),
        ({"b": B[:, 0]}, r"b must have one row per node, shape \(7, channels\), but has shape \(7,\)"),
        ({"b": B.float()}, r"b is torch.float32 on cpu, but the adjacency is torch.float64"),
        ({"b": B.long()}, r"b must hold floating-point numbers, but has dtype torch.int64; use b.float\(\)"),
        ({"b": with_entry(B, (4, 2), NAN)}, r"b must be finite, but b\[4, 2\] is nan; look for NaN"),
        ({"b": with_entry(B, (0, 1), -torch.inf)}, r"b must be finite, but b\[0, 1\] is -inf"),
        ({"weight": with_entry(WEIGHT, (2, 0), NAN)}, r"weight must be finite, but weight\[2, 0\] is nan"),
        ({"weight": WEIGHT[:2]}, r"weight must have shape \(3, 3\) to match b, but has shape \(2, 3\)"),
        ({"weight": WEIGHT[0]}, r"weight must have shape \(3, 3\) to match b, but has shape \(3,\)"),
        ({"weight": WEIGHT.float()}, r"weight is torch.float32 on cpu, but the adjacency is torch.float64"),
        ({"eps": 0.0}, r"eps must be positive and finite, but its range is \[0.0, 0.0\]"),
        ({"eps": -1.0}, r"eps must be positive and finite"),
        ({"eps": NAN}, r"eps must be positive and finite, but its range is \[nan, nan\]"),
        ({"eps": torch.inf}, r"eps must be positive and finite"),
        ({"eps": torch.tensor([0.1, NAN, 0.2])}, r"eps must be positive and finite"),
        ({"eps": torch.tensor([0.1, 0.0, 0.2])}, r"eps must be positive and finite"),
        ({"eps": torch.ones(2)}, r"eps must be one number or one per channel, shape \(3,\), but has shape \(2,\)"),
        ({"eps": torch.ones(3, 3)}, r"eps must be one number or one per channel"),
        ({"tol": 0.0}, r"tol must be > 0, but came as 0.0"),
        ({"tol": NAN}, r"tol must be > 0, but came as nan"),
        ({"max_depth": 0}, r"max_depth must be >= 1, but came as 0"),
        ({"grad_terms": 0}, r"grad_terms must be >= 1 or None for all terms, but came as 0"),
        ({"activation": "gelu"}, r"activation must be one of relu, leaky_relu, tanh, identity.*came as 'gelu'"),
        ({"activation": torch.relu}, r"wrap your own function as pprgnn.Activation"),
        ({"depth": -1}, r"A depth must be >= 0, but came as -1"),
        ({"depth": 2.5}, r"depth must be None, an integer or a depth rule \(Measured\(\).*came as 2.5"),
        ({"depth": True}, r"depth must be None, an integer or a depth rule"),
        ({"depth": "measured"}, r"depth must be None, an integer or a depth rule"),
        ({"depth": Measured}, r"depth must be None, an integer or a depth rule"),  # the brackets forgotten
    ],
)
def test_bad_argument_gets_one_clear_sentence(changes, message):
    arguments = {"b": B, "weight": WEIGHT, "adj": ADJ, **changes}
    with pytest.raises(ValueError, match=message):
        solve(**arguments)


@pytest.mark.parametrize("adj", [torch.eye(7), ZOO["path"].edge_index, None])
def test_bad_adjacency(adj):
    with pytest.raises(TypeError, match=r"adj must be a pprgnn.Adjacency, but came as .*from_edge_index"):
        solve(B, WEIGHT, adj)


def test_eps_as_a_tensor_with_one_element_is_one_number():
    wanted = solve(B, WEIGHT, ADJ, eps=0.5, depth=5).state
    for eps in (torch.tensor(0.5), torch.tensor([0.5]), torch.full((3,), 0.5, dtype=torch.float64)):
        assert torch.equal(solve(B, WEIGHT, ADJ, eps=eps, depth=5).state, wanted)


def test_everything_public_is_there():
    assert all(hasattr(pprgnn, name) for name in pprgnn.__all__)


def test_a_matrix_of_inference_mode_serves_in_training():
    with torch.inference_mode():
        adj = ZOO["path"].adjacency()
    b = draw_b(7, 3).requires_grad_()
    (solve(b, draw_weight(3, 2.0), adj).state.sum() + (adj @ b).sum()).backward()
    assert b.grad is not None
