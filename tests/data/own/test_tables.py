"""Tables of random graphs give the same graph back; guesses, options, schemas, and tables that cannot be used."""

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pprgnn.data import DataError, from_tables, open_file, save
from pprgnn.data.own.tables import Columns, Schema

from .drawn import (
    classes_of,
    close,
    edges_of,
    encoded,
    graphs,
    ids_of,
    merged,
    same_tensors,
    write,
    write_text,
)

FORMATS = (".csv", ".tsv", ".parquet", ".csv.gz")
PARTS = {"train": 0, "val": 1, "test": 2, None: -1}


@pytest.fixture
def table(tmp_path):
    """Write a text file: ``table("edges.csv", "a,b\\n...")``."""

    def write_file(name, text):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


# -------------------------------------------------------------------------------------------------- the same graph
@given(graphs(), st.sampled_from(FORMATS), st.booleans())
def test_the_same_graph_comes_back(drawn, suffix, weighted):
    with tempfile.TemporaryDirectory() as folder:
        edge_columns = drawn.edge_columns()
        if not weighted:
            del edge_columns["weight"]
        edges = write(Path(folder) / f"edges{suffix}", edge_columns)
        nodes = write(Path(folder) / f"nodes{suffix}", drawn.node_columns())
        dataset = from_tables(edges, nodes, directed=drawn.directed, empty_edges="allow")
        data = dataset._data
        assert [str(node) for node in ids_of(dataset)] == [str(node) for node in drawn.ids]
        assert edges_of(dataset) == merged(drawn.edges, drawn.ids, drawn.directed, weighted)
        assert ("edge_weight" in data) == weighted
        assert classes_of(dataset) == drawn.columns["label"]
        assert data.labelled.tolist() == [label is not None for label in drawn.columns["label"]]
        features = {name: drawn.columns[name] for name in ("size", "count", "colour")}
        assert close([] if data.x is None else data.x.tolist(), encoded(features))
        if any(drawn.columns["split"]):
            assert data.part.tolist() == [PARTS[part] for part in drawn.columns["split"]]

        later = from_tables(edges, nodes, schema=json.loads(json.dumps(dataset.facts.schema)))
        same_tensors(data, later._data)
        assert later.facts.schema == dataset.facts.schema

        save(dataset, Path(folder) / "kept.safetensors")
        again = open_file(Path(folder) / "kept.safetensors")
        same_tensors(data, again._data)
        assert again.facts == dataset.facts
        assert again.node_names == dataset.node_names


@given(graphs(with_nodes=False), st.sampled_from(FORMATS), st.booleans())
def test_edges_alone_make_a_graph_of_the_nodes_they_name(drawn, suffix, weighted):
    with tempfile.TemporaryDirectory() as folder:
        edges = write(Path(folder) / f"edges{suffix}", drawn.edge_columns())
        dataset = from_tables(edges, directed=drawn.directed, weight=None if weighted else "")
        ids = ids_of(dataset)
        assert {str(node) for node in ids} == {str(end) for edge in drawn.edges for end in edge[:2]}
        assert ids == sorted(ids, key=lambda node: node if isinstance(node, int) else node.encode())
        assert edges_of(dataset) == merged(drawn.edges, ids, drawn.directed, weighted)


@given(graphs(), st.randoms(use_true_random=False))
def test_new_rows_are_treated_as_the_old_ones(drawn, random):
    """Each row gets the same numbers with the schema, whatever rows come with it and in which order."""
    old = from_tables(pa.table(drawn.edge_columns()), pa.table(drawn.node_columns()), empty_edges="allow")
    order = random.sample(range(len(drawn.ids)), random.randint(1, len(drawn.ids)))
    types = pa.table(drawn.node_columns()).schema  # as a file of these rows alone might have lost them
    rows = pa.table({name: [column[i] for i in order] for name, column in drawn.node_columns().items()}, types)
    new = from_tables(pa.table(drawn.edge_columns()).slice(0, 0), rows, schema=old.facts.schema)
    for name in ("x", "y", "labelled"):
        if name in old._data:
            assert new._data[name].equal(old._data[name][order])


