"""Counts of a data set, compared with networkx on random graphs."""

import json

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from pprgnn.data import Facts, GraphDataset, from_networkx, from_pyg, from_scipy, from_tables, summarise

from .own.drawn import as_networkx, graphs


@given(graphs(), st.booleans())
def test_counts_are_those_of_networkx(drawn, weighted):
    graph = (nx.DiGraph if drawn.directed else nx.Graph)(as_networkx(drawn, weighted))
    found = summarise(from_networkx(graph, name="drawn"))
    loops = nx.number_of_selfloops(graph)
    assert (found.nodes, found.edges, found.self_loops) == (len(graph), graph.number_of_edges(), loops)
    assert found.directed == drawn.directed
    assert found.weighted == (weighted and bool(drawn.edges))
    components = list((nx.weakly_connected_components if drawn.directed else nx.connected_components)(graph))
    assert (found.components, found.largest_component) == (len(components), max(map(len, components)))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    degrees = [degree for _, degree in (graph.in_degree if drawn.directed else graph.degree)()]
    expected = {"min": min(degrees), "median": np.median(degrees), "mean": np.mean(degrees), "max": max(degrees)}
    assert found.degree == pytest.approx(expected)
    assert found.isolated == nx.number_of_isolates(graph)
    labels = drawn.columns["label"]
    assert found.classes == {name: labels.count(name) for name in ("2", "10", "b c") if name in labels}
    assert (found.labelled, found.to_predict) == (len(labels) - labels.count(None), labels.count(None))
    of = dict(zip(graph, labels, strict=True))
    pairs = [of[a] == of[b] for a, b in graph.edges if of[a] is not None and of[b] is not None]
    assert found.homophily == (pytest.approx(np.mean(pairs)) if pairs else None)
    if any(drawn.columns["split"]):
        assert found.parts == {part: drawn.columns["split"].count(part) for part in ("train", "val", "test")}


def test_overlap_of_several_classes():
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    y = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]])
    assert summarise(from_pyg(Data(edge_index=edge_index, y=y, num_nodes=4))).homophily == pytest.approx(0.5 / 3)
    data = Data(edge_index=edge_index, y=y, num_nodes=4, labelled=torch.tensor([True, True, False, True]))
    found = summarise(from_pyg(data))
    assert found.homophily == pytest.approx(0.5)
    assert found.classes == {"0": 2, "1": 1, "2": 1}


def test_many_graphs_are_counted_together():
    ring = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])
    sets = [
        Data(edge_index=ring, x=torch.ones(4, 2), y=torch.tensor([i % 2]), part=torch.tensor([i % 3]))
        for i in range(5)
    ]
    dataset = GraphDataset.from_graphs(sets, Facts("rings", "graph", False, "accuracy", ("a", "b")))
    found = summarise(dataset)
    assert (found.graphs, found.nodes, found.edges, found.components, found.isolated) == (5, 20, 15, 10, 5)
    assert (found.features, found.classes, found.labelled) == (2, {"a": 3, "b": 2}, 5)
    assert (found.homophily, found.parts) == (None, {"train": 2, "val": 2, "test": 1})
    some = summarise(dataset[[1, 2]])
    assert (some.graphs, some.nodes, some.edges, some.components) == (2, 8, 6, 4)
    assert (some.classes, some.parts) == ({"a": 1, "b": 1}, {"train": 0, "val": 1, "test": 1})


def test_nothing_to_count():
    found = summarise(from_scipy(np.zeros((1, 1))))
    assert (found.nodes, found.edges, found.components, found.isolated, found.degree["max"]) == (1, 0, 1, 1, 0)
    assert (found.labelled, found.to_predict, found.classes, found.homophily, found.parts) == (0, 1, {}, None, {})


def test_as_json(tmp_path):
    (tmp_path / "edges.csv").write_text("a,b\n1,2\n")
    found = summarise(from_tables(tmp_path / "edges.csv"))
    again = json.loads(json.dumps(found.to_dict()))
    assert again["guessed"] == ["edges run from column 'a' to column 'b'"]
    assert again["degree"] == {"min": 1, "median": 1.0, "mean": 1.0, "max": 1}
