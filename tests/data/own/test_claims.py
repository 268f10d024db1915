"""What a file claims to be is compared with what it can hold, before memory is spent on it."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from pprgnn.data import DataError, from_npz, from_pyg, from_tables, raw_files

EDGES = np.array([[0, 1, 2], [1, 2, 0]])


def test_a_label_of_two_thousand_million(tmp_path):
    np.savez(tmp_path / "a.npz", edge_index=EDGES, y=np.array([0, 1, 2_000_000_000]))
    with pytest.raises(DataError, match="holds 2,000,000,000 among 3 labels; number the classes so"):
        from_npz(tmp_path / "a.npz")


def test_many_classes_are_no_claim():
    data = Data(edge_index=torch.tensor(EDGES), y=torch.tensor([0, 1, 9_999]), num_nodes=3)
    assert from_pyg(data).num_classes == 10_000


@pytest.mark.parametrize("top", [10**7, 10**12, 2**62])
def test_a_node_that_nothing_else_speaks_of(tmp_path, top):
    np.savez(tmp_path / "a.npz", edge_index=np.array([[0, 1, top], [1, 2, 0]]))
    with pytest.raises(DataError, match=r"would have [\d,]+ nodes, but has 3 edges"):
        from_npz(tmp_path / "a.npz")


def test_a_large_graph_with_labels_is_no_claim():
    data = Data(edge_index=torch.tensor([[0, 2_000_000], [2_000_000, 0]]), y=torch.zeros(2_000_001).long())
    assert from_pyg(data).num_nodes == 2_000_001


def test_a_small_file_that_unpacks_to_a_large_one(tmp_path, monkeypatch):
    monkeypatch.setattr(raw_files, "UNPACKED", 1 << 20)
    with gzip.open(tmp_path / "edges.csv.gz", "wb") as file:
        file.write(b"source,target\n" + b"a,b\n" * 1_000_000)
    with pytest.raises(DataError, match="unpacks to more than 200 times its size"):
        from_tables(tmp_path / "edges.csv.gz")


def test_a_file_that_unpacks_to_little_is_read(tmp_path):
    with gzip.open(tmp_path / "edges.csv.gz", "wb") as file:
        file.write(b"source,target\n" + b"a,b\n" * 100_000)
    assert from_tables(tmp_path / "edges.csv.gz").num_nodes == 2
