"""TU sets: equal to PyG's own reader on every set there is, their published counts, and what is refused."""

import subprocess
import sys

import pytest
import torch
from torch_geometric.datasets import TUDataset

from pprgnn.data import store
from pprgnn.data.readers import tu
from pprgnn.data.roots import bundled_folder
from tests.data.cards import facts_of, make_card, refused

# Graphs, nodes, undirected edges, node labels, classes; edge labels.
COUNTS = {
    "MUTAG": ((188, 3_371, 3_721, 7, 2), 4),
    "PTC": ((344, 8_792, 8_931, 21, 2), 0),
    "PTC_MR": ((344, 4_915, 5_054, 18, 2), 4),
    "COX2": ((467, 19_252, 20_289, 35, 2), 0),
    "PROTEINS": ((1_113, 43_471, 81_044, 3, 2), 0),
    "NCI1": ((4_110, 122_747, 132_753, 37, 2), 0),
    "ENZYMES": ((600, 19_580, 37_282, 3, 6), 0),
    "DD": ((1_178, 334_925, 843_046, 89, 2), 0),
    "IMDB-BINARY": ((1_000, 19_773, 96_531, 0, 2), 0),
}


def read(name, root, **options):
    return tu(make_card(name, "tu", task="graph", note="a note"), root, **options)


