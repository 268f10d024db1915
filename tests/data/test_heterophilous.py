"""Heterophilous graphs: equal to PyG's own class, the published counts, and what is refused."""

import pickle

import numpy as np
import pytest
import torch
from torch_geometric.datasets import HeterophilousGraphDataset

from pprgnn.data.readers import heterophilous
from tests.data.cards import facts_of, make_card, refused

# Nodes, undirected edges, features, classes; nodes to train, validate and test in the first split.
COUNTS = {
    "minesweeper": ((1, 10_000, 39_402, 7, 2), (5_000, 2_500, 2_500)),
    "chameleon_filtered": ((1, 890, 8_854, 2_325, 5), (409, 287, 194)),
    "squirrel_filtered": ((1, 2_223, 46_998, 2_089, 5), (1_053, 718, 452)),
    "actor": ((1, 7_600, 26_659, 932, 5), (3_648, 2_432, 1_520)),
    "texas": ((1, 183, 279, 1_703, 5), (87, 59, 37)),
    "wisconsin": ((1, 251, 450, 1_703, 5), (120, 80, 51)),
    "cornell": ((1, 183, 277, 1_703, 5), (87, 59, 37)),
}
MASKS = ("train_mask", "val_mask", "test_mask")


def read_npz(path, name):
    return heterophilous(make_card(name, "heterophilous", folder=".", files=[path.name]), path.parent)


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name, data_root):
    card = make_card(name, "heterophilous", folder="heterophilous", files=[f"{name}.npz"], metric="ROC AUC")
    dataset = heterophilous(card, data_root)
    counts, parts = COUNTS[name]
    assert facts_of(dataset) == counts
    assert dataset.facts.metric == "ROC AUC"
    data = dataset[0]
    assert tuple(int(data[mask][:, 0].sum()) for mask in MASKS) == parts
    assert (sum(data[mask].int() for mask in MASKS) == 1).all()
    assert data.test_mask.shape == (counts[1], 10)


def test_pyg(data_root, tmp_path):
    raw = tmp_path / "minesweeper" / "raw"
    raw.mkdir(parents=True)
    (raw / "minesweeper.npz").symlink_to(data_root / "heterophilous" / "minesweeper.npz")
    expected = HeterophilousGraphDataset(str(tmp_path), "minesweeper")[0]
    found = read_npz(raw / "minesweeper.npz", "minesweeper")[0]
    assert set(found.keys()) == {*expected.keys(), "num_nodes"}
    for key in expected.keys():  # noqa: SIM118
        assert found[key].dtype == expected[key].dtype
        assert torch.equal(found[key], expected[key]), key


# -------------------------------------------------------------------------------------------------- a small graph
def arrays():
    part = np.arange(4) % 2 == 0
    return {
        "node_features": np.arange(8.0).reshape(4, 2),
        "node_labels": np.array([0, 2, -1, 1]),
        "edges": np.array([[0, 1], [1, 0], [2, 1], [2, 1]]),
        "train_masks": np.stack([part, ~part, part]),
        "val_masks": np.stack([~part, part, part]),
        "test_masks": np.stack([part, part, part]),
    }


@pytest.fixture
def small(tmp_path):
    def write(**changes):
        kept = {key: value for key, value in (arrays() | changes).items() if value is not None}
        np.savez_compressed(tmp_path / "small.npz", **kept)
        return tmp_path / "small.npz"

    return write


def test_by_hand(small):
    dataset = read_npz(small(), "mine")
    data = dataset[0]
    assert data.edge_index.t().tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert data.num_nodes == 4  # the last node is alone
    assert data.x.dtype == torch.float32
    assert data.train_mask[:, 1].tolist() == [False, True, False, True]
    assert dataset.labelled().tolist() == [True, True, False, True]
    assert dataset.facts.class_names == ("0", "1", "2")
    assert (dataset.facts.name, dataset.facts.metric) == ("mine", "accuracy")


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("node_features", np.array([[1, np.nan]] * 4), ["row 1, column 2 ", "nan"]),
        ("node_features", np.array([[1, 1e39]] * 4), ["row 1, column 2 ", "1e+39"]),
        ("node_features", np.array([[1, "x"]] * 4), ["2 dimensions of numbers or whole numbers", "2 of <U"]),
        ("node_features", np.ones(4), ["2 dimensions", "has 1"]),
        ("node_features", np.empty((0, 2)), ["at least one"]),
        ("node_features", np.array([[1, {}]] * 4, dtype=object), ["pickle", "run code"]),
        ("node_labels", np.arange(3), ["has 3 for 4"]),
        ("node_labels", np.array([0, 1, -2, 1]), ["row 3 ", "-2"]),
        ("node_labels", np.array([0.0, 1, 2, 1]), ["whole numbers"]),
        ("edges", np.array([[0, 1], [0, 4]]), ["edge 2 ", "nodes 0 to 3", "0 and 4"]),
        ("edges", np.array([[0, 1], [-1, 2]]), ["edge 2 ", "nodes 0 to 3", "-1 and 2"]),
        ("edges", np.array([[0, 1, 2]]), ["2 columns", "has 3"]),
        ("edges", np.array([[0.0, 1.0]]), ["whole numbers"]),
        ("val_masks", np.ones((3, 5), dtype=bool), ["val_masks", "3 rows", "4 columns", "3 x 5"]),
        ("test_masks", np.ones((2, 4), dtype=bool), ["test_masks", "3 rows", "2 x 4"]),
        ("train_masks", np.ones((3, 4)), ["train_masks", "truth values"]),
        ("edges", None, ["the array edges", "node_labels"]),
    ],
)
def test_refused(small, name, value, parts):
    path = small(**{name: value})
    with refused(path, *parts):
        read_npz(path, "mine")


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99])
def test_truncated(small, share):
    path = small()
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with refused(path):
        read_npz(path, "mine")


def test_damaged_inside(small):
    path = small()
    content = bytearray(path.read_bytes())
    for position in range(60, 160):
        content[position] ^= 0xFF
    path.write_bytes(content)
    with refused(path):
        read_npz(path, "mine")


def test_other_files(tmp_path):
    path = tmp_path / "other.npz"
    with refused(path, "missing"):
        read_npz(path, "mine")
    path.write_bytes(pickle.dumps([1, 2]))
    with refused(path, "pickle"):
        read_npz(path, "mine")
    with path.open("wb") as file:
        np.save(file, np.arange(3))
    with refused(path, "single array"):
        read_npz(path, "mine")
