"""Names of nodes mean nothing: other numbers of the nodes give the same answers, with edges in any order."""

import pytest
import torch

from pprgnn.baselines.appnp import GPRGNNNet
from pprgnn.baselines.classic import GATNet, GCNNet, MLPNet
from pprgnn.baselines.deep import DropEdgeNet, GCNIINet, GDCNet, JKNet, PairNormNet
from pprgnn.errors import DataError
from tests.baselines.dense import FEATURES, N, build, graph

FOR_NODES = [MLPNet, GCNNet, GATNet, GCNIINet, JKNet, DropEdgeNet, PairNormNet, GDCNet, GPRGNNNet]
FOR_GRAPHS = [MLPNet, GCNNet, GATNet, GCNIINet, JKNet, DropEdgeNet, GPRGNNNet]


def relabelled(edge_index, weight, x):
    draw = torch.Generator().manual_seed(7)
    new = torch.randperm(N, generator=draw)  # node i is called new[i]
    mixed = torch.randperm(edge_index.size(1), generator=draw)
    return new, new[edge_index[:, mixed]], weight[mixed], x[new.argsort()]


@pytest.mark.parametrize("kind", FOR_NODES)
def test_answers_for_nodes_move_with_the_nodes(kind):
    edge_index, weight, x = graph()
    new, edges, weights, features = relabelled(edge_index, weight, x)
    if kind is GATNet:
        weight = weights = None
    network = build(kind, **({"layers": 6} if kind is GCNIINet else {"keep": 5} if kind is GDCNet else {}))
    torch.testing.assert_close(network(features, edges, weights)[new], network(x, edge_index, weight))


@pytest.mark.parametrize("kind", FOR_GRAPHS)
def test_answers_for_graphs_stay(kind):
    edge_index, weight, x = graph()
    _, edges, weights, features = relabelled(edge_index, weight, x)
    if kind is GATNet:
        weight = weights = None
    network = build(kind, "graph", **({"layers": 6} if kind is GCNIINet else {}))
    one = {"batch": torch.zeros(N, dtype=torch.long), "num_graphs": 1}
    torch.testing.assert_close(network(features, edges, weights, **one), network(x, edge_index, weight, **one))


@pytest.mark.parametrize("kind", FOR_NODES)
def test_features_of_another_width_are_refused(kind):
    edge_index, _, x = graph()
    with pytest.raises(DataError, match=f"reads {FEATURES} features per node"):
        build(kind)(x[:, 1:], edge_index)
