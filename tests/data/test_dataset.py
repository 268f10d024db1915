"""A `GraphDataset` is a data set of PyG: indexing, loading, copying; and it knows its facts."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import AddSelfLoops

from pprgnn.core.adjacency import Adjacency
from pprgnn.data import DataError, Facts, GraphDataset

from .own.drawn import same_tensors


def graph(i):
    ring = torch.arange(i)
    edge_index = torch.stack([torch.cat([ring, ring.roll(-1)]), torch.cat([ring.roll(-1), ring])])
    return Data(edge_index=edge_index, x=torch.full((i, 4), float(i)), y=torch.tensor([i % 3]))


@pytest.fixture
def rings():
    return GraphDataset.from_graphs(
        [graph(i) for i in range(3, 9)], Facts("rings", "graph", False, "accuracy", ("a", "b", "c"))
    )


@pytest.fixture
def lonely():
    """One graph whose last node has neither edge nor feature."""
    data = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0, 1, -1]), num_nodes=3)
    return GraphDataset.from_graphs([data], Facts("lonely", "node", False, "accuracy", ("a", "b")))


# ------------------------------------------------------------------------------------------------------------- PyG
@pytest.mark.parametrize(
    ("index", "sizes"),
    [
        (slice(1, 4), [4, 5, 6]),
        (slice(None, None, -2), [8, 6, 4]),
        ([5, 0, 0], [8, 3, 3]),
        ((1, 2), [4, 5]),
        (torch.tensor([1, -1]), [4, 8]),
        (torch.tensor([True, False, False, False, False, True]), [3, 8]),
        (np.array([1, 2]), [4, 5]),
        (np.array([False, True, False, False, False, False]), [4]),
        ([], []),
    ],
)
def test_subsets(rings, index, sizes):
    subset = rings[index]
    assert isinstance(subset, GraphDataset)
    assert subset.graph_sizes == sizes
    assert [data.num_nodes for data in subset] == sizes
    assert (len(subset), subset.num_nodes) == (len(sizes), sum(sizes))
    assert subset.labels().tolist() == [size % 3 for size in sizes]
    assert subset.labelled().tolist() == [True] * len(sizes)
    assert [subset[i].num_nodes for i in range(-len(sizes), 0)] == sizes
    assert len(rings) == 6


def test_subsets_of_subsets_and_shuffling(rings):
    assert rings[2:][[0, 2]].graph_sizes == [5, 7]
    shuffled, order = rings.shuffle(return_perm=True)
    assert shuffled.graph_sizes == (order + 3).tolist()
    with pytest.raises(IndexError):
        rings[6]


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader_sees_every_graph_once(rings, shuffle):
    sizes = []
    for batch in DataLoader(rings, batch_size=4, shuffle=shuffle):
        assert batch.x.shape == (batch.num_nodes, 4)
        assert int(batch.edge_index.max()) < batch.num_nodes
        sizes += torch.bincount(batch.batch).tolist()
        assert (batch.x[batch.ptr[:-1], 0] % 3).tolist() == batch.y.tolist()
    assert sorted(sizes) == [3, 4, 5, 6, 7, 8]
    assert shuffle or sizes == [3, 4, 5, 6, 7, 8]


def test_numbers_of_features_and_classes(rings, lonely):
    assert (rings.num_features, rings.num_node_features, rings.num_edge_features, rings.num_classes) == (
        4,
        4,
        0,
        3,
    )
    assert (lonely.num_features, lonely.num_classes) == (0, 2)


def test_graphs_are_those_that_were_given(rings):
    for i, data in enumerate(rings, start=3):
        same_tensors(data, Data(**graph(i).to_dict(), num_nodes=i))
    assert rings[0].x.data_ptr() == rings._data.x.data_ptr()  # a view, not a copy


def test_copies_stand_on_their_own(rings):
    for other in (rings.copy(), rings.copy([1, 2]), copy.deepcopy(rings), rings[1:3].copy()):
        other._data.x.zero_()
        assert other.facts == rings.facts
    assert [float(data.x[0, 0]) for data in rings] == [3, 4, 5, 6, 7, 8]
    assert rings.copy([1, 2]).graph_sizes == [4, 5]
    assert rings[1:3].copy().graph_sizes == [4, 5]


def test_it_can_be_pickled_for_the_processes_of_a_loader(rings):
    again = pickle.loads(pickle.dumps(rings[1:3]))
    assert (again.graph_sizes, again.facts) == ([4, 5], rings.facts)


def test_transforms_apply(rings):
    rings.transform = AddSelfLoops()
    assert rings[0].num_edges == 9
    assert next(iter(rings)).num_edges == 9


# ----------------------------------------------------------------------------------------------------------- facts
def test_nodes_without_anything_are_counted(lonely):
    assert (lonely.num_nodes, lonely[0].num_nodes, lonely.graph_sizes) == (3, 3, [3])
    assert lonely.labelled().tolist() == [True, True, False]
    both = GraphDataset.from_graphs([lonely[0], lonely[0]], lonely.facts)
    assert (both.num_nodes, both[1].num_nodes) == (6, 3)


def test_labels_of_many_graphs_follow_each_other():
    graphs = [
        Data(
            edge_index=torch.empty(2, 0).long(), y=torch.eye(2), num_nodes=2, labelled=torch.tensor([True, False])
        )
    ] * 2
    dataset = GraphDataset.from_graphs(graphs, Facts("d", "node", True, "micro-F1", ("a", "b")))
    assert dataset.labels().tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    assert dataset.labelled().tolist() == [True, False, True, False]
    assert dataset[[1]].labelled().tolist() == [True, False]
    del dataset._data.labelled
    assert dataset.labelled().tolist() == [True] * 4


def test_no_labels_and_no_graphs():
    data = Data(edge_index=torch.empty(2, 0).long(), num_nodes=2)
    facts = Facts("bare", "node", False, "accuracy", ())
    with pytest.raises(DataError, match="bare has no labels, which are needed here"):
        GraphDataset.from_graphs([data], facts).labels()
    with pytest.raises(DataError, match="bare has no labels"):
        GraphDataset.from_graphs([data], facts).labelled()
    with pytest.raises(DataError, match="bare must have at least one graph, but has none"):
        GraphDataset.from_graphs([], facts)


def test_another_name(rings, tmp_path):
    rings.node_names, rings.path = ["x"], tmp_path
    renamed = rings[2:4].rename("circles")
    assert (renamed.facts.name, rings.facts.name) == ("circles", "rings")
    assert (renamed.graph_sizes, renamed.node_names, renamed.path) == ([5, 6], ["x"], tmp_path)


def test_what_is_shown(rings, lonely):
    assert repr(rings) == "GraphDataset(rings: 6 graphs, 33 nodes, 4 features, 3 classes per graph)"
    assert repr(rings[1]).startswith("Data(")
    assert repr(lonely) == "GraphDataset(lonely: 3 nodes, 0 features, 2 classes per node)"
    facts = Facts("d", "node", True, "micro-F1", ("a", "b"))
    assert repr(GraphDataset.from_graphs([lonely[0]], facts)) == (
        "GraphDataset(d: 3 nodes, 0 features, multi-label, 2 classes per node)"
    )


# ------------------------------------------------------------------------------------------------------- adjacency
def test_adjacency_of_one_graph(rings):
    for index, options in (
        (0, {}),
        (2, {"normalize": "row"}),
        (-1, {"add_self_loops": True}),
        (1, {"normalize": None}),
    ):
        data = rings[index]
        expected = Adjacency.from_edge_index(data.edge_index, num_nodes=data.num_nodes, **options)
        assert rings.adjacency(index, **options).to_dense().equal(expected.to_dense())
    assert rings[2:].adjacency(0).num_nodes == 5


def test_adjacency_knows_weights_and_lonely_nodes(lonely):
    assert lonely.adjacency().to_dense().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    lonely._data.edge_weight = torch.tensor([5.0, 5.0])
    assert lonely.adjacency(normalize=None).to_dense().tolist() == [[0, 5, 0], [5, 0, 0], [0, 0, 0]]
