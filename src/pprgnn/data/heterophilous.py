"""Heterophilous graphs: one .npz file each, with ten published splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from pprgnn.data.catalog import Card, Metric
from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.raw_files import check_edges, finite_floats, read_arrays
from pprgnn.errors import DataError

MASKS = {"train_mask": "train_masks", "val_mask": "val_masks", "test_mask": "test_masks"}
ARRAYS = {"node_features": (2, "fiu"), "node_labels": (1, "iu"), "edges": (2, "iu")}
ARRAYS |= dict.fromkeys(MASKS.values(), (2, "b"))


def read(card: Card, root: Path) -> GraphDataset:
    """The graph as PyG's `HeterophilousGraphDataset` reads it; masks have one column per split."""
    paths = card.paths(root)
    if len(paths) != 1:
        raise DataError(f"The card of {card.name} must name one .npz file, but names {len(paths)}.")
    return read_npz(paths[0], card.name, metric=card.metric, note=card.note)


def read_npz(path: Path, name: str, *, metric: Metric = "accuracy", note: str = "") -> GraphDataset:
    """A graph from a file of this format: features, one class per node, edges, and masks (splits × nodes)."""
    arrays = read_arrays(path, ARRAYS)
    x, y, edges = (arrays[key] for key in ("node_features", "node_labels", "edges"))
    x = finite_floats(f"{path}, array node_features", x)
    _check_labels(path, y, len(x))
    if edges.shape[1] != 2:
        raise DataError(
            f"{path}, array edges must have 2 columns, but has {edges.shape[1]}; fetch the file again."
        )
    check_edges(path, "edge", edges, len(x))
    for key in MASKS.values():
        if arrays[key].shape != (len(arrays["train_masks"]), len(x)):
            raise DataError(
                f"{path}, array {key} must have {len(arrays['train_masks'])} rows (as train_masks) and {len(x)} "
                f"columns (one per node), but has {' x '.join(map(str, arrays[key].shape))}; fetch the file again."
            )
    data = Data(
        x=torch.from_numpy(x),
        y=torch.from_numpy(y.astype(np.int64, copy=False)),
        edge_index=to_undirected(torch.from_numpy(edges.astype(np.int64).T), num_nodes=len(x)),
        **{key: torch.from_numpy(arrays[stored].T).contiguous() for key, stored in MASKS.items()},
    )
    names = tuple(str(number) for number in range(int(y.max()) + 1))
    return GraphDataset.from_graphs([data], Facts(name, "node", False, metric, names, note=note))


def _check_labels(path: Path, y: NDArray[Any], nodes: int) -> None:
    if len(y) != nodes or nodes == 0:
        raise DataError(
            f"{path}, array node_labels must have one class for each row of node_features, at least one, but "
            f"has {len(y)} for {nodes}; fetch the file again."
        )
    if y.min() < -1:
        raise DataError(
            f"{path}, array node_labels, row {int(y.argmin()) + 1} must hold a class from 0 on, or -1 for none, "
            f"but holds {y.min()}; number the classes from 0."
        )
