"""Linear layers of sparse features: values and gradients of the usual ones, sorted once."""

import copy
import pickle

import pytest
import torch
from torch_geometric.nn.dense.linear import Linear

from pprgnn.data.sparse_features import compact, on_values
from pprgnn.nn import NodeNet
from pprgnn.nn import features as sparse_linear
from pprgnn.nn.features import read_sparse


def drawn(rows, columns, share=0.05):
    draw = torch.Generator().manual_seed(0)
    return torch.randn(rows, columns, generator=draw) * (torch.rand(rows, columns, generator=draw) < share)


def pair(kind, columns, channels, bias=True, dtype=torch.float32):
    """The usual layer, and the one that reads sparse features."""
    torch.manual_seed(0)
    usual = kind(columns, channels, bias=bias).to(dtype)
    network = torch.nn.Sequential(copy.deepcopy(usual))
    read_sparse(network, columns)
    return usual, network[0]


def same(usual, found, x, features):
    """Values and gradients agree."""
    for layer in (usual, found):
        layer.zero_grad()
    expected, out = usual(x), found(features)
    assert torch.allclose(out, expected, atol=1e-5)
    arriving = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).to(expected)
    expected.backward(arriving)
    out.backward(arriving)
    for one, other in zip(usual.parameters(), found.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-4)


@pytest.mark.parametrize("kernel", ["auto", "torch"])
@pytest.mark.parametrize("kind", [torch.nn.Linear, Linear])
@pytest.mark.parametrize("shape", [(50, 70, 5), (3, 200, 300), (1, 64, 1)])
@pytest.mark.parametrize("share", [0.05, 0.0])
def test_values_and_gradients(kernel, kind, shape, share, monkeypatch):
    monkeypatch.setenv("PPRGNN_KERNEL", kernel)
    rows, columns, channels = shape
    for bias, dtype in ((True, torch.float32), (False, torch.float64)):
        x = drawn(rows, columns, share).to(dtype)
        usual, found = pair(kind, columns, channels, bias, dtype)
        features = compact(x)
        same(usual, found, x, features)
        same(usual, found, 2 * x, on_values(lambda value: 2 * value, features))
        same(usual, found, x, x)
        counted = torch.sparse_csr_tensor(
            features.crow_indices().long(), features.col_indices().long(), features.values(), x.shape
        )
        same(usual, found, x, counted)


def test_entries_are_sorted_once_for_the_same_features(monkeypatch):
    _, layer = pair(Linear, 70, 4)
    sorts, argsort = [], torch.argsort

    def counted(*given, **named):
        sorts.append(1)
        return argsort(*given, **named)

    monkeypatch.setattr(sparse_linear.torch, "argsort", counted)
    features = compact(drawn(50, 70))
    with torch.no_grad():
        layer(features)
    assert sorts == []  # no gradient will be asked for
    for factor in (1.0, 2.0, 3.0):
        layer(on_values(lambda value, factor=factor: factor * value, features)).sum().backward()
    assert len(sorts) == 1
    layer(compact(drawn(50, 70)[1:])).sum().backward()
    assert len(sorts) == 2


def test_gradients_at_the_features_are_left_to_torch():
    usual, layer = pair(torch.nn.Linear, 70, 4)
    x = drawn(50, 70).requires_grad_()
    layer(x.to_sparse_csr()).sum().backward()
    assert torch.allclose(x.grad, usual.weight.sum(0).expand_as(x))


def test_what_does_not_fit_is_refused_and_not_read_out_of_bounds():
    _, layer = pair(torch.nn.Linear, 70, 4)
    for wrong in (compact(drawn(50, 71)), compact(drawn(50, 70).double())):
        with pytest.raises(RuntimeError):
            layer(wrong)


def test_only_layers_of_that_width_change_and_copies_leave_the_pattern_behind():
    network = NodeNet(70, 3, hidden=8, layers=2, residual=True)
    before = network.state_dict()
    read_sparse(network, 70)
    changed = [name for name, each in network.named_modules() if isinstance(each, sparse_linear._ReadsSparse)]
    assert changed == ["convs.0.lin", "skips.0"]
    assert network.state_dict().keys() == before.keys()
    read_sparse(network, 70)  # once more changes nothing
    features, edges = compact(drawn(50, 70)), torch.tensor([[0, 1], [1, 0]])
    network(features, edges)
    assert network.skips[0]._kept is not None
    for same_network in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert same_network.skips[0]._kept is None
        assert torch.allclose(same_network.eval()(features, edges), network.eval()(features, edges), atol=1e-4)
