"""Graphs of networkx, GraphML, SciPy and PyG: the same graph comes back, and bad ones are refused."""

import sys
import tempfile
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

from pprgnn.data import DataError, from_graphml, from_networkx, from_pyg, from_scipy

from .drawn import as_networkx, classes_of, close, edges_of, encoded, graphs, ids_of, merged, same_tensors

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def graph_of(nodes, edges=(), kind=nx.Graph):
    graph = kind()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    return graph


# -------------------------------------------------------------------------------------------------------- networkx
@given(graphs(), st.booleans())
def test_networkx_the_same_graph_comes_back(drawn, weighted):
    graph = as_networkx(drawn, weighted)
    dataset = from_networkx(graph)
    assert [str(node) for node in ids_of(dataset)] == [str(node) for node in drawn.ids]
    # networkx itself does not tell a-b from b-a, so parallel edges add up.
    edges = [
        (source, destination, data.get("weight", 1.0)) for source, destination, data in graph.edges(data=True)
    ]
    weights = bool(weighted and edges)
    assert edges_of(dataset) == merged(edges, drawn.ids, drawn.directed, weights)
    assert ("edge_weight" in dataset._data) == weights
    assert classes_of(dataset) == drawn.columns["label"]
    named = {name: drawn.columns[name] for name in ("size", "count", "colour")}
    used = [
        name for name in dict.fromkeys(key for _, row in graph.nodes(data=True) for key in row) if name in named
    ]
    x = dataset._data.x
    assert close([] if x is None else x.tolist(), encoded({name: named[name] for name in used}))
    same_tensors(from_networkx(graph, schema=dataset.facts.schema)._data, dataset._data)


@given(graphs(), st.booleans())
def test_graphml_the_same_graph_comes_back(drawn, weighted):
    plain = {node: str(node).replace("\n", " ").replace("\t", " ") for node in drawn.ids}  # as XML does
    drawn.ids = list(plain.values())
    drawn.edges = [(plain[source], plain[destination], weight) for source, destination, weight in drawn.edges]
    graph = as_networkx(drawn, weighted)
    with tempfile.TemporaryDirectory() as folder:
        nx.write_graphml(graph, Path(folder) / "my.graphml")
        dataset = from_graphml(Path(folder) / "my.graphml")
    assert dataset.facts.name == "my"
    again = from_networkx(graph)
    assert [str(node) for node in ids_of(again)] == ids_of(dataset)
    assert edges_of(dataset) == edges_of(again)
    assert classes_of(dataset) == drawn.columns["label"]
    assert dataset.facts.directed == drawn.directed


@pytest.mark.parametrize(
    ("nodes", "ids"),
    [
        ([3, 1], [3, 1]),
        ([np.int64(3), np.int32(1)], [3, 1]),
        ([2**70, 1], [str(2**70), "1"]),
        ([True, 2], ["True", "2"]),
        ([1, "a", (2, 3)], ["1", "a", "(2, 3)"]),
        (["007", "7", " 7"], ["007", "7", " 7"]),
        ([1.5, 2.5], ["1.5", "2.5"]),
    ],
)
def test_nodes_of_any_type(nodes, ids):
    dataset = from_networkx(graph_of(nodes, [nodes[:2]]))
    assert ids_of(dataset) == ids
    assert edges_of(dataset) == {(0, 1): 1.0, (1, 0): 1.0}


def test_edges_without_a_weight_weigh_1():
    graph = graph_of([1, 2, 3], [(1, 2, {"weight": 2.5}), (2, 3, {"cost": 7})])
    assert from_networkx(graph)._data.edge_weight.tolist() == [2.5, 2.5, 1, 1]
    assert from_networkx(graph, weight="cost")._data.edge_weight.tolist() == [1, 1, 7, 7]
    for none in (None, ""):
        assert "edge_weight" not in from_networkx(graph, weight=none)._data


def test_later_networkx_graphs_follow_the_schema():
    weighted = from_networkx(graph_of([1, 2], [(1, 2, {"weight": 2.5})])).facts.schema
    plain = from_networkx(graph_of([1, 2], [(1, 2)])).facts.schema
    assert from_networkx(graph_of([1, 2], [(1, 2)]), schema=weighted)._data.edge_weight.tolist() == [1, 1]
    later = from_networkx(graph_of([1, 2], [(1, 2, {"weight": 9})], nx.DiGraph), schema=plain)
    assert "edge_weight" not in later._data
    assert not later.facts.directed


