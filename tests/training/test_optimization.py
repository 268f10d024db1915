"""Schedules at their corners, and optimisers that are put down and taken up again without a trace."""

import json
import math
from itertools import pairwise

import pytest
import torch

from pprgnn.nn import CoPurchaseNet, LabelNet, NodeNet, PPRConv
from pprgnn.training.config import TrainingConfig
from pprgnn.training.errors import TrainingError
from pprgnn.training.optimization import (
    Schedule,
    make_optimizer,
    optimizer_state,
    restore_optimizer,
    start_at_prior,
)

SCHEDULES = ("none", "plateau", "one-cycle", "cosine")


def rates(schedule: str, epochs: int = 10, steps: int = 10, lr: float = 0.4) -> list[float]:
    """The learning rate before each step, and after the last."""
    config = TrainingConfig(schedule=schedule, epochs=epochs, lr=lr)
    optimizer = make_optimizer(torch.nn.Linear(1, 1), config)
    movement = Schedule(optimizer, config, steps)
    found = []
    for _ in range(epochs * steps):
        found.append(movement.lr)
        optimizer.step()
        movement.after_step()
    return [*found, movement.lr]


def test_one_cycle():
    found = rates("one-cycle")
    assert found[0] == pytest.approx(0.4 / 25)
    assert found[30] == max(found) == pytest.approx(0.4)
    assert found[15] == pytest.approx((0.4 + 0.4 / 25) / 2)
    assert found[65] == pytest.approx((0.4 + 0.4e-4) / 2)
    assert found[-1] == pytest.approx(0.4e-4)
    assert all(a < b for a, b in pairwise(found[:31]))
    assert all(a > b for a, b in pairwise(found[30:]))


def test_cosine():
    found = rates("cosine")
    assert found[0] == pytest.approx(0.4)
    assert found[25] == pytest.approx(0.4 * (1 + math.cos(math.pi / 4)) / 2)
    assert found[50] == pytest.approx(0.2)
    assert found[-1] == pytest.approx(0, abs=1e-12)
    assert all(a > b for a, b in pairwise(found))


def test_none():
    assert set(rates("none")) == {0.4}


def test_beyond_the_end_the_rate_stays():
    config = TrainingConfig(schedule="one-cycle", epochs=1, lr=1.0)
    optimizer = make_optimizer(torch.nn.Linear(1, 1), config)
    movement = Schedule(optimizer, config, 2)
    for _ in range(5):
        optimizer.step()
        movement.after_step()
    assert movement.lr == pytest.approx(1e-4)


def test_plateau_waits_for_the_training_loss():
    config = TrainingConfig(schedule="plateau", plateau_factor=0.5, plateau_patience=2, lr=0.4)
    movement = Schedule(make_optimizer(torch.nn.Linear(1, 1), config), config, 1)
    found = []
    for loss in (3, 2, 1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5):
        movement.after_epoch(loss)
        found.append(movement.lr)
    assert found == pytest.approx([0.4] * 5 + [0.2] * 5 + [0.1])


