"""Ids and weights: which are the same node, what is refused and where; how edges are merged."""

import datetime
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pprgnn.data import DataError, from_tables
from pprgnn.data.own.edges import merge_edges

from .drawn import edges_of, ids_of, merged


@pytest.fixture
def table(tmp_path):
    def write_file(name, text):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


# ------------------------------------------------------------------------------------------------------------- ids
@pytest.mark.parametrize(
    ("rows", "ids"),
    [
        ("2,10\n10,-3\n", [-3, 2, 10]),
        (" 2, 10\n10 ,-3\n", [-3, 2, 10]),
        ("007,7\n", ["007", "7"]),
        ("0x10,16\n", ["0x10", "16"]),
        ("+1,1\n", ["+1", "1"]),
        ("-0,0\n", ["-0", "0"]),
        ("1.0,1\n", ["1", "1.0"]),
        ("1e2,100\n", ["100", "1e2"]),
        ("NA,1\n1,null\n", ["1", "NA", "null"]),
        ("NA,US\nUS,nan\n", ["NA", "US", "nan"]),
        ("true,false\n", ["false", "true"]),
        ("2020-01-01,2020-01-02\n", ["2020-01-01", "2020-01-02"]),
        ("-9223372036854775808,9223372036854775807\n", [-(2**63), 2**63 - 1]),
        ("9223372036854775808,1\n", ["1", "9223372036854775808"]),
        ("ann, bob\nbob ,ann\n", ["ann", "bob"]),
        ('"a, b","say ""hi"""\n', ["a, b", 'say "hi"']),
    ],
)
def test_ids_are_whole_numbers_or_what_is_written(table, rows, ids):
    assert ids_of(from_tables(table("edges.csv", f"source,target\n{rows}"))) == ids
    nodes = table(
        "nodes.csv", "id\n" + "".join('"{}"\n'.format(str(node).replace('"', '""')) for node in ids[::-1])
    )
    assert ids_of(from_tables(table("edges.csv", f"source,target\n{rows}"), nodes)) == ids[::-1]


@pytest.mark.parametrize(
    ("source", "ids"),
    [
        (pa.array([1.0, 2.0]), [1, 2]),  # pandas makes floats
        (pa.array([1.5, 2.0]), ["1.5", "2"]),
        (pa.array([2**63 + 1, 2], pa.uint64()), ["2", "9223372036854775809"]),
        (pa.array([1, 2], pa.int8()), [1, 2]),
        (pa.array([b"x", b"y"]), ["x", "y"]),
        (pa.array([True, False]), ["false", "true"]),
        (pa.array([datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)]), ["2020-01-01", "2021-01-01"]),
        (pa.array([UUID(int=1).bytes, UUID(int=2).bytes], pa.uuid()), [str(UUID(int=1)), str(UUID(int=2))]),
        (pa.array([Decimal("1.50"), Decimal("2.00")]), ["1.50", "2.00"]),
        (pa.array([" x", "x"]), [" x", "x"]),  # from a program: as it is
    ],
)
def test_ids_of_any_type_in_memory(source, ids):
    assert ids_of(from_tables(pa.table({"source": source, "target": source.take([1, 0])}))) == ids


@pytest.mark.parametrize("source", [pa.array([b"\xff"]), pa.array([[1]]), pa.array([{"a": 1}])])
def test_ids_that_are_neither_text_nor_numbers(source):
    with pytest.raises(
        DataError, match="the edge table, column 'source' must hold text or numbers here, but holds"
    ):
        from_tables(pa.table({"source": source, "target": source}))


@pytest.mark.parametrize("spread", [1, 10**9])  # numbers close together are looked up in another way
def test_numbers_far_apart_and_close_together(spread):
    rng = np.random.default_rng(0)
    ids = (rng.permutation(300) - 150) * spread
    ends = rng.integers(0, 300, (2, 900))
    pairs = list(zip(*ids[ends].tolist(), [1.0] * 900, strict=True))
    nodes = pa.table({"id": ids})
    dataset = from_tables(pa.table({"source": ids[ends[0]], "target": ids[ends[1]]}), nodes)
    assert edges_of(dataset) == merged(pairs, ids.tolist(), False, False)
    alone = from_tables(pa.table({"source": ids[ends[0]], "target": ids[ends[1]]}))
    assert ids_of(alone) == sorted(set(ids[ends].ravel().tolist()))
    assert edges_of(alone) == merged(pairs, ids_of(alone), False, False)


@pytest.mark.parametrize(
    ("edges", "nodes", "message"),
    [
        (
            "a,b\n1,2\n\n,2\n",
            None,
            "edges.csv, line 4, column 'a' must hold a node id, but is empty; fill it or drop",
        ),
        ("a,b\nx,y\nz,\n", None, "edges.csv, line 3, column 'b' must hold a node id, but is empty"),
        ("a,b\n1,2\n", "id,x\n1,5\n,6\n", "nodes.csv, line 3, column 'id' must hold a node id, but is empty"),
        (
            "a,b\n1,2\n1,9\n9,2\n",
            "id\n1\n2\n",
            r"edges.csv, line 3 names the node 9, which is in no row of nodes.csv \(2 of 3",
        ),
        (
            "a,b\n1,2\n1,90000000000\n",
            "id\n1\n2\n",
            "edges.csv, line 3 names the node 90000000000, which is in no row",
        ),
        ("a,b\n1,2\n1,-1\n", "id\n1\n2\n", "edges.csv, line 3 names the node -1, which is in no row"),
        ("a,b\nx,y\n", "id\nx\n", "edges.csv, line 2 names the node 'y', which is in no row of nodes.csv"),
        ("a,b\n1.0,2.0\n", "id\n1\n2\n", "edges.csv, line 2 names the node '1.0', which is in no row"),
        ("a,b\n7,8\n", "id\n007\n8\n", "edges.csv, line 2 names the node '7', which is in no row"),
        (
            "a,b\n1,2\n",
            'id,x\n1,"p\nq"\n2,6\n1,7\n',
            "nodes.csv, line 5 has the node id 1, which nodes.csv, line 2 already",
        ),
        (
            "a,b\nx,y\n",
            "id\nx\ny\nx\n",
            "nodes.csv, line 4 has the node id 'x', which nodes.csv, line 2 already has",
        ),
    ],
)
def test_ids_that_do_not_fit(table, edges, nodes, message):
    with pytest.raises(DataError, match=message):
        from_tables(table("edges.csv", edges), None if nodes is None else table("nodes.csv", nodes))