def test_several_classes_each(table):
    edges = table("edges.csv", "a,b\n1,2\n")
    dataset = from_tables(edges, table("nodes.csv", "id,label\n1,x| y\n2,|\n3,\n4,y\n"))
    assert dataset.facts.multi_label
    assert dataset.facts.metric == "micro-F1"
    assert dataset.facts.class_names == ("x", "y")
    assert dataset._data.y.tolist() == [[1, 1], [0, 0], [0, 0], [0, 1]]
    assert dataset._data.labelled.tolist() == [True, True, False, True]  # "|": labelled, and none of the classes
    assert (
        "column 'label' holds several classes, separated by '|'; --label-separator '' reads one class per node"
        in dataset.facts.guessed
    )


# --------------------------------------------------------------------------------------------------------- guesses
@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("source,target", ("source", "target", None)),
        ("target,source", ("source", "target", None)),
        ("Node_1,node-2", ("Node_1", "node-2", None)),
        ("x,y", ("x", "y", None)),
        ("x,source", ("source", "x", None)),
        ("target,x", ("x", "target", None)),
        ("w,u", ("u", "w", None)),  # not the end and the weight at once
        ("x,y,weight", ("x", "y", "weight")),
        ("Weight,from,to", ("from", "to", "Weight")),
    ],
)
def test_edge_columns_by_name_or_else_by_place(table, header, found):
    row = ",".join(str(i) for i in range(header.count(",") + 1))
    columns = from_tables(table("edges.csv", f"{header}\n{row}\n")).facts.schema["columns"]
    assert (columns["source"], columns["destination"], columns["weight"]) == found


def test_node_columns_by_name(table):
    edges = table("edges.csv", "a,b\n1,2\n")
    nodes = table("nodes.csv", "age,Class,Node ID,Set\n3,x,1,train\n4,y,2,test\n")
    dataset = from_tables(edges, nodes)
    columns = dataset.facts.schema["columns"]
    assert (columns["id"], columns["label"], columns["split"]) == ("Node ID", ["Class"], "Set")
    assert dataset.facts.guessed == (
        "edges run from column 'a' to column 'b'",
        "node ids are in column 'Node ID'",
        "the label is in column 'Class'",
        "the split is in column 'Set'",
        "2 classes with fewer than 3 nodes, too few for training, validation and test: x (1), y (1)",
    )


def test_a_set_that_is_no_split_is_a_feature(table):
    nodes = table("nodes.csv", "id,set\n1,A\n2,B\n3,A\n")
    dataset = from_tables(table("edges.csv", "a,b\n1,2\n"), nodes)
    assert dataset.facts.schema["columns"]["split"] is None
    assert dataset.num_features == 2


def test_nothing_is_guessed_that_is_named(table):
    dataset = from_tables(
        table("edges.csv", "source,target,weight,other\n1,7,9,8\n"),
        table("nodes.csv", "id,label,other,split,x\n7,a,1,train,3\n8,b,2,test,4\n5,a,2,test,5\n"),
        source="target",
        destination="other",
        weight="",
        id="id",
        label="",
        split="",
        features="x",
    )
    data = dataset._data
    assert edges_of(dataset) == {(0, 1): 1.0, (1, 0): 1.0}
    assert "edge_weight" not in data
    assert data.y is None
    assert "part" not in data
    assert data.x.shape == (3, 1)


