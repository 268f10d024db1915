"""What reads files: for each reader some whole files to start from, and the call that reads them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import pprgnn
from pprgnn.data import from_graphml, from_npz, from_tables, open_file, readers, save
from pprgnn.training.config import Config
from pprgnn.training.model import Model
from pprgnn.training.run import Run
from pprgnn.training.train import train
from tests.data.cards import make_card

EDGES = np.array([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
NODES = {
    "id": ["ann", "bob", "carl", "dora"],
    "age": [31, 45, 28, None],
    "since": ["2020-01-31", "2019-12-01", "", "2021-07-04"],
    "town": ["Rome", "Bonn", "Rome", "Bonn"],
    "topic": ["a", "b", "a", "b"],
}
ENDS = {"source": ["ann", "bob", "carl"], "target": ["bob", "carl", "dora"], "weight": [1.0, 0.5, 2.0]}


class Target(NamedTuple):
    """A reader: ``write`` makes whole files in a folder, ``read`` reads them."""

    write: Callable[[Path], None]
    read: Callable[[Path], Any]


# ---------------------------------------------------------------------------------------------------- own tables
def _csv(folder: Path) -> None:
    for name, table in (("edges.csv", ENDS), ("nodes.csv", NODES)):
        rows = [list(table), *zip(*table.values(), strict=True)]
        text = "\n".join(",".join("" if cell is None else str(cell) for cell in row) for row in rows)
        (folder / name).write_text(text + "\n", encoding="utf-8")


def _parquet(folder: Path) -> None:
    pq.write_table(pa.table(ENDS), folder / "edges.parquet")
    pq.write_table(pa.table(NODES), folder / "nodes.parquet")


def _tables(suffix: str) -> Callable[[Path], Any]:
    return lambda folder: from_tables(folder / f"edges{suffix}", folder / f"nodes{suffix}", label="topic")


def _graphml(folder: Path) -> None:
    graph = nx.Graph()
    graph.add_nodes_from((name, {"age": 30.0, "topic": topic}) for name, topic in zip("abcd", "xyxy", strict=True))
    graph.add_edges_from([("a", "b"), ("b", "c"), ("c", "d")], weight=0.5)
    nx.write_graphml(graph, folder / "graph.graphml")


def _npz(folder: Path) -> None:
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.savez(folder / "graph.npz", edge_index=EDGES, x=x, y=np.array([0, 1, 0, 1]))


# ----------------------------------------------------------------------------------------------- known data sets
def _tu(folder: Path) -> None:
    raw = folder / "SET" / "raw"
    raw.mkdir(parents=True)
    pairs = "\n".join(f"{a + 1}, {b + 1}" for a, b in EDGES.T)
    files = {"A": pairs, "graph_indicator": "1\n1\n1\n1", "graph_labels": "1", "node_labels": "0\n1\n0\n2"}
    files["node_attributes"] = "0.5, 1\n2, 3\n-1, 0\n1e-3, 4"
    for name, text in files.items():
        (raw / f"SET_{name}.txt").write_text(text + "\n")


def _snap(folder: Path) -> None:
    for name, text in (
        ("set.ungraph.txt.gz", b"# a comment\n10\t11\n11\t12\n12\t13\n"),
        ("set.all.cmty.txt.gz", b"10\t11\n12\t13\n"),
    ):
        (folder / name).write_bytes(gzip.compress(text, mtime=0))


def _read_snap(folder: Path) -> Any:
    files = ("set.ungraph.txt.gz", "set.all.cmty.txt.gz")
    return readers.snap(make_card("set", "snap", folder=".", files=files, multi_label=True), folder, min_members=2)


def _ppi(folder: Path) -> None:
    raw = folder / "PPI-GO" / "raw"
    raw.mkdir(parents=True)
    links = [{"source": int(a), "target": int(b)} for a, b in EDGES.T]
    graph = {"directed": False, "nodes": [{"id": number} for number in range(4)], "links": links}
    for part in ("train", "valid", "test"):
        (raw / f"{part}_graph.json").write_text(json.dumps(graph))
        np.save(raw / f"{part}_feats.npy", np.ones((4, 2)))
        np.save(raw / f"{part}_labels.npy", np.eye(4, 3, dtype=np.uint8))
        np.save(raw / f"{part}_graph_id.npy", np.ones(4, dtype=np.int64))


def _heterophilous(folder: Path) -> None:
    masks = np.zeros((10, 4), dtype=bool)
    place = folder / "heterophilous"
    place.mkdir()
    np.savez(
        place / "texas.npz",
        node_features=np.ones((4, 2), dtype=np.float32),
        node_labels=np.array([0, 1, 0, 1]),
        edges=EDGES.T,
        train_masks=masks,
        val_masks=masks,
        test_masks=~masks,
    )


def _read_heterophilous(folder: Path) -> Any:
    files = ("texas.npz",)
    return readers.heterophilous(make_card("texas", "heterophilous", folder="heterophilous", files=files), folder)


# ---------------------------------------------------------------------------------------------- files of our own
def _toml(folder: Path) -> None:
    (folder / "config.toml").write_text(Config().to_toml())


@cache
def _trained() -> Path:
    """A finished run with a checkpoint."""
    folder = Path(mkdtemp()) / "run"
    options = {"length": 3, "train": 3, "val": 2, "test": 2}
    settings = {"data.name": "chains", "data.options": options, "model.hidden": 4, "training.epochs": 2}
    train(Config().with_values(settings | {"training.threads": 1}), folder=folder)
    return folder


def _without_digest(path: Path, to: Path) -> None:
    """The same tensors: a digest would refuse all damage before anything else looks at it."""
    with safe_open(path, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        metadata = {key: value for key, value in file.metadata().items() if key != "digest"}
    save_file(tensors, to, metadata)


def _model(folder: Path) -> None:
    _without_digest(_trained() / "model.safetensors", folder / "model.safetensors")


def _read_model(folder: Path) -> Any:
    chains = pprgnn.data.load("chains", length=3, train=1, val=1, test=1)
    return Model.load(folder / "model.safetensors").logits(chains)


def _run(folder: Path) -> None:
    for path in _trained().iterdir():
        if path.suffix == ".safetensors":
            _without_digest(path, folder / path.name)
        elif path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())


def _read_run(folder: Path) -> Any:
    run = Run.open(folder)
    return run.config, run.split, run.environment, run.summary, run.finished, run.records(), run.load_checkpoint()


def _graphs(folder: Path) -> None:
    save(pprgnn.data.load("chains", length=3, train=2, val=1, test=1), folder / "whole")
    _without_digest(folder / "whole", folder / "graphs.safetensors")
    (folder / "whole").unlink()


def _read_graphs(folder: Path) -> Any:
    dataset = open_file(folder / "graphs.safetensors")
    return [graph.edge_index.sum() for graph in dataset], torch.as_tensor(dataset.labels()).sum()


TARGETS = {
    "csv": Target(_csv, _tables(".csv")),
    "parquet": Target(_parquet, _tables(".parquet")),
    "graphml": Target(_graphml, lambda folder: from_graphml(folder / "graph.graphml", label="topic")),
    "npz": Target(_npz, lambda folder: from_npz(folder / "graph.npz")),
    "tu": Target(_tu, lambda folder: readers.tu(make_card("SET", "tu", task="graph"), folder)),
    "snap": Target(_snap, _read_snap),
    "ppi": Target(_ppi, lambda folder: readers.ppi(make_card("PPI-GO", "ppi", multi_label=True), folder)),
    "heterophilous": Target(_heterophilous, _read_heterophilous),
    "toml": Target(_toml, lambda folder: Config.from_toml(folder / "config.toml")),
    "model": Target(_model, _read_model),
    "run": Target(_run, _read_run),
    "graphs": Target(_graphs, _read_graphs),
}
