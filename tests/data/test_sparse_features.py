"""Wide features that are mostly zero: CSR where that pays, and each function as on the dense matrix."""

import copy
import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from safetensors.torch import load_file, save_file
from torch_geometric.data import Data

from pprgnn.data import DataError, Facts, GraphDataset, from_npz, from_pyg, from_scipy, open_file, save
from pprgnn.data import sparse_features as sparse
from pprgnn.data.store import FORMAT
from pprgnn.data.summary import summarise

WIDTH = sparse.WIDE + 6


def drawn(rows=30, columns=WIDTH, share=0.05, seed=0):
    """Dense, with empty rows and columns."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=draw) * (torch.rand(rows, columns, generator=draw) < share)
    x[::5], x[:, 3] = 0.0, 0.0
    return x


def dataset_of(x, **more):
    edges = torch.tensor([[0, 1], [1, 0]])
    return from_pyg(Data(x=x, edge_index=edges, y=torch.arange(len(x)) % 2, **more), name="wide")


# ----------------------------------------------------------------------------------------------------- what pays
@pytest.mark.parametrize("layout", ["to_dense", "to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
def test_any_layout_becomes_the_same(layout):
    x = drawn()
    found = sparse.compact(getattr(x, layout)())
    assert found.layout == torch.sparse_csr
    assert found.col_indices().dtype == torch.int32
    assert torch.equal(found.to_dense(), x)
    assert found.values().numel() == int(x.count_nonzero())


@pytest.mark.parametrize("layout", ["to_dense", "to_sparse_coo", "to_sparse_csr"])
@pytest.mark.parametrize("x", [drawn(columns=sparse.WIDE - 1), drawn(share=0.3), torch.ones(3, WIDTH)])
def test_narrow_or_full_ones_are_dense(x, layout):
    found = sparse.compact(getattr(x, layout)())
    assert found.layout == torch.strided
    assert torch.equal(found, x)


def test_dense_ones_are_not_copied():
    x = torch.ones(3, WIDTH)
    assert sparse.compact(x) is x


def test_stored_zeros_and_repeated_entries_are_no_entries():
    place = torch.tensor([[0, 0, 1], [2, 2, 5]])
    found = sparse.compact(torch.sparse_coo_tensor(place, torch.tensor([1.0, 2.0, 0.0]), (9, WIDTH)))
    assert found.values().tolist() == [3.0]
    twice = sp.coo_array(([1.0, 2.0, 0.0], place.numpy()), shape=(9, WIDTH))
    assert torch.equal(sparse.from_scipy(twice).to_dense(), found.to_dense())
    assert sparse.from_scipy(twice).values().tolist() == [3.0]


@pytest.mark.parametrize("x", [torch.zeros(4, WIDTH), torch.zeros(1, WIDTH)])
def test_zeros_alone(x, tmp_path):
    dataset = dataset_of(x, num_nodes=len(x)) if len(x) > 1 else from_pyg(
        Data(x=x, edge_index=torch.zeros(2, 0).long(), num_nodes=1)
    )  # fmt: skip
    assert sparse.is_sparse(dataset._data.x)
    save(dataset, tmp_path / "zeros.safetensors")
    assert torch.equal(open_file(tmp_path / "zeros.safetensors")._data.x.to_dense(), x)


# ------------------------------------------------------------------------------------- as on the dense matrix
ROWS = [
    slice(None), slice(3, 9), slice(9, 3), slice(0), slice(None, None, 2), slice(-4, None), slice(20, 5, -3),
    torch.tensor([5, 5, -1, 0]), torch.tensor([], dtype=torch.long), torch.arange(30) % 3 == 0,
    torch.tensor([7, 1], dtype=torch.int32),
]  # fmt: skip


@pytest.mark.parametrize("index", ROWS, ids=str)
def test_rows(index):
    x = drawn()
    expected = x.numpy()[index if isinstance(index, slice) else index.numpy()]
    assert np.array_equal(sparse.take_rows(sparse.compact(x), index).to_dense(), expected)


def test_all_rows_are_the_matrix_itself():
    x = sparse.compact(drawn())
    assert sparse.take_rows(x, slice(0, len(x))) is x


@pytest.mark.parametrize("size", [1, 7, 30, 100])
def test_functions_of_rows(size):
    x = drawn()
    found = sparse.compact(x)
    assert torch.equal(torch.cat([part.to_dense() for part in sparse.split_rows(found, size)]), x)
    assert torch.allclose(sparse.row_norms(found, 1), sparse.row_norms(x, 1))
    assert torch.allclose(sparse.row_norms(found, 2), sparse.row_norms(x, 2))
    assert torch.allclose(sparse.normalize_rows(found).to_dense(), sparse.normalize_rows(x))


def test_columns_beside_and_hidden():
    x, more = drawn(), drawn(columns=4, share=0.5, seed=1)
    both = sparse.beside(sparse.compact(x), more)
    assert torch.equal(both.to_dense(), sparse.beside(x, more))
    for hidden in (torch.tensor([1, 4, 29]), slice(None)):
        expected = sparse.hide_columns(torch.cat([x, more], dim=1), hidden, WIDTH)
        assert torch.equal(sparse.hide_columns(both, hidden, WIDTH).to_dense(), expected)
    assert torch.equal(both.to_dense()[:, WIDTH:], more)  # as it was


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_found(wrong):
    x = drawn()
    assert sparse.not_finite(x) is sparse.not_finite(sparse.compact(x)) is None
    x[7, 11] = wrong
    for each in (x, sparse.compact(x)):
        row, column, value = sparse.not_finite(each)
        assert (row, column, str(value)) == (7, 11, str(wrong))
    with pytest.raises(DataError, match=r"features must be finite, but x\[7, 11\] is (nan|inf|-inf); fill"):
        dataset_of(sparse.compact(x))


def test_large_sums_are_no_infinite_entries():
    assert sparse.not_finite(torch.full((2, 2), 3e38)) is None


# ------------------------------------------------------------------------------------------------------- data sets
def npz_parts(prefix, matrix):
    return {f"{prefix}_{key}": getattr(matrix, key) for key in ("data", "indices", "indptr", "shape")}


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.bool_])
def test_import_keeps_them_sparse(tmp_path, dtype):
    x = sp.csr_array((drawn().numpy() > 0).astype(dtype))
    np.savez(tmp_path / "wide.npz", **npz_parts("attr", x), edges=np.array([[0, 1]]))
    edges = sp.csr_array(([1.0], ([0], [1])), shape=(30, 30))
    for dataset in (from_npz(tmp_path / "wide.npz"), from_scipy(edges, x)):
        assert sparse.is_sparse(dataset._data.x)
        assert np.array_equal(dataset._data.x.to_dense(), x.toarray().astype(np.float32))
        assert dataset.num_features == summarise(dataset).features == WIDTH
    with pytest.raises(DataError, match="must hold numbers, but holds complex128"):
        from_scipy(edges, x.astype(complex))


def test_narrow_scipy_features_are_dense():
    x = sp.csr_array(np.eye(5))
    assert torch.equal(from_scipy(sp.eye_array(5), x)[0].x, torch.eye(5))


def test_file_is_small_and_the_same_comes_back(tmp_path):
    matrix = sp.random_array((3_000, 4_000), density=0.01, format="csr", dtype=np.float32, rng=0)
    dataset = from_scipy(sp.eye_array(3_000), matrix)
    save(dataset, tmp_path / "wide.safetensors")
    assert (tmp_path / "wide.safetensors").stat().st_size < 0.1 * 3_000 * 4_000 * 4
    held = sum(each.nbytes for each in sparse.tensors_of(dataset._data.x).values())
    assert held < 0.1 * 3_000 * 4_000 * 4
    again = open_file(tmp_path / "wide.safetensors")
    for one, other in zip(*(sparse.tensors_of(each._data.x).values() for each in (dataset, again)), strict=True):
        assert torch.equal(one, other)


def test_files_from_before_are_read_as_they_are(tmp_path):
    dataset = dataset_of(drawn())
    dataset._data.x = dataset._data.x.to_dense()
    save(dataset, tmp_path / "old.safetensors")
    old = {"format": "pprgnn graphs, version 1", "facts": dataset.facts.to_json()}
    save_file(load_file(tmp_path / "old.safetensors"), tmp_path / "old.safetensors", old)
    assert torch.equal(open_file(tmp_path / "old.safetensors")[0].x, drawn())


def damaged(tensors, name):
    return {
        "a column too far": lambda: tensors["x.col"].__setitem__(3, WIDTH),
        "a negative column": lambda: tensors["x.col"].__setitem__(3, -1),
        "rows that go back": lambda: tensors["x.crow"].__setitem__(3, 10_000),
        "rows that end early": lambda: tensors["x.crow"].__setitem__(-1, 1),
        "no start": lambda: tensors["x.crow"].__setitem__(0, 1),
        "no rows": lambda: tensors.update({"x.crow": tensors["x.crow"][:0]}),
        "fewer values": lambda: tensors.update({"x.value": tensors["x.value"][1:].clone()}),
        "a matrix": lambda: tensors.update({"x.col": tensors["x.col"].unsqueeze(0)}),
        "other numbers": lambda: tensors.update({"x.value": tensors["x.value"].long()}),
        "no width": lambda: tensors.pop("x.width"),
        "several widths": lambda: tensors.update({"x.width": torch.tensor([70, 70])}),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "a column too far", "a negative column", "rows that go back", "rows that end early", "no start", "no rows",
        "fewer values", "a matrix", "other numbers", "no width", "several widths",
    ],
)  # fmt: skip
def test_damaged_files_are_refused(tmp_path, name):
    dataset, path = dataset_of(drawn()), tmp_path / "wide.safetensors"
    save(dataset, path)
    tensors = load_file(path)
    damaged(tensors, name)()
    save_file(tensors, path, {"format": FORMAT, "facts": dataset.facts.to_json()})
    with pytest.raises(DataError, match=r"is damaged .*; make it again"):
        open_file(path)


def test_several_graphs_stay_dense():
    graphs = [
        Data(x=drawn(seed=seed), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0])) for seed in (0, 1)
    ]
    graphs[1].x = graphs[1].x.to_sparse_csr()
    dataset = from_pyg(graphs)
    assert torch.equal(dataset._all("x"), torch.cat([drawn(seed=0), drawn(seed=1)]))


def test_copies_and_parts_of_a_set():
    dataset = dataset_of(drawn())
    for same in (dataset.copy(), copy.deepcopy(dataset), dataset[:1], dataset[:1].copy(), dataset.shuffle()):
        assert torch.equal(same._all("x").to_dense(), drawn())
    assert copy.deepcopy(dataset)._data.x.values().data_ptr() != dataset._data.x.values().data_ptr()
    assert dataset[:0]._all("x").shape == (0, WIDTH)
    assert torch.equal(dataset[[0, 0]]._all("x"), torch.cat([drawn(), drawn()]))
    assert torch.equal(dataset.copy([0, 0])._all("x"), torch.cat([drawn(), drawn()]))
    assert dataset.copy([0, 0])[1].x.shape == (30, WIDTH)


def test_features_are_not_needed():
    facts = Facts("bare", "node", False, "accuracy", ("a",))
    graph = Data(edge_index=torch.zeros(2, 0).long(), num_nodes=3)
    assert GraphDataset.from_graphs([graph], facts)[0].x is None
    assert copy.deepcopy(GraphDataset.from_graphs([graph], facts)).num_nodes == 3


def test_a_graph_that_is_taken_out_is_dense_as_pyg_expects_unless_that_is_too_large(monkeypatch):
    x = drawn()
    graph = Data(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.zeros(len(x), dtype=torch.long))
    dataset = GraphDataset.from_graphs([graph], Facts("wide", "node", False, "accuracy", ("a",)))
    assert sparse.is_sparse(dataset._data.x)
    assert torch.equal(dataset[0].x, x)
    assert sparse.is_sparse(dataset._data.x)  # it has not changed
    monkeypatch.setattr("pprgnn.data.dataset.DENSE_VIEW", x.numel() - 1)
    assert sparse.is_sparse(dataset[0].x)
