"""GPR-GNN: the sum over powers, and APPNP where it starts."""

import pytest
import torch
from torch_geometric.nn import APPNP

from pprgnn import Adjacency
from pprgnn.baselines.appnp import GPRGNNNet
from pprgnn.training.config import Config
from pprgnn.training.optimization import make_optimizer
from tests.baselines.dense import CLASSES, FEATURES, N, build, graph, normalized


@pytest.mark.parametrize("weighted", [False, True])
def test_the_sum_over_powers(weighted):
    edge_index, weight, x = graph()
    weight = weight if weighted else None
    network = build(GPRGNNNet, hidden=4, hops=4)
    with torch.no_grad():
        network.gamma.normal_()
    a, (first, last) = normalized(edge_index, weight), network.mlp.lins
    start = last(first(x).relu())
    expected = sum(network.gamma[k] * torch.linalg.matrix_power(a, k) @ start for k in range(5))
    adj = Adjacency.from_edge_index(edge_index, weight, N, dtype=torch.float64, **network.adjacency_options)
    torch.testing.assert_close(network(x, adj), expected)
    torch.testing.assert_close(network(x, edge_index, weight), expected)
    direction = torch.randn_like(expected)
    network.zero_grad()
    (network(x, adj) * direction).sum().backward()
    got, network.gamma.grad = network.gamma.grad.clone(), None
    (expected * direction).sum().backward()
    torch.testing.assert_close(got, network.gamma.grad)


@pytest.mark.parametrize(("hops", "alpha"), [(0, 0.1), (1, 0.5), (10, 0.1), (10, 0.9)])
def test_it_starts_as_appnp(hops, alpha):
    edge_index, weight, x = graph()
    network = build(GPRGNNNet, hidden=4, hops=hops, alpha=alpha)
    with torch.no_grad():
        network.gamma.zero_()
    network.reset_parameters()  # which puts PageRank's weights back, in float64
    torch.testing.assert_close(float(network.gamma.detach().sum()), 1.0)
    start = network.mlp(x)
    expected = APPNP(hops, alpha)(start, edge_index, weight)
    torch.testing.assert_close(network(x, edge_index, weight), expected)


def test_graphs_and_rows():
    edge_index, _, x = graph()
    network = build(GPRGNNNet, "graph", hidden=4)
    batch = torch.arange(N) // 5
    assert network.encode(x, edge_index).shape == (N, 4)
    assert network(x, edge_index, batch=batch, num_graphs=3).shape == (3, CLASSES)


def test_dropout_before_each_layer_and_before_the_hops():
    edge_index, _, x = graph()
    network = build(GPRGNNNet, hidden=4, layers=1, hops=0, dropout=0.5).train()
    with torch.no_grad():
        network.mlp.lins[0].weight.zero_()  # the features do not count, so what differs comes after
    torch.manual_seed(0)
    out = network(x, edge_index)
    bias = network.mlp.lins[0].bias.detach()
    assert ((out == 0) | torch.isclose(out, 2 * bias)).all()
    assert (out == 0).any()
    assert (out != 0).any()


def test_the_weights_of_the_hops_do_not_decay():
    network = GPRGNNNet(FEATURES, CLASSES)
    groups = make_optimizer(network, Config.for_system("gpr-gnn").training).param_groups
    assert [(group["weight_decay"], len(group["params"])) for group in groups] == [(5e-4, 4), (0.0, 1)]
    assert groups[1]["params"][0] is network.gamma
