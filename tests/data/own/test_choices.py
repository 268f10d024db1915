"""Tables with flaws: the default is an error in one sentence, and each remedy can be asked for."""

import pytest

from pprgnn.data import DataError, from_tables

from .drawn import edges_of, ids_of


@pytest.fixture
def table(tmp_path):
    def write_file(name, text, encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(text.encode(encoding))
        return path

    return write_file


EDGES = "a,b,weight\n1,2,1\n2,3,2\n3,9,4\n8,9,8\n"
NODES = "id,x,label\n1,5,p\n2,6,q\n3,7,p\n"


def test_edges_to_unknown_nodes(table):
    edges, nodes = table("edges.csv", EDGES), table("nodes.csv", NODES)
    with pytest.raises(DataError, match=r"\(2 of 4 edges do so\); --unknown-nodes add adds these nodes"):
        from_tables(edges, nodes)
    dropped = from_tables(edges, nodes, unknown_nodes="drop")
    assert edges_of(dropped) == {(0, 1): 1.0, (1, 0): 1.0, (1, 2): 2.0, (2, 1): 2.0}
    assert "2 of 4 edges name nodes that are in no row of nodes.csv and were dropped" in dropped.facts.guessed
    added = from_tables(edges, nodes, unknown_nodes="add")
    assert ids_of(added) == [1, 2, 3, 8, 9]
    assert edges_of(added)[3, 4] == 8.0
    assert edges_of(added)[2, 4] == 4.0
    assert added._data.y.tolist() == [0, 1, 0, -1, -1]
    assert added._data.x[3:].tolist() == [[0, 1], [0, 1]]  # x is missing
    assert "name 2 nodes that are in no row of nodes.csv: they were added" in " ".join(added.facts.guessed)


def test_added_nodes_of_text(table):
    edges = table("edges.csv", "a,b\n007,x\ny,007\n")
    added = from_tables(edges, table("nodes.csv", "id,zip\nx,01\n007,1\n"), unknown_nodes="add", categorical="zip")
    assert ids_of(added) == ["x", "007", "y"]
    assert added._data.x.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]  # 01 and 1 as written


def test_repeated_ids(table):
    edges = table("edges.csv", "a,b\n1,2\n")
    nodes = table("nodes.csv", "id,x,zip\n1,5,01\n2,6,02\n1,7,03\n")
    with pytest.raises(DataError, match=r"keep one row per node, or say which counts \(--duplicates first or"):
        from_tables(edges, nodes)
    first = from_tables(edges, nodes, duplicates="first", categorical="zip")
    assert (ids_of(first), first.facts.schema["features"][1]["categories"]) == ([1, 2], ["01", "02"])
    last = from_tables(edges, nodes, duplicates="last", categorical="zip")
    assert (ids_of(last), last.facts.schema["features"][1]["categories"]) == ([2, 1], ["02", "03"])
    assert "1 of 3 rows of nodes.csv repeat a node id: the last row counts" in last.facts.guessed


def test_empty_ids(table):
    edges, nodes = table("edges.csv", "a,b\n1,2\n,2\n2,3\n"), table("nodes.csv", "id,x\n1,5\n,6\n2,7\n3,8\n")
    with pytest.raises(DataError, match=r"must hold a node id, but is empty; .* \(--empty-ids drop\)"):
        from_tables(edges, nodes)
    dropped = from_tables(edges, nodes, empty_ids="drop")
    assert ids_of(dropped) == [1, 2, 3]
    assert edges_of(dropped).keys() == {(0, 1), (1, 0), (1, 2), (2, 1)}
    assert "1 of 3 rows of edges.csv have no node id and were dropped" in dropped.facts.guessed
    assert "1 of 4 rows of nodes.csv have no node id and were dropped" in dropped.facts.guessed
    with pytest.raises(DataError, match="has no edges and there is no node table"):
        from_tables(table("none.csv", "a,b\n,2\n"), empty_ids="drop")


