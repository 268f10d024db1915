"""How tables are read, on the command line: options, what is told, what would be ignored, Excel, edge counts."""

import builtins
import json
import sys

import pytest
from typer.testing import CliRunner

from pprgnn.cli.main import app
from pprgnn.data import load

TABLES = ("--edges", "edges.csv", "--nodes", "nodes.csv", "--target", "team")
TINY = ("-s", "epochs=2", "-s", "hidden=4", "--no-report")


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def rows(cities, size="{}.5", count=20):
    sizes, teams = [size.format(i % 7 + 1) for i in range(count)], ("red", "blue")
    lines = [f"n{i};{sizes[i]};{cities[i % len(cities)]};{teams[i % 2]}" for i in range(count)]
    return "\n".join(["id;size;city;team", *lines, ""])


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PPRGNN_CACHE", str(folder / "cache"))
        patch.setenv("PPRGNN_DATA", str(folder / "data"))
        patch.delenv("PPRGNN_DEBUG", raising=False)
        ring = "".join(f"n{i},n{(i + 1) % 20}\n" for i in range(20))
        (folder / "edges.csv").write_text(f"from,to\n{ring}n3,n3\nn1,n0\n")
        (folder / "nodes.csv").write_text(rows(["Oslo", "Rome", "Bonn"], "{},5"))
        done = call("train", *TABLES, *TINY, "-o", "run")
        assert done.exit_code == 0, done.output
        (folder / "shown.txt").write_text(done.stdout)
        yield folder


def ended(*arguments):
    done = call(*arguments)
    assert done.exit_code == 1, done.output
    assert done.stderr.count("\n") == 1
    return done.stderr


# ------------------------------------------------------------------------------------------------- what is told
def test_training_tells_how_columns_were_read(home):
    shown = (home / "shown.txt").read_text()
    assert "columns  edges.csv\n           from  start of the edge\n" in shown
    assert "           size  number, decimal comma\n" in shown
    assert "           city  category of 3\n" in shown


def test_many_columns_that_are_alike_share_a_line(home):
    names = [f"c{i}" for i in range(40)]
    lines = [f"n{i},{','.join(['5'] * 40)},{i % 2}" for i in range(20)]
    (home / "wide.csv").write_text("\n".join([f"id,{','.join(names)},y", *lines]))
    shown = call("data", "import", "--edges", "edges.csv", "--nodes", "wide.csv").stdout
    assert "c0 and 39 more  not used; all values are the same" in shown
    assert "c17" not in shown


def test_an_unseen_category_is_told_beside_the_answer(home):
    (home / "later.csv").write_text(rows(["Oslo", "Paris", "Lyon"], "{},5"))
    done = call("predict", "run", "--edges", "edges.csv", "--nodes", "later.csv", "--json")
    assert len(json.loads(done.stdout)) == 20
    assert (
        "Note: column 'city': 13 of 20 rows hold a category that was not there in training (Paris, Lyon); they "
        "count as none.\n"
    ) in done.stderr


def test_later_tables_are_read_as_those_of_the_training_unless_told(home):
    new = ("predict", "run", "--edges", "edges.csv", "--json", "--nodes")
    expected = call(*new, "nodes.csv").stdout
    (home / "points.csv").write_text(rows(["Oslo", "Rome", "Bonn"], "{}.5"))
    message = ended(*new, "points.csv")
    assert "points.csv, line 2, column 'size' must hold a number, decimal comma, but holds '1.5'" in message
    assert call(*new, "points.csv", "--decimal", ".").stdout == expected
    (home / "windows.csv").write_bytes(rows(["Oslo", "Rome", "Köln"], "{},5").encode("cp1252"))
    assert "is not UTF-8 text" in ended(*new, "windows.csv")
    assert "(Köln)" in call(*new, "windows.csv", "--encoding", "cp1252").stderr
    for command in ("evaluate", "explain"):
        more = ("--node", "n1") if command == "explain" else ()
        done = call(command, "run", "--edges", "edges.csv", "--nodes", "points.csv", "--decimal", ".", *more)
        assert done.exit_code == 0, done.output