def test_every_column_says_how_it_was_read(table):
    edges = table("edges.csv", "a,b,weight,since\nk,l,1,2\nl,m,2,3\n")
    rows = "id,x,born,team,name,one,off,y,part\nk,1,2020-01-02,r,p q,5,1,u,train\n"
    rows += "l,,2020-01-03,s,r s,5,2,v,test\nm,3,2020-01-04,r,t u,5,3,u,\n"
    graph = from_tables(edges, table("nodes.csv", rows), label="y", split="part", ignore="off")
    assert [row[1:] for row in graph.facts.columns if row[0] == "edges.csv"] == [
        ("a", "start of the edge", ""),
        ("b", "end of the edge", ""),
        ("weight", "weight of the edge", ""),
        ("since", "not used", "no attributes of edges are used"),
    ]
    assert [row[1:] for row in graph.facts.columns if row[0] == "nodes.csv"] == [
        ("id", "node id", ""),
        ("x", "number", "1 of 3 values are missing"),
        ("born", "date", ""),
        ("team", "category of 2", ""),
        ("name", "not used", "its texts look like names, not like categories"),
        ("one", "not used", "all values are the same"),
        ("off", "not used", "as asked for"),
        ("y", "label, one of 2 classes", ""),
        ("part", "split", ""),
    ]


# ----------------------------------------------------------------------------------------------------- first lines
def test_a_first_line_of_node_ids_is_an_edge(table):
    dataset = from_tables(table("edges.csv", "ann,bob\nbob,cleo\ncleo,ann\n"))
    assert ids_of(dataset) == ["ann", "bob", "cleo"]
    assert dataset._data.num_edges == 6
    assert "has no header line: its first line, ann and bob, names nodes" in dataset.facts.guessed[0]


def test_a_first_line_that_the_node_table_names_is_an_edge(table):
    dataset = from_tables(
        table("edges.csv", "ann,bob\ncleo,dan\n"), table("nodes.csv", "id\nann\nbob\ncleo\ndan\n")
    )
    assert dataset._data.num_edges == 4


@pytest.mark.parametrize("named", [{}, {"source": "u"}])
def test_a_header_of_usual_names_stays_one_even_if_nodes_are_called_so(table, named):
    dataset = from_tables(table("edges.csv", "u,v\nu,v\nv,x\n"), **named)
    assert dataset._data.num_edges == 4


def test_without_a_header_now_there_is_none_later(table):
    old = from_tables(table("edges.csv", "ann,bob\nbob,cleo\ncleo,ann\n"))
    new = from_tables(table("later.csv", "dan,eve\nfay,gus\n"), schema=old.facts.schema)
    assert new._data.num_edges == 4
    assert new.facts.guessed == ("later.csv has no header line",)


def test_a_name_for_the_graph(table):
    edges = table("my.graph.csv", "a,b\n1,2\n")
    assert from_tables(edges).facts.name == "my"
    assert from_tables(edges, name="yours").facts.name == "yours"
    assert from_tables(pa.table({"a": [1], "b": [2]})).facts.name == "graph"


# -------------------------------------------------------------------------------------------------- schemas, later
@pytest.fixture
def trained(table):
    edges = table("edges.csv", "a,b,weight\n1,2,1\n2,3,4\n")
    rows = "id,age,team,zip,born,label\n1,5,red,007,2020-01-01,x\n2,,blue,7,2020-01-03,y\n3,9,red,12,2020-01-04,\n"
    dataset = from_tables(edges, table("nodes.csv", rows), categorical="zip")
    assert dataset.num_features == 8  # age, age is missing, 2 teams, 3 zips, born
    return edges, dataset


def later(trained, table, rows):
    edges, dataset = trained
    return from_tables(edges, table("later.csv", rows), schema=dataset.facts.schema)


def test_other_columns_and_another_order_change_nothing(trained, table):
    rows = (
        "zip,extra,id,born,age,team\n007,1,1,2020-01-01,5,red\n7,2,2,2020-01-03,,blue\n12,3,3,2020-01-04,9,red\n"
    )
    new = later(trained, table, rows)
    assert new._data.x.equal(trained[1]._data.x)
    assert new._data.y.tolist() == [-1, -1, -1]  # no label column: all to be predicted
    assert not new._data.labelled.any()
    assert new.facts.class_names == ("x", "y")


