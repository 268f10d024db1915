"""Data sets from their published files: one function for each family, named as in the catalogue.

Nothing is unpickled but Planetoid's files, and those only when they are the published ones byte by byte.
"""

from __future__ import annotations

import itertools
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.io import read_planetoid_data
from torch_geometric.utils import coalesce, one_hot, remove_self_loops, to_undirected

from pprgnn.data.catalog import TU_EXTRA, TU_FILES, Card
from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.download import check_file
from pprgnn.data.raw_files import (
    check_edges,
    check_length,
    checked_array,
    distinct,
    existing,
    finite_floats,
    graph_of_nodes,
    number_ids,
    open_bytes,
    plain_arrays,
    read_links,
    read_numbers,
    undirected,
)
from pprgnn.data.roots import bundled_folder
from pprgnn.errors import DataError

MOST_ENTRIES = 2**30  # of a one-hot matrix: 4 GiB
PPI_PARTS = ("train", "valid", "test")  # `part` is the position in this
MIN_MEMBERS = {"com-Amazon": 5000, "com-DBLP": 2000}  # the communities that are classes
MASKS = {"train_mask": "train_masks", "val_mask": "val_masks", "test_mask": "test_masks"}
# In the order of their numbers, which the sizes of the classes tell; the files themselves name none.
PLANETOID_CLASSES = {
    "Cora": (
        "Theory",
        "Reinforcement Learning",
        "Genetic Algorithms",
        "Neural Networks",
        "Probabilistic Methods",
        "Case Based",
        "Rule Learning",
    ),
    "CiteSeer": ("AI", "ML", "IR", "DB", "Agents", "HCI"),
}


def _facts(card: Card, names: tuple[str, ...]) -> Facts:
    return Facts(
        card.name, card.task, card.multi_label, card.metric, names, note=card.note, qualifier=card.qualifier
    )


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(count))


# ------------------------------------------------------------------------------------------------- TU collection
def tu(card: Card, root: Path, *, node_attributes: bool = False) -> GraphDataset:
    """The graphs as PyG's `TUDataset` reads them; ``node_attributes`` go in front of the one-hot node labels."""
    folder = root / card.name / "raw"
    if not (folder / f"{card.name}_A.txt").is_file():
        folder = bundled_folder(card.name) or folder
    paths = {kind: folder / f"{card.name}_{kind}.txt" for kind in (*TU_FILES, *TU_EXTRA)}
    indicator = paths["graph_indicator"]
    graph = graph_of_nodes(indicator, "line", read_numbers(indicator, 1, np.int64)[:, 0], first=1)
    labels = paths["graph_labels"]
    if not labels.is_file() and paths["graph_attributes"].is_file():
        raise DataError(
            f"{labels} is missing: {card.name} has numbers to predict ({paths['graph_attributes'].name}) "
            f"instead of classes, which is not supported; choose a data set with classes."
        )
    found = read_numbers(labels, 1, np.int64)
    check_length(labels, len(found), int(graph[-1]) + 1, "graphs")
    classes, y = np.unique(found[:, 0], return_inverse=True)
    edges = read_numbers(paths["A"], 2, np.int64)
    check_edges(paths["A"], "line", edges, graph, first=1)
    edges -= 1

    x = _one_hot(paths["node_labels"], len(graph), "nodes")
    if node_attributes:
        path = paths["node_attributes"]
        if not path.is_file():
            raise DataError(f"{path} is missing: {card.name} has no node attributes; load it without them.")
        numbers = read_numbers(path, None, np.float64)
        check_length(path, len(numbers), len(graph), "nodes")
        attributes = torch.from_numpy(finite_floats(str(path), numbers))
        x = attributes if x is None else torch.cat([attributes, x], dim=1)
    edge_labels = _one_hot(paths["edge_labels"], len(edges), "edges")
    edge_index, edge_attr = remove_self_loops(torch.from_numpy(edges).t(), edge_labels)
    edge_index, edge_attr = coalesce(edge_index, edge_attr, len(graph))
    return GraphDataset.from_parts(
        _facts(card, tuple(str(value) for value in classes)),
        torch.from_numpy(np.bincount(graph)),
        edge_index,
        per_node={} if x is None else {"x": x},
        per_edge={} if edge_attr is None else {"edge_attr": edge_attr},
        per_graph={"y": torch.from_numpy(y)},
    )


