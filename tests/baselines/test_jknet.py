"""JK-Net: PyG's own with the same weights."""

import pytest
import torch
from torch_geometric.nn import GCN

from pprgnn import Adjacency
from pprgnn.baselines.deep import JKNet
from tests.baselines.dense import CLASSES, FEATURES, N, build, graph, normalized


def pygs(ours, mode, layers, out):
    """PyG's GCN with jumping knowledge, its weights ours."""
    theirs = GCN(FEATURES, 4, layers, out, jk=mode).double().eval()
    names = {"head.1.": "lin.", "jump.": "jk."}
    state = {}
    for name, value in ours.state_dict().items():
        for mine, its in names.items():
            name = name.replace(mine, its)
        state[name] = value
    theirs.load_state_dict(state)
    return theirs


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mode", ["cat", "max", "lstm"])
def test_the_same_as_pyg_with_the_same_weights(mode, weighted):
    edge_index, weight, x = graph()
    weight = weight if weighted else None
    ours = build(JKNet, hidden=4, layers=3, mode=mode)
    expected = pygs(ours, mode, 3, CLASSES)(x, edge_index, weight)
    torch.testing.assert_close(ours(x, edge_index, weight), expected)
    adj = Adjacency.from_edge_index(edge_index, weight, N, dtype=torch.float64, **ours.adjacency_options)
    torch.testing.assert_close(ours(x, adj), expected)


@pytest.mark.parametrize("mode", ["cat", "max", "lstm"])
def test_graphs_get_the_states_of_all_layers(mode):
    edge_index, _, x = graph()
    network = build(JKNet, "graph", hidden=4, layers=2, mode=mode)
    a, (first, second) = normalized(edge_index), network.convs
    one = (a @ x @ first.lin.weight.t() + first.bias).relu()
    two = (a @ one @ second.lin.weight.t() + second.bias).relu()
    if mode == "cat":
        torch.testing.assert_close(network.encode(x, edge_index), torch.cat([one, two], dim=1))
    elif mode == "max":
        torch.testing.assert_close(network.encode(x, edge_index), torch.maximum(one, two))
    assert network(x, edge_index, batch=torch.arange(N) // 5, num_graphs=3).shape == (3, CLASSES)


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="mode must be 'cat', 'max' or 'lstm', but came as 'sum'"):
        JKNet(FEATURES, CLASSES, mode="sum")
