"""From a config and a data set to the features and the network."""

import pytest
import torch
from torch_geometric.data import Data

from pprgnn.data import Facts, GraphDataset
from pprgnn.training.build import Shape, build_network, digest, feature_kind, features
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def dataset(task="graph", graphs=2, x=True, bonds=True):
    made = []
    for number in range(graphs):
        data = Data(edge_index=PATH, num_nodes=3, y=torch.tensor([number % 2] * (3 if task == "node" else 1)))
        if x:
            data.x = torch.tensor([[3.0, 1.0], [0.0, 0.0], [1.0, 1.0]]) + number
        if bonds:
            data.edge_attr = torch.tensor([[1, 0], [1, 0], [0, 1], [0, 1]])
        made.append(data)
    facts = Facts(name="toy", task=task, multi_label=False, metric="accuracy", class_names=("a", "b"))
    return GraphDataset.from_graphs(made, facts)


def test_what_auto_stands_for():
    assert feature_kind(dataset(), "auto") == "given"
    assert feature_kind(dataset(x=False), "auto") == "degree"
    assert feature_kind(dataset("node", 1, x=False), "auto") == "embedding"
    assert feature_kind(dataset("node", 2, x=False), "auto") == "degree"


def test_features():
    x = torch.tensor([[3.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    assert torch.equal(features(dataset(), "given"), torch.cat([x, x + 1]))
    torch.testing.assert_close(features(dataset(), "normalized").sum(1), torch.tensor([1.0, 0, 1, 1, 1, 1]))
    bonds = torch.tensor([[1.0, 0], [1, 1], [0, 1]])
    both = torch.cat([torch.cat([x, bonds], 1), torch.cat([x + 1, bonds], 1)])
    assert torch.equal(features(dataset(), "edges"), both)
    assert torch.equal(features(dataset(x=False), "edges"), torch.cat([bonds, bonds]))
    degree = features(dataset(x=False), "degree")
    assert torch.equal(degree[:, 0], torch.ones(6))
    torch.testing.assert_close(degree[:3, 1], torch.tensor([1.0, 2, 1]).log1p())
    assert features(dataset("node", 1, x=False), "embedding") is None


def test_what_cannot_be():
    with pytest.raises(TrainingError, match="has no features"):
        feature_kind(dataset(x=False), "normalized")
    with pytest.raises(TrainingError, match="edges of toy have no attributes"):
        feature_kind(dataset(bonds=False), "edges")
    with pytest.raises(TrainingError, match="needs one graph and a node task"):
        feature_kind(dataset(), "embedding")
    broken = dataset()
    broken._data.x[4, 1] = float("inf")
    with pytest.raises(TrainingError, match="feature 1 of node 4 of toy is inf"):
        features(broken, "given")


@pytest.mark.parametrize(
    ("settings", "shape", "words"),
    [
        (["architecture=graph"], Shape("node", 3, 2), "does not go with labels per node; use 'node'"),
        (["architecture=ppi"], Shape("graph", 3, 2), "does not go with labels per graph; use 'graph'"),
        (["architecture=co-purchase"], Shape("node", 3, 2), "set data.features = 'embedding'"),
        (["architecture=ppi"], Shape("node", 0, 2, 9), "reads features of nodes"),
        (["eps=[1, 2, 3]", "hidden=2"], Shape("node", 3, 2), "eps"),
        (["norm=graph"], Shape("graph", 3, 2), "would mix the graphs"),
    ],
)
def test_settings_that_do_not_go_together(settings, shape, words):
    with pytest.raises(TrainingError, match=words):
        build_network(Config().with_settings(settings).model, shape)


def test_settings_reach_the_network():
    settings = ["layers=2", "hidden=6", "eps=0.3", "learn_eps=channel", "norm=layer", "jk=cat", "residual=true"]
    settings += ["grad_terms=0", "depth=7", "activation=tanh", "self_loops=false", "normalize=row", "bias=false"]
    network = build_network(Config().with_settings([*settings, "weight_init=identity"]).model, Shape("node", 3, 2))
    for conv in network.convs:
        assert (conv.grad_terms, conv.depth, conv.add_self_loops, conv.normalize) == (None, 7, False, "row")
        assert conv.log_eps.shape == (6,)
        assert conv.bias is None
        assert conv.activation.name == "tanh"
        assert torch.equal(conv.weight, torch.eye(6))
    assert network.head.in_features == 12
    assert network.adjacency_options == {"normalize": "row", "add_self_loops": False}


@pytest.mark.parametrize(("how", "wanted"), [("identity", 1.0), ("2.5", 2.5), ("-1", -1.0)])
def test_w_starts_as_a_multiple_of_the_identity(how, wanted):
    network = build_network(Config().with_settings([f"weight_init={how}", "layers=2"]).model, Shape("node", 3, 2))
    for _ in range(2):
        for conv in network.convs:
            assert torch.equal(conv.weight, wanted * torch.eye(64))
        network.reset_parameters()


def test_a_digest_tells_data_apart():
    assert digest(dataset()) == digest(dataset())
    changed = dataset()
    changed._data.x[0, 0] += 1e-3
    assert digest(changed) != digest(dataset())
    assert digest(changed, ["edge_index"]) == digest(dataset(), ["edge_index"])


def test_the_degree_beside_the_features_is_one_hot_and_large_ones_are_alike():
    def star(rays):
        hub, leaves = torch.zeros(rays, dtype=torch.long), torch.arange(1, rays + 1)
        edges = torch.stack([torch.cat([hub, leaves]), torch.cat([leaves, hub])])
        return Data(x=torch.full((rays + 1, 2), 0.5), edge_index=edges, y=torch.tensor([rays % 2]))

    graphs = GraphDataset.from_graphs([star(3), star(9), star(20)], dataset().facts)
    x = features(graphs, feature_kind(graphs, "given+degree"))
    hubs = x[[0, 4, 14]]
    assert x.shape == (35, 2 + 10)
    assert bool((x[:, :2] == 0.5).all())
    assert hubs[:, 2:].argmax(1).tolist() == [3, 9, 9]
    assert bool((x[:, 2:].sum(1) == 1).all())
    assert x[1, 2:].argmax() == 1  # a leaf
    assert feature_kind(dataset(x=False), "given+degree") == "degree"


@pytest.mark.parametrize("settings", [[], ["system=gcn"]])
def test_learned_rows_start_small_and_differ(settings):
    graph = dataset("node", 1, x=False)
    config = Config().with_settings([*settings, "hidden=8"])
    network = build_network(config.model, Shape.of(graph, None))
    rows = next(p for p in network.parameters() if p.size(0) == graph.num_nodes and p.dim() == 2)
    assert 0 < float(rows.detach().abs().max()) < 0.01
    assert len({tuple(row) for row in rows.tolist()}) == graph.num_nodes