def _one_hot(path: Path, rows: int, per: str) -> Tensor | None:
    """One-hot labels, column after column, from the smallest value to the largest; None when there is no file."""
    if not path.is_file():
        return None
    labels = read_numbers(path, None, np.int64)
    check_length(path, len(labels), rows, per)
    if rows * sum(int(column.max()) - int(column.min()) for column in labels.T) > MOST_ENTRIES:
        raise DataError(
            f"{path} must hold labels from a small range to be written one-hot, but they go from {labels.min()} "
            f"to {labels.max()}; number them from 0."
        )
    columns = [one_hot(torch.from_numpy(column - column.min())) for column in labels.T]
    return columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)  # cat would copy the one


# ---------------------------------------------------------------------------------------------------------- PPI
def ppi(card: Card, root: Path) -> GraphDataset:
    """The graphs of all three parts in turn; `part` tells that of each graph, `gene` the protein of each node."""
    folder = root / card.name / "raw"
    parts = [_ppi_part(folder, name) for name in PPI_PARTS]
    for key in ("x", "y"):
        widths = [part[key].shape[1] for part in parts]
        if len(set(widths)) > 1:
            raise DataError(
                f"{folder} must have files with as many columns of {key} in each part, but they have "
                f"{', '.join(map(str, widths))} in {', '.join(PPI_PARTS)}; fetch the data set again."
            )
    sizes = [np.bincount(part["graph"]) for part in parts]
    first = np.cumsum([0] + [len(part["graph"]) for part in parts])
    links = np.concatenate([part["links"] + start for part, start in zip(parts, first, strict=False)])
    keys = ["x", "y"] + ["gene"] * all("gene" in part for part in parts)
    return GraphDataset.from_parts(
        _facts(card, _ppi_classes(root / card.name / "label_columns.tsv", parts[0]["y"].shape[1])),
        torch.from_numpy(np.concatenate(sizes)),
        undirected(links[:, 0], links[:, 1], int(first[-1])),
        per_node={key: torch.from_numpy(np.concatenate([part[key] for part in parts])) for key in keys},
        per_graph={"part": torch.arange(3).repeat_interleave(torch.tensor([len(each) for each in sizes]))},
    )


def _ppi_classes(path: Path, count: int) -> tuple[str, ...]:
    """The second column of a table with a row per class, in their order; without the table, numbers."""
    if not path.is_file():
        return _numbered(count)
    rows = [line.split("\t") for line in path.read_text("utf-8", errors="replace").splitlines()[1:]]
    names = tuple(row[1] for row in rows if len(row) > 1)
    if tuple(row[0] for row in rows) != _numbered(count) or len(set(names)) != count:
        raise DataError(
            f"{path} must have a header and a row with number and name for each of the {count} classes, in their "
            f"order, but has not; copy it again."
        )
    return names


def _ppi_part(folder: Path, part: str) -> dict[str, NDArray[Any]]:
    def read(kind: str, dimensions: int, kinds: str) -> tuple[Path, NDArray[Any]]:
        path = folder / f"{part}_{kind}.npy"
        with plain_arrays(path) as array:
            return path, checked_array(str(path), array, dimensions, kinds)

    path, graph = read("graph_id", 1, "iu")
    if len(graph) == 0:
        raise DataError(f"{path} must name the graph of every node, but is empty; fetch it again.")
    graph = graph_of_nodes(path, "row", graph.astype(np.int64), first=int(graph[0]))
    found = {"graph": graph}
    arrays = [("x", "feats", 2, "fiu"), ("y", "labels", 2, "fiub")]
    if (folder / f"{part}_entrez.npy").is_file():
        arrays.append(("gene", "entrez", 1, "iu"))
    for key, kind, dimensions, kinds in arrays:
        path, array = read(kind, dimensions, kinds)
        check_length(path, len(array), len(graph), "nodes")
        found[key] = array.astype(np.int64) if key == "gene" else finite_floats(str(path), array)
        if key == "y" and (wrong := np.argwhere((found["y"] != 0) & (found["y"] != 1))).size:
            row, column = wrong[0]
            raise DataError(
                f"{path}, row {row + 1}, column {column + 1} must hold 0 or 1, but holds "
                f"{found['y'][row, column]:g}; the file is damaged or belongs to another data set."
            )
    path = folder / f"{part}_graph.json"
    found["links"] = read_links(path)
    check_edges(path, "link", found["links"], graph)
    return found


