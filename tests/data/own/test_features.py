"""Columns into numbers: each kind, what is left out and why, and what is refused."""

import datetime
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pprgnn.data import DataError
from pprgnn.data.own.features import MOST_CATEGORIES, Feature, learn_feature
from pprgnn.data.own.table import Table, read_table


def table_of(values, kind=None):
    return Table(pa.table({"c": pa.array(values, kind)}), "the table")


def learn(values, kind=None, **options):
    return learn_feature(table_of(values, kind), "c", **options)


def encode(values, kind=None, **options):
    feature, _ = learn(values, kind, **options)
    return feature.encode(table_of(values, kind)).tolist()


# --------------------------------------------------------------------------------------------------------- numbers
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 3, 5], None),
        ([1, 3, 5], pa.int8()),
        ([2**60, 2**60 + 2**30, 2**60 + 2**31], None),  # beyond what a float holds exactly
        ([1.0, 3.0, 5.0], pa.float32()),
        ([np.float16(1), np.float16(3), np.float16(5)], pa.float16()),
        ([Decimal("1.5"), Decimal("2.5"), Decimal("3.5")], None),
        ([datetime.date(2020, 1, day) for day in (1, 3, 5)], None),
        ([datetime.datetime(2020, 1, day) for day in (1, 3, 5)], pa.timestamp("ns", "UTC")),
        ([datetime.time(hour) for hour in (1, 3, 5)], pa.time32("s")),
        ([datetime.timedelta(days) for days in (1, 3, 5)], None),
        ([-1e308, 0.0, 1e308], None),
        ([0.0, 1e-308, 2e-308], None),
    ],
)
def test_numbers_of_any_type_are_standardised(values, kind):
    assert np.allclose(encode(values, kind), np.array([[-1], [0], [1]]) * np.sqrt(1.5))


def test_zeros_and_ones_stay_what_they_are():
    assert encode([True, False, False, True]) == [[1], [0], [0], [1]]
    assert encode([0, 1, 1]) == [[0], [1], [1]]
    assert encode([0.0, None, 1.0]) == [[0, 0], [0, 1], [1, 0]]


def test_zeros_of_a_column_that_is_mostly_zero_stay_zeros():
    assert np.allclose(encode([0] * 18 + [3, 4])[17:], [[0], [3 / math.sqrt(12.5)], [4 / math.sqrt(12.5)]])
    assert encode([0] * 17 + [3, 4, 5])[0][0] < 0
    assert encode([0] * 19 + [1e300])[-1] == [1]  # no square of it is taken


@given(st.lists(st.none() | st.floats(-1e9, 1e9), min_size=2, max_size=20))
def test_numbers_have_mean_0_and_spread_1(values):
    feature, _ = learn(values, pa.float64())
    if feature is None:
        assert len(set(values)) == 1
        return
    encoded = feature.encode(table_of(values, pa.float64()))
    known = np.array([value is not None for value in values])
    assert feature.missing == (not known.all())
    assert encoded.shape == (len(values), 1 + feature.missing)
    assert not encoded[~known, 0].any()  # at the mean
    if feature.missing:
        assert encoded[:, 1].tolist() == (~known).tolist()
    zeros_stay = {*values} <= {0, 1, None} or (np.array(values)[known] == 0).mean() >= 0.9
    assert (abs(encoded[known, 0].mean()) < 1e-3) is not zeros_stay
    if zeros_stay:
        return
    spread = np.std([value for value in values if value is not None])
    if spread > 1e-6:
        assert abs(encoded[known, 0].std() - 1) < 1e-3


def test_a_column_that_varies_by_rounding_alone_keeps_its_unit():
    feature, _ = learn([0.1 + 0.2, 0.3, 0.3])
    assert feature.scale == (1.0,)


# ------------------------------------------------------------------------------------------------------ categories
def test_categories_get_a_column_each():
    feature, remark = learn(["b", "a", None, "b"])
    assert feature.outputs == ["c = a", "c = b", "c is missing"]
    assert remark == "1 of 4 values are missing"
    assert feature.encode(table_of(["b", "a", None, "new", " a "])).tolist() == [
        [0, 1, 0],
        [1, 0, 0],
        [0, 0, 1],
        [0, 0, 0],
        [1, 0, 0],
    ]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
def test_text_of_any_type(kind):
    assert encode(["b", "a", "b"], kind) == [[0, 1], [1, 0], [0, 1]]


def test_rare_categories_count_as_one():
    values = [f"k{i:03}" for i in range(MOST_CATEGORIES + 5) for _ in range(20 + i)]
    feature, remark = learn(values)
    assert feature.categories == tuple(f"k{i:03}" for i in range(5, MOST_CATEGORIES + 5))  # the most frequent
    assert remark == "the 5 rarest categories count as one"
    assert feature.encode(table_of(["k000", "k005", "new"]))[:, [0, -1]].tolist() == [[0, 1], [1, 0], [0, 1]]


def test_numbers_as_categories():
    assert encode([3, 1, 3], categorical=True) == [[0, 1], [1, 0], [0, 1]]
    assert encode([3.0, None, 1.0], categorical=True) == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert learn([3.0, None, 1.0], categorical=True)[0].categories == ("1", "3")


def test_categories_of_a_file_are_as_written(tmp_path):
    (tmp_path / "t.csv").write_text("c\n007\n7\n007\n")
    table = read_table(tmp_path / "t.csv")
    feature, _ = learn_feature(table, "c", categorical=True)
    assert feature.categories == ("007", "7")
    assert feature.encode(table).tolist() == [[1, 0], [0, 1], [1, 0]]


