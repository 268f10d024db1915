"""Masks belong to nodes: the same for any division of the rows, and otherwise as random as torch's."""

import copy

import pytest
import torch
from torch import Tensor

from pprgnn.data.sparse_features import compact
from pprgnn.distributed import layers
from pprgnn.distributed.layers import RowDropout, use_row_dropout
from pprgnn.nn.features import Dropout, TorchDropout


def masks(numbers, dropout, nodes: Tensor | None, columns: int = 8, rows: int | None = None) -> Tensor:
    """Which entries are kept."""
    numbers.nodes = nodes
    return dropout(torch.ones(len(nodes) if rows is None else rows, columns)) != 0


@pytest.fixture
def network() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Linear(8, 8), torch.nn.Dropout(0.3))


def test_same_masks_for_any_division_of_the_rows(network):
    numbers, draw = use_row_dropout(network), torch.Generator().manual_seed(0)
    for parts in (1, 2, 5):
        owner = torch.randint(0, parts, (200,), generator=draw)
        shuffled = torch.randperm(200, generator=draw)
        whole, divided = torch.empty(200, 8), torch.full((200, 8), torch.nan)
        numbers.restart(7)
        numbers.nodes = None
        first_call = network[0](torch.ones(200, 8))
        whole = network[0](torch.ones(200, 8))
        for part in range(parts):
            numbers.restart(7)
            numbers.nodes = nodes = shuffled[owner[shuffled] == part]
            network[0](torch.ones(len(nodes), 8))
            divided[nodes] = network[0](torch.ones(len(nodes), 8))
        assert torch.equal(whole, divided)
        assert not torch.equal(whole, first_call)


@pytest.mark.parametrize("kind", [torch.nn.Dropout, TorchDropout, Dropout])
def test_sparse_features_lose_what_dense_ones_lose(kind):
    network = torch.nn.Sequential(kind(0.4))
    numbers, draw = use_row_dropout(network), torch.Generator().manual_seed(0)
    x = torch.randn(50, 80, generator=draw) * (torch.rand(50, 80, generator=draw) < 0.09)
    numbers.nodes = torch.randperm(90, generator=draw)[:50]
    whole = network(x)
    numbers.restart(0)
    assert torch.equal(network(compact(x)).to_dense(), whole)
    assert 0 < int(whole.count_nonzero()) < int(x.count_nonzero())
    for rate, training in ((0.4, False), (0.0, True), (1.0, True)):
        network[0].p, network.training, network[0].training = rate, training, training
        assert torch.equal(network(compact(x)).to_dense(), network(x))


def test_same_masks_for_blocks_of_any_size(network, monkeypatch):
    numbers = use_row_dropout(network)
    whole = masks(numbers, network[0], None, columns=5, rows=1000)
    for entries in (1, 5, 37, 4999):
        monkeypatch.setitem(layers.BLOCK, "cpu", entries)
        numbers.restart(0)
        assert torch.equal(masks(numbers, network[0], None, columns=5, rows=1000), whole)


def test_a_column_does_not_depend_on_how_many_there_are(network):
    numbers = use_row_dropout(network)
    wide = masks(numbers, network[0], torch.arange(50), columns=9)
    numbers.restart(0)
    assert torch.equal(masks(numbers, network[0], torch.arange(50), columns=4), wide[:, :4])


def test_independent_over_seeds_modules_calls_columns_and_rows(network):
    """Agreement of two masks, of what should be independent, is p² + (1-p)² to 5 standard deviations."""
    numbers, nodes = use_row_dropout(network), torch.arange(5000)
    streams = []
    for seed in (0, 1, 2, 1 << 40, -1):
        numbers.restart(seed)
        for module in (network[0], network[2]):
            streams += [masks(numbers, module, nodes, columns=8) for _ in range(3)]
    many = torch.stack(streams).double()  # (stream, row, column)
    agree, variance = 0.3**2 + 0.7**2, (0.3**2 + 0.7**2) * (1 - 0.3**2 - 0.7**2)

    def check(a: Tensor, b: Tensor) -> None:
        deviation = ((a == b).double().mean() - agree) / (variance / a.numel()) ** 0.5
        assert abs(float(deviation)) < 5

    for i in range(len(many)):
        for j in range(i):
            check(many[i], many[j])
    for i in range(8):
        for j in range(i):
            check(many[..., i], many[..., j])
    for by in (1, 2, 64, 1024):  # rows whose numbers are alike
        check(many[:, by:], many[:, :-by])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_kept_as_often_as_asked_for_in_every_pattern(p):
    """χ² of the 2⁴ patterns of four neighbouring entries, along rows and along columns; 15 degrees of freedom."""
    network = torch.nn.Sequential(torch.nn.Dropout(p))
    numbers = use_row_dropout(network)
    kept = masks(numbers, network[0], None, columns=64, rows=4096).long()
    for entries in (kept.view(-1, 4), kept.t().reshape(-1, 4)):
        pattern = (entries * torch.tensor([8, 4, 2, 1])).sum(1)
        seen = torch.bincount(pattern, minlength=16).double()
        ones = torch.tensor([bin(i).count("1") for i in range(16)])
        expected = len(pattern) * (1 - p) ** ones.double() * p ** (4 - ones).double()
        assert float(((seen - expected) ** 2 / expected).sum()) < 45  # 1 in 10 000 would be above 44.3
    for sums, count in ((kept.sum(0), 4096), (kept.sum(1), 64)):  # no row and no column is special
        assert ((sums - count * (1 - p)).abs() < 6 * (count * p * (1 - p)) ** 0.5).all()