# ---------------------------------------------------------------------------------- one graph, published splits
def planetoid(card: Card, root: Path) -> GraphDataset:
    """The graph as PyG's `Planetoid` reads it, with its `train_mask`, `val_mask` and `test_mask`."""
    name = card.name.lower()
    folder = Path("Planetoid", name, "raw")
    for kind in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        file = (folder / f"ind.{name}.{kind}").as_posix()
        if check_file(existing(root / file), file) != "ok":
            raise DataError(
                f"{root / file} must be the published file, but its SHA-256 is another; a pickle can run code, so "
                f"it is not opened: fetch it again."
            )
    with warnings.catch_warnings():  # PyG adds a filter for the old pickles and would leave it in place
        data = read_planetoid_data(str(root / folder), name)
    names = PLANETOID_CLASSES.get(card.name) or _numbered(int(data.y.max()) + 1)
    return GraphDataset.from_graphs([data], replace(_facts(card, names), note=""))


def heterophilous(card: Card, root: Path) -> GraphDataset:
    """The graph as PyG's `HeterophilousGraphDataset` reads it; masks have one column per split."""
    [path] = card.paths(root)
    arrays: dict[str, Any] = {}
    with plain_arrays(path) as archive:
        if isinstance(archive, np.ndarray):
            raise DataError(f"{path} must be a .npz archive of arrays, but is a single array; use numpy.savez.")
        expected = {"node_features": (2, "fiu"), "node_labels": (1, "iu"), "edges": (2, "iu")}
        for key, (dimensions, kinds) in (expected | dict.fromkeys(MASKS.values(), (2, "b"))).items():
            if key not in archive.files:
                raise DataError(
                    f"{path} must hold the array {key}, but holds {', '.join(archive.files) or 'none'}; "
                    f"save it with numpy.savez."
                )
            arrays[key] = checked_array(f"{path}, array {key}", archive[key], dimensions, kinds)
    x = finite_floats(f"{path}, array node_features", arrays["node_features"])
    y, edges, nodes = arrays["node_labels"], arrays["edges"], len(x)
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
    if edges.shape[1] != 2:
        raise DataError(
            f"{path}, array edges must have 2 columns, but has {edges.shape[1]}; fetch the file again."
        )
    check_edges(path, "edge", edges, np.zeros(nodes))
    splits = len(arrays["train_masks"])
    for key in MASKS.values():
        if arrays[key].shape != (splits, nodes):
            raise DataError(
                f"{path}, array {key} must have {splits} rows (as train_masks) and {nodes} columns (one per "
                f"node), but has {' x '.join(map(str, arrays[key].shape))}; fetch the file again."
            )
    data = Data(
        x=torch.from_numpy(x),
        y=torch.from_numpy(y.astype(np.int64, copy=False)),
        edge_index=to_undirected(torch.from_numpy(edges.astype(np.int64).T), num_nodes=nodes),
        **{key: torch.from_numpy(arrays[stored].T).contiguous() for key, stored in MASKS.items()},
    )
    return GraphDataset.from_graphs([data], _facts(card, _numbered(int(y.max()) + 1)))


# ------------------------------------------------------------------------------------------- SNAP's communities
def snap(card: Card, root: Path, *, min_members: int | None = None) -> GraphDataset:
    """A graph whose communities with at least ``min_members`` are the classes; a node may have several."""
    min_members = MIN_MEMBERS.get(card.name) if min_members is None else min_members
    if min_members is None:
        raise DataError(f"{card.name} needs min_members, the size from which on a community is a class; give it.")
    graph, communities = card.paths(root)
    edge_index, node_id = snap_graph(graph)
    y, sizes = snap_communities(communities, node_id, min_members)
    data = Data(edge_index=edge_index, y=y, labelled=y.sum(dim=1) > 0, node_id=node_id, num_nodes=len(node_id))
    names = tuple(f"community {number} ({size:,} members)" for number, size in enumerate(sizes.tolist()))
    return GraphDataset(data, None, _facts(card, names))