def test_attributes_of_any_type():
    rows = [(1, {7: 1.5, "v": np.array([1.0, 2.0]), "id": 10}), (2, {7: 2.5, "v": [3.0, 2.0], "id": 30})]
    dataset = from_networkx(graph_of(rows))
    assert dataset._data.x.tolist() == [[-1, -1, 0, -1], [1, 1, 0, 1]]
    assert ids_of(dataset) == [1, 2]  # the attribute "id" is one like others
    assert [feature["name"] for feature in dataset.facts.schema["features"]] == ["7", "v", "id"]


@pytest.mark.parametrize(
    ("graph", "options", "message"),
    [
        (graph_of([]), {}, "The networkx graph has no nodes"),
        (graph_of([1, "1"]), {}, "row 2 has the node id '1', which .* row 1 already has"),
        (
            graph_of([(1, {"c": 1}), (2, {"c": "x"})]),
            {},
            "Attribute 'c' of the nodes of the networkx graph must have values",
        ),
        (
            graph_of([(1, {"c": 2**70}), (2, {"c": 1})]),
            {},
            "Attribute 'c' of the nodes of the networkx graph must have",
        ),
        (
            graph_of([(1, {"c": object()})]),
            {},
            "Attribute 'c' of the nodes of the networkx graph must have values",
        ),
        (graph_of([(1, {"node id": 1})]), {}, "A node attribute cannot be called 'node id'"),
        (
            graph_of([1, 2], [(1, 2, {"weight": "x"})]),
            {},
            "row 1, column 'weight' must hold the weight of the edge",
        ),
        (graph_of([1, 2], [(1, 2, {"weight": -1})]), {}, "row 1, column 'weight' must be a finite number >= 0"),
        (graph_of([1, 2], [(1, 2)]), {"weight": "cost"}, "No edge of the networkx graph has the attribute 'cost'"),
        (graph_of([1, 2], [(1, 2)]), {"label": "club"}, "the nodes of the networkx graph has no column 'club'"),
    ],
)
def test_networkx_graphs_that_cannot_be_used(graph, options, message):
    with pytest.raises(DataError, match=message):
        from_networkx(graph, **options)


def test_karate():
    dataset = from_networkx(nx.karate_club_graph(), label="club")
    assert (dataset.num_nodes, dataset._data.num_edges, dataset.facts.class_names) == (
        34,
        156,
        ("Mr. Hi", "Officer"),
    )


@pytest.mark.parametrize("content", ["", "{}", "<a/>", '<?xml version="1.0"?><graphml><graph', "\x00\x01"])
def test_files_that_are_no_graphml(tmp_path, content):
    path = tmp_path / "bad.graphml"
    path.write_text(content)
    with pytest.raises(DataError, match=r"bad.graphml is not a whole GraphML file \(.*\); write or copy it again"):
        from_graphml(path)


def test_graphml_that_is_not_there(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"no.graphml does not exist; name a GraphML file"):
        from_graphml(tmp_path / "no.graphml")
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(DataError, match="Reading GraphML needs networkx: pip install"):
        from_graphml(tmp_path / "no.graphml")


# ----------------------------------------------------------------------------------------------------------- SciPy
@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 3), min_size=n, max_size=n), min_size=n, max_size=n)
    )
)
def test_scipy_the_same_matrix_comes_back(rows):
    dense = np.array(rows)
    for make in (sp.csr_array, sp.csr_matrix, sp.coo_array, sp.csc_array):
        dataset = from_scipy(make(dense))
        expected = {(i, j): float(dense[i, j]) for i, j in zip(*dense.nonzero(), strict=True)}
        assert edges_of(dataset) == expected
        assert ("edge_weight" in dataset._data) == any(value != 1 for value in expected.values())
        assert dataset.facts.directed == (not np.array_equal(dense, dense.T))
        assert dataset.num_nodes == len(dense)


