"""GCN: PyG's own with the same weights, the dense formula, and the paper's way to train it."""

import pytest
import torch
from torch_geometric.nn import GCN

from pprgnn import Adjacency
from pprgnn.baselines.classic import GCNNet
from pprgnn.training.config import Config
from pprgnn.training.optimization import make_optimizer
from tests.baselines.dense import CLASSES, FEATURES, N, build, graph, normalized


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 5])
def test_the_same_as_pyg_with_the_same_weights(layers, weighted, directed):
    edge_index, weight, x = graph(directed=directed)
    weight = weight if weighted else None
    ours = build(GCNNet, hidden=4, layers=layers)
    theirs = GCN(FEATURES, 4, layers, CLASSES).double().eval()
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(x, edge_index, weight), theirs(x, edge_index, weight))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_dense_formula_on_an_adjacency(weighted):
    edge_index, weight, x = graph()
    weight = weight if weighted else None
    network = build(GCNNet, hidden=4)
    a = normalized(edge_index, weight)
    first, last = network.convs
    hidden = (a @ x @ first.lin.weight.t() + first.bias).relu()
    expected = a @ hidden @ last.lin.weight.t() + last.bias
    adj = Adjacency.from_edge_index(edge_index, weight, N, dtype=torch.float64, **network.adjacency_options)
    torch.testing.assert_close(network(x, adj), expected)
    torch.testing.assert_close(network(x, edge_index, weight), expected)


def test_a_skip_adds_a_linear_map_of_the_input():
    edge_index, _, x = graph()
    network = build(GCNNet, hidden=4, residual=True, norm="layer")
    a, (first, last), (one, other) = normalized(edge_index), network.convs, network.skips
    hidden = a @ x @ first.lin.weight.t() + first.bias + x @ one.weight.t()
    hidden = network.norms[0](hidden).relu()
    expected = a @ hidden @ last.lin.weight.t() + last.bias + hidden @ other.weight.t()
    torch.testing.assert_close(network(x, edge_index), expected)
    slow = {id(each) for each in network.slow_parameters()}
    assert id(other.weight) in slow
    assert id(one.weight) not in slow
    assert not build(GCNNet, hidden=4).skips  # Kipf and Welling have none


def test_graphs_are_pooled_one_by_one():
    edge_index, _, x = graph()
    network = build(GCNNet, "graph", hidden=4, pooling="mean")
    together = network(
        torch.cat([x, 2 * x]),
        torch.cat([edge_index, edge_index + N], dim=1),
        batch=torch.arange(2).repeat_interleave(N),
        num_graphs=2,
    )
    alone = [
        network(each, edge_index, batch=torch.zeros(N, dtype=torch.long), num_graphs=1) for each in (x, 2 * x)
    ]
    torch.testing.assert_close(together, torch.cat(alone))
    state = network.encode(x, edge_index)
    assert (state >= 0).all()
    a, (first, last) = normalized(edge_index), network.convs
    hidden = (a @ x @ first.lin.weight.t() + first.bias).relu()
    torch.testing.assert_close(state, (a @ hidden @ last.lin.weight.t() + last.bias).relu())
    (hidden_layer,) = network.head.hidden
    torch.testing.assert_close(alone[0], network.head.out(hidden_layer(state.mean(0, keepdim=True)).relu()))


def test_only_the_first_layer_decays():
    config = Config.for_system("gcn")
    network = GCNNet(FEATURES, CLASSES, layers=3)
    decay = {
        id(p): group["weight_decay"]
        for group in make_optimizer(network, config.training).param_groups
        for p in group["params"]
    }
    found = {name: decay[id(p)] for name, p in network.named_parameters()}
    first = {name for name, value in found.items() if value == 5e-4}
    assert first == {"convs.0.bias", "convs.0.lin.weight"}
    assert {value for name, value in found.items() if name not in first} == {0.0}


def test_dropout_is_on_features_and_states_while_training():
    edge_index, _, x = graph()
    network = build(GCNNet, hidden=4, dropout=0.5).train()
    assert not network.encode_is_deterministic
    assert not torch.equal(network(x, edge_index), network(x, edge_index))
    # A network of one layer has states nowhere else: what differs are the features.
    single = build(GCNNet, layers=1, dropout=0.5).train()
    assert not torch.equal(single(x, edge_index), single(x, edge_index))
    dry = build(GCNNet, hidden=4, dropout=0.0).train()
    assert dry.encode_is_deterministic
    assert torch.equal(dry(x, edge_index), dry(x, edge_index))


def test_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match="task must be 'node' or 'graph', but came as 'edge'"):
        GCNNet(FEATURES, CLASSES, "edge")
