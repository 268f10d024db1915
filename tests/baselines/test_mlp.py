"""MLP: the dense formula, and no look at the edges."""

import torch

from pprgnn.baselines.classic import MLPNet
from tests.baselines.dense import N, build, graph


def test_the_formula_whatever_the_edges():
    edge_index, weight, x = graph()
    network = build(MLPNet, hidden=4, layers=3)
    first, second, third = network.mlp.lins
    expected = third(second(first(x).relu()).relu())
    torch.testing.assert_close(network(x, edge_index, weight), expected)
    torch.testing.assert_close(network(x, torch.empty(2, 0, dtype=torch.long)), expected)
    torch.testing.assert_close(network(x, edge_index.flip(0), -weight), expected)
    assert network.adjacency_options is None


def test_graphs_are_sums_of_their_nodes():
    edge_index, _, x = graph()
    network = build(MLPNet, "graph", hidden=4)
    batch = torch.arange(N) // 5
    got = network(x, edge_index, batch=batch, num_graphs=3)
    first, second = network.mlp.lins
    state = second(first(x).relu()).relu()
    (hidden,) = network.head.hidden
    for number in range(3):
        pooled = state[batch == number].sum(0, keepdim=True)
        torch.testing.assert_close(got[[number]], network.head.out(hidden(pooled).relu()))


def test_rows_can_be_scored_alone_and_dropout_is_on_the_features_too():
    edge_index, _, x = graph()
    network = build(MLPNet, hidden=4)
    rows = torch.tensor([3, 1])
    torch.testing.assert_close(network.decode(network.encode(x, edge_index)[rows]), network(x, edge_index)[rows])
    assert network.encode_is_deterministic
    single = build(MLPNet, layers=1, dropout=0.5).train()
    assert not torch.equal(single(x, edge_index), single(x, edge_index))