def test_categories_are_compared_as_text(trained, table):
    """A file in which every zip is a number must not lose the leading zeros of the earlier ones."""
    new = later(trained, table, "id,age,team,zip,born\n1,5,red,7,\n2,5,red,12,\n3,5,red,007,\n")
    assert new._data.x[:, 4:7].tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]  # 007, 12, 7


def test_a_new_category_and_what_is_missing(trained, table):
    new = later(trained, table, "id,age,team,zip,born\n1,,green,99,\n2,5,,,\n3,7,red,7,\n")
    assert new._data.x[:2].tolist() == [[0, 1, 0, 0, 0, 0, 0, 0], [-1, 0, 0, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "id,age,zip,born\n1,5,7,\n2,5,7,\n3,5,7,\n",
            "later.csv has no column 'team'; its columns are id, age, zip, born",
        ),
        (
            "id,age,team,zip,born\n1,5,red,7,\n2,old,red,7,\n3,5,red,7,\n",
            "line 3, column 'age' must hold a number, but",
        ),
        (
            "id,age,team,zip,born\n1,5,red,7,1\n2,4,red,7,2\n3,5,red,7,3\n",
            "column 'born' must hold dates or times as",
        ),
        (
            "id,age,team,zip,born\n1,2020-01-01,red,7,\n2,,r,7,\n3,,r,7,\n",
            "column 'age' must hold numbers as in the",
        ),
        (
            "id,age,team,zip,born\n1,5,red,7,\n2,1e300,red,7,\n3,5,red,7,\n",
            "line 3, column 'age' is too far from all",
        ),
        (
            "id,age,team,zip,born,label\n1,5,r,7,,z\n2,1,r,7,,\n3,5,r,7,,\n",
            "line 2, column 'label' holds the class 'z'",
        ),
    ],
)
def test_what_does_not_fit_the_schema(trained, table, rows, message):
    with pytest.raises(DataError, match=message):
        later(trained, table, rows)


def test_a_schema_settles_what_the_columns_are(trained, table):
    edges, dataset = trained
    nodes = table("nodes.csv", "id,age\n1,1\n2,2\n3,3\n")
    with pytest.raises(DataError, match="A schema already says what the columns are; leave out label"):
        from_tables(edges, nodes, schema=dataset.facts.schema, label="age")
    with pytest.raises(DataError, match="had a node table, but none came"):
        from_tables(edges, schema=dataset.facts.schema)
    with pytest.raises(DataError, match="had no node table, but one came"):
        from_tables(edges, nodes, schema=from_tables(edges).facts.schema)


def test_where_columns_are_may_change(trained, table):
    edges, dataset = trained
    moved = table("moved.csv", "x,y,weight\n1,2,3\n")
    new = from_tables(
        moved, edges.with_name("nodes.csv"), schema=dataset.facts.schema, source="x", destination="y"
    )
    assert new._data.edge_weight.tolist() == [3, 3]
    assert new._data.x.equal(dataset._data.x)


def test_weights_and_split_can_be_left_out_later(table):
    edges = table("edges.csv", "a,b,weight\n1,2,3\n")
    old = from_tables(edges, table("nodes.csv", "id,split\n1,train\n2,test\n"))
    new = from_tables(edges, edges.with_name("nodes.csv"), schema=old.facts.schema, weight="", split="")
    assert "part" in old._data
    assert "edge_weight" in old._data
    assert "part" not in new._data
    assert "edge_weight" not in new._data


def test_a_schema_survives_json():
    columns = Columns(source="a", label=(), features=("x",), categorical=("x",))
    schema = Schema(columns, (), None)
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


