"""Whether a run fits into memory, and how."""

import pytest
import torch

from pprgnn.data import load
from pprgnn.training import memory
from pprgnn.training.build import Shape, feature_kind, features
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.loop import Training

CPU = torch.device("cpu")


def plan(monkeypatch, room, *settings):
    dataset = load("chains", length=400)
    config = Config().with_settings(["hidden=256", "layers=6", "batch_size=20", *settings])
    x = features(dataset, feature_kind(dataset, "auto"))
    monkeypatch.setattr(memory, "available_memory", lambda device: room)
    return memory.plan_memory(config, dataset, x, Shape.of(dataset, x), CPU)


def test_states_are_kept_while_there_is_room(monkeypatch):
    roomy = plan(monkeypatch, 1 << 40)
    assert not roomy.checkpoint
    assert "of 1024.0 GiB" in roomy.describe()
    tight = plan(monkeypatch, roomy.needs.total - 1)
    assert tight.checkpoint
    assert tight.needs.total < roomy.needs.total
    assert "computed again" in tight.describe()
    assert not plan(monkeypatch, None).checkpoint  # not known: tried


def test_what_cannot_fit_is_refused(monkeypatch):
    kept, repeated = (plan(monkeypatch, 1 << 40, f"memory={how}").needs.total for how in ("keep", "checkpoint"))
    with pytest.raises(TrainingError, match=r"even with checkpointing, but .* are available; use a smaller"):
        plan(monkeypatch, repeated - 1)
    with pytest.raises(TrainingError, match="are available"):
        plan(monkeypatch, kept - 1, "memory=keep")
    with pytest.raises(TrainingError, match="are available"):
        plan(monkeypatch, repeated - 1, "memory=checkpoint")
    assert plan(monkeypatch, 1 << 40, "memory=checkpoint").checkpoint


def test_checkpointing_changes_nothing_but_memory():
    dataset = load("chains", length=5)
    config = Config().with_settings(["epochs=3", "hidden=4", "dropout=0", "layers=2"])
    ends = [
        Training(config.with_values({"memory": how}), dataset, dataset.splits()[0]).fit()
        for how in ("keep", "checkpoint")
    ]
    assert ends[0]["scores"] == ends[1]["scores"]


def test_wider_or_longer_needs_more(monkeypatch):
    small = plan(monkeypatch, 1 << 40, "hidden=64").needs.total
    assert plan(monkeypatch, 1 << 40, "hidden=128").needs.total > small
    assert plan(monkeypatch, 1 << 40, "hidden=64", "grad_terms=10").needs.total > small
    assert plan(monkeypatch, 1 << 40, "hidden=64", "batch_size=40").needs.total > small
    assert plan(monkeypatch, 1 << 40, "hidden=64", "system=gcn").needs.total > 0
