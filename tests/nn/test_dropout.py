"""Dropout: what torch's own does, from fewer random numbers."""

import pytest
import torch

from pprgnn.data.sparse_features import compact
from pprgnn.nn import GraphNet, NodeNet
from pprgnn.nn.features import Dropout, TorchDropout, dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.6, 0.9])
def test_entries_are_dropped_at_the_rate_and_the_others_keep_the_mean(rate):
    torch.manual_seed(0)
    x = torch.ones(401, 501)
    y = dropout(x, rate)
    values = y.unique()
    assert len(values) == 2
    assert values[0] == 0
    assert float(values[1]) == pytest.approx(1 / (1 - rate), rel=1e-3)
    deviation = (rate * (1 - rate) / x.numel()) ** 0.5
    assert float((y == 0).double().mean()) == pytest.approx(rate, abs=4 * deviation)
    # Neighbours in both directions are drawn independently, also those from the same 64 bits.
    gone = (y == 0).double() - rate
    for step in range(1, 5):
        for pair in ((gone[:, step:], gone[:, :-step]), (gone[step:], gone[:-step])):
            assert abs(float((pair[0] * pair[1]).mean())) < 5 * rate * (1 - rate) / x.numel() ** 0.5


@pytest.mark.parametrize("drop", [Dropout(0.3), TorchDropout(0.3)], ids=["ours", "torch"])
def test_of_sparse_features_stored_entries_are_dropped_at_the_rate(drop):
    torch.manual_seed(0)
    x = (torch.rand(300, 900) < 0.05).float()
    found = compact(x)
    y = drop(found)
    assert y.layout == torch.sparse_csr
    assert torch.equal(found.to_dense(), x)  # as it was
    assert torch.equal(y.to_dense() != 0, (y.to_dense() != 0) & (x != 0))
    values, entries = y.values(), found.values().numel()
    assert values.unique().tolist() == pytest.approx([0.0, 1 / 0.7], rel=1e-3)
    assert float((values == 0).double().mean()) == pytest.approx(0.3, abs=4 * (0.21 / entries) ** 0.5)
    assert torch.equal(drop.eval()(found).to_dense(), x)


def test_every_pass_draws_anew_and_a_seed_repeats_it():
    x = torch.ones(50, 7)
    torch.manual_seed(1)
    first, second = dropout(x, 0.5), dropout(x, 0.5)
    torch.manual_seed(1)
    assert torch.equal(dropout(x, 0.5), first)
    assert not torch.equal(first, second)


def test_gradients_go_where_the_entries_went():
    torch.manual_seed(0)
    x = torch.randn(7, 30, dtype=torch.float64).t().requires_grad_()  # not contiguous, nor a multiple of four
    y = dropout(x, 0.3)
    y.sum().backward()
    torch.testing.assert_close(x.grad * x, y)


def test_the_ends_of_the_range():
    x = torch.randn(6, 5)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0) is x
    assert torch.equal(dropout(x, 1.0), torch.zeros_like(x))
    assert torch.isfinite(dropout(x, 1 - 1e-9)).all()
    assert dropout(torch.empty(0, 3), 0.5).shape == (0, 3)
    with pytest.raises(ValueError, match="between 0 and 1"):
        dropout(x, 1.5, training=False)


def test_the_module_drops_in_training_only():
    x, module = torch.ones(50, 7), Dropout(0.5)
    torch.manual_seed(1)
    wanted = dropout(x, 0.5)
    torch.manual_seed(1)
    assert torch.equal(module(x), wanted)
    assert module.eval()(x) is x


@pytest.mark.parametrize("kind", [GraphNet, NodeNet])
def test_networks_use_it(kind):
    found = [each for each in kind(4, 2, input_dropout=0.1).modules() if isinstance(each, torch.nn.Dropout)]
    assert found
    assert all(type(each) is Dropout for each in found)


def test_lower_precision_is_kept():
    x = torch.ones(401, 501, dtype=torch.bfloat16)
    y = dropout(x, 0.1)
    assert y.dtype == x.dtype
    assert float((y == 0).double().mean()) == pytest.approx(0.1, abs=0.003)