# ------------------------------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("edges", "nodes", "named", "message"),
    [
        ("a\n1\n", None, {}, r"edges.csv must have two columns of node ids, but has 1 \(a\)"),
        ("a,b\n", None, {}, "edges.csv has no edges and there is no node table"),
        ("a,b\n1,2\n", "id,x\n", {}, "nodes.csv has no rows; expected one for each node"),
        ("a,b\n1,2\n", None, {"source": "c"}, "edges.csv has no column 'c'; its columns are a, b"),
        ("a,b\n1,2\n", None, {"weight": "c"}, "edges.csv has no column 'c'"),
        ("a,b\n1,2\n", None, {"source": "a", "destination": "a"}, "both are in column 'a' of edges.csv; name two"),
        ("a,b\n1,2\n", None, {"colour": "a"}, "There is no option 'colour'; the options are source, destination"),
        ("a,b\n1,2\n", "id,x\n1,1\n2,2\n", {"ignore": "y"}, "nodes.csv has no column 'y'"),
        ("a,b\n1,2\n", "id,x\n1,1\n2,2\n", {"categorical": "y"}, "nodes.csv has no column 'y'"),
        ("a,b\n1,2\n", "id,x\n1,1\n2,2\n", {"features": "y"}, "nodes.csv has no column 'y'"),
        (
            "a,b\n1,2\n",
            "id,x\n1,1\n2,2\n",
            {"features": "x", "label": "x"},
            "column 'x' must be a feature or something",
        ),
        ("a,b\n1,2\n", "id,x\n1,1\n2,2\n", {"label": "y"}, "nodes.csv has no column 'y'"),
        (
            "a,b\n1,2\n",
            "id,x\n1,tra\n2,val\n",
            {"split": "x"},
            "line 2, column 'x' must say train, val, test or nothing",
        ),
    ],
)
def test_tables_that_make_no_graph(table, edges, nodes, named, message):
    with pytest.raises(DataError, match=message):
        from_tables(table("edges.csv", edges), None if nodes is None else table("nodes.csv", nodes), **named)


def test_nothing_comes_of_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"edges.csv does not exist; name a CSV, TSV, Parquet or Excel file"):
        from_tables(tmp_path / "edges.csv")
    with pytest.raises(DataError, match="is a folder; name a CSV, TSV, Parquet or Excel file"):
        from_tables(tmp_path)


def test_a_graph_of_one_node(table):
    dataset = from_tables(table("edges.csv", "a,b\n"), table("nodes.csv", "id,x\n5,1\n"), empty_edges="allow")
    assert (dataset.num_nodes, dataset._data.num_edges, ids_of(dataset)) == (1, 0, [5])
    assert dataset.adjacency().num_edges == 0


def test_arrow_tables_with_any_types(tmp_path):
    edges = {"a": pa.array(["x", "y"]).dictionary_encode(), "b": pa.array(["y", "z"], pa.large_string())}
    nodes = {
        "id": pa.array(["z", "y", "x"], pa.string_view()),
        "label": pa.array(["p", None, "q"]).dictionary_encode(),
    }
    dataset = from_tables(pa.table(edges), pa.table(nodes))
    assert edges_of(dataset) == dict.fromkeys([(0, 1), (1, 0), (1, 2), (2, 1)], 1.0)
    assert dataset._data.y.tolist() == [0, -1, 1]


def test_duplicate_columns_in_memory():
    with pytest.raises(DataError, match="the edge table has 2 columns named 'a'"):
        from_tables(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))


def test_ids_are_kept_as_numbers_or_text(tmp_path):
    numbers = from_tables(pa.table({"a": [30, 10], "b": [20, 30]}))
    assert numbers._data.node_id.equal(torch.tensor([10, 20, 30]))
    assert numbers.node_names is None
    texts = from_tables(write_text(tmp_path / "edges.csv", {"a": ["010", "30"], "b": ["20", "010"]}))
    assert texts.node_names == ["010", "20", "30"]
    assert "node_id" not in texts._data
