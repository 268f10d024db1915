"""The baseline without structure: both formulas of its authors, and that edges change nothing."""

import pytest
import torch
from torch.nn import functional as F

from pprgnn.baselines.classic import MLPNet, StructureFreeNet
from pprgnn.errors import DataError
from tests.baselines.dense import CLASSES, FEATURES, N, build, graph

BATCH = torch.arange(N) // 5


def sums(rows):
    return torch.stack([rows[number == BATCH].sum(0) for number in range(int(BATCH.max()) + 1)])


def test_a_layer_on_each_node_then_the_sum():
    _, _, x = graph()
    network = build(StructureFreeNet, "graph", hidden=4)
    first, (second, _, _, last) = network.node_layer[0], network.head
    expected = last(F.relu(second(sums(F.relu(first(x))))))
    torch.testing.assert_close(network(x, None, batch=BATCH, num_graphs=len(expected)), expected)


def test_a_histogram_first():
    network = build(StructureFreeNet, "graph", hidden=4, per_node=False)
    x = torch.eye(FEATURES, dtype=torch.float64)[torch.arange(N) % FEATURES]
    histogram = torch.stack(
        [torch.bincount(x[number == BATCH].argmax(1), minlength=FEATURES) for number in range(3)]
    )
    torch.testing.assert_close(network(x, None, batch=BATCH, num_graphs=3), network.head(histogram.double()))


def test_edges_change_nothing():
    edge_index, weight, x = graph()
    network = build(StructureFreeNet, "graph")
    with_edges = network(x, edge_index, weight, BATCH, 3)
    assert torch.equal(with_edges, network(x, edge_index[:, :0], None, BATCH, 3))


def test_a_perceptron_of_one_layer_on_graphs_is_the_same():
    """So there is no third one: `mlp` with layers = 1 and no dropout is what the authors call DeepMultisets."""
    _, _, x = graph()
    ours, mlp = build(StructureFreeNet, "graph", hidden=4), build(MLPNet, "graph", hidden=4, layers=1, dropout=0.0)
    values = [each.detach().clone() for each in ours.parameters()]
    assert [each.shape for each in values] == [each.shape for each in _in_order(mlp)]
    with torch.no_grad():
        for mine, theirs in zip(_in_order(mlp), values, strict=True):
            mine.copy_(theirs)
    torch.testing.assert_close(mlp(x, None, batch=BATCH, num_graphs=3), ours(x, None, batch=BATCH, num_graphs=3))


def _in_order(mlp):
    parts = (mlp.mlp.lins[0], mlp.head.hidden[0], mlp.head.out)
    return [value for part in parts for value in (part.weight, part.bias)]


def test_nodes_are_for_another_system():
    with pytest.raises(ValueError, match="for nodes use MLP"):
        StructureFreeNet(FEATURES, CLASSES, "node")
    with pytest.raises(DataError, match="needs batch"):
        build(StructureFreeNet, "graph")(graph()[2], None)
