"""GCNII: the dense formula of its paper, and that depth does not make nodes alike."""

import math

import pytest
import torch

from pprgnn import Adjacency
from pprgnn.baselines.classic import GCNNet
from pprgnn.baselines.deep import GCNIINet
from pprgnn.training.config import Config
from pprgnn.training.optimization import make_optimizer
from tests.baselines.dense import CLASSES, FEATURES, N, build, graph, normalized


def dense(network, a, x, alpha, theta, residual=False):
    first = h = network.first(x).relu()
    for number, conv in enumerate(network.convs, 1):
        beta = math.log(theta / number + 1)
        identity = torch.eye(h.size(1), dtype=torch.float64)
        w1 = (1 - beta) * identity + beta * conv.weight1
        w2 = w1 if conv.weight2 is None else (1 - beta) * identity + beta * conv.weight2
        h = ((1 - alpha) * a @ h @ w1 + alpha * first @ w2 + residual * h).relu()
    return h


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_the_dense_formula(shared, weighted, residual):
    edge_index, weight, x = graph()
    weight = weight if weighted else None
    network = build(GCNIINet, hidden=4, layers=5, alpha=0.3, theta=0.7, shared_weights=shared, residual=residual)
    expected = dense(network, normalized(edge_index, weight), x, 0.3, 0.7, residual)
    adj = Adjacency.from_edge_index(edge_index, weight, N, dtype=torch.float64, **network.adjacency_options)
    torch.testing.assert_close(network.encode(x, adj), expected)
    torch.testing.assert_close(network(x, edge_index, weight), network.head[1](expected))


def test_graphs_get_the_same_states():
    edge_index, _, x = graph()
    network = build(GCNIINet, "graph", hidden=4, layers=3)
    torch.testing.assert_close(network.encode(x, edge_index), dense(network, normalized(edge_index), x, 0.1, 0.5))
    assert network(x, edge_index, batch=torch.arange(N) // 5, num_graphs=3).shape == (3, CLASSES)


def test_many_layers_leave_nodes_apart_where_a_gcn_makes_them_alike():
    edge_index, _, x = graph(edges=60)
    x = x[:-1]  # a connected graph: without the node that is alone
    degree = torch.bincount(edge_index[1], minlength=N - 1) + 1.0

    def spread(network):
        """Mean distance of the nodes' directions, apart from their degrees: 0 when they are all alike."""
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                if name.startswith("convs") and name.endswith("bias"):
                    parameter.zero_()
            state = network.encode(x, edge_index) / degree.sqrt()[:, None]
        rows = state / state.norm(dim=1).mean()
        return float(torch.cdist(rows, rows).mean())

    options = {"hidden": 16, "dropout": 0.0}
    assert spread(build(GCNNet, layers=2, **options)) > 0.3
    assert spread(build(GCNNet, "graph", layers=32, **options)) < 0.01
    assert spread(build(GCNIINet, layers=32, **options)) > 0.1
    assert spread(build(GCNIINet, layers=64, **options)) > 0.1


def test_convolutions_and_linear_layers_decay_as_published():
    config = Config.for_system("gcnii")
    network = GCNIINet(FEATURES, CLASSES, layers=3, hidden=4)
    groups = make_optimizer(network, config.training).param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert {name: decay[id(p)] for name, p in network.named_parameters()} == {
        "first.weight": 5e-4,
        "first.bias": 5e-4,
        "head.1.weight": 5e-4,
        "head.1.bias": 5e-4,
        **{f"convs.{number}.weight1": 0.01 for number in range(3)},
    }
