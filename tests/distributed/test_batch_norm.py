"""Normalising over the rows of all processes is what one process does with all rows."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import BatchNorm

from pprgnn.distributed.layers import TeamBatchNorm, share_batch_norm
from pprgnn.distributed.team import Team
from tests.distributed.processes import run_team

STEPS = 3
KINDS: dict[str, dict[str, Any]] = {
    "usual": {},
    "plain": {"affine": False},
    "average": {"momentum": None},
    "untracked": {"track_running_stats": False},
}
OWNERS = {  # of 40 rows
    "alike": lambda size: torch.arange(40) % size,
    "one has no rows": lambda size: torch.arange(40) % (size - 1),
    "one has all": lambda size: torch.full((40,), size - 1),
}
SHAPES = {"rows": (40, 6), "rows and steps": (40, 6, 5)}


def make(kind: str, dtype: torch.dtype) -> torch.nn.Sequential:
    torch.manual_seed(3)
    norm = torch.nn.BatchNorm1d(6, **KINDS[kind])
    if norm.affine:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    return torch.nn.Sequential(norm, torch.nn.Tanh()).to(dtype)


def run(network: torch.nn.Module, own: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Tensor]:
    """A few steps in training and one in evaluation, on the rows ``own`` of inputs far from zero."""
    draw = torch.Generator().manual_seed(1)
    found: dict[str, Tensor] = {}
    for step in range(STEPS):
        x = (torch.randn(shape, generator=draw, dtype=torch.float64) * (1 + step) + 20).to(dtype)[own]
        pull = torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype)[own]
        y = network(x.requires_grad_())
        (y * pull).sum().backward()
        found |= {f"y{step}": y.detach(), f"gradient{step}": x.grad}
    network.eval()
    found["evaluated"] = network(x).detach()
    return found


def parameter_gradients(network: torch.nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in network.parameters()]


def run_shared(cases: list[tuple[str, str, str, torch.dtype]]) -> list[Any]:
    team, results = Team(), []
    for kind, owner, shape, dtype in cases:
        network = make(kind, dtype)
        share_batch_norm(network, team)
        own = (OWNERS[owner](team.size) == team.rank).nonzero().flatten()
        found = run(network, own, SHAPES[shape], dtype)
        gradients = [team.all_reduce(gradient) for gradient in parameter_gradients(network)]
        results.append((own, found, gradients, network.state_dict()))
    return results


@pytest.mark.parametrize("size", [2, 3])
def test_as_one_process_with_all_rows(size):
    exact, rounded = torch.float64, torch.float32
    cases = [(kind, owner, "rows", exact) for kind in KINDS for owner in OWNERS]
    cases += [("usual", "alike", "rows and steps", exact), ("usual", "one has no rows", "rows", rounded)]
    by_rank = run_team(run_shared, size, cases)
    for case, *answers in zip(cases, *by_rank, strict=True):
        kind, _, shape, dtype = case
        alone = make(kind, dtype)
        expected = run(alone, torch.arange(40), SHAPES[shape], dtype)
        near = {"rtol": 0, "atol": 1e-10 if dtype is exact else 2e-5}
        for own, found, gradients, state in answers:
            if kind == "untracked":  # uses the rows at hand also in evaluation
                assert alone[0].running_mean is None
            for name, value in expected.items():
                torch.testing.assert_close(found[name], value[own], **near)
            for found_gradient, gradient in zip(gradients, parameter_gradients(alone), strict=True):
                torch.testing.assert_close(found_gradient, gradient, rtol=near["atol"], atol=near["atol"])
            assert state.keys() == alone.state_dict().keys()
            for name, value in alone.state_dict().items():
                torch.testing.assert_close(state[name], value, rtol=near["atol"], atol=near["atol"])
                assert state[name].dtype == value.dtype


def run_corners() -> dict[str, Any]:
    team = Team()
    network = torch.nn.Sequential(BatchNorm(4), torch.nn.BatchNorm1d(4), torch.nn.LayerNorm(4))
    share_batch_norm(network, team)
    kinds = [type(network[0].module), type(network[1]), type(network[2])]
    copied = copy.deepcopy(network)
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(team.rank))
    same = (
        torch.equal(network(x), copied(x)) and copied[1].team is team and copied[1].weight is not network[1].weight
    )
    try:
        network(x[:1] if team.is_main else x[:0])
        error = ""
    except ValueError as raised:
        error = str(raised)
    half = network[1](x.bfloat16())
    return {"kinds": kinds, "same": same, "error": error, "half": half.dtype}


def test_inside_other_modules_copies_and_too_few_rows():
    for found in run_team(run_corners, 2):
        assert found["kinds"] == [TeamBatchNorm, TeamBatchNorm, torch.nn.LayerNorm]
        assert found["same"]
        assert "needs at least 2 rows over all processes, but there are 1" in found["error"]
        assert found["half"] == torch.bfloat16


def test_alone_it_is_the_norm_of_torch():
    network, alone = make("usual", torch.float32), make("usual", torch.float32)
    share_batch_norm(network, Team())
    x = torch.randn(10, 6)
    assert torch.equal(network(x), alone(x))
    assert all(
        torch.equal(a, b) for a, b in zip(network.state_dict().values(), alone.state_dict().values(), strict=True)
    )
