"""DropEdge: all edges in evaluation; in training another part in each pass, normalised anew."""

import pytest
import torch

from pprgnn import Adjacency
from pprgnn.baselines.classic import GCNNet
from pprgnn.baselines.deep import DropEdgeNet
from pprgnn.errors import DataError
from tests.baselines.dense import CLASSES, FEATURES, N, build, graph, matrix, normalized


@pytest.mark.parametrize("weighted", [False, True])
def test_evaluation_is_a_gcn_on_all_edges(weighted):
    edge_index, weight, x = graph()
    weight = weight if weighted else None
    network, plain = (build(kind, hidden=4, layers=3) for kind in (DropEdgeNet, GCNNet))
    torch.testing.assert_close(network(x, edge_index, weight), plain(x, edge_index, weight))
    assert not network.encode_is_deterministic


@pytest.mark.parametrize("weighted", [False, True])
def test_training_normalises_what_is_left(weighted):
    edge_index, weight, x = graph(edges=80)
    weight = weight if weighted else None
    network = build(DropEdgeNet, drop_rate=0.4).train()
    dense = matrix(edge_index, weight)
    edges = dense > 0
    torch.manual_seed(0)
    passes = [network.adjacency(x, edge_index, weight).to_dense() for _ in range(200)]
    counts = torch.zeros_like(dense)
    for found in passes:
        left = (found > 0) & ~torch.eye(N, dtype=torch.bool)
        assert not (left & ~edges).any()
        counts += left
        kept = torch.where(left, dense, 0.0) + torch.eye(N, dtype=torch.float64)
        scale = kept.sum(1).rsqrt()
        torch.testing.assert_close(found, scale[:, None] * kept * scale[None, :])
    share = counts[edges] / len(passes)  # four deviations of a share
    assert float((share - 0.6).abs().max()) < 4 * (0.24 / len(passes)) ** 0.5
    assert not torch.equal(passes[0], passes[1])


def test_every_training_pass_sees_other_edges_and_gradients_flow():
    edge_index, _, x = graph()
    network = build(DropEdgeNet, hidden=4, dropout=0.0).train()
    torch.manual_seed(0)
    first, second = network(x, edge_index), network(x, edge_index)
    assert not torch.equal(first, second)
    second.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())
    all_edges = build(DropEdgeNet, hidden=4, dropout=0.0, drop_rate=0.0).train()
    assert all_edges.encode_is_deterministic
    torch.testing.assert_close(all_edges.adjacency(x, edge_index, None).to_dense(), normalized(edge_index))


def test_what_it_cannot_do_is_refused():
    edge_index, _, x = graph()
    with pytest.raises(ValueError, match="drop_rate must be at least 0 and below 1"):
        DropEdgeNet(FEATURES, CLASSES, drop_rate=1.0)
    adj = Adjacency.from_edge_index(edge_index, None, N, add_self_loops=True, dtype=torch.float64)
    network = build(DropEdgeNet)
    assert network(x, adj).shape == (N, CLASSES)
    with pytest.raises(DataError, match="plain edge_index"):
        network.train()(x, adj)