def read_with_pyg(name, raw, tmp_path, **options):
    """PyG writes beside the raw files, so it gets a folder with a link to them."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "raw").symlink_to(raw)
    return TUDataset(str(tmp_path), name, **options)


def assert_equal_to_pyg(found, expected):
    assert set(found._data.keys()) - {"num_nodes"} == set(expected._data.keys()) - {"num_nodes"}
    for key, slices in expected.slices.items():
        assert found._data[key].dtype == expected._data[key].dtype
        assert torch.equal(found._data[key], expected._data[key]), key
        assert torch.equal(found.slices[key], slices), key
    assert found.slices.keys() == expected.slices.keys()
    assert found.graph_sizes == [data.num_nodes for data in expected]


# ------------------------------------------------------------------------------------------------------ real data
@pytest.mark.parametrize("name", COUNTS)
def test_counts_and_pyg(name, data_root, tmp_path):
    dataset = read(name, data_root)
    counts, edge_labels = COUNTS[name]
    assert facts_of(dataset) == counts
    assert dataset.num_edge_features == edge_labels
    assert_equal_to_pyg(dataset, read_with_pyg(name, data_root / name / "raw", tmp_path))


@pytest.mark.parametrize(("name", "attributes"), [("COX2", 3), ("PROTEINS", 1), ("ENZYMES", 18)])
def test_node_attributes(name, attributes, data_root, tmp_path):
    dataset = read(name, data_root, node_attributes=True)
    assert dataset.num_features == COUNTS[name][0][3] + attributes
    assert_equal_to_pyg(dataset, read_with_pyg(name, data_root / name / "raw", tmp_path, use_node_attr=True))


# -------------------------------------------------------------------------------------------- inside a package
def test_mutag_without_files(tmp_path):
    pytest.importorskip("grakel")
    dataset = read("MUTAG", tmp_path / "nothing")
    assert facts_of(dataset) == COUNTS["MUTAG"][0]
    assert dataset.facts.class_names == ("-1", "1")
    assert_equal_to_pyg(dataset, read_with_pyg("MUTAG", bundled_folder("MUTAG"), tmp_path))


def test_several_columns_of_labels(tmp_path):
    pytest.importorskip("grakel")
    dataset = read("Cuneiform", tmp_path / "nothing")
    assert dataset.num_features == 7
    assert_equal_to_pyg(dataset, read_with_pyg("Cuneiform", bundled_folder("Cuneiform"), tmp_path))


def test_own_files_come_first(tiny):
    name = "MUTAG"
    for path in (tiny / "TINY" / "raw").iterdir():
        target = tiny / name / "raw" / path.name.replace("TINY", name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text())
    assert len(read(name, tiny)) == 3


def test_bundled_folder_imports_nothing():
    code = (
        "import sys; from pprgnn.data.roots import bundled_folder; print(bundled_folder('no such set'));"
        "assert not {'torch', 'grakel', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"


# ---------------------------------------------------------------------------------------------- a set by hand
TINY = {
    "A": "1, 2\n2, 1\n1, 2\n2, 2\n2, 3\n3, 2\n5, 4\n4, 5\n",  # 1-2 twice, a loop; nodes 6 and 7 are alone
    "graph_indicator": "1\n1\n1\n2\n2\n2\n3\n",
    "graph_labels": "7\n-1\n7\n",
    "node_labels": "3\n5\n3\n3\n6\n3\n5\n",
    "node_attributes": "0.5, 1\n1, 2\n2, 3\n3, 4\n4, 5\n5, 6\n6, 7\n",
    "edge_labels": "0\n0\n0\n0\n1\n1\n0\n0\n",
}


@pytest.fixture
def tiny(tmp_path):
    folder = tmp_path / "TINY" / "raw"
    folder.mkdir(parents=True)
    for kind, text in TINY.items():
        (folder / f"TINY_{kind}.txt").write_text(text)
    return tmp_path


def file_of(root, kind):
    return root / "TINY" / "raw" / f"TINY_{kind}.txt"


def test_by_hand(tiny):
    file_of(tiny, "edge_labels").unlink()
    dataset = read("TINY", tiny)
    assert dataset.graph_sizes == [3, 3, 1]
    assert dataset.facts.class_names == ("-1", "7")
    assert dataset.facts.note == "a note"
    assert dataset.labels().tolist() == [1, 0, 1]
    edges = [data.edge_index.t().tolist() for data in dataset]
    assert edges == [[[0, 1], [1, 0], [1, 2], [2, 1]], [[0, 1], [1, 0]], []]
    assert [data.num_nodes for data in dataset] == [3, 3, 1]
    assert dataset[0].x.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]


def test_by_hand_with_pyg(tiny, tmp_path_factory):
    file_of(tiny, "graph_indicator").write_text("1\n1\n1\n2\n2\n2\n2\n")  # PyG needs an edge in the last graph
    file_of(tiny, "graph_labels").write_text("7\n-1\n")
    expected = read_with_pyg("TINY", tiny / "TINY" / "raw", tmp_path_factory.mktemp("pyg"), use_node_attr=True)
    assert_equal_to_pyg(read("TINY", tiny, node_attributes=True), expected)


def test_without_labels_the_sizes_are_kept(tiny):
    file_of(tiny, "node_labels").unlink()
    dataset = read("TINY", tiny)
    assert dataset[0].x is None
    assert dataset.num_features == 0
    assert [data.num_nodes for data in dataset] == [3, 3, 1]


@pytest.mark.parametrize("labels", [True, False])
def test_survives_the_store(tiny, tmp_path, labels):
    if not labels:
        file_of(tiny, "node_labels").unlink()
    dataset = read("TINY", tiny)
    store.save(dataset, tmp_path / "tiny.safetensors")
    again = store.open_file(tmp_path / "tiny.safetensors")
    assert again.facts == dataset.facts
    for data, expected in zip(again, dataset, strict=True):
        assert set(data.keys()) == set(expected.keys())
        assert all(torch.equal(torch.as_tensor(data[key]), torch.as_tensor(expected[key])) for key in data.keys())  # noqa: SIM118


# ------------------------------------------------------------------------------------------------------- refused
@pytest.mark.parametrize(
    ("kind", "text", "parts"),
    [
        ("A", "", ["empty"]),
        ("A", "1, 2\n2\n", ["line 2 ", "2 columns", "has 1"]),
        ("A", "1, 2\n2, x\n", ["line 2, column 2 ", "'x'"]),
        ("A", "1, 2\n2, 0\n", ["line 2 ", "nodes 1 to 7", "2 and 0"]),
        ("A", "1, 2\n-2, 1\n", ["line 2 ", "nodes 1 to 7", "-2 and 1"]),
        ("A", "1, 2\n2, 8\n", ["line 2 ", "nodes 1 to 7", "2 and 8"]),
        ("A", "1, 2\n3, 4\n", ["line 2 ", "graphs 1 and 2"]),
        ("A", "1, 2\n", ["edge_labels", "1 edges", "has 8"]),
        ("graph_indicator", "1\n1\n1\n2\n2\n1\n3\n", ["line 6 ", "graph 2 or 3", "names 1"]),
        ("graph_indicator", "1\n1\n1\n2\n2\n2\n4\n", ["line 7 ", "graph 2 or 3", "names 4"]),
        ("graph_indicator", "0\n0\n0\n1\n1\n1\n2\n", ["line 1 ", "graph 1", "names 0"]),
        ("graph_indicator", "2\n2\n2\n3\n3\n3\n4\n", ["line 1 ", "graph 1", "names 2"]),
        ("graph_indicator", "1\n1\n1\n2\n2\n2\n", ["graph_labels", "2 graphs", "has 3"]),
        ("graph_labels", "7\n-1\n", ["3 graphs", "has 2"]),
        ("graph_labels", "7\nyes\n7\n", ["line 2, column 1 ", "'yes'"]),
        ("node_labels", "3\n5\n", ["7 nodes", "has 2"]),
        ("node_labels", "3\n5.5\n3\n3\n6\n3\n5\n", ["line 2, column 1 ", "'5.5'"]),
        ("node_labels", "3\n5\n3\n3\n6\n3\n9000000000\n", ["small range", "9000000000"]),
        ("edge_labels", "0\n0\n", ["8 edges", "has 2"]),
        ("node_attributes", "1,2\n3,4\n", ["7 nodes", "has 2"]),
        ("node_attributes", TINY["node_attributes"].replace("2, 3", "2, nan"), ["row 3, column 2 ", "nan"]),
        ("node_attributes", TINY["node_attributes"].replace("2, 3", "1e39, 3"), ["row 3, column 1 ", "1e+39"]),
    ],
)
def test_refused(tiny, kind, text, parts):
    file_of(tiny, kind).write_text(text)
    if kind == "A" and "edge_labels" not in parts:
        file_of(tiny, "edge_labels").unlink()
    blamed = parts[0] if parts[0] in TINY else kind  # the other one of two that do not match
    with refused(file_of(tiny, blamed), *parts):
        read("TINY", tiny, node_attributes=True)


@pytest.mark.parametrize("kind", ["A", "graph_indicator", "graph_labels"])
def test_missing_file(tiny, kind):
    file_of(tiny, kind).unlink()
    with refused(file_of(tiny, kind), "missing"):
        read("TINY", tiny)


def test_no_attributes(tiny):
    file_of(tiny, "node_attributes").unlink()
    with refused("no node attributes"):
        read("TINY", tiny, node_attributes=True)


def test_numbers_to_predict(tiny):
    file_of(tiny, "graph_labels").rename(file_of(tiny, "graph_attributes"))
    with refused("TINY_graph_labels.txt", "instead of classes"):
        read("TINY", tiny)