def test_scipy_entries_that_are_stored_twice_or_are_zero():
    twice = sp.coo_array((np.array([1, 1, 1, 0]), ([0, 0, 1, 1], [1, 1, 0, 1])), shape=(2, 2))
    assert edges_of(from_scipy(twice)) == {(0, 1): 2.0, (1, 0): 1.0}
    zero = sp.csr_array((np.array([1.0, 0.0]), ([0, 1], [1, 0])), shape=(2, 2))
    assert edges_of(from_scipy(zero)) == {(0, 1): 1.0}
    assert (twice.nnz, zero.nnz) == (4, 2)  # not changed
    assert "edge_weight" not in from_scipy(twice.tocsr().astype(bool))._data


def test_scipy_with_features_and_labels():
    dataset = from_scipy(sp.eye_array(2), sp.eye_array(2), np.array([1, -1], ">i4"), class_names=("a", "b"))
    assert dataset._data.x.tolist() == [[1, 0], [0, 1]]
    assert dataset._data.y.tolist() == [1, -1]
    assert dataset.facts.class_names == ("a", "b")


@pytest.mark.parametrize(
    ("matrix", "options", "message"),
    [
        (sp.csr_array((2, 3)), {}, r"must be square, but has shape \(2, 3\)"),
        (sp.csr_array((0, 0)), {}, "graph has no nodes"),
        (sp.eye_array(2, dtype=complex), {}, "must hold real numbers, but holds complex128"),
        (sp.eye_array(2) * np.nan, {}, "edge_weight must hold 2 finite numbers >= 0"),
        (-sp.eye_array(2), {}, "edge_weight must hold 2 finite numbers >= 0"),
        (sp.eye_array(2), {"x": np.ones((3, 1))}, r"x must have shape \(2, features\), but has shape \(3, 1\)"),
        (sp.eye_array(2), {"x": [["a"], ["b"]]}, "graph: x must hold numbers, but holds <U1"),
        (sp.eye_array(2), {"y": ["a", "b"]}, "graph: y must hold numbers, but holds <U1"),
    ],
)
def test_matrices_that_cannot_be_used(matrix, options, message):
    with pytest.raises(DataError, match=message):
        from_scipy(matrix, **options)


# ------------------------------------------------------------------------------------------------------------- PyG
def test_pyg_is_checked_and_put_in_order():
    given_data = Data(
        edge_index=torch.tensor([[1, 0, 1, 1, 2], [0, 1, 0, 2, 1]], dtype=torch.int32),
        x=torch.eye(3, dtype=torch.int64),
        y=torch.tensor([[0.0], [2.0], [-1.0]]),
        train_mask=torch.tensor([1, 0, 0]),
        pos=torch.zeros(3, 2),
        num_nodes=3,
    )
    dataset = from_pyg(given_data)
    data = dataset[0]
    assert data.edge_index.equal(PATH)
    assert (data.x.dtype, data.y.tolist(), data.train_mask.tolist()) == (
        torch.float32,
        [0, 2, -1],
        [True, False, False],
    )
    assert dataset.facts.class_names == ("0", "1", "2")
    assert not dataset.facts.directed
    assert dataset.facts.guessed == ("what the graphs hold but is not used: pos",)
    assert given_data.edge_index.shape == (2, 5)  # not changed


def test_pyg_weights():
    data = Data(edge_index=PATH, num_nodes=3, edge_weight=torch.tensor([[1], [1], [2], [3]]))
    dataset = from_pyg(data)
    assert dataset._data.edge_weight.tolist() == [1, 1, 2, 3]
    assert dataset.facts.directed  # the weights are not symmetric


