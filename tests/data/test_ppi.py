"""PPI: equal to PyG's own reader on drawn and on real graphs, the published counts, and what is refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.datasets import PPI

from pprgnn.data import find, store
from pprgnn.data.readers import ppi
from tests.data.cards import facts_of, make_card, refused

SIZES = {"train": (5, 3), "valid": (4,), "test": (3, 2)}  # nodes of each graph


def read(root, name="PPI"):
    return ppi(make_card(name, "ppi", multi_label=True, metric="micro-F1"), root)


def write_part(folder, part, sizes, first_graph, *, directed=True):
    """Chains with some loops, in the files PyG reads."""
    chance = np.random.default_rng(first_graph)
    nodes, links, start = sum(sizes), [], 0
    for size in sizes:
        forth = [(node, node + 1) for node in range(start, start + size - 1)]
        back = [(b, a) for a, b in forth] if directed else []
        links += [(start, start), *forth, *back]
        start += size
    links = [{"source": a, "target": b} for a, b in links]
    graph = {"directed": directed, "multigraph": False, "graph": {}, "links": links}
    graph["nodes"] = [{"id": node, "test": False} for node in range(nodes)]
    (folder / f"{part}_graph.json").write_text(json.dumps(graph, indent=1))
    np.save(folder / f"{part}_feats.npy", chance.standard_normal((nodes, 6)))
    np.save(folder / f"{part}_labels.npy", chance.integers(0, 2, (nodes, 4)))
    np.save(folder / f"{part}_graph_id.npy", first_graph + np.repeat(np.arange(len(sizes)), sizes))


@pytest.fixture
def small(tmp_path):
    """The root of a small set."""
    folder = tmp_path / "PPI" / "raw"
    folder.mkdir(parents=True)
    first = 1
    for part, sizes in SIZES.items():
        write_part(folder, part, sizes, first, directed=part != "valid")
        first += len(sizes)
    return tmp_path


def assert_equal_to_pyg(graphs, expected):
    for data, other in zip(graphs, expected, strict=True):
        assert torch.equal(data.x, other.x)
        assert torch.equal(data.y, other.y)
        assert data.y.dtype == data.x.dtype == torch.float32
        pairs = data.edge_index.t().tolist()
        assert sorted(pairs) == sorted(other.edge_index.t().tolist())
        assert pairs == sorted(pairs)


# -------------------------------------------------------------------------------------------------- what is read
@pytest.mark.parametrize(("part", "name"), [(0, "train"), (1, "val"), (2, "test")])
def test_small_set_is_what_pyg_reads(small, part, name, tmp_path_factory):
    dataset = read(small)
    root = shutil.copytree(small / "PPI", tmp_path_factory.mktemp("pyg") / "PPI")
    assert_equal_to_pyg([data for data in dataset if data.part == part], PPI(str(root), name))


def test_small_set(small):
    dataset = read(small)
    assert dataset.graph_sizes == [5, 3, 4, 3, 2]
    assert [data.part.tolist() for data in dataset] == [[0], [0], [1], [2], [2]]
    assert dataset.facts.class_names == ("0", "1", "2", "3")
    assert "gene" not in dataset[0]


def test_genes(small):
    for part, sizes in SIZES.items():
        np.save(small / "PPI" / "raw" / f"{part}_entrez.npy", 100 + np.arange(sum(sizes)))
    dataset = read(small)
    assert [data.gene.tolist() for data in dataset][1:3] == [[105, 106, 107], [100, 101, 102, 103]]
    assert dataset[0].gene.dtype == torch.int64


def write_class_names(root, *rows):
    path = root / "label_columns.tsv"
    path.write_text("\n".join(["column\tgo_id", *rows]))
    return path


def test_class_names(small):
    write_class_names(small / "PPI", "0\tGO:7", "1\tGO:5", "2\tGO:9\tmore", "3\tGO:1")
    assert read(small).facts.class_names == ("GO:7", "GO:5", "GO:9", "GO:1")


@pytest.mark.parametrize(
    "rows",
    [
        ["0\ta", "1\tb", "2\tc"],
        ["0\ta", "1\tb", "2\tc", "3\td", "4\te"],
        ["0\ta", "2\tb", "1\tc", "3\td"],
        ["0\ta", "1\tb", "2\tc", "3"],
        ["0\ta", "1\tb", "2\tc", "3\ta"],
        ["0\ta", "1\tb", "", "2\tc", "3\td"],
    ],
)
def test_bad_class_names(small, rows):
    with refused(write_class_names(small / "PPI", *rows), "each of the 4 classes"):
        read(small)


def test_survives_the_store(small, tmp_path):
    dataset = read(small)
    dataset.facts = replace(dataset.facts, qualifier="drawn labels")
    store.save(dataset, tmp_path / "small.safetensors")
    again = store.open_file(tmp_path / "small.safetensors")
    assert all(torch.equal(a.edge_index, b.edge_index) for a, b in zip(again, dataset, strict=True))
    assert [int(data.part) for data in again] == [0, 0, 1, 2, 2]
    assert repr(again).startswith("GraphDataset(PPI (drawn labels): 5 graphs")


# ------------------------------------------------------------------------------------------------------ real data
@pytest.fixture(scope="module")
def real(data_root):
    return read(data_root, "PPI-GO")


def test_counts(real):
    assert facts_of(real) == (24, 56_944, 793_632, 50, 112)
    assert [data.part.tolist() for data in real] == [[0]] * 20 + [[1]] * 2 + [[2]] * 2
    parts = [range(20), range(20, 22), range(22, 24)]
    assert [sum(real.graph_sizes[graph] for graph in part) for part in parts] == [44_906, 6_514, 5_524]
    assert 0.29 < real.labels().mean() < 0.30
    train, _, test = ([gene for graph in part for gene in real[graph].gene.tolist()] for part in parts)
    known = set(train)
    assert sum(gene in known for gene in test) == 5_490


def test_real_graphs_are_undirected(real):
    for data in real:
        n = data.num_nodes
        forth, back = data.edge_index[0] * n + data.edge_index[1], data.edge_index[1] * n + data.edge_index[0]
        assert torch.equal(forth, back.sort().values)


def test_real_test_graphs_are_what_pyg_reads(real, small, data_root):
    """The other parts are small ones here: PyG takes a while for the real ones."""
    root = small / "PPI"
    for path in root.glob("raw/test_*"):
        path.unlink()
        path.symlink_to(data_root / "PPI-GO" / "raw" / path.name)
    assert_equal_to_pyg([real[22], real[23]], PPI(str(root), "test"))


@pytest.fixture(scope="module")
def reconstructed(data_root):
    card = find("PPI-121")
    if card.missing(data_root):
        pytest.skip(f"PPI-121 is not in {data_root}")
    return ppi(card, data_root)


def test_reconstructed_labels(reconstructed):
    """The figures of the benchmark, as far as they were reconstructed: 2,102,769 positives in all, there."""
    assert facts_of(reconstructed) == (24, 56_944, 793_632, 50, 121)
    assert "reconstructed labels" in repr(reconstructed)
    y, part = reconstructed.labels(), of_rows(reconstructed, "part")
    assert [int(y[part == number].sum()) for number in range(3)] == [1_671_061, 232_263, 200_173]
    assert len(torch.unique(y, dim=1).t()) == 118
    names = reconstructed.facts.class_names
    assert len(set(names)) == 121
    assert names[0] == "GO:0050789"
    assert names[-1] == "GO:0051252"


@pytest.mark.parametrize(("part", "score"), [(1, 0.99369), (2, 0.99718)])
def test_genes_alone_tell_the_reconstructed_labels(reconstructed, part, score):
    """All rows of a gene have the same labels; a gene that is not in the training graphs gets none."""
    y, gene, of_row = (of_rows(reconstructed, name).numpy() for name in ("y", "gene", "part"))
    labels = dict(zip(gene[of_row == 0].tolist(), y[of_row == 0], strict=True))
    assert all((labels[each] == row).all() for each, row in zip(gene[of_row == 0].tolist(), y, strict=False))
    wanted = y[of_row == part]
    guessed = np.stack([labels.get(each, np.zeros(121)) for each in gene[of_row == part].tolist()])
    f1 = 2 * (guessed * wanted).sum() / (guessed.sum() + wanted.sum())
    assert f1 == pytest.approx(score, abs=5e-6)


def of_rows(dataset, name):
    values = dataset._all(name)
    return values.repeat_interleave(torch.tensor(dataset.graph_sizes)) if name == "part" else values


# ------------------------------------------------------------------------------------------------------- refused
def links(*pairs):
    return json.dumps({"links": [dict(zip(("source", "target"), pair, strict=False)) for pair in pairs]})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["Empty"]),
        (links((0, 1))[:-2], ["cannot be read"]),
        ("[1, 2]", ["cannot be read"]),
        ("{}", ["the list `links`"]),
        (links((0,)), ["a link lacks"]),
        (links((0, 1), (0, "x")), ["cannot be read"]),
        (links((0, 1), (0, 1.5)), ["cannot be read", "1.5"]),
        (links((0, 1), (-1, 0)), ["link 2 ", "nodes 0 to 7", "-1 and 0"]),
        (links((0, 1), (0, 8)), ["link 2 ", "nodes 0 to 7", "0 and 8"]),
        (links((0, 1), (4, 5)), ["link 2 ", "graphs 1 and 2"]),
    ],
)
def test_bad_links(small, text, parts):
    path = small / "PPI" / "raw" / "train_graph.json"
    path.write_text(text)
    with refused(path, *parts):
        read(small)


def changed(array, position, value):
    array = array.astype(float)
    array[position] = value
    return array


@pytest.mark.parametrize(
    ("kind", "change", "parts"),
    [
        ("feats", lambda x: x[:-1], ["8 nodes", "has 7"]),
        ("feats", lambda x: x[:, 0], ["2 dimensions", "has 1"]),
        ("feats", lambda x: x.astype(str), ["of numbers"]),
        ("feats", lambda x: x.astype(object), ["pickle"]),
        ("feats", lambda x: changed(x, (3, 1), np.nan), ["row 4, column 2 ", "nan"]),
        ("labels", lambda y: y[:-1], ["8 nodes", "has 7"]),
        ("labels", lambda y: changed(y, (2, 3), 2), ["row 3, column 4 ", "0 or 1", "holds 2"]),
        ("labels", lambda y: changed(y, (2, 3), np.nan), ["row 3, column 4 ", "nan"]),
        ("graph_id", lambda graph: graph[::-1], ["row 4 ", "graph 2 or 3", "names 1"]),
        ("graph_id", lambda graph: 2 * graph, ["row 6 ", "graph 2 or 3", "names 4"]),
        ("graph_id", lambda graph: graph[:0], ["empty"]),
        ("graph_id", lambda graph: graph.astype(float), ["whole numbers"]),
    ],
)
def test_bad_arrays(small, kind, change, parts):
    path = small / "PPI" / "raw" / f"train_{kind}.npy"
    np.save(path, change(np.load(path)), allow_pickle=True)
    with refused(path, *parts):
        read(small)


def test_parts_of_different_width(small):
    path = small / "PPI" / "raw" / "test_labels.npy"
    np.save(path, np.load(path)[:, :2])
    with refused("columns of y", "4, 4, 2"):
        read(small)


@pytest.mark.parametrize("size", [0, 5, 150])
def test_truncated_array(small, size):
    path = small / "PPI" / "raw" / "train_feats.npy"
    path.write_bytes(path.read_bytes()[:size])
    with refused(path):
        read(small)


@pytest.mark.parametrize("name", ["train_graph.json", "valid_feats.npy", "test_labels.npy", "test_graph_id.npy"])
def test_missing(small, name):
    path = small / "PPI" / "raw" / name
    path.unlink()
    with refused(path, "missing"):
        read(small)
