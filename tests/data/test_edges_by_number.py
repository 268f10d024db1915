"""Edges by number: against sets of pairs, and against PyG's own collation."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data, InMemoryDataset

from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.raw_files import distinct, undirected

PAIRS = st.integers(1, 9).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
)


@given(PAIRS)
def test_undirected(problem):
    nodes, pairs = problem
    source, target = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    expected = sorted({pair for a, b in pairs if a != b for pair in ((a, b), (b, a))})
    assert undirected(source, target, nodes).t().tolist() == [list(pair) for pair in expected]


def test_undirected_of_many_nodes():
    """Keys of pairs stay apart where 32 bits would not do."""
    last = 3_000_000
    edge_index = undirected(np.array([0, last - 2]), np.array([last - 1, last - 1]), last)
    assert edge_index.tolist() == [[0, last - 2, last - 1, last - 1], [last - 1, last - 1, 0, last - 2]]


@given(st.lists(st.integers(-5, 5)))
def test_distinct(numbers):
    assert distinct(np.array(numbers, dtype=np.int64)).tolist() == sorted(set(numbers))


@pytest.mark.parametrize("sizes", [[3, 2, 4], [1, 1], [2, 5, 1, 1]])
def test_collated_is_what_pyg_collates(sizes):
    generator = torch.Generator().manual_seed(0)
    graphs, edges, first = [], [], 0
    for number, size in enumerate(sizes):
        edge_index = torch.stack([torch.arange(size - 1), torch.arange(1, size)])  # none in a graph of one node
        x, weight = torch.randn(size, 2, generator=generator), torch.rand(size - 1, generator=generator)
        y = torch.tensor([number])
        graphs.append(Data(edge_index=edge_index, x=x, edge_weight=weight, y=y, num_nodes=size))
        edges.append(edge_index + first)
        first += size
    expected, slices = InMemoryDataset.collate(graphs)
    made = GraphDataset.from_parts(
        Facts("some", "graph", False, "accuracy", ()),
        torch.tensor(sizes),
        torch.cat(edges, dim=1),
        per_node={"x": expected.x},
        per_graph={"y": expected.y},
        per_edge={"edge_weight": expected.edge_weight},
    )
    data, found = made._data, made.slices
    assert set(data.keys()) == set(expected.keys())
    assert torch.equal(data.edge_index, expected.edge_index)
    assert data.num_nodes == expected.num_nodes
    assert data._num_nodes == expected._num_nodes
    assert found.keys() == slices.keys()
    assert all(torch.equal(found[key], slices[key]) for key in slices)
