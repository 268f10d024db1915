"""A running average of the weights."""

import pytest
import torch

from pprgnn.training.loop import Training
from pprgnn.training.optimization import AVERAGE_WARM_UP, RunningAverage
from pprgnn.training.run import Run
from pprgnn.training.train import resume
from tests.training.small_data import divided, one_graph, quick


def test_it_follows_with_a_short_memory_at_first():
    network = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(network.weight, 4.0)
    average = RunningAverage(network, 0.5)
    expected = 4.0
    for step, weight in enumerate((1.0, 2.0, 8.0, 0.0), start=1):
        torch.nn.init.constant_(network.weight, weight)
        average.follow()
        keep = min(0.5, step / (step + AVERAGE_WARM_UP))
        expected = keep * expected + (1 - keep) * weight
        torch.testing.assert_close(average.tensors[0], torch.tensor([[expected]]))
    with average:
        torch.testing.assert_close(network.weight.detach(), torch.tensor([[expected]]))
    assert float(network.weight.detach()) == 0.0  # back again


def test_what_is_evaluated_and_kept_is_the_average():
    dataset = one_graph()
    plain = Training(quick("epochs=8", "lr=0.05"), dataset, divided(dataset))
    averaged = Training(quick("epochs=8", "lr=0.05", "average=0.9", "monitor=loss"), dataset, divided(dataset))
    assert plain.shared
    assert not averaged.shared
    plain.fit()
    averaged.fit()
    assert averaged.progress.best_epoch == 8  # so the last average is what was kept
    for name, tensor in averaged.average.state().items():
        if name != "steps":
            assert torch.equal(tensor, averaged.network.state_dict()[name])


def test_a_resumed_run_ends_with_the_same_average(tmp_path):
    dataset = one_graph()
    config = quick("epochs=6", "average=0.8", "checkpoint_seconds=0")
    whole = Training(config, dataset, divided(dataset))
    summary = whole.fit()

    class Stop(Exception):
        pass

    class Stopping:
        def __getattr__(self, name):
            return lambda *_: None

        def epoch(self, record):
            if record.epoch == 4:
                raise Stop

    run = Run.create(tmp_path / "run", config, divided(dataset), own=dataset)
    with pytest.raises(Stop):
        Training(config, dataset, divided(dataset), run=run, listener=Stopping()).fit()
    again = resume(tmp_path / "run")
    assert again.summary["scores"] == summary["scores"]
    for name, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, again.model.network.state_dict()[name])
