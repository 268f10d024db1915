"""Reading tables: what a file may look like, what each place is called, and files that are refused."""

import datetime
import gzip

import pyarrow as pa
import pyarrow.parquet
import pytest

from pprgnn.data import DataError
from pprgnn.data.own.table import Table, read_table


@pytest.fixture
def read(tmp_path):
    """Write these bytes or this text under this name, and read the table."""

    def write_and_read(content, name="table.csv", **options):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_table(path, **options)

    return write_and_read


def rows(table):
    return table.columns.to_pydict()


# ------------------------------------------------------------------------------------------------ ways to write it
@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,2\n3,4\n",
        "a,b\n1,2\n3,4",  # no end of the last line
        "a,b\r\n1,2\r\n3,4\r\n",
        "a,b\r1,2\r3,4\r",
        "\ufeffa,b\n1,2\n3,4\n",
        "a,b\n\n1,2\n\n3,4\n\n\n",
        "\n\na,b\n1,2\n3,4\n",
        "# a remark\n#\n\na,b\n1,2\n3,4\n",
        "#a,b\n1,2\n3,4\n",  # the header is a comment
        "# a,b\n1,2\n3,4\n",
        "a, b\n1, 2\n3, 4\n",
        "a;b\n1;2\n3;4\n",
        "a|b\n1|2\n3|4\n",
        "a\tb\n1\t2\n3\t4\n",
        "a b\n1 2\n3 4\n",
        '"a","b"\n"1","2"\n"3","4"\n',
    ],
)
def test_the_same_table(read, content):
    assert rows(read(content)) == {"a": [1, 3], "b": [2, 4]}
    assert rows(read(gzip.compress(content.encode()), "table.csv.gz")) == {"a": [1, 3], "b": [2, 4]}


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("first name of,b\n1,2\n", ["first name of", "b"]),  # more blanks than commas
        ("id|x,y|z|w\n1,a|b|c\n", ["id|x", "y|z|w"]),
        ("a;b;c\n1,5;2;x\n", ["a", "b", "c"]),  # decimal commas
        ('"a, b",c\n1,2\n', ["a, b", "c"]),
        (",a,a b\n0,1,2\n", ["column 1", "a", "a b"]),  # pandas writes its index without a name
        ("a\nx y\n", ["a"]),
        ("a,b\nc d,e f\n", ["a", "b"]),
        ("a,b;c\n1;2\n", ["a,b", "c"]),
        ("a,b;c", ["a", "b;c"]),
    ],
)
def test_the_delimiter_is_the_one_that_divides_evenly(read, content, names):
    assert read(content).names == names


def test_a_tsv_is_divided_by_tabs_only(read):
    assert rows(read("a,b\tc\n1,5\t2\n", "table.tsv")) == {"a,b": ["1,5"], "c": [2]}
    assert read("a b,c\n1 2,3\n", "table.tsv").names == ["a b,c"]


@pytest.mark.parametrize(
    ("content", "header"),
    [
        ("1,2\n3,4\n", False),
        ("1,2\na,b\n", False),
        ("1,a\n2,b\n", False),
        ("ann,0.5\nbob,1.5\n", False),
        ("1,,x\n2,3,y\n", False),
        ("id,2019\n1,5\n", True),
        ("ann,bob\ncleo,dan\n", True),
        ("nan,inf\n4,5\n", True),
        ("1,2\n", False),
        ("a,b\n", True),
        ("#made, 2020\nid,x\nann,5\n", True),
    ],
)
def test_whether_the_first_line_is_a_header(read, content, header):
    assert read(content).file.header is header


def test_a_remark_above_a_header_is_no_header(read):
    assert read("#made, 2020\nid,x\nann,5\n").names == ["id", "x"]
    assert read("# made, 2020\nid,x\nann,bob\n").names == ["id", "x"]
    assert read("# made in 2020\nid,x\nann,bob\n").names == ["id", "x"]
    assert read("#from,to\nann,bob\n").names == ["from", "to"]


