"""Hostile problems × checks: random ones, and those that once were solved wrongly without a word."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

import pprgnn
from pprgnn import Adjacency, Measured, Status
from pprgnn.nn import PPRConv
from pprgnn.nn.linear_output import AS_PUBLISHED

from . import reference
from .checks import CHECKS, CLAIMS, Case, failures_of
from .problems import ACTIVATIONS, CHUNKS, Attack, draw, seeds

CHECK_NAMES = {check.__name__ for check in CHECKS}


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_problems(chunk):
    failures, tally = [], Counter()
    for seed in seeds(chunk):
        case = Case(draw(seed))
        found = failures_of(case)
        failures += [f"seed {seed}: {'; '.join(found)} [{case.attack.facts}]"] if found else []
        tally.update(message.split(":")[0] for message in found)
        tally["problems"] += 1
        tally["with an answer"] += case.answer is not None
        tally["claims"] += case.claims
        above = case.claims and case.error is not None and case.error > case.attack.tol + case.resolution
        tally["claims above tol"] += bool(above)
        tally["claims above 10 tol"] += bool(case.claims and case.error and case.error > 10 * case.attack.tol)
        tally[case.solution.status.name] += 1
    print(dict(tally))
    advice = f"{len(failures)} failures; PPRGNN_ATTACK_SEED=n repeats problem n alone; {dict(tally)}\n"
    # That rounding is harmless is an estimate: it may be wrong once in a thousand problems. A bound may never be.
    others = sum(count for name, count in tally.items() if name in CHECK_NAMES - {"claim"})
    assert others == 0, advice + "\n".join(failures[:12])
    assert tally["claim"] <= tally["problems"] // 1000, advice + "\n".join(failures[:12])
    assert tally["with an answer"] >= 0.6 * tally["problems"]
    assert tally["claims above tol"] <= 0.01 * tally["problems"] + 1


# Found by `make attack`, one or two of each kind.
WRONG_ONCE = {
    "the state itself is rounded": (49, 167, 920, 1115, 1876),
    "underflow": (375, 516, 687, 1674, 2103, 2273, 2601),
    "the deeper pass is rounded and falls on the same branch": (784, 1329, 2243, 2389),
}
# Two depths, and several disturbed passes, once agreed on a wrong branch here; exact answers take a minute each.
CHOSEN_BY_CHANCE = {"rounding": (560, 1013, 1881, 2823, 9079), "beyond max_depth": (4674, 5931, 8161, 8441)}


@pytest.mark.parametrize("why", WRONG_ONCE)
def test_problems_that_were_wrong_once(why):
    failures = {seed: failures_of(Case(draw(seed))) for seed in WRONG_ONCE[why]}
    assert not any(failures.values()), failures


@pytest.mark.parametrize("what", CHOSEN_BY_CHANCE)
def test_a_branch_that_is_chosen_by_chance_is_no_answer(what):
    cases = {seed: Case(draw(seed)) for seed in CHOSEN_BY_CHANCE[what]}
    assert not any(case.claims for case in cases.values()), {s: case.solution for s, case in cases.items()}


# ---------------------------------------------------------------------------------------------------- known
def ring(n: int) -> torch.Tensor:
    here = torch.arange(n)
    return torch.cat([torch.stack([here, here.roll(-1)]), torch.stack([here.roll(-1), here])], dim=1)


def noise(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(18), dtype=torch.float64).to(dtype)


def steep_decline(weight: float, phi: str, dtype: torch.dtype, eps: float = 0.06) -> Attack:
    """W = -6·I and its like: rounding at the far end grows by many orders of magnitude on its way to the root."""
    edges = torch.randint(0, 30, (2, 120), generator=torch.Generator().manual_seed(3))
    rate, identity = torch.tensor(eps, dtype=F32).to(dtype), torch.eye(4, dtype=dtype)
    return Attack(noise(30, 4, dtype=dtype), weight * identity, rate, phi, edges, None, 30, self_loops=True)


def faint_channel() -> Attack:
    """Two depths agree because both miss a channel that starts at 1e-10 and grows to 1e12."""
    b = noise(10, 2)
    b[:, 1] = 1e-10
    weight = torch.diag(torch.tensor([0, 1.5], dtype=torch.float64))
    return Attack(b, weight, 0.002, "relu", ring(10), None, 10)


def underflow(dtype: torch.dtype) -> Attack:
    """‖Ã‖ = 2e-24 and ‖W‖ = 1e24: their product is 2, also when each square is zero."""
    weights = torch.full((20,), 1e-24, dtype=dtype)
    return Attack(
        noise(10, 3, dtype=dtype), 1e24 * torch.eye(3, dtype=dtype), 0.5, "relu", ring(10), weights, 10, None
    )


F32, F64 = torch.float32, torch.float64
KNOWN = {
    "relu_-6_float32": (lambda: steep_decline(-6, "relu", F32), {"ROUNDING"}),
    "relu_-6_float64": (lambda: steep_decline(-6, "relu", F64), {"ROUNDING"}),
    "tanh_-6_float32": (lambda: steep_decline(-6, "tanh", F32), {"ROUNDING"}),
    "tanh_-6_float64": (lambda: steep_decline(-6, "tanh", F64), {"ROUNDING"}),
    "identity_-4_float32": (lambda: steep_decline(-4, "identity", F32), {"ROUNDING"}),
    "identity_-4_float64": (lambda: steep_decline(-4, "identity", F64), None),
    "relu_-3_float64": (lambda: steep_decline(-3, "relu", F64, eps=0.25), {"MEASURED", "CERTIFIED"}),
    "faint_channel": (faint_channel, None),
    "underflow_float32": (lambda: underflow(F32), {"MEASURED", "CERTIFIED"}),
    "underflow_float64": (lambda: underflow(F64), {"MEASURED", "CERTIFIED"}),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_problems(name):
    attack, statuses = KNOWN[name][0](), KNOWN[name][1]
    attack.options["depth"] = None
    attack.options["max_depth"] = 500
    case = Case(attack)
    print(case.solution, case.error)
    assert not (found := failures_of(case)), found
    assert statuses is None or case.solution.status.name in statuses
    if case.solution.status.name == "ROUNDING":
        assert "prove" not in case.solution.status.value.lower()
        assert any(remedy in case.warned[0] for remedy in ("float64", "eps", "‖W‖"))
        assert case.error is None or case.error > 1e-2 * attack.tol, "a false alarm"


def test_a_star_with_very_many_leaves_has_the_norm_it_has():
    leaves = 200_000
    edges = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.long)])
    for directions in (edges, torch.cat([edges, edges.flip(0)], dim=1)):
        adj = Adjacency.from_edge_index(directions, normalize=None, dtype=F32)
        assert math.sqrt(leaves) <= adj.norm_bound <= 1.01 * math.sqrt(leaves)


# --------------------------------------------------------------------------------------- several sets of features
class Afresh:
    """The default rule without a memory."""

    def choose(self, problem, tol, max_depth, levels):
        return Measured().choose(problem, tol, max_depth, levels)


def merged_inputs() -> dict[str, tuple[torch.Tensor, torch.Tensor, dict]]:
    """Inputs of which one is weaker than the others: name -> x, W, options of the layer."""
    weight = torch.diag(torch.tensor([0.5, 0.5, 4, 4], dtype=F32))
    weak, strong = noise(20, 4, dtype=F32), noise(20, 4, dtype=F32)
    weak[:, 2:], strong[:, :2] = 0, 0
    few, huge = {"eps": 0.25, "max_depth": 12}, torch.full((20, 4), 3e38)
    return {
        "capped": (torch.stack([weak, strong, weak]), weight, few),
        "capped_first": (torch.stack([strong, weak]), weight, few),
        "not_finite": (torch.stack([weak, huge]), 8 * torch.eye(4), {"eps": 0.25}),
        "zero_first": (torch.stack([0 * weak, weak, strong]), weight, {"eps": 0.25}),
        "proved": (torch.stack([weak, strong]), weight, {"eps": 1.0}),
        "tiny": (torch.stack([strong, 1e-20 * weak]), weight, {"eps": 1.0}),
    }


@pytest.mark.parametrize("name", merged_inputs())
@pytest.mark.parametrize("rule", [Afresh(), None], ids=["afresh", "default"])
@pytest.mark.filterwarnings("ignore::pprgnn.ConvergenceWarning")
def test_the_answer_for_several_sets_is_the_weakest(name, rule):
    x, weight, options = merged_inputs()[name]
    layer = PPRConv(None, 4, depth=rule, bias=False, **AS_PUBLISHED, **options)
    layer.weight.data.copy_(weight)
    with torch.no_grad():
        out = layer(x, ring(20))
    merged, adj = layer.last_solution, Adjacency.from_edge_index(ring(20), add_self_loops=True)
    each = [pprgnn.solve(b, weight, adj, depth=Afresh(), **options) for b in x]
    if rule is not None:
        assert merged.converged == all(one.converged for one in each)
        assert merged.depth == max(one.depth for one in each)
        assert Status.CAPPED not in {one.status for one in each} or merged.status is Status.CAPPED
        assert Status.NOT_FINITE not in {one.status for one in each} or merged.status is Status.NOT_FINITE
        for field in ("error_bound", "truncation_bound", "rounding_bound"):
            values = [getattr(one, field, None) for one in each]
            wanted = None if None in values else max(values)
            found = getattr(merged, field, None)
            assert found is wanted if wanted is None else found == pytest.approx(wanted, rel=1e-2), field
    for b, state in zip(x, out.detach(), strict=True):
        if b.any() and torch.isfinite(state).all():
            dense = reference.Dense.of(b, weight, adj.to_dense(), options["eps"], "relu")
            error = reference.answer(dense, 1e-9).error(state)
            assert merged.error_bound is None or error <= merged.error_bound + 1e-9
            resolution = 100 * torch.finfo(F32).eps * float(state.norm() / b.norm())
            assert merged.status.name not in CLAIMS or error <= 1e-4 + resolution


def test_the_names_of_activations_are_those_of_the_reference():
    assert ACTIVATIONS.keys() == reference.PHIS.keys()