def snap_graph(path: Path) -> tuple[Tensor, Tensor]:
    """Edges (2 × 2E, both directions, in no certain order) between nodes numbered by their ids, and those ids."""
    with _opened(path) as file:
        comments = sum(1 for _ in itertools.takewhile(lambda line: line.startswith(b"#"), file))
    ids = read_numbers(path, 2, np.int64, delimiter="\t", skip=comments)
    if ids.min() < 0:
        _refuse_negative(path, np.arange(len(ids)) + comments, ids.min(axis=1))
    node_id, (source, target) = number_ids(ids.T)
    # SNAP lists edges in order and each once: then nothing has to be sorted, which is half of the work here.
    keys = source * len(node_id) + target
    if (source < target).all() and (keys[1:] > keys[:-1]).all():
        there = torch.from_numpy(np.stack([source, target]))
        return torch.cat([there, there.flip(0)], dim=1), torch.from_numpy(node_id)
    return undirected(source, target, len(node_id)), torch.from_numpy(node_id)


def snap_communities(path: Path, node_id: Tensor, min_members: int) -> tuple[Tensor, Tensor]:
    """Membership (nodes × communities, zeros and ones) and sizes; communities stay in the order of the file.

    Only members that occur in the graph count.
    """
    if min_members < 1:
        raise DataError(f"min_members must be at least 1, not {min_members}.")
    community, member = _members(path)
    large = (np.bincount(community) >= min_members)[community]  # what comes now can only make them smaller
    community, member = community[large], member[large]
    ids = node_id.numpy()
    position = np.searchsorted(ids, member)
    known = ids[np.minimum(position, len(ids) - 1)] == member
    pairs = distinct(community[known] * len(ids) + position[known])  # a member that is named twice counts once
    community, node = np.divmod(pairs, len(ids))
    sizes = np.bincount(community)
    kept = sizes >= min_members
    if not kept.any():
        raise DataError(
            f"{path} must have a community with at least {min_members} members that occur in the graph, but has "
            f"none; choose a smaller min_members, or the communities of this graph."
        )
    chosen = kept[community]
    y = np.zeros((len(ids), int(kept.sum())), dtype=np.float32)
    y[node[chosen], (np.cumsum(kept) - 1)[community[chosen]]] = 1
    return torch.from_numpy(y), torch.from_numpy(sizes[kept])


def _members(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Line (from 0) and id of every member."""
    with _opened(path) as file:
        text = file.read().decode("latin-1")
    lines = pc.ascii_trim_whitespace(pc.split_pattern(pa.array([text], pa.large_string()), "\n").flatten())
    number = np.flatnonzero(pc.match_substring_regex(lines, "^[^#]").to_numpy(zero_copy_only=False))
    if len(number) == 0:
        raise DataError(f"{path} is empty; expected at least one line of data.")
    split = pc.split_pattern(lines.take(number), "\t")
    line = number.repeat(pc.list_value_length(split).to_numpy())
    ids = split.flatten()
    try:
        member = ids.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        whole = pc.match_substring_regex(ids, "^-?[0-9]{1,18}$").to_numpy(zero_copy_only=False)
        bad = int(np.flatnonzero(~whole)[0])
        raise DataError(
            f"{path}, line {line[bad] + 1} must hold whole numbers with tabs between them, but holds "
            f"{ids[bad].as_py()!r}; the file is damaged or of another format."
        ) from error
    _refuse_negative(path, line, member)
    return line, member


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with open_bytes(existing(path)) as file:
            yield file
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} cannot be read to its end ({error}); copy or fetch it again.") from error


def _refuse_negative(path: Path, line: NDArray[Any], ids: NDArray[Any]) -> None:
    if ids.min() < 0:
        bad = int(np.argmax(ids < 0))
        raise DataError(
            f"{path}, line {line[bad] + 1} must hold ids from 0 on, but holds {ids[bad]}; the file is damaged."
        )
