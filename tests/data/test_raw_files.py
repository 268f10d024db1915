"""Numbers from text files: what is read, and what is refused."""

import gzip

import numpy as np
import pytest

from pprgnn.data.raw_files import read_numbers
from tests.data.cards import refused


@pytest.fixture
def file(tmp_path):
    def write(content, name="numbers.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_whole_numbers(file):
    numbers = read_numbers(file("2, 1\n-3 ,4\r\n\n5,6"), 2, np.int64)
    assert numbers.dtype == np.int64
    assert numbers.tolist() == [[2, 1], [-3, 4], [5, 6]]


def test_width_of_the_file_and_floats(file):
    numbers = read_numbers(file("  1.5, -2,3e2\n4,5,nan\n"), None, np.float64)
    assert numbers.dtype == np.float64
    np.testing.assert_array_equal(numbers, [[1.5, -2, 300], [4, 5, np.nan]])


def test_skipped_lines_other_delimiters_and_gzip(file):
    path = file(gzip.compress(b"# a\tb\n# c\n1\t2\n3\t4\n"), "numbers.txt.gz")
    assert read_numbers(path, 2, np.int64, delimiter="\t", skip=2).tolist() == [[1, 2], [3, 4]]


def test_many_blocks(file):
    numbers = np.arange(600_000).reshape(-1, 2)
    path = file("\n".join(f"{a},{b}" for a, b in numbers))
    np.testing.assert_array_equal(read_numbers(path, 2, np.int64), numbers)
    path.write_text(path.read_text().replace("599998,", "x,"))
    with refused(path, "line 300000, column 1 ", "whole number", "'x'"):
        read_numbers(path, 2, np.int64)


@pytest.mark.parametrize(
    ("content", "kind", "parts"),
    [
        ("", np.int64, ["empty"]),
        ("\n\n", np.int64, ["empty"]),
        ("1,2\n3,x\n", np.int64, ["line 2, column 2 ", "whole number", "'x'"]),
        ("1,2\n3,4.0\n", np.int64, ["line 2, column 2 ", "whole number", "'4.0'"]),
        ("1,2\n3,99999999999999999999\n", np.int64, ["line 2, column 2 ", "'99999999999999999999'"]),
        ("1,2\n3,true\n", np.float64, ["line 2, column 2 ", "a number", "'true'"]),
        ("1,2\n3,\n", np.float64, ["line 2, column 2 ", "''"]),
        ("1,2\n3\n", np.int64, ["line 2 ", "2 columns", "has 1"]),
        ("1,2\n3,4,5\n", np.int64, ["line 2 ", "2 columns", "has 3"]),
        ("1,2,3\n4,5,6\n", np.int64, ["must have 2 numbers", "has 3"]),
        ("1\n2\n", np.int64, ["must have 2 numbers", "has 1"]),
        (b"\x80\x04\x95\x00\xff,\x00\n", np.int64, ["whole number"]),
    ],
)
def test_refused(file, content, kind, parts):
    path = file(content)
    with refused(path, *parts):
        read_numbers(path, 2, kind)


def test_lines_are_counted_from_the_top_of_the_file(file):
    with refused("line 3, column 2 "):
        read_numbers(file("# head\n1,2\n3,x\n"), 2, np.int64, skip=1)


def test_first_line_with_text_where_the_width_is_not_given(file):
    with refused("line 1, column 1 ", "'a'"):
        read_numbers(file("a,b\n1,2\n"), None, np.float64)


def test_missing(tmp_path):
    with refused(tmp_path / "no.txt", "missing"):
        read_numbers(tmp_path / "no.txt", 1, np.int64)


@pytest.mark.parametrize("share", [0.5, 0.999])
def test_truncated_gzip(file, share):
    whole = gzip.compress("\n".join(map(str, range(200_000))).encode())
    path = file(whole[: int(share * len(whole))], "numbers.txt.gz")
    with refused(path, "ends in the middle"):
        read_numbers(path, 1, np.int64)