@pytest.mark.parametrize(("kind", "decayed"), [("adam", True), ("adamw", False)])
def test_weight_decay(kind, decayed):
    """With no gradient, adam's decay becomes a step of size lr, adamw's shrinks the weight by lr · decay."""
    network = torch.nn.Linear(3, 1, bias=False)
    network.weight.data.fill_(2.0)
    optimizer = make_optimizer(network, TrainingConfig(optimizer=kind, lr=0.1, weight_decay=0.5))
    network.weight.grad = torch.zeros(1, 3)
    optimizer.step()
    expected = 2 - 0.1 if decayed else 2 * (1 - 0.1 * 0.5)
    assert torch.allclose(network.weight.detach(), torch.full((1, 3), expected), atol=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_recursion_may_move_at_its_own_rate(schedule):
    network = torch.nn.Sequential(PPRConv(2, 3), torch.nn.Linear(3, 2))
    config = TrainingConfig(
        lr=0.1, recursion_lr=0.5, weight_decay=0.01, recursion_weight_decay=0.2, schedule=schedule, epochs=4
    )
    optimizer = make_optimizer(network, config)
    usual, recursion = optimizer.param_groups
    assert [id(p) for p in recursion["params"]] == [id(network[0].weight)]
    assert len(usual["params"]) == len(list(network.parameters())) - 1
    assert (usual["weight_decay"], recursion["weight_decay"]) == (0.01, 0.2)
    movement = Schedule(optimizer, config, 1)
    for _ in range(4):
        assert recursion["lr"] == pytest.approx(usual["lr"] * 0.5)
        assert movement.lr == usual["lr"]
        optimizer.step()
        movement.after_step()
        movement.after_epoch(1.0)


def test_the_recursion_decays_like_the_rest_unless_told_otherwise():
    groups = make_optimizer(PPRConv(2, 3), TrainingConfig(weight_decay=0.3)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.3, 0.3]
    assert [group["lr"] for group in groups] == [0.01, 0.01]


class Trial:
    """A network that learns something; all it needs to go on fits into JSON and tensors."""

    def __init__(self, config: TrainingConfig) -> None:
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
        self.conv = PPRConv(None, 4)  # its W moves at its own rate, its bias has no gradient and so no moments
        self.both = torch.nn.ModuleList([self.conv, self.net])
        self.optimizer = make_optimizer(self.both, config)
        self.schedule = Schedule(self.optimizer, config, 3)

    def epoch(self, number: int) -> float:
        total = 0.0
        for step in range(3):
            x = torch.randn(6, 4, generator=torch.Generator().manual_seed(10 * number + step))
            loss = (self.net(x @ self.conv.weight) - x.sum(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.after_step()
            total += float(loss.detach())
        self.schedule.after_epoch(total)
        return total


@pytest.mark.parametrize("kind", ["adam", "adamw"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_put_down_and_taken_up(kind, schedule):
    config = TrainingConfig(
        optimizer=kind,
        schedule=schedule,
        epochs=12,
        lr=0.05,
        weight_decay=0.01,
        plateau_patience=1,
        recursion_lr=0.5,
    )
    whole = Trial(config)
    losses = [(whole.epoch(number), whole.schedule.lr) for number in range(12)]
    assert whole.schedule.lr < 0.05 or schedule == "none"

    for stop in (0, 1, 5, 11):
        first = Trial(config)
        begun = [(first.epoch(number), first.schedule.lr) for number in range(stop)]
        tensors, groups = optimizer_state(first.optimizer)
        text = json.dumps({"groups": groups, "schedule": first.schedule.state()})
        second = Trial(config)
        second.both.load_state_dict(first.both.state_dict())
        restore_optimizer(second.optimizer, {k: v.clone() for k, v in tensors.items()}, json.loads(text)["groups"])
        second.schedule.restore(json.loads(text)["schedule"])
        assert second.schedule.lr == first.schedule.lr
        rest = [(second.epoch(number), second.schedule.lr) for number in range(stop, 12)]
        assert begun + rest == losses
        for a, b in zip(whole.both.parameters(), second.both.parameters(), strict=True):
            assert torch.equal(a, b)


def test_what_is_put_down_does_not_move_on():
    trial = Trial(TrainingConfig())
    trial.epoch(0)
    tensors = optimizer_state(trial.optimizer)[0]
    other = Trial(TrainingConfig())
    restore_optimizer(other.optimizer, tensors, optimizer_state(trial.optimizer)[1])
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    other.epoch(1)
    assert all(torch.equal(before[name], tensors[name]) for name in before)


def test_the_start_at_the_prior_is_what_the_labels_say():
    """One class per row: log shares; several: log odds, never infinite."""
    network = NodeNet(3, 4)
    network.head.weight.data.zero_()
    start_at_prior(network, torch.tensor([0, 0, 1, 1]), 4)
    assert network.head.bias.tolist() == pytest.approx([math.log(p) for p in (0.5, 0.5, 0.125, 0.125)])
    start_at_prior(network, torch.tensor([[1, 0, 1, 0], [1, 0, 0, 0]]), 4)
    assert network.head.bias.sigmoid().tolist() == pytest.approx([0.75, 0.25, 0.5, 0.25])


@pytest.mark.parametrize("network", [LabelNet(5, 4), CoPurchaseNet(6, 4)])
def test_a_start_at_the_prior_that_is_impossible_is_refused(network):
    with pytest.raises(TrainingError, match="has none; leave it out"):
        start_at_prior(network, torch.tensor([0, 0, 1, 1]), 4)