def test_errors_name_the_line_after_rows_were_dropped(table):
    nodes = table("nodes.csv", "id,x,split\n,1,\n1,5,train\n2,6,wrong\n")
    with pytest.raises(DataError, match=r"nodes.csv, line 4, column 'split' must say"):
        from_tables(table("edges.csv", "a,b\n1,2\n"), nodes, empty_ids="drop", split="split")


def test_no_edges(table):
    edges, nodes = table("edges.csv", "source,target\n"), table("nodes.csv", NODES)
    with pytest.raises(DataError, match=r"edges.csv has no edges; add some, or ask .* \(--empty-edges allow\)"):
        from_tables(edges, nodes)
    assert from_tables(edges, nodes, empty_edges="allow").num_edges == 0
    strange = table("strange.csv", "source,target\n7,8\n")
    with pytest.raises(DataError, match=r"strange.csv has no edges that join known nodes; add some"):
        from_tables(strange, nodes, unknown_nodes="drop")


@pytest.mark.parametrize(
    ("option", "value"), [("label", "x"), ("id", "x"), ("features", "x"), ("unknown_nodes", "drop")]
)
def test_what_needs_a_node_table(table, option, value):
    typed = {"label": "--target", "unknown_nodes": "--unknown-nodes"}.get(option, f"--{option}")
    with pytest.raises(DataError, match=f"{typed} is about the node table, but there is none"):
        from_tables(table("edges.csv", EDGES), **{option: value})


@pytest.mark.parametrize("option", ["unknown_nodes", "duplicates", "empty_ids", "empty_edges"])
def test_choices_that_there_are_not(table, option):
    with pytest.raises(DataError, match=f"The option {option} must be one of error, .* but is 'maybe'"):
        from_tables(table("edges.csv", EDGES), **{option: "maybe"})


def test_encodings(table):
    text = "id;naïve\nJosé;3,5\nZoë;4,5\n"
    edges = table("edges.csv", "a,b\nJosé,Zoë\n")
    with pytest.raises(DataError, match="line 1 is not UTF-8 text; convert the file, or name its encoding"):
        from_tables(edges, table("nodes.csv", text, "cp1252"))
    for encoding in ("cp1252", "utf-16"):
        nodes = table("nodes.csv", text, encoding)
        with pytest.raises(DataError, match="--encoding"):
            from_tables(edges, nodes)
        both = from_tables(table("e.csv", "a,b\nJosé,Zoë\n", encoding), nodes, encoding=encoding)
        assert ids_of(both) == ["José", "Zoë"]
        assert both.facts.columns[-1] == ("nodes.csv", "naïve", "number, decimal comma", "")
        assert ids_of(from_tables(both_edges(table, encoding), nodes, schema=both.facts.schema)) == ["José", "Zoë"]
    with pytest.raises(DataError, match="There is no encoding 'klingon'"):
        from_tables(edges, encoding="klingon")
    with pytest.raises(DataError, match="is not text in the encoding ascii; name another with --encoding"):
        from_tables(edges, encoding="ascii")
    late = table("late.csv", "a,b\n" + "x,y\n" * 300_000 + "x,Zoë\n")
    with pytest.raises(DataError, match=r"late.csv is not text in the encoding ascii"):
        from_tables(late, encoding="ascii")


def both_edges(table, encoding):
    return table("later.csv", "a,b\nZoë,José\n", encoding)


def test_near_misses(table):
    edges = table("edges.csv", "a,b\n1,2\n")
    names = ",".join(f"feature_{i}" for i in range(300))
    nodes = table("nodes.csv", f"id,Topic,{names}\n1{',0' * 301}\n2{',1' * 301}\n")
    with pytest.raises(DataError) as caught:
        from_tables(edges, nodes, label="topc")
    assert str(caught.value) == (
        "nodes.csv has no column 'topc' (did you mean 'Topic'?); its columns are id, Topic, feature_0, feature_1, "
        "feature_2, feature_3, feature_4, feature_5, feature_6, feature_7 and 292 more."
    )


