"""Label and split columns: one class, several, none; how they may be written; what is refused."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pprgnn.data import DataError
from pprgnn.data.own.labels import learn_label, read_parts
from pprgnn.data.own.table import Table, read_table
from pprgnn.data.own.tables import Columns, Schema


def table_of(kind=None, **columns):
    return Table(pa.table({name: pa.array(values, kind) for name, values in columns.items()}), "the table")


def learn(values, kind=None, separator=None):
    table = table_of(kind, y=values)
    label = learn_label(table, ("y",), separator)
    return label, *label.encode(table)


# -------------------------------------------------------------------------------------------------- one class each
@pytest.mark.parametrize(
    ("values", "kind", "classes", "numbers"),
    [
        (["b", "a", None, "b"], None, ("a", "b"), [1, 0, -1, 1]),
        (["b", " a", "", "b "], None, ("a", "b"), [1, 0, -1, 1]),
        (["b", "a", None, "b"], pa.large_string(), ("a", "b"), [1, 0, -1, 1]),
        ([10, 2, None, 2], None, ("2", "10"), [1, 0, -1, 0]),
        (["10", "2", "-1"], None, ("-1", "2", "10"), [2, 1, 0]),
        (["10", "2", "x"], None, ("10", "2", "x"), [0, 1, 2]),
        (["1e1", "9", "nan"], None, ("1e1", "9", "nan"), [0, 1, 2]),
        ([True, False, None], None, ("false", "true"), [1, 0, -1]),
        ([1.0, None, 2.0], None, ("1", "2"), [0, -1, 1]),
        ([1.0, float("nan"), 2.0], None, ("1", "2"), [0, -1, 1]),
        (["a", "a"], None, ("a",), [0, 0]),
    ],
)
def test_one_class_each(values, kind, classes, numbers):
    label, y, labelled = learn(values, kind)
    assert (label.classes, y.tolist(), y.dtype) == (classes, numbers, np.int64)
    assert labelled.tolist() == [number >= 0 for number in numbers]
    assert not label.multi


@given(st.permutations(["1", "01", "1.5", "1e0", "2"]))
def test_classes_do_not_depend_on_the_order_of_rows(values):
    assert learn(values)[0].classes == ("01", "1", "1e0", "1.5", "2")


def test_labels_of_a_file_are_as_written(tmp_path):
    (tmp_path / "t.csv").write_text("y,z\n02,True\n10,False\n,\nNA,NA\n2.0,True\n")
    table = read_table(tmp_path / "t.csv")
    assert learn_label(table, ("y",), None).classes == ("02", "2", "10")
    assert learn_label(table, ("z",), None).classes == ("False", "True")
    assert learn_label(table, ("z",), None).encode(table)[0].tolist() == [1, 0, -1, -1, 1]


def test_later_rows_may_look_like_numbers(tmp_path):
    (tmp_path / "t.csv").write_text("y\n01\nx\n")
    label = learn_label(read_table(tmp_path / "t.csv"), ("y",), None)
    (tmp_path / "t.csv").write_text("y\n01\n01\n")
    assert label.encode(read_table(tmp_path / "t.csv"))[0].tolist() == [0, 0]


# ---------------------------------------------------------------------------------------------------- several each
@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.string())])
def test_lists(kind):
    label, y, labelled = learn([["b", "a", "b"], [], None, [" b ", "", None]], kind)
    assert (label.classes, label.kind, label.multi) == (("a", "b"), "list", True)
    assert y.tolist() == [[1, 1], [0, 0], [0, 0], [0, 1]]
    assert labelled.tolist() == [True, True, False, True]


def test_lists_of_numbers():
    label, y, labelled = learn([[10, 2], None, [2, 3]], pa.list_(pa.int64(), 2))
    assert label.classes == ("2", "3", "10")
    assert y.tolist() == [[1, 0, 1], [0, 0, 0], [1, 1, 0]]
    assert labelled.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("separator", "values"),
    [
        (None, ["b|a", "|", None, "b||"]),
        (None, ["b;a", ";", None, " b ; ;"]),
        (",", ["b, a", ",", None, "b"]),
        ("::", ["b::a", "::", None, "b"]),
        ("]", ["b]a", "]", None, "b"]),
        ("^", ["b^a", "^", None, "b"]),
        (".", ["b.a", ".", None, "b"]),
    ],
)
def test_separators(separator, values):
    label, y, labelled = learn(values, separator=separator)
    assert (label.classes, label.kind) == (("a", "b"), "separated")
    assert y.tolist() == [[1, 1], [0, 0], [0, 0], [0, 1]]
    assert labelled.tolist() == [True, True, False, True]


def test_no_separator():
    label, y, _ = learn(["a|b", "b", None], separator="")
    assert (label.classes, y.tolist()) == (("a|b", "b"), [0, 1, -1])


@given(st.lists(st.none() | st.sets(st.sampled_from("pqrs")), min_size=1, max_size=8))
def test_sets_of_classes(rows):
    if not any(rows):
        rows.append({"p"})
    texts = [None if row is None else "|".join(sorted(row)) or "|" for row in rows]
    if not any("|" in text for text in texts if text):
        texts[0] = f"{texts[0] or ''}|"
        rows[0] = rows[0] or set()
    label, y, labelled = learn(texts)
    assert labelled.tolist() == [row is not None for row in rows]
    found = [{name for name, one in zip(label.classes, row, strict=True) if one} for row in y]
    assert found == [row or set() for row in rows]


def test_columns_of_zeros_and_ones():
    table = table_of(p=["0", "yes", None, "TRUE"], q=["1", "no", None, "1.0"])
    label = learn_label(table, ("p", "q"), None)
    y, labelled = label.encode(table)
    assert (label.classes, label.multi) == (("p", "q"), True)
    assert y.tolist() == [[0, 1], [1, 0], [0, 0], [1, 1]]
    assert labelled.tolist() == [True, True, False, True]


# --------------------------------------------------------------------------------------------------------- refused
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"y": [None, None]}, "the table, column 'y' is empty, so nothing can be learned"),
        ({"y": ["", " "]}, "the table, column 'y' is empty"),
        ({"y": [1.5, 2.0]}, "the table, column 'y' holds decimal numbers, but a label names a class; divide"),
        (
            {"y": [f"n{i}" for i in range(30)]},
            "column 'y' has 30 different values in 30 labelled rows, which look like",
        ),
        ({"y": [[{"a": 1}]]}, "the table, column 'y' must hold lists of class names, but holds list"),
        ({"y": [{"a": 1}]}, "the table, column 'y' must hold text or numbers here, but holds struct"),
        (
            {"p": [0, 2], "q": [1, 1]},
            "the table, row 2, label column 'p' must hold 0, 1 or nothing .* but holds '2'",
        ),
        (
            {"p": [0, 1], "q": [1, None]},
            r"the table, row 2 has some label columns filled and others empty; fill all \(p, q\)",
        ),
        ({"p": [None], "q": [None]}, "the table, columns p, q are empty, so nothing can be learned"),
    ],
)
def test_labels_that_cannot_be_learned(columns, message):
    with pytest.raises(DataError, match=message):
        learn_label(table_of(**columns), tuple(columns), None)


@pytest.mark.parametrize(
    ("learned", "later", "message"),
    [
        (
            ["a", "b"],
            ["a", None, "z"],
            r"row 3, column 'y' holds the class 'z', which is none of the 2 known classes \(a, b\)",
        ),
        (["a|b"], [None, "a|z"], "row 2, column 'y' holds the class 'z'"),
        ([["a"], ["b"]], ["a|b"], r"row 1, column 'y' holds the class 'a\|b'"),
    ],
)
def test_classes_that_are_not_known(learned, later, message):
    label = learn(learned)[0]
    with pytest.raises(DataError, match=message):
        label.encode(table_of(y=later))


@pytest.mark.parametrize("values", [["a", "b"], ["a|b"], [["a"], ["b"]]])
def test_a_label_survives_its_dictionary(values):
    label = learn(values)[0]
    assert Schema.from_dict(Schema(Columns(), (), label).to_dict()).label == label


# ----------------------------------------------------------------------------------------------------------- parts
def test_parts():
    values = ["train", " Training", "VAL", "valid", "validation", "dev", "test", "testing", "", "none", None]
    assert read_parts(table_of(split=values), "split").tolist() == [0, 0, 1, 1, 1, 1, 2, 2, -1, -1, -1]


def test_parts_of_other_names():
    with pytest.raises(
        DataError, match="the table, row 2, column 'split' must say train, val, test or nothing, but says 'x'"
    ):
        read_parts(table_of(split=["train", "X"]), "split")
