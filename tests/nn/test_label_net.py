"""The network of labels starts as label propagation, and has an answer where no label arrives."""

import pytest
import torch

import pprgnn
from pprgnn.nn import LabelNet

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])  # and node 4 alone


def labels():
    x = torch.zeros(5, 3)
    x[0, [0, 2]] = 1.0
    x[3, [1, 2]] = 1.0
    return x


def test_it_starts_as_label_propagation():
    net = LabelNet(3, 2, hidden=4, eps=0.3, weight_init=1.5, tol=1e-6)
    adj = pprgnn.Adjacency.from_edge_index(EDGES, num_nodes=5, **net.adjacency_options)
    spread = pprgnn.solve(labels(), 1.5 * torch.eye(3), adj, eps=0.3, tol=1e-6).state
    logits = net(labels(), EDGES)
    torch.testing.assert_close(logits[:4], (spread[:4, :2] / spread[:4, 2:] + 0.01).log(), rtol=1e-4, atol=1e-4)
    assert logits.argmax(1)[:4].tolist() == [0, 0, 1, 1]


def test_where_no_label_arrives_all_classes_are_alike_and_gradients_finite():
    net = LabelNet(3, 2, hidden=4, learn_eps=True)
    logits = net(labels(), EDGES)
    assert logits[4, 0] == logits[4, 1]
    logits.pow(2).sum().backward()
    assert all(bool(torch.isfinite(each.grad).all()) for each in net.parameters() if each.grad is not None)
    assert net.conv.weight.grad.abs().sum() > 0


def test_rows_are_decoded_one_by_one():
    net = LabelNet(3, 2, hidden=4)
    torch.nn.init.normal_(net.out.weight)
    state = net.encode(labels(), EDGES)
    torch.testing.assert_close(net.decode(state[[3, 1]]), net.decode(state)[[3, 1]])


def test_what_it_refuses():
    with pytest.raises(ValueError, match="a column for each of 3 classes and one more"):
        LabelNet(3, 3)
    with pytest.raises(ValueError, match="weight_init must be"):
        LabelNet(3, 2, weight_init="zeros")
    with pytest.raises(ValueError, match="w > 0, but weight_init came as -1"):
        LabelNet(3, 2, weight_init=-1.0)