# --------------------------------------------------------------------------------------------------------- vectors
@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.int32()), pa.list_(pa.int64(), 2)])
def test_lists_of_numbers(kind):
    feature, remark = learn([[1, 7], None, [3, 7]], kind)
    assert feature.outputs == ["c[0]", "c[1]", "c is missing"]
    assert remark == "1 of 3 values are missing"
    assert feature.encode(table_of([[1, 7], None, [3, 8]], kind)).tolist() == [[-1, 0, 0], [0, 0, 1], [1, 1, 0]]


# -------------------------------------------------------------------------------------------------------- left out
@pytest.mark.parametrize(
    ("values", "kind", "reason"),
    [
        ([None, None], pa.float64(), "it is empty"),
        ([None, None], pa.null(), "it is empty"),
        (["", " "], None, "it is empty"),
        ([[], []], pa.list_(pa.float64()), "it is empty"),
        ([5, 5], None, "all values are the same"),
        ([True, True], None, "all values are the same"),
        (["x", "x"], None, "all values are the same"),
        ([[1, 2], [1, 2]], None, "all values are the same"),
        (["x", "y", "z"], None, "its texts look like names, not like categories"),
        ([f"n{i % 60}" for i in range(100)], None, "its texts look like names, not like categories"),
        (list(range(10)), None, "it counts the rows"),
        (list(range(1, 31)), None, "it counts the rows"),
    ],
)
def test_columns_that_say_nothing(values, kind, reason):
    assert learn(values, kind) == (None, reason)


@pytest.mark.parametrize(
    "values", [["x", None], [5, None], [5, 5, 6], ["x", "y"], list(range(9)), list(range(2, 20))]
)
def test_columns_that_say_something(values):
    assert learn(values)[0] is not None


def test_a_list_may_begin_with_a_count():
    assert learn([[i, i * i] for i in range(30)])[0].kind == "vector"


def test_what_is_asked_for_is_taken():
    assert learn(list(range(30)), asked_for=True)[0].kind == "number"
    assert learn(["x", "y", "z"], asked_for=True)[0].categories == ("x", "y", "z")
    assert learn(["x", "y", "z"], categorical=True)[0].categories == ("x", "y", "z")


# --------------------------------------------------------------------------------------------------------- refused
@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (
            [1.0, float("nan")],
            None,
            "the table, row 2, column 'c' must be finite, but is nan; correct it or leave",
        ),
        ([float("-inf"), 1.0], None, "the table, row 1, column 'c' must be finite, but is -inf"),
        ([{"a": 1}, {"a": 2}], None, "the table, column 'c' must hold numbers or text, but holds struct"),
        ([b"\xff", b"a"], None, "the table, column 'c' must hold numbers or text, but holds binary"),
        (
            [[1.0, 2.0], [1.0]],
            None,
            "the table, row 2, column 'c' must hold 2 numbers, but holds 1; make all lists",
        ),
        ([["a"], ["b"]], None, "the table, column 'c' must hold lists of numbers, but holds list"),
        ([[[1]], [[2]]], None, "the table, column 'c' must hold lists of numbers, but holds list"),
        ([[1.0, None], [1.0, 2.0]], None, "the table, column 'c' has missing numbers inside its lists"),
        (
            [[1.0, 2.0], [1.0, float("inf")]],
            None,
            r"the table, row 2, column 'c' must be finite, but is \[ 1. inf\]",
        ),
    ],
)
def test_columns_that_cannot_be_numbers(values, kind, message):
    with pytest.raises(DataError, match=message):
        learn(values, kind)


@pytest.mark.parametrize(
    ("learned", "later", "message"),
    [
        ([1, 2], ["1", "x"], "row 2, column 'c' must hold a number, but holds 'x'"),
        ([1, 2], [None, float("nan")], "row 2, column 'c' must be finite"),
        ([1, 2], [3.0, 1e60], "row 2, column 'c' is too far from all earlier values"),
        (
            [1, 2],
            [datetime.date(2020, 1, 1)],
            "column 'c' must hold numbers as in the earlier table, but holds date32",
        ),
        (
            [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)],
            [1],
            "must hold dates or times as in the earlier table",
        ),
        ([[1.0], [2.0]], [1.0], "column 'c' must hold lists of numbers, but holds double"),
        ([[1.0], [2.0]], [[1.0, 2.0]], "row 1, column 'c' must hold 1 numbers, but holds 2"),
        (["a", "b"], [["a"]], "column 'c' must hold text or numbers here, but holds list"),
    ],
)
def test_later_columns_that_do_not_fit(learned, later, message):
    feature, _ = learn(learned)
    with pytest.raises(DataError, match=message):
        feature.encode(table_of(later))


def test_a_later_column_may_be_empty_or_of_a_like_type():
    number, _ = learn([1.0, 3.0])
    assert number.encode(table_of([None, None], pa.null())).tolist() == [[0], [0]]
    texts = ["1", " 3 ", None, "+1", "1.", "1e0", "10E-1", ".3e+1", " "]
    assert number.encode(table_of(texts))[:, 0].tolist() == [-1, 1, 0, -1, -1, -1, -1, 1, 0]
    category, _ = learn(["1", "2", "1"])
    assert category.encode(table_of([2, 1])).tolist() == [[0, 1], [1, 0]]
    assert category.encode(table_of([None], pa.null())).tolist() == [[0, 0]]


@pytest.mark.parametrize(
    "values", [[1.5, None], ["a", "b", None], [[1.0], [2.0]], [datetime.date(2020, 1, 1), None]]
)
def test_a_feature_survives_its_dictionary(values):
    feature, _ = learn(values)
    assert Feature.from_dict(feature.to_dict()) == feature
