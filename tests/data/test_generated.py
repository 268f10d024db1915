"""Generated sets: the tasks are what they say, and the same seed gives the same graphs."""

import math
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch

from pprgnn.data import generated, store
from tests.data.cards import refused

SMALL = {
    "chains": {"length": 5, "train": 3, "val": 2, "test": 4},
    "grid": {"rows": 3, "columns": 4, "train": 3, "val": 2, "test": 4},
    "ring": {"length": 6, "train": 3, "val": 2, "test": 4},
    "sbm": {"nodes": 60, "blocks": 3},
}


def make(name, **options):
    return generated.MAKERS[name](**options)


def networkx_graph(data):
    graph = nx.Graph()
    graph.add_nodes_from(range(data.num_nodes))
    graph.add_edges_from(data.edge_index.t().tolist())
    assert data.edge_index.size(1) == 2 * graph.number_of_edges()  # both directions, each once
    return graph


@pytest.mark.parametrize("name", SMALL)
def test_seeds(name, tmp_path):
    first, again, other = (make(name, seed=seed, **SMALL[name]) for seed in (1, 1, 2))
    assert first.facts.name == name
    assert first.facts.task == "node"
    assert torch.equal(first._data.x, again._data.x)
    assert torch.equal(first._data.edge_index, again._data.edge_index)
    assert not torch.equal(first._data.x, other._data.x)
    store.save(first, tmp_path / "set.safetensors")
    kept = store.open_file(tmp_path / "set.safetensors")
    assert len(kept) == len(first)
    assert torch.equal(kept[len(kept) - 1].x, first[len(first) - 1].x)


# ------------------------------------------------------------------------------------------------- marked graphs
@pytest.mark.parametrize(
    ("name", "shape"),
    [("chains", nx.path_graph(5)), ("grid", nx.grid_2d_graph(3, 4)), ("ring", nx.cycle_graph(6))],
)
def test_marked_graphs(name, shape):
    dataset = make(name, classes=3, noise=0.01, **SMALL[name])
    assert [data.part.tolist() for data in dataset] == [[0]] * 3 + [[1]] * 2 + [[2]] * 4
    assert dataset.num_classes == dataset.num_features == 3
    shown = []
    for data in dataset:
        graph = networkx_graph(data)
        assert nx.is_isomorphic(graph, shape)
        distance = nx.single_source_shortest_path_length(graph, 0)
        assert data.distance.tolist() == [distance[node] for node in range(data.num_nodes)]
        assert not data.x[1:].any()
        label = int(data.x[0].argmax())
        asked = data.distance == 3 if name == "ring" else torch.ones_like(data.y, dtype=torch.bool)
        assert data.y.tolist() == [label if each else -1 for each in asked]
        shown.append(tuple(data.x[0].tolist()))
    assert len(set(shown)) == len(shown)  # no graph occurs twice
    assert [int(data.y.max()) for data in dataset] == [0, 1, 2, 0, 1, 0, 1, 2, 0]


def test_chains_are_noisy_classes_on_heads_and_no_part_shares_its_noise():
    dataset = make("chains", seed=4)
    assert len(dataset) == 140
    for part, count in enumerate((20, 20, 100)):
        draw, label = torch.Generator().manual_seed(3 * 4 + part), torch.arange(count) % 2
        x = torch.zeros(count, 100, 2)
        x[:, 0] = torch.eye(2)[label] + 0.1 * torch.randn(count, 2, generator=draw)
        graphs = [data for data in dataset if data.part == part]
        assert torch.equal(torch.cat([data.x for data in graphs]), x.flatten(0, 1))
        assert torch.equal(torch.cat([data.y for data in graphs]), label.repeat_interleave(100))


# ---------------------------------------------------------------------------------------------------- block model
def test_block_model():
    dataset = make("sbm", nodes=20_000, blocks=4, degree_in=6.0, degree_out=2.0, noise=0.5)
    data = dataset[0]
    networkx_graph(data)
    same = data.y[data.edge_index[0]] == data.y[data.edge_index[1]]
    for found, degree in ((same.sum() / 20_000, 6), ((~same).sum() / 20_000, 2)):
        # Twice the number of edges over the nodes, a binomial number: its deviation is sqrt(2 * degree / nodes).
        assert abs(found - degree) < 5 * math.sqrt(2 * degree / 20_000)
    assert data.y.bincount().tolist() == [5_000] * 4
    noise = data.x - torch.eye(4)[data.y]
    assert abs(noise.std() - 0.5) < 0.01
    assert abs(noise.mean()) < 0.01
    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert (masks.sum(dim=0) == 1).all()
    assert masks.sum(dim=1).tolist() == [2_000, 2_000, 16_000]
    assert (data.train_mask.view(4, 5_000).sum(dim=1) - 500).abs().max() < 100  # drawn from all blocks alike