# --------------------------------------------------------------------------------------------------------- classes
def test_a_label_of_numbers_is_told(table):
    nodes = table("nodes.csv", "id,label\n" + "".join(f"{i},{i % 3 + 1}\n" for i in range(12)))
    guessed = from_tables(table("edges.csv", "a,b\n1,2\n"), nodes).facts.guessed
    told = "the numbers in the label column 'label' are read as 3 classes, not as amounts; --target names another"
    assert guessed[-1] == f"{told} column"


def test_classes_that_are_alike_or_small_are_told(table):
    labels = ["red"] * 4 + ["Red "] * 4 + ["light  blue"] * 3 + ["LightBlue"] * 3 + ["teal", "pink", "pink"]
    nodes = table("nodes.csv", "id,label\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels)))
    guessed = from_tables(table("edges.csv", "a,b\n1,2\n"), nodes).facts.guessed
    assert guessed[-2:] == (
        "classes that differ by case or blanks alone: 'LightBlue' and 'light  blue', 'Red' and 'red'; are they "
        "one?",
        "2 classes with fewer than 3 nodes, too few for training, validation and test: pink (2), teal (1)",
    )


def test_a_class_that_means_unknown_is_told(table):
    nodes = table("nodes.csv", "id,label\n" + "".join(f"{i},{('a', 'b', '?')[i % 3]}\n" for i in range(12)))
    guessed = from_tables(table("edges.csv", "a,b\n1,2\n"), nodes).facts.guessed
    assert guessed[-1] == "'?' is read as a class; leave the label empty where it is to be predicted"


def test_a_category_that_is_new_is_told(table):
    edges = table("edges.csv", "a,b\n1,2\n2,3\n3,4\n")
    old = from_tables(edges, table("nodes.csv", "id,team\n1,red\n2,blue\n3,red\n4,\n"))
    later = table("later.csv", "id,team\n1,teal\n2,blue\n3,teal\n4,pink\n")
    told = "column 'team': 3 of 4 rows hold a category that was not there in training (teal, pink); they count as"
    assert from_tables(edges, later, schema=old.facts.schema).facts.guessed == (f"{told} none",)
    assert from_tables(edges, edges.with_name("nodes.csv"), schema=old.facts.schema).facts.guessed == ()


# --------------------------------------------------------------------------------- points that are not decimal
def features(table, rows, **named):
    graph = from_tables(table("edges.csv", "a;b\n1;2\n2;3\n"), table("nodes.csv", rows), **named)
    return graph.facts.columns[-1][2:], graph


def test_points_between_thousands_in_a_file_with_semicolons(table):
    """A program would take 1.234 for a number just above 1; beside 567 that would be far off."""
    rows = "id;pay\n1;1.234\n2;567\n3;2.500\n"
    told, graph = features(table, rows)
    assert told == (
        "number, decimal comma, thousands point",
        "1.234 is read as 1234; --decimal . reads 1.234",
    )
    assert graph.facts.schema["features"][0]["mean"] == [pytest.approx((1234 + 567 + 2500) / 3)]
    later = table("later.csv", "id;pay\n1;1.500\n2;567\n3;2.500\n")  # a program sees nothing but numbers
    again = from_tables(table("edges.csv", "a;b\n1;2\n2;3\n"), later, schema=graph.facts.schema)
    assert again._data.x[1:].equal(graph._data.x[1:])
    weighted = from_tables(table("w.csv", "a;b;weight\n1;2;1.234\n2;3;567\n"))
    assert weighted._data.edge_weight.tolist() == [1234, 1234, 567, 567]
    assert features(table, rows, decimal=".")[0] == ("number", "")
    for plain in ("1.25", "0.125", "1.2345"):
        assert features(table, f"id;pay\n1;1.234\n2;567\n3;{plain}\n")[0] == ("number", "")
    with pytest.raises(DataError, match=r"nodes.csv, line 3, column 'pay' must be finite, but is inf"):
        features(table, "id;pay\n1;1.234\n2;inf\n3;1.25\n")