def test_the_header_can_be_told(read):
    assert rows(read("1,2\n3,4\n", header=True)) == {"1": [3], "2": [4]}
    assert rows(read("a,b\nc,d\n", header=False)) == {"column 1": ["a", "c"], "column 2": ["b", "d"]}
    assert rows(read("#a,b\nc,d\n", header=False)) == {"column 1": ["c"], "column 2": ["d"]}
    assert rows(read("#a,b\nc,d\n", header=True)) == {"a": ["c"], "b": ["d"]}


@pytest.mark.parametrize("content", ["a,b", "a,b\n", "a,b\n\n\n", "# x\na,b\n"])
def test_a_header_alone_is_a_table_without_rows(read, content):
    table = read(content)
    assert (len(table), table.names) == (0, ["a", "b"])


def test_types_are_guessed(read):
    table = read("i,f,t,b,d,n,q\n1,1.5,x,true,2020-01-02,,NA\n2,,,FALSE,,,\n")
    assert rows(table) == {
        "i": [1, 2],
        "f": [1.5, None],
        "t": ["x", None],
        "b": [True, False],
        "d": [datetime.date(2020, 1, 2), None],
        "n": [None, None],
        "q": [None, None],
    }


def test_what_is_missing(read):
    """Also between quotes and blanks, so that a program that quotes everything can leave values out."""
    assert rows(read('a,b\n"1",""\n"",x\n3, \n')) == {"a": [1, None, 3], "b": [None, "x", None]}
    assert rows(read("a,b\n1, \n2,3\n")) == {"a": [1, 2], "b": [None, 3]}


def test_blanks_around_text_do_not_count(read):
    assert rows(read("a,b\n x ,y z\n\u00a0x,  y z\n")) == {"a": ["x", "x"], "b": ["y z", "y z"]}


def test_lines_inside_of_values(read):
    table = read("a,b\n1,x\n" + '2,"p\n3,q"\n' * 300_000)  # blocks of Arrow's end inside of some
    assert len(table) == 300_001
    assert table.columns.column("b").unique().to_pylist() == ["x", "p\n3,q"]


def test_a_quote_inside_of_a_value_is_a_letter(read):
    assert rows(read('a,b\nx,5" nail\ny,3\n'))["b"] == ['5" nail', "3"]


# ------------------------------------------------------------------------------------------------------ as written
def test_text_as_written(read):
    table = read("a,b,c\n007,NA,2020-01-01\n+7,1.0, 0x10\n7.50,,x\n")
    assert [column.to_pylist() for column in table.texts(["a", "c"])] == [
        ["007", "+7", "7.50"],
        ["2020-01-01", "0x10", "x"],
    ]
    assert table.texts(["b"])[0].to_pylist() == [None, "1.0", None]
    assert table.texts(["b"], na_is_missing=False)[0].to_pylist() == ["NA", "1.0", None]


def test_names_are_the_same_however_they_were_stored(read, tmp_path):
    """1.0 is 1: pandas makes floats of whole numbers when one is missing."""
    assert read("a\n1.0\n\n02\n1.50\n").text("a").to_pylist() == ["1", "02", "1.50"]
    stored = Table(pa.table({"a": [1.0, None, float("nan"), 2.5]}), "the table")
    assert stored.text("a").to_pylist() == ["1", None, None, "2.5"]
    texts = Table(pa.table({"a": [" x", "", " ", None]}), "the table")
    assert texts.text("a").to_pylist() == ["x", None, None, None]


def test_an_unknown_column(read):
    with pytest.raises(DataError, match=r"table.csv has no column 'c'; its columns are a, b\."):
        read("a,b\n1,2\n").column("c")


# ---------------------------------------------------------------------------------------------------- line numbers
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("a,b\n1,2\n3,4\n", [2, 3]),
        ("# x\n\na,b\n1,2\n\n\n3,4\n", [4, 7]),
        ('a,b\n1,"x\n\ny"\n3,z\n', [2, 5]),
        ("1,2\n3,4\n", [1, 2]),
        ("#a,b\r\n1,2\r\n\r\n3,4\r\n", [2, 4]),
        ('a,b\r1,"x\r"\r3,4', [2, 4]),
    ],
)
def test_each_row_knows_its_line(read, content, lines):
    table = read(content)
    assert [table.where(row) for row in range(len(table))] == [f"table.csv, line {line}" for line in lines]
    table = read(gzip.compress(content.encode()), "table.csv.gz")
    assert table.where(1) == f"table.csv.gz, line {lines[1]}"