# ------------------------------------------------------------------------------- what would be ignored is refused
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cora", "--target", "team"), "--target is about your own tables (--edges), but cora brings its own"),
        (("cora", "--nodes", "nodes.csv"), "--nodes is about your own tables (--edges), but cora brings its own"),
        (("cora", "--decimal", ","), "--decimal is about your own tables (--edges), but cora brings its own data"),
        (("cora", "--unknown-nodes", "add"), "--unknown-nodes is about your own tables (--edges), but cora"),
        (("cora", "--directed"), "--directed is about your own tables (--edges), but cora brings its own data"),
        (
            ("cora", "--edges", "edges.csv"),
            "Expected a data set or --edges, but cora and --edges edges.csv came; drop one.",
        ),
        ((), "Expected a recipe or data set (see `pprgnn train --settings`), or --edges FILE."),
        (("--resume", "run", "--target", "team"), "--resume takes all settings from the run's folder"),
    ],
)
def test_train_refuses_what_it_would_ignore(home, arguments, message):
    assert ended("train", *arguments).startswith(f"Error: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cora", "--target", "team"), "--target is about your own tables (--edges), but cora brings its own"),
        (("cora", "--edges", "edges.csv"), "Expected a data set or --edges, but cora and --edges edges.csv came"),
        (("--resume", "run", "--target", "team"), "--resume takes all settings from its folder"),
    ],
)
def test_tune_refuses_what_it_would_ignore(home, arguments, message):
    assert ended("tune", *arguments).startswith(f"Error: {message}")


def test_predict_refuses_what_it_would_ignore(home):
    assert ended("predict", "run", "--decimal", ",").startswith("Error: --decimal goes with --edges; give both.")


def test_import_refuses_what_it_would_ignore(home):
    message = ended("data", "import", "my.graphml", "--encoding", "cp1252")
    assert message.startswith("Error: --encoding goes with --edges, but my.graphml was given as a whole graph")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "taem"), "nodes.csv has no column 'taem' (did you mean 'team'?); its columns are id, size"),
        (("--duplicates", "both"), "The option duplicates must be one of error, first, last, but is 'both'."),
        (("--decimal", ";"), "The option decimal must be one of '.', ',', but is ';'."),
    ],
)
def test_words_that_are_not_known(home, arguments, message):
    given = [*TABLES[:4], *arguments]
    assert ended("data", "import", *given).startswith(f"Error: {message}")
    assert ended("train", *given).startswith(f"Error: {message}")


# ------------------------------------------------------------------------------------------------- counts of edges
def test_an_edge_counts_once_everywhere(home):
    """20 of a ring, one from a node to itself, one listed in both directions."""
    assert call("data", "import", *TABLES, "-o", "kept.safetensors").stdout.splitlines()[2] == (
        "edges        21, both directions counted as one, 1 of them from a node to itself"
    )
    assert load("kept.safetensors").num_edges == 21
    assert "classes per node, 21 edges\n" in (home / "shown.txt").read_text()
    directed = json.loads(call("data", "import", *TABLES, "--directed", "--json").stdout)
    assert directed["edges"] == 22
    assert "edges, 1,433 features, 7 classes; both directions of an edge count as one" in (
        call("data", "info", "cora").stdout
    )


# ----------------------------------------------------------------------------------------------------------- Excel
def test_excel_in_and_out(home):
    openpyxl = pytest.importorskip("openpyxl", reason="needs pprgnn[tables]")
    done = call("predict", "run", "-o", "found.xlsx")
    assert done.exit_code == 0, done.output
    sheet = openpyxl.load_workbook("found.xlsx").active
    cells = list(sheet.iter_rows(values_only=True))
    assert len(cells) == 21
    assert cells[0][:4] == ("id", "label", "prediction", "probability")
    assert cells[1][:2] == ("n0", "red")
    assert 0 <= cells[1][3] <= 1
    book = openpyxl.Workbook()
    for i in range(20):
        book.active.append([i, (i + 1) % 20])
    book.save("numbers.xlsx")  # no header: numbers alone
    assert json.loads(call("data", "import", "--edges", "numbers.xlsx", "--json").stdout)["edges"] == 20
    book = openpyxl.Workbook()
    for edge in (("ann", "bob"), ("bob", "cleo"), ("cleo", "ann")):
        book.active.append(edge)
    book.save("names.xlsx")  # no header: its first row names nodes
    done = call("data", "import", "--edges", "names.xlsx")
    assert "edges        3, both" in done.stdout
    assert "names.xlsx has no header line: its first line, ann and bob, names nodes" in done.stdout
    (home / "broken.xlsx").write_bytes(b"PK no")
    assert "broken.xlsx is not a whole Excel file" in ended("data", "import", "--edges", "broken.xlsx")
    openpyxl.Workbook().save("empty.xlsx")
    assert "empty.xlsx is empty" in ended("data", "import", "--edges", "empty.xlsx")


def test_without_openpyxl_one_sentence_names_the_command(home, monkeypatch):
    imported = builtins.__import__

    def refuse(name, *arguments, **options):
        if name == "openpyxl":
            raise ImportError(name)
        return imported(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "openpyxl", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    (home / "some.xlsx").write_bytes(b"PK")
    expected = "Excel file, which needs openpyxl: pip install 'pprgnn[tables]'."
    assert expected in ended("data", "import", "--edges", "some.xlsx")
    assert expected in ended("predict", "run", "-o", "out.xlsx")
    assert not (home / "out.xlsx").exists()
