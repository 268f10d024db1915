"""A user's own graph from an npz file, without ever unpickling one."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import scipy.sparse as sp
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
    with _plain(path), path.open("rb") as handle:  # by name, numpy may leave a broken file open
        file = np.load(handle, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise DataError(f"{path} must be an npz file of several arrays, but is a single one; use numpy.savez.")
        if {"format", "shape"} <= set(file.files):
            matrix: Any = sp.load_npz(path)  # never unpickles
            return from_scipy(matrix, name=name)
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
    x: Any = _matrix(file, "attr_") if "attr_indptr" in file.files else _array(file, FEATURES)
    y, class_names, data = _array(file, LABELS), None, Data()
    if y is not None and y.dtype.kind == "U":
        names, y = np.unique(y, return_inverse=True)
        class_names = tuple(names.tolist())
    if "adj_indptr" in file.files:
        coo = _matrix(file, "adj_").tocoo()
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
        mask = _array(file, (f"{part}_mask", f"{part}_masks"))
        if mask is not None:  # one row per split, or one column
            mask = mask.T if mask.ndim == 2 and len(mask) != data.num_nodes else mask
            data[f"{part}_mask"] = tensor_of(mask, f"{path}: {part}_mask")
    return data, class_names


def _npz_pairs(file: Any, path: Path) -> NDArray[Any]:
    edges = _array(file, EDGES)
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


def _array(file: Any, names: Sequence[str]) -> NDArray[Any] | None:
    """The first of these arrays that is there."""
    return next((file[name] for name in names if name in file.files), None)


def _matrix(file: Any, prefix: str) -> Any:
    """A SciPy matrix as Shchur et al. write it."""
    parts = (file[f"{prefix}data"], file[f"{prefix}indices"], file[f"{prefix}indptr"])
    matrix = sp.csr_array(parts, shape=tuple(file[f"{prefix}shape"].tolist()))
    matrix.check_format()
    return matrix


@contextmanager
def _plain(path: Path) -> Iterator[None]:
    """Say in one sentence what is wrong with a file that is damaged, or no such file, or holds pickles."""
    try:
        yield
    except DataError:
        raise
    except (ValueError, OSError, EOFError, KeyError, TypeError, MemoryError, BadZipFile, zlib.error) as error:
        pickled = "it is none, or holds pickled objects, which can run code"
        reason = pickled if "pickle" in str(error) else str(error)
        raise DataError(
            f"{path} must be a whole npz file of plain arrays, but cannot be used: {reason}; save it again."
        ) from error
