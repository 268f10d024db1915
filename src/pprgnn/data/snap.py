"""SNAP's graphs with communities: a file of edges, and one of a community per line, of ids with tabs between."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from pprgnn.data.catalog import Card
from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.raw_files import distinct, number_ids, open_bytes, read_numbers, undirected
from pprgnn.errors import DataError

T = TypeVar("T")
MIN_MEMBERS = {"com-Amazon": 5000, "com-DBLP": 2000}  # the communities that are classes


def read(card: Card, root: Path, *, min_members: int | None = None) -> GraphDataset:
    """The graph and its largest communities as labels; see :func:`read_files`."""
    min_members = MIN_MEMBERS.get(card.name) if min_members is None else min_members
    if min_members is None:
        raise DataError(f"{card.name} needs min_members, the size from which on a community is a class; give it.")
    found = {kind: [path for path in card.paths(root) if kind in path.name] for kind in ("ungraph", "cmty")}
    for kind, paths in found.items():
        if len(paths) != 1:
            raise DataError(f"The card of {card.name} must name one file *.{kind}.txt.gz, but names {len(paths)}.")
    return read_files(found["ungraph"][0], found["cmty"][0], card.name, min_members, note=card.note)


def read_files(graph: Path, communities: Path, name: str, min_members: int, *, note: str = "") -> GraphDataset:
    """A graph whose communities with at least ``min_members`` are the classes; a node may have several."""
    edge_index, node_id = read_graph(graph)
    y, sizes = read_communities(communities, node_id, min_members)
    data = Data(edge_index=edge_index, y=y, labelled=y.sum(dim=1) > 0, node_id=node_id, num_nodes=len(node_id))
    names = tuple(f"community {number} ({size:,} members)" for number, size in enumerate(sizes.tolist()))
    return GraphDataset(data, None, Facts(name, "node", True, "micro-F1", names, note=note))


def read_graph(path: Path) -> tuple[Tensor, Tensor]:
    """Edges (2 × 2E, both directions, in no certain order) between nodes numbered by their ids, and those ids."""
    comments = _comment_lines(path)
    ids = read_numbers(path, 2, np.int64, delimiter="\t", skip=comments)
    if ids.min() < 0:
        line = int(np.flatnonzero((ids < 0).any(axis=1))[0])
        raise DataError(_negative(path, line + comments, int(ids[line].min())))
    node_id, (source, target) = number_ids(ids.T)
    return _both_directions(source, target, len(node_id)), torch.from_numpy(node_id)


def _both_directions(source: NDArray[Any], target: NDArray[Any], nodes: int) -> Tensor:
    """SNAP lists edges in order and each once: then nothing has to be sorted, which is half of the work here."""
    keys = source * nodes + target
    if not ((source < target).all() and (keys[1:] > keys[:-1]).all()):
        return undirected(source, target, nodes)
    edges = len(source)
    edge_index = torch.empty(2, 2 * edges, dtype=torch.int64)
    for row, (there, back) in enumerate(((source, target), (target, source))):
        edge_index[row, :edges] = torch.from_numpy(there)
        edge_index[row, edges:] = torch.from_numpy(back)
    return edge_index


def read_communities(path: Path, node_id: Tensor, min_members: int) -> tuple[Tensor, Tensor]:
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
    with _open(path) as file:
        text = _read(path, file.read).decode("latin-1")
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
    if member.min() < 0:
        bad = int(np.argmin(member >= 0))
        raise DataError(_negative(path, int(line[bad]), int(member[bad])))
    return line, member


def _comment_lines(path: Path) -> int:
    with _open(path) as file:
        return _read(path, lambda: sum(1 for _ in itertools.takewhile(lambda line: line.startswith(b"#"), file)))


def _open(path: Path) -> IO[bytes]:
    if not path.is_file():
        raise DataError(f"{path} is missing; fetch the data set again.")
    return open_bytes(path)


def _read(path: Path, action: Callable[[], T]) -> T:
    try:
        return action()
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} cannot be read to its end ({error}); copy or fetch it again.") from error


def _negative(path: Path, line: int, value: int) -> str:
    return f"{path}, line {line + 1} must hold ids from 0 on, but holds {value}; the file is damaged."