@pytest.mark.parametrize(
    ("y", "task", "multi", "classes"),
    [
        (torch.tensor([1]), "graph", False, 2),
        (torch.tensor(0), "graph", False, 1),
        (torch.tensor([[1.0, 0.0]]), "graph", True, 2),
        (torch.tensor([0, 1, 1]), "node", False, 2),
        (torch.eye(3), "node", True, 3),
        (torch.tensor([True, False, True]), "node", False, 2),
        (None, "node", False, 0),
    ],
)
def test_pyg_tasks(y, task, multi, classes):
    graphs = [Data(edge_index=PATH, num_nodes=3, y=y) for _ in range(2)]
    dataset = from_pyg(graphs)
    assert (dataset.facts.task, dataset.facts.multi_label, dataset.num_classes) == (task, multi, classes)
    assert len(dataset) == 2


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([], "graph must have at least one graph"),
        (
            HeteroData(),
            r"but holds HeteroData; HeteroData becomes one by .* to_homogeneous\(\)",
        ),
        ([HeteroData()], "must hold graphs of type Data, but holds HeteroData"),
        (["x"], "must hold graphs of type Data, but holds str"),
        (Data(x=torch.ones(2, 1)), r"edge_index must hold integers in shape \(2, edges\), but is None"),
        (Data(edge_index=PATH.float()), r"but is \(\(2, 4\), torch.float32\)"),
        (Data(edge_index=PATH.t(), num_nodes=3), r"but is \(\(4, 2\), torch.int64\)"),
        (Data(edge_index=PATH[:, :0]), "graph has no nodes"),
        (
            Data(edge_index=PATH, num_nodes=2),
            r"must name nodes 0 ... 1, but names 0 to 2; renumber the nodes or set",
        ),
        (Data(edge_index=PATH - 1, num_nodes=3), "must name nodes 0 ... 2, but names -1 to 1"),
        (
            Data(edge_index=PATH, num_nodes=3, edge_weight=torch.ones(3)),
            "edge_weight must hold 4 finite numbers >= 0",
        ),
        (
            Data(edge_index=PATH, num_nodes=3, edge_weight=-torch.ones(4)),
            "edge_weight must hold 4 finite numbers >= 0",
        ),
        (
            Data(edge_index=PATH, num_nodes=3, edge_weight=torch.full((4,), torch.inf)),
            "edge_weight must hold 4 finite",
        ),
        (
            Data(edge_index=PATH, x=torch.ones(3), num_nodes=3),
            r"x must have shape \(3, features\), but has shape \(3,\)",
        ),
        (
            Data(edge_index=PATH, x=torch.tensor([[1.0], [torch.nan], [0.0]])),
            r"finite, but x\[1, 0\] is nan; fill or drop",
        ),
        (Data(edge_index=PATH, num_nodes=3, y=torch.ones(2).long()), r"y must have one row per node \(3\) or"),
        (Data(edge_index=PATH, num_nodes=3, y=torch.zeros(3, 2, 2)), "y must have one or two dimensions"),
        (
            Data(edge_index=PATH, num_nodes=3, y=torch.tensor([0.5, 0, 1])),
            "y must hold class numbers, but holds torch.float",
        ),
        (
            Data(edge_index=PATH, num_nodes=3, y=torch.tensor([-2, 0, 1])),
            "y must hold classes 0, 1, ... or -1 for none",
        ),
        (
            Data(edge_index=PATH, num_nodes=3, y=2 * torch.eye(3)),
            "y of several classes must hold zeros and ones only",
        ),
        (
            Data(edge_index=PATH, num_nodes=3, train_mask=torch.ones(2)),
            r"train_mask must have 3 rows, but has shape \(2,\)",
        ),
        (
            [Data(edge_index=PATH, num_nodes=3, y=torch.tensor([0])), Data(edge_index=PATH, num_nodes=3)],
            r"must have the same attributes, equally wide, but graph 0 has .* and graph 1 has {}",
        ),
        (
            [Data(edge_index=PATH, x=torch.ones(3, 1)), Data(edge_index=PATH, x=torch.ones(3, 2))],
            r"but graph 0 has {'x': \[1\]} and graph 1 has {'x': \[2\]}; make them alike",
        ),
    ],
)
def test_pyg_graphs_that_cannot_be_used(graphs, message):
    with pytest.raises(DataError, match=message):
        from_pyg(graphs)


def test_too_few_class_names():
    with pytest.raises(DataError, match="graph has 3 classes, but class_names has 1 names"):
        from_pyg(Data(edge_index=PATH, num_nodes=3, y=torch.tensor([0, 1, 2])), class_names=("a",))


def test_sparse_features_become_dense():
    assert from_pyg(Data(edge_index=PATH, num_nodes=3, x=torch.eye(3).to_sparse()))._data.x.equal(torch.eye(3))
