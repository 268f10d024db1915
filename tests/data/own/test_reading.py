"""Numbers and dates as people write them, and what is told where more than one reading is possible."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pprgnn.data import DataError
from pprgnn.data.own.reading import FORMATS, UNKNOWN, Reading, Style, learn_reading

NAN = float("nan")


def texts(values):
    return pa.chunked_array([pa.array(values, pa.string())])


def learn(values, comma_first=False, **style):
    reading, doubt = learn_reading(texts(values), Style(**style), comma_first)
    return reading, doubt, None if reading is None else reading.read(texts(values))[0].tolist()


def date(*parts):
    return datetime.datetime(*parts, tzinfo=datetime.timezone.utc).timestamp() * 1e6


@pytest.mark.parametrize(
    ("values", "described", "numbers"),
    [
        (["3,5", "2,75", "7"], "number, decimal comma", [3.5, 2.75, 7]),
        (["0,125", "0,250"], "number, decimal comma", [0.125, 0.25]),
        (["1,234.5", "7"], "number, thousands comma", [1234.5, 7]),
        (["1.234,5", "7"], "number, decimal comma, thousands point", [1234.5, 7]),
        (["1.234.567", "1.000"], "number, decimal comma, thousands point", [1234567, 1000]),
        (["1 234", "5"], "number, thousands blank", [1234, 5]),
        (["1\u00a0234,5", "1\u202f000"], "number, decimal comma, thousands blank", [1234.5, 1000]),
        (["1'234.5", "5"], "number, thousands apostrophe", [1234.5, 5]),
        (["$3.50", "$ 1,234.00", "-$2", "$-2"], "number, thousands comma, in $", [3.5, 1234, -2, -2]),
        (["€ 3,50", "1.200 €"], "number, decimal comma, thousands point, in €", [3.5, 1200]),
        (["3,50 EUR", "4 EUR"], "number, decimal comma, in EUR", [3.5, 4]),
        (["12.5 %", "3%"], "number, in %", [12.5, 3]),
        (["1.5", "+2e3", "-.5", "2."], "number", [1.5, 2000, -0.5, 2]),
        (["\u22123,5", " 4 "], "number, decimal comma", [-3.5, 4]),
        (["5", "unknown", "7"], "number", [5, NAN, 7]),
        (["31.12.2020", "1.2.2021"], "date, day.month.year", [date(2020, 12, 31), date(2021, 2, 1)]),
        (["31/12/2020", "1/2/2021"], "date, day.month.year", [date(2020, 12, 31), date(2021, 2, 1)]),
        (["12/31/2020", "1/2/2021"], "date, month/day/year", [date(2020, 12, 31), date(2021, 1, 2)]),
        (["31.12.20", "31.12.99"], "date, day.month.year", [date(2020, 12, 31), date(1999, 12, 31)]),
        (
            ["12/31/2020 3:05 pm", "12/31/2020 12:00 AM"],
            "date, month/day/year",
            [date(2020, 12, 31, 15, 5), date(2020, 12, 31)],
        ),
        (["2020-12-31 10:00", "2020-12-31T10:00:30Z", "?"], "date, year-month-day", None),
        (["2020-02-29", "n/a"], "date, year-month-day", [date(2020, 2, 29), NAN]),
        (["31.02.2020", "30.02.2020"], None, None),  # no such days
        (["25:00", "x"], None, None),
        (["$3", "€3"], None, None),  # not comparable
        (["1", "2", "10"], None, None),  # texts on purpose
        (["red", "blue", "3"], None, None),
        (["?", "-"], None, None),
        (["1-5", "6-10"], None, None),
        (["1,23,4", "1.2.3"], None, None),
        ([], None, None),
    ],
)
def test_what_people_mean(values, described, numbers):
    reading, doubt, found = learn(values)
    assert (reading and reading.described, doubt) == (described, "")
    if numbers is not None:
        assert np.array_equal(found, numbers, equal_nan=True)


@pytest.mark.parametrize("word", [*UNKNOWN, "Unknown", " N/A ", "NULL"])
def test_words_for_what_is_not_known(word):
    for values in (["3,5", word, "4"], ["1.5", word], ["31.12.2020", word]):
        reading, _, found = learn(values)
        assert reading.stray == ()
        assert np.isnan(found).tolist() == [value == word for value in values]


def test_a_stray_text_is_missing_but_many_make_no_numbers():
    reading, _, found = learn([*(f"{i},5" for i in range(9)), "see below"])
    assert reading.stray == ("see below",)
    assert np.isnan(found).tolist() == [False] * 9 + [True]
    assert learn([*(f"{i},5" for i in range(7)), "high", "low", "high"])[0] is None


@pytest.mark.parametrize(
    ("values", "options", "numbers", "doubt"),
    [
        (["1,234", "567"], {}, [1234, 567], "1,234 is read as 1234; --decimal , reads 1.234"),
        (["1,234", "567"], {"comma_first": True}, [1.234, 567], "1,234 is read as 1.234; --decimal . reads 1234"),
        (["1,234", "567"], {"decimal": ","}, [1.234, 567], ""),
        (["1,234", "567"], {"decimal": "."}, [1234, 567], ""),
        (["1,234", "567"], {"thousands": ","}, [1234, 567], ""),
        (["€1.234", "€5"], {"thousands": "."}, [1234, 5], ""),
        (
            ["03/04/2020"],
            {},
            [date(2020, 3, 4)],
            "03/04/2020 is read as month/day/year; --date dmy reads day.month.year",
        ),
        (
            ["03.04.2020"],
            {},
            [date(2020, 4, 3)],
            "03.04.2020 is read as day.month.year; --date mdy reads month/day/year",
        ),
        (["03/04/2020"], {"date": "dmy"}, [date(2020, 4, 3)], ""),
        (["03.04.2020"], {"date": "mdy"}, [date(2020, 3, 4)], ""),
    ],
)
def test_what_could_be_either_is_told_and_can_be_said(values, options, numbers, doubt):
    assert learn(values, **options)[1:] == (doubt, numbers)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decimal": ";"}, r"The option decimal must be one of '.', ',', but is ';'"),
        ({"thousands": "x"}, "The option thousands must be one of ',', '.', ' ', \"'\", but is 'x'"),
        ({"date": "day"}, "The option date must be one of 'ymd', 'dmy', 'mdy', but is 'day'"),
        ({"decimal": ",", "thousands": ","}, "The mark ',' cannot be for decimals and thousands at once"),
    ],
)
def test_what_cannot_be_said(options, message):
    with pytest.raises(DataError, match=message):
        Style(**options)


@given(
    st.lists(st.floats(-1e9, 1e9).map(lambda value: round(value, 2)), min_size=1, max_size=10),
    st.sampled_from(FORMATS),
)
def test_every_way_of_writing_is_read_back(values, marks):
    decimal, thousands = marks
    swap = str.maketrans({",": thousands, ".": decimal})
    written = [f"{value:,.2f}".translate(swap) for value in values]
    numbers, there, wrong = Reading(decimal, thousands).read(texts(written))
    assert numbers.tolist() == pytest.approx(values)
    assert there.all()
    assert not wrong.any()


@given(st.lists(st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2069, 12, 31)), min_size=1))
def test_every_day_is_read_back(days):
    days = [day.replace(microsecond=0) for day in days]
    expected = [day.replace(tzinfo=datetime.timezone.utc).timestamp() * 1e6 for day in days]
    for order, form in (
        ("dmy", "%d.%m.%Y %H:%M:%S"),
        ("mdy", "%m/%d/%y %I:%M:%S %p"),
        ("ymd", "%Y-%m-%dT%H:%M:%S"),
    ):
        assert Reading(date=order).read(texts([day.strftime(form) for day in days]))[0].tolist() == expected


def test_a_later_table_may_use_the_mark_for_thousands_that_was_not_needed_before():
    reading, _, _ = learn(["3,5", "2,5"])
    numbers, _, wrong = reading.read(texts(["1.234,5", "3.5"]))
    assert numbers[0] == 1234.5
    assert wrong.tolist() == [False, True]
