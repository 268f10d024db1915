"""Prepared graphs on disk: one safetensors file each, memory-mapped when read, written whole or not at all.

A prepared file remembers the files it was made from by size and times of change; when one of them changes it is
made again. What is derived from it, such as adjacencies, is in the cache and remembers its digest. Nothing in
such a file can run code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Data

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.csr import LARGE_GRAPH
from pprgnn.data.atomic_io import DIGEST, digest, read_tensors, write_tensors
from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.roots import cache_root
from pprgnn.data.sparse_features import from_tensors, is_sparse, tensors_of
from pprgnn.errors import DataError

if TYPE_CHECKING:
    from pprgnn.core.entries import Normalization

FORMAT = "pprgnn graphs, version 2"
READABLE = (FORMAT, "pprgnn graphs, version 1")  # which had no sparse features
SUFFIX = ".safetensors"
ADJACENCY = ".adjacency"


# -------------------------------------------------------------------------------------------------- one file
def save(dataset: GraphDataset, path: Path | str) -> None:
    """Write the graphs and their facts into one file; an existing file is replaced, or kept when this fails."""
    if dataset._indices is not None:
        dataset = dataset.copy()
    data, slices = dataset._data, dataset.slices or {}
    tensors = {f"data.{key}": value for key, value in data.to_dict().items() if isinstance(value, Tensor)}
    if "x" in data and is_sparse(data.x):
        del tensors["data.x"]
        tensors |= {f"x.{key}": value for key, value in tensors_of(data.x).items()}
    tensors |= {f"slices.{key}": value for key, value in slices.items() if key != "num_nodes"}
    tensors["num_nodes"] = torch.tensor(dataset.graph_sizes)
    if dataset.node_names is not None:
        names = [name.encode() for name in dataset.node_names]
        tensors["names.text"] = torch.frombuffer(bytearray(b"".join(names) or b"\0"), dtype=torch.uint8)
        tensors["names.offsets"] = torch.tensor([0, *accumulate(map(len, names))])
    try:
        write_tensors(Path(path), tensors, {"format": FORMAT, "facts": dataset.facts.to_json()})
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror or error}); choose another folder or make room."
        ) from error


def open_file(path: Path | str) -> GraphDataset:
    """Read what :func:`save` wrote; tensors stay on disk until they are used."""
    path = Path(path)
    tensors, metadata = read_tensors(path)
    if metadata.get("format") not in READABLE:
        raise DataError(
            f"{path} is not a file of prepared graphs ({FORMAT}); make one with `pprgnn data import -o FILE`."
        )
    try:
        facts = Facts.from_json(metadata["facts"])
        _check(tensors, facts)
        dataset = _assemble(tensors, facts)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}: {error}); make it again.") from error
    dataset.path, dataset.stamp = path, metadata.get(DIGEST) or digest(tensors, metadata)
    return dataset


def _check(tensors: Mapping[str, Tensor], facts: Facts) -> None:
    """Raise ValueError unless sizes and numbers fit each other: what comes later relies on them."""
    sizes, edges = tensors["num_nodes"], tensors["data.edge_index"]
    if sizes.dim() != 1 or sizes.dtype != torch.int64 or not sizes.numel() or int(sizes.min()) < 0:
        raise ValueError("num_nodes holds no sizes of graphs")
    if edges.dim() != 2 or edges.size(0) != 2 or edges.dtype != torch.int64:
        raise ValueError(f"the edges are {edges.dtype} in shape {tuple(edges.shape)}")
    if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < int(sizes.max()):
        raise ValueError(f"the edges name nodes {int(edges.min())} to {int(edges.max())} of {int(sizes.max())}")
    rows = {"node": int(sizes.sum()), "graph": len(sizes)}
    x, y = tensors.get("data.x"), tensors.get("data.y")
    if x is not None and (x.dim() != 2 or len(x) != rows["node"]):
        raise ValueError(f"the features have shape {tuple(x.shape)} for {rows['node']} nodes")
    if y is not None and (not y.dim() or len(y) != rows[facts.task]):
        raise ValueError(f"the labels have shape {tuple(y.shape)} for {rows[facts.task]}")
    if y is not None and y.dim() == 1 and y.numel():
        least, most = int(y.min()), int(y.max())
        if least < -1 or most >= max(len(facts.class_names), 1):
            wrong = least if least < -1 else most
            raise ValueError(f"there is a label {wrong} of {len(facts.class_names)} classes")
    for name in (name for name in tensors if name.startswith(("slices.", "names.offsets"))):
        places = tensors[name]
        if places.dim() != 1 or places.is_floating_point() or bool((places[1:] < places[:-1]).any()):
            raise ValueError(f"{name} decreases")
    if any(name.startswith("slices.") for name in tensors):  # several graphs: each has a part of every tensor
        for name in (name for name in tensors if name.startswith("data.")):
            places, tensor = tensors[f"slices.{name[5:]}"], tensors[name]
            whole = tensor.size(int(Data().__cat_dim__(name[5:], tensor)))
            if len(places) != len(sizes) + 1 or int(places[0]) != 0 or int(places[-1]) != whole:
                raise ValueError(f"slices.{name[5:]} does not cover {name}")
        if bool((edges >= sizes.repeat_interleave(tensors["slices.edge_index"].diff())).any()):
            raise ValueError("the edges of a graph name nodes of another")
    elif len(sizes) > 1:
        raise ValueError(f"there are no slices for {len(sizes)} graphs")


def _assemble(tensors: Mapping[str, Tensor], facts: Facts) -> GraphDataset:
    part: dict[str, dict[str, Tensor]] = {"data": {}, "x": {}, "slices": {}, "names": {}}
    for name, tensor in tensors.items():
        section, _, key = name.partition(".")
        if key:
            part[section][key] = tensor
    if part["x"]:
        part["data"]["x"] = from_tensors(part["x"])
    data, sizes = Data.from_dict(part["data"]), tensors["num_nodes"].tolist()
    data.num_nodes = sum(sizes)
    if part["slices"]:
        data._store._num_nodes = sizes
    dataset = GraphDataset(data, part["slices"] or None, facts)
    if part["names"]:
        text, offsets = part["names"]["text"].numpy().tobytes(), part["names"]["offsets"].tolist()
        dataset.node_names = [text[start:end].decode() for start, end in pairwise(offsets)]
    return dataset


# ------------------------------------------------------------------------------------------- the cache of them
def prepared(key: str, files: Iterable[Path], build: Callable[[], GraphDataset]) -> GraphDataset:
    """The graphs of these files: from the cache, or built now and kept there.

    ``key`` says which data set and which options; it becomes part of the file's name.
    """
    folder = cache_root() / "prepared"
    path = folder / f"{key}-{_fingerprint(files)}{SUFFIX}"
    if path.is_file():
        with contextlib.suppress(DataError):  # a damaged cache is made again
            return open_file(path)
    dataset = build()
    try:
        save(dataset, path)
        for old in (*folder.glob(f"{key}-*{SUFFIX}"), *derived_folder().glob(f"{key}-*{ADJACENCY}")):
            if not old.name.startswith(path.stem):
                old.unlink(missing_ok=True)
    except (DataError, OSError) as error:
        warnings.warn(
            f"The prepared graphs of {key} cannot be kept, so every load reads the raw files: {error} "
            f"PPRGNN_CACHE names the folder to keep them in.",
            UserWarning,
            stacklevel=3,
        )
        return dataset
    return open_file(path)


def _fingerprint(files: Iterable[Path]) -> str:
    # Nobody can set the time of the inode: another file in the place of one, as old and as long, is seen.
    seen = [(path.name, path.stat()) for path in files]
    facts = [(name, each.st_size, each.st_mtime_ns, each.st_ctime_ns) for name, each in seen]
    return hashlib.sha256(json.dumps([FORMAT, facts]).encode()).hexdigest()[:16]


def derived_folder() -> Path:
    """Where what is computed from prepared files is kept: never beside them, where others may write."""
    return cache_root() / "derived"


def derived_path(path: Path, kind: str) -> Path:
    """The file of something computed from a prepared file."""
    place = hashlib.blake2b(str(path.resolve()).encode(), digest_size=4).hexdigest()
    return derived_folder() / f"{path.stem}.{place}.{kind}{ADJACENCY}"


def kept_adjacency(
    dataset: GraphDataset, index: int, *, normalize: Normalization, add_self_loops: bool
) -> Adjacency:
    """The adjacency of one graph: from the cache when it is large and its data set is prepared."""
    changed = dataset._indices is not None or dataset.transform is not None
    path = None
    if dataset.path is not None and not changed and dataset.graph_sizes[index] >= LARGE_GRAPH:
        path = derived_path(dataset.path, f"{normalize}{'-loops' if add_self_loops else ''}-{index}")
        # The stamp: another file may have taken the place of the one that is open.
        with contextlib.suppress(DataError, ValueError, KeyError):  # damaged, or not there: built now
            tensors, facts = read_tensors(path)
            if facts.get("prepared") == dataset.stamp:
                return Adjacency.from_state(tensors, facts)
    data = dataset[index]
    adj = Adjacency.from_edge_index(
        data.edge_index,
        data.get("edge_weight"),
        data.num_nodes,
        normalize=normalize,
        add_self_loops=add_self_loops,
    )
    if path is not None:
        tensors, facts = adj.state()
        with contextlib.suppress(OSError):  # a read-only folder: built anew each time
            write_tensors(path, tensors, facts | {"prepared": dataset.stamp})
    return adj