# --------------------------------------------------------------------------------------------------------- weights
@pytest.mark.parametrize(
    ("weight", "value"),
    [
        (["1.5"], 1.5),
        ([" +1.5 "], 1.5),
        ([Decimal("1.5")], 1.5),
        ([True], 1.0),
        ([2**60 + 1], 2.0**60),
        ([0], 0.0),
    ],
)
def test_weights_of_any_type(weight, value):
    dataset = from_tables(pa.table({"a": [1], "b": [2], "weight": weight}))
    assert dataset._data.edge_weight.tolist() == [value, value]
    assert dataset._data.edge_weight.dtype == torch.float32


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ("-1", "line 4, column 'weight' must be a finite number >= 0, but is -1.0; correct it"),
        ("inf", "line 4, column 'weight' must be a finite number >= 0, but is inf"),
        ("1e300", "line 4, column 'weight' must be a finite number >= 0"),
        ("nan", "line 4, column 'weight' must hold the edge's weight, but is empty"),
        ("", "line 4, column 'weight' must hold the edge's weight, but is empty"),
        ("heavy", "line 4, column 'weight' must hold the weight of the edge, a number, but holds 'heavy'"),
        ('"1,5,7"', "line 4, column 'weight' must hold the weight of the edge, a number, but holds '1,5,7'"),
        ("unknown", "line 4, column 'weight' must hold the weight of the edge, a number, but holds 'unknown'"),
        (
            "2020-01-01",
            "line 4, column 'weight' must hold the weight of the edge, a number, but holds '2020-01-01'",
        ),
    ],
)
def test_weights_that_are_none(table, weight, message):
    with pytest.raises(DataError, match=message):
        from_tables(table("edges.csv", f"a,b,weight\n1,2,3\n\n2,3,{weight}\n"))


def test_a_column_of_lists_is_no_weight():
    with pytest.raises(DataError, match=r"column 'weight' must hold weights, which are numbers, but holds list"):
        from_tables(pa.table({"a": [1], "b": [2], "weight": [[1.0]]}))


# --------------------------------------------------------------------------------------------------------- merging
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 8)), max_size=30),
    st.booleans(),
    st.booleans(),
)
def test_edges_are_merged(edges, directed, weighted):
    source, destination, weight = (np.array([edge[i] for edge in edges], dtype=np.int64) for i in range(3))
    notes = []
    index, summed = merge_edges(source, destination, weight / 4 if weighted else None, 6, directed, notes)
    pairs = [tuple(pair) for pair in index.t().tolist()]
    assert pairs == sorted(set(pairs))
    found = dict(zip(pairs, [1.0] * len(pairs) if summed is None else summed.tolist(), strict=True))
    assert found == merged([(i, j, w / 4) for i, j, w in edges], range(6), directed, weighted)
    once = len(pairs) if directed else sum(i <= j for i, j in pairs)
    told = f"{len(edges) - once:,} of {len(edges):,} edges are listed more than once and were merged"
    assert (told in notes) == (once < len(edges))


def test_weights_that_differ_by_rounding_are_the_same_edge():
    one, other = [0.1, 0.2, 0.3], [0.3, 0.2, 0.1]
    source, destination = np.array([0, 0, 0, 1, 1, 1]), np.array([1, 1, 1, 0, 0, 0])
    notes = []
    _, weight = merge_edges(source, destination, np.array(one + other), 2, False, notes)
    torch.testing.assert_close(weight, torch.tensor([0.6, 0.6]))
    assert len(notes) == 1


def test_weights_that_differ_are_added_up():
    notes = []
    index, weight = merge_edges(
        np.array([0, 1, 1, 2, 2]), np.array([1, 0, 2, 1, 2]), np.array([1.0, 2, 4, 4, 8]), 3, False, notes
    )
    assert index.tolist() == [[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]]
    assert weight.tolist() == [3, 3, 8, 8, 8]
    assert "different weights: the two weights were added up" in notes[0]


def test_the_caller_keeps_his_arrays():
    source, destination, weight = np.array([2, 0, 2]), np.array([1, 1, 1]), np.array([1.0, 2.0, 3.0])
    for directed in (False, True):
        merge_edges(source, destination, None, 3, directed, [])
        merge_edges(source, destination, weight, 3, directed, [])
    assert (source.tolist(), destination.tolist(), weight.tolist()) == ([2, 0, 2], [1, 1, 1], [1, 2, 3])


def test_no_edges_at_all():
    none = np.empty(0, dtype=np.int64)
    for directed in (False, True):
        for weight in (None, np.empty(0)):
            index, summed = merge_edges(none, none, weight, 3, directed, [])
            assert index.shape == (2, 0)
            assert (summed is None) == (weight is None)
