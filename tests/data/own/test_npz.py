"""Graphs in npz files: names that are known, what is refused, and that nothing is ever unpickled."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from pprgnn.data import DataError, from_npz

from .drawn import edges_of

PAIRS = np.array([[0, 1], [1, 2]])
BOTH = dict.fromkeys([(0, 1), (1, 0), (1, 2), (2, 1)], 1.0)


class Bomb:
    """Would leave a trace if it were ever unpickled."""

    exploded = False

    def __reduce__(self):
        return setattr, (Bomb, "exploded", True)


@pytest.fixture
def npz(tmp_path):
    def save(**arrays):
        np.savez(tmp_path / "my.npz", **arrays)
        return tmp_path / "my.npz"

    return save


@pytest.mark.parametrize("name", ["edges", "edge_index", "edge_list"])
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, ">i4"])
def test_edges_in_either_shape(npz, name, kind):
    pairs = np.array([[0, 1], [1, 2], [2, 1]], dtype=kind)
    for edges in (pairs, pairs.T):
        dataset = from_npz(npz(**{name: edges}))
        assert edges_of(dataset) == BOTH
        assert dataset.facts.name == "my"


def test_two_edges_are_read_by_their_name(npz):
    square = np.array([[0, 1], [2, 2]])
    assert edges_of(from_npz(npz(edges=square), directed=True)) == {(0, 1): 1.0, (2, 2): 1.0}
    assert edges_of(from_npz(npz(edge_index=square), directed=True)) == {(0, 2): 1.0, (1, 2): 1.0}


def test_direction_is_kept_if_asked_for(npz):
    dataset = from_npz(npz(edges=PAIRS), directed=True)
    assert edges_of(dataset) == {(0, 1): 1.0, (1, 2): 1.0}
    assert dataset.facts.directed


def test_features_labels_and_masks(npz):
    masks = np.array([[1, 0, 0, 0], [0, 1, 0, 0]], dtype=bool)  # one row per split
    arrays = {"edges": PAIRS, "x": np.ones((4, 2), ">f8"), "labels": np.array([0, 1, -1, 1]), "train_masks": masks}
    dataset = from_npz(npz(**arrays))
    data = dataset._data
    assert (data.num_nodes, data.x.shape, data.y.tolist()) == (4, (4, 2), [0, 1, -1, 1])
    assert data.train_mask.tolist() == masks.T.tolist()


def test_labels_may_be_text(npz):
    dataset = from_npz(npz(edges=PAIRS, labels=np.array(["b", "a", "b"])))
    assert (dataset.facts.class_names, dataset._data.y.tolist()) == (("a", "b"), [1, 0, 1])


def test_a_graph_without_edges(npz):
    assert from_npz(npz(edges=np.empty((0, 2), dtype=int), x=np.ones((3, 1)))).num_nodes == 3


@pytest.mark.parametrize("save", [lambda path, matrix: sp.save_npz(path, matrix.tocoo()), sp.save_npz])
def test_a_scipy_matrix_is_what_it_is(tmp_path, save):
    save(tmp_path / "my.npz", sp.csr_matrix(np.array([[0, 2], [0, 0]])))
    dataset = from_npz(tmp_path / "my.npz")
    assert edges_of(dataset) == {(0, 1): 2.0}
    assert dataset.facts.directed


def shchur(**changed):
    """The names of Shchur et al. (2018), with pickled names of nodes as their files have them."""
    adj = sp.csr_matrix(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=np.float32))
    attr = sp.csr_matrix(np.array([[1, 0], [0, 0], [1, 1]], dtype=np.float32))
    arrays = {"labels": np.array([0, 1, 0]), "node_names": np.array([Bomb(), None], dtype=object)}
    for prefix, matrix in (("adj", adj), ("attr", attr)):
        for part in ("data", "indices", "indptr", "shape"):
            arrays[f"{prefix}_{part}"] = np.array(getattr(matrix, part))
    return arrays | changed


def test_sparse_features_beside_a_list_of_edges(npz):
    arrays = {name: array for name, array in shchur().items() if not name.startswith("adj")}
    dataset = from_npz(npz(edges=np.array([[0, 1]]), **arrays))
    assert (dataset.num_nodes, dataset.num_features) == (3, 2)


def test_the_names_of_shchur(npz):
    dataset = from_npz(npz(**shchur()))
    assert edges_of(dataset) == BOTH
    assert dataset._data.x.tolist() == [[1, 0], [0, 0], [1, 1]]
    assert dataset._data.y.tolist() == [0, 1, 0]
    assert not Bomb.exploded
    weighted = from_npz(npz(**shchur(adj_data=np.array([2.0, 3.0]))))
    assert edges_of(weighted) == {(0, 1): 2.0, (1, 0): 2.0, (1, 2): 3.0, (2, 1): 3.0}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"foo": PAIRS},
            "my.npz has no edges: expected one of edges, edge_index, edge_list or a SciPy matrix, .* holds foo",
        ),
        ({"edges": PAIRS * 1.0}, "edges must be whole numbers in shape .* but are float64"),
        ({"edges": np.arange(4)}, r"edges must be whole numbers in shape .* in shape \(4,\)"),
        ({"edges": np.ones((3, 3), dtype=int)}, r"in shape \(3, 3\)"),
        ({"edges": PAIRS - 1}, "my.npz: edge_index must name nodes 0 ... 1, but names -1 to 1"),
        ({"edges": PAIRS, "x": np.ones((2, 1))}, "my.npz: edge_index must name nodes 0 ... 1, but names 0 to 2"),
        (
            {"edges": PAIRS, "x": np.ones((3, 1)), "y": np.zeros(2, dtype=int)},
            r"my: y must have one row per node \(3\)",
        ),
        ({"edges": PAIRS, "x": np.full((3, 1), np.nan)}, r"features must be finite, but x\[0, 0\] is nan"),
        ({"edges": PAIRS, "x": np.array([["a"]] * 3)}, "x must hold numbers, but holds <U1"),
        ({"edges": PAIRS, "x": np.ones(3)}, "x must have shape"),
        ({"edges": PAIRS, "x": np.ones(())}, "x must have shape"),
        ({"edges": PAIRS, "train_mask": np.ones(())}, r"train_mask must have 3 rows, but has shape \(\)"),
        ({"edges": np.array([[0, Bomb()]], dtype=object)}, "holds pickled objects, which can run code"),
        (
            {"edges": PAIRS, "x": np.array([[Bomb()]] * 3, dtype=object)},
            "holds pickled objects, which can run code",
        ),
        ({"format": np.array(Bomb(), dtype=object), "shape": np.array([2, 2])}, "holds pickled objects"),
        ({"format": np.array(b"csr"), "shape": np.array([2, 2])}, "must be a whole npz file of plain arrays, but"),
        (
            shchur(adj_indices=np.array([7, 8])),
            "must be a whole npz file of plain arrays, but cannot be used: ind",
        ),
        (shchur(adj_data=np.array(Bomb(), dtype=object)), "holds pickled objects"),
    ],
)
def test_arrays_that_make_no_graph(npz, arrays, message):
    with pytest.raises(DataError, match=message):
        from_npz(npz(**arrays))
    assert not Bomb.exploded


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04junk", pickle.dumps({"edges": [[0, 1]]})])
def test_files_that_are_no_npz(tmp_path, content):
    (tmp_path / "my.npz").write_bytes(content)
    with pytest.raises(
        DataError, match=r"my.npz must be a whole npz file of plain arrays, but cannot be used: .*; save"
    ):
        from_npz(tmp_path / "my.npz")


def test_half_a_file_a_single_array_or_none(npz, tmp_path):
    path = npz(edges=np.arange(2000).reshape(1000, 2))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="must be a whole npz file"):
        from_npz(path)
    path.write_bytes(whole[:500] + b"\xff" * 100 + whole[600:])
    with pytest.raises(DataError, match="must be a whole npz file"):
        from_npz(path)
    np.save(tmp_path / "one.npy", PAIRS)
    with pytest.raises(DataError, match="must be an npz file of several arrays, but is a single one"):
        from_npz(tmp_path / "one.npy")
    with pytest.raises(DataError, match="does not exist"):
        from_npz(tmp_path / "none.npz")