def test_every_pair_of_the_block_model_has_its_chance():
    """Over many draws of a tiny graph, all pairs within blocks are equally frequent, and so are all others."""
    draws, nodes, blocks = 2_000, 8, 2
    count = np.zeros((nodes, nodes))
    for seed in range(draws):
        dataset = generated.sbm(nodes, blocks, degree_in=1.5, degree_out=0.8, train=0.5, val=0.25, seed=seed)
        count[tuple(dataset[0].edge_index.numpy())] += 1
    block = np.arange(nodes) // 4
    same = block[:, None] == block
    for pairs, chance in ((same & ~np.eye(nodes, dtype=bool), 1.5 / 3), (~same, 0.8 / 4)):
        assert np.abs(count[pairs] / draws - chance).max() < 5 * math.sqrt(chance * (1 - chance) / draws)


def test_block_model_without_edges():
    data = make("sbm", nodes=20, blocks=2, degree_in=0, degree_out=0)[0]
    assert data.edge_index.shape == (2, 0)
    assert data.num_nodes == 20


# ------------------------------------------------------------------------------------------------------- refused
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("chains", {"length": 1}, "length must be a whole number of at least 2, not 1."),
        ("chains", {"length": 2.5}, "length must be a whole number of at least 2, not 2.5."),
        ("chains", {"length": "9"}, "length must be a whole number of at least 2, not '9'."),
        ("chains", {"classes": 1}, "classes must be a whole number of at least 2, not 1."),
        ("chains", {"noise": -0.1}, "noise must be a number of at least 0, not -0.1."),
        ("chains", {"noise": math.nan}, "noise must be a number of at least 0, not nan."),
        ("chains", {"noise": math.inf}, "noise must be a number of at least 0, not inf."),
        ("chains", {"val": 0}, "val must be a whole number of at least 1, not 0."),
        ("chains", {"seed": -1}, "seed must be a whole number of at least 0, not -1."),
        ("grid", {"rows": 1}, "rows must be a whole number of at least 2, not 1."),
        ("grid", {"columns": True}, "columns must be a whole number of at least 2, not True."),
        ("ring", {"length": 7}, "length must be even"),
        ("ring", {"length": 2}, "length must be a whole number of at least 4, not 2."),
        ("sbm", {"blocks": 1}, "blocks must be a whole number of at least 2, not 1."),
        ("sbm", {"nodes": 7}, "nodes must be a whole number of at least 8, not 7."),
        ("sbm", {"nodes": 10}, "nodes must be a multiple of blocks (4)"),
        ("sbm", {"nodes": 40, "degree_in": 5}, "degree_in must be a number from 0 to 4.5, not 5."),
        (
            "sbm",
            {"nodes": 40, "degree_in": 1, "degree_out": 15.5},
            "degree_out must be a number from 0 to 15, not 15.5.",
        ),
        ("sbm", {"noise": "a"}, "noise must be a number of at least 0, not 'a'."),
        ("sbm", {"train": 1.5}, "train must be a number from 0 to 1, not 1.5."),
        ("sbm", {"train": 0.9, "val": 0.2}, "each part at least one node"),
        ("sbm", {"train": 0}, "each part at least one node"),
        ("sbm", {"seed": -3}, "seed must be a whole number of at least 0, not -3."),
    ],
)
def test_refused(name, options, message):
    with refused(message):
        make(name, **options)


def test_shares_that_add_up_to_almost_all():
    data = make("sbm", nodes=20, blocks=2, degree_in=1, train=0.7, val=0.2)[0]
    assert [int(mask.sum()) for mask in (data.train_mask, data.val_mask, data.test_mask)] == [14, 4, 2]


def test_parts_share_no_noise():
    """Each part and each seed has a stream of its own."""
    heads = [data.x[0] for seed in (0, 1) for data in make("chains", length=2, train=4, val=4, test=4, seed=seed)]
    assert all(not torch.equal(a, b) for a, b in pairwise(sorted(heads, key=lambda head: head.tolist())))
