"""A user's own graph from an npz file, without ever unpickling one."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from pprgnn.data.dataset import GraphDataset
from pprgnn.data.own.edges import merge_edges
from pprgnn.data.own.objects import checked_graph, features_of, from_pyg, from_scipy, tensor_of
from pprgnn.errors import DataError

# The names under which such files keep the parts of a graph.
EDGES = ("edges", "edge_index", "edge_list")
FEATURES = ("node_features", "features", "x", "attr_matrix")
LABELS = ("node_labels", "labels", "y")


def from_npz(path: Path | str, *, name: str | None = None, directed: bool = False) -> GraphDataset:
    """An npz file: edges, node features, labels and masks under their usual names, or a SciPy sparse matrix.

    The names that Shchur et al. (2018) use (``adj_data``, ``attr_data``, ...) are known, too. Edges are undirected
    unless ``directed=True``; a SciPy matrix is what it is.
    """
    path = Path(path)
    name = name or path.stem
    if not path.is_file():
        raise DataError(f"{path} does not exist; name an npz file.")
    with path.open("rb") as handle, _open_npz(handle, path) as file:  # numpy itself may leave a broken file open
        if {"format", "shape"} <= set(file.files):
            return from_scipy(_matrix(file, path, ""), name=name)
        data, class_names = _npz_graph(file, path)
    checked = checked_graph(data, path.name)
    if not directed:
        source, destination = checked.edge_index.numpy()
        weight = checked.edge_weight.numpy() if "edge_weight" in checked else None
        checked.edge_index, weight = merge_edges(source, destination, weight, checked.num_nodes, False, [])
        if weight is not None:
            checked.edge_weight = weight
    return from_pyg(checked, name=name, class_names=class_names)


def _npz_graph(file: Any, path: Path) -> tuple[Data, tuple[str, ...] | None]:
    x: Any = _matrix(file, path, "attr_") if "attr_indptr" in file.files else _array(file, path, FEATURES)
    y, class_names, data = _array(file, path, LABELS), None, Data()
    if y is not None and y.dtype.kind == "U":
        names, y = np.unique(y, return_inverse=True)
        class_names = tuple(names.tolist())
    if "adj_indptr" in file.files:
        coo = _matrix(file, path, "adj_").tocoo()
        pairs, data.num_nodes = np.stack([coo.row, coo.col]), coo.shape[0]
        if (coo.data != 1).any():
            data.edge_weight = tensor_of(coo.data, f"{path}: adj_data")
    else:
        pairs = _npz_pairs(file, path)
        named = int(pairs.max()) + 1 if pairs.size else 0
        data.num_nodes = next((each.shape[0] for each in (x, y) if each is not None and each.ndim), named)
    data.edge_index = torch.from_numpy(pairs.astype(np.int64))
    for key, value, read in (("x", x, features_of), ("y", y, tensor_of)):
        if value is not None:
            data[key] = read(value, f"{path}: {key}")
    for part in ("train", "val", "test"):
        mask = _array(file, path, (f"{part}_mask", f"{part}_masks"))
        if mask is not None:  # one row per split, or one column
            mask = mask.T if mask.ndim == 2 and len(mask) != data.num_nodes else mask
            data[f"{part}_mask"] = tensor_of(mask, f"{path}: {part}_mask")
    return data, class_names


def _npz_pairs(file: Any, path: Path) -> NDArray[Any]:
    edges = _array(file, path, EDGES)
    if edges is None:
        raise DataError(
            f"{path} has no edges: expected one of {', '.join(EDGES)} or a SciPy matrix, but it holds "
            f"{', '.join(file.files) or 'nothing'}."
        )
    if edges.ndim != 2 or 2 not in edges.shape or edges.dtype.kind not in "iu":
        raise DataError(
            f"{path}: edges must be whole numbers in shape (edges, 2) or (2, edges), but are {edges.dtype} in "
            f"shape {edges.shape}; save them so."
        )
    square = edges.shape == (2, 2) and "edge_index" in file.files
    return edges.T if edges.shape[1] == 2 and not square else edges


def _open_npz(handle: IO[bytes], path: Path) -> Any:
    try:
        file = np.load(handle, allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(_not_plain(path, error)) from error
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise DataError(f"{path} must be an npz file of several arrays, but is a single one; use numpy.savez.")
    return file


def _array(file: Any, path: Path, names: Sequence[str]) -> NDArray[Any] | None:
    """The first of these arrays that is there."""
    name = next((name for name in names if name in file.files), None)
    if name is None:
        return None
    try:
        array: NDArray[Any] = file[name]
    except (ValueError, OSError, EOFError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(_not_plain(path, error)) from error
    return array


def _matrix(file: Any, path: Path, prefix: str) -> Any:
    """A SciPy matrix as `scipy.sparse.save_npz` writes it, or with a prefix as Shchur et al. do."""
    import scipy.sparse as sp

    try:
        if not prefix:
            return sp.load_npz(path)  # never unpickles
        parts = (file[f"{prefix}data"], file[f"{prefix}indices"], file[f"{prefix}indptr"])
        matrix = sp.csr_array(parts, shape=tuple(file[f"{prefix}shape"].tolist()))
        matrix.check_format()
        return matrix
    except (ValueError, OSError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(_not_plain(path, error)) from error


def _not_plain(path: Path, error: Exception) -> str:
    pickled = "it is none, or holds pickled objects, which can run code"
    reason = pickled if "pickle" in str(error) else str(error)
    return f"{path} must be a whole npz file of plain arrays, but cannot be used: {reason}; save it again."