def test_the_mean_is_exact():
    network = torch.nn.Sequential(torch.nn.Dropout(0.1))
    use_row_dropout(network)
    values = network(torch.ones(1000, 10, dtype=torch.float64)).unique()
    dropped = round(0.1 * 2**32) / 2**32
    assert torch.allclose(values, torch.tensor([0, 1 / (1 - dropped)], dtype=torch.float64), rtol=1e-15, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_gradient_is_the_mask(network, dtype):
    use_row_dropout(network)
    x = torch.randn(300, 400, dtype=dtype).requires_grad_()
    y = network[0](x)
    y.backward(torch.ones_like(y))
    assert torch.equal(x.grad != 0, y.detach() != 0)
    torch.testing.assert_close(y.detach(), x.detach() * x.grad)
    assert x.grad.unique().numel() == 2


def test_gradients_of_gradients(network):
    numbers = use_row_dropout(network)

    def call(x: Tensor) -> Tensor:
        numbers.restart(0)
        return network[0](x) ** 3

    x = torch.randn(4, 3, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(call, x)
    assert torch.autograd.gradgradcheck(call, x)


def test_evaluation_and_the_ends_are_as_in_torch(network):
    numbers, x = use_row_dropout(network), torch.randn(5, 8)
    network.eval()
    assert network[0](x) is x
    network.train()
    for p, expected in ((0.0, x), (1.0, torch.zeros_like(x))):
        network[0].p = p
        assert torch.equal(network[0](x), expected)
    network[0].p, network[0].inplace = 0.5, True
    y = x.clone()
    assert network[0](y) is y
    numbers.restart(0)
    network[0].inplace = False
    assert torch.equal(network[0](x), y)


@pytest.mark.parametrize("shape", [(0, 8), (4, 0), (6,), (3, 4, 5)])
def test_shapes(network, shape):
    use_row_dropout(network)
    x = torch.ones(shape).requires_grad_()
    y = network[0](x)
    y.sum().backward()
    assert y.shape == x.shape == x.grad.shape
    assert torch.equal(y.detach(), x.grad)


def test_rows_in_any_layout(network):
    numbers, x = use_row_dropout(network), torch.randn(8, 50)
    expected = network[0](x.t().contiguous())
    numbers.restart(0)
    assert torch.equal(network[0](x.t()), expected)


def test_parts_without_rows_count_their_calls(network):
    numbers = use_row_dropout(network)
    numbers.nodes = torch.arange(0)
    network[0](torch.ones(0, 8))
    after = masks(numbers, network[0], torch.arange(20))
    numbers.restart(0)
    masks(numbers, network[0], torch.arange(20))
    assert torch.equal(masks(numbers, network[0], torch.arange(20)), after)


def test_a_wrong_number_of_rows_is_an_error(network):
    numbers = use_row_dropout(network)
    numbers.nodes = torch.arange(4)
    with pytest.raises(ValueError, match=r"5 rows came for 4 nodes; set RowNumbers\.nodes"):
        network[0](torch.ones(5, 8))
    with pytest.raises(ValueError, match="a single number came"):
        network[0](torch.tensor(1.0))


def test_in_place_and_without_a_trace_in_the_state(network):
    class OwnDropout(torch.nn.Dropout):
        pass

    network[0] = Dropout(network[0].p)
    network.append(OwnDropout(0.5))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    numbers = use_row_dropout(network)
    assert [type(module) for module in network] == [RowDropout, torch.nn.Linear, RowDropout, OwnDropout]
    after = network.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    again = use_row_dropout(network)  # the last one counts
    assert network[0].numbers is again is not numbers
    copied = copy.deepcopy(network)
    assert copied[0].numbers is copied[2].numbers is not again
    assert torch.equal(copied[0](torch.ones(9, 8)), network[0](torch.ones(9, 8)))