def test_rows_without_lines():
    assert Table(pa.table({"a": [1, 2]}), "the table").where(1) == "the table, row 2"


# ------------------------------------------------------------------------------------------ files that are refused
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "", "t.csv is empty; expected a header line"),
        ("t.csv", "\n \n", "t.csv is empty"),
        ("t.csv", "# x\n", "t.csv is empty"),
        (
            "t.csv",
            "a,b\n1,2\n3\n",
            "t.csv, line 3 must have 2 columns as the lines before, but has 1; repair or remove",
        ),
        ("t.csv", 'a,b\n1,"x\ny"\n\n3,4,5\n', "t.csv, line 5 must have 2 columns as the lines before, but has 3"),
        ("t.csv", "a,b\n" + "1,2\n" * 300_000 + "3\n", "t.csv, line 300002 must have 2 columns"),
        ("t.csv", "a,b\n# x\n1,2\n", "t.csv, line 2 must have 2 columns"),
        ("t.csv", 'a,b\n1,x\n2,"y\n3,z\n', "t.csv, line 3 opens a quote that never ends"),
        ("t.csv", "a,a\n1,2\n", "t.csv has 2 columns named 'a'; rename"),
        ("t.csv", "n,v\nJosé,1\n".encode("latin1"), "t.csv, line 2 is not UTF-8 text; convert the file"),
        ("t.csv", "é,v\nx,1\n".encode("latin1"), "t.csv, line 1 is not UTF-8"),
        ("t.csv", ("a,b\n" + "x,1\n" * 9000 + "é,1\n").encode("latin1"), "t.csv, line 9002 is not UTF-8"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16"), "t.csv is not UTF-8 text"),
        ("t.csv", b"\x80\x04\x95\x00\x00pickle", "t.csv is not UTF-8 text"),
        ("t.txt", "1  2\n3  4\n", "t.txt, line 1 has blanks beside blanks"),
        ("t.txt", " 1 2\n", "t.txt, line 1 has blanks beside blanks or at an end; put one blank, tab or comma"),
        ("t.csv.gz", b"a,b\n1,2\n", "t.csv.gz cannot be read .*[nN]ot a gzipped file"),
        ("t.csv.gz", gzip.compress(b"a,b\n" * 9000, mtime=0)[:-20], "t.csv.gz cannot be read .*end-of-stream"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:9], "t.csv.gz cannot be read"),
        ("t.csv", gzip.compress(b"a,b\n1,2", mtime=0), "t.csv is compressed by gzip, so its name must end in .gz"),
        ("t.parquet", b"", "t.parquet is not a whole Parquet file"),
        ("t.parquet", "a,b\n1,2\n", "t.parquet is not a whole Parquet file"),
        ("t.csv", b"PAR1" + b"x" * 50, "t.csv is not a whole Parquet file"),
        ("t.ods", "a,b\n1,2\n", "t.ods must be a table in CSV, TSV, Parquet or Excel"),
    ],
)
def test_a_file_that_is_no_table(read, name, content, message):
    with pytest.raises(DataError, match=message):
        read(content, name)


def test_a_huge_value_before_a_bad_line_does_not_hide_the_error(read):
    with pytest.raises(DataError, match=r"table.csv"):
        read('a,b\n1,x\n2,"' + "k" * 200_000 + '"\n3\n')
    assert len(read("k" * 200_000)) == 0


# --------------------------------------------------------------------------------------------------------- Parquet
def test_parquet(tmp_path):
    columns = {"a": pa.array(["x", None]).dictionary_encode(), "b": [[1, 2], []]}
    pa.parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    assert table.column("a").type == pa.string()
    assert rows(table) == {"a": ["x", None], "b": [[1, 2], []]}
    assert table.where(1) == "t.parquet, row 2"
    (tmp_path / "t.parquet").rename(tmp_path / "t.csv")
    assert rows(read_table(tmp_path / "t.csv")) == {"a": ["x", None], "b": [[1, 2], []]}  # known by what it holds


def test_a_truncated_parquet_file(tmp_path):
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"a": list(range(1000))}), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"t.parquet is not a whole Parquet file \(.*\); write or copy it again"):
        read_table(path)
