"""`pprgnn predict --nodes`: some nodes only, by the names that the source gives them."""

import json

import pyarrow
import pytest
from typer.testing import CliRunner

from pprgnn.cli.main import app
from pprgnn.cli.saved_run import _by_class

COUNT = 300
TRAIN = [
    "--edges",
    "edges.csv",
    "--nodes",
    "nodes.csv",
    "--target",
    "team",
    "-s",
    "eps=2.0",
    "-s",
    "depth=certificate",
]


def write(folder, suffix, first, count):
    """A ring of people; one has nobody."""
    names = [f"p{first + i}" for i in range(count)]
    ring = zip(names[:-1], names[1:-1] + names[:1], strict=True)
    (folder / f"edges{suffix}.csv").write_text("from,to\n" + "".join(f"{a},{b}\n" for a, b in ring))
    rows = (f"{name},{i % 7},{('red', 'blue')[i % 2]}\n" for i, name in enumerate(names))
    (folder / f"nodes{suffix}.csv").write_text("id,size,team\n" + "".join(rows))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("few")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PPRGNN_CACHE", str(folder / "cache"))
        patch.setenv("PPRGNN_DATA", str(folder / "data"))
        patch.delenv("PPRGNN_DEBUG", raising=False)
        write(folder, "", 0, COUNT)
        write(folder, "2", 1000, 60)
        done = call("train", *TRAIN, "-s", "epochs=2", "-s", "hidden=4", "-o", "run", "--json")
        assert done.exit_code == 0, done.output
        yield folder


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def answers(*arguments):
    done = call("predict", "run", *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_named_nodes_have_the_answers_of_the_full_pass(home):
    full = {row["id"]: row for row in answers()}
    found = answers("--nodes", "p17,p150")
    assert [row["id"] for row in found["predictions"]] == ["p17", "p150"]
    for row in found["predictions"]:
        assert row["label"] == full[row["id"]]["label"]
        assert row["p(red)"] == pytest.approx(full[row["id"]]["p(red)"], abs=1e-4)
    effort = found["effort"]
    assert effort["certified"]
    assert effort["asked"] == 2
    assert effort["nodes"] < effort["all_nodes"] / 2 == COUNT / 2
    assert effort["error_bound"] <= 1e-5


def test_ways_to_name_them(home):
    (home / "ids").write_text("p3\n\n  p4 \np3\n")
    by_file = answers("--nodes", "@ids")
    assert [row["id"] for row in by_file["predictions"]] == ["p3", "p4", "p3"]
    assert by_file["effort"]["asked"] == 2
    together = answers("--nodes", "p9, p8", "--nodes", "@ids", "--nodes", "p1")
    assert [row["id"] for row in together["predictions"]] == ["p9", "p8", "p3", "p4", "p3", "p1"]


def test_what_it_took_is_said(home):
    done = call("predict", "run", "--nodes", "p5,p6")
    assert done.exit_code == 0
    lines = done.stderr.splitlines()
    assert lines[0].startswith("2 nodes of ")
    assert lines[1].startswith("computed on ")
    assert f"of {COUNT} nodes" in lines[1]
    assert "entries of the matrix" in lines[1]
    assert lines[1].endswith(" s")
    assert "at most" in lines[2]
    assert len(lines) == 3
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["id", "p5", "p6"]


def test_a_pipe_gets_a_table_and_nothing_else(home):
    done = call("predict", "run", "--nodes", "p5")
    header, row = (line.split("\t") for line in done.stdout.splitlines())
    assert header == ["id", "label", "prediction", "probability", "p(blue)", "p(red)"]
    exact = answers("--nodes", "p5")["predictions"][0]
    assert [float(each) for each in row[3:]] == pytest.approx([exact[name] for name in header[3:]], rel=1e-3)
    assert all(len(each.lstrip("0.")) <= 4 for each in row[3:])
    assert done.stderr.startswith("1 node of ")
    everyone = call("predict", "run")
    assert everyone.stdout.count("\n") == COUNT + 1
    assert everyone.stderr.startswith(f"{COUNT} nodes of ")


def test_the_summary_by_class_says_when_it_is_cut():
    predictions = [name for count, name in enumerate("gfedcba", start=1) for _ in range(count)]
    table = pyarrow.table({"prediction": predictions})
    assert _by_class(table) == "7 as a, 6 as b, 5 as c, 4 as d, 3 as e, and 3 in 2 more classes"
    assert _by_class(table.slice(18)) == "7 as a, 3 as b"
    assert _by_class(pyarrow.table({"prediction": ["", "x|y"]})) == "1 as (none), 1 as x|y"


def test_precision(home):
    for arguments, longest in ((["--precision", "2"], 2), ([], 4), (["--precision", "9"], 9)):
        assert call("predict", "run", "-o", "all.csv", *arguments).exit_code == 0
        rows = [line.split(",")[3:] for line in (home / "all.csv").read_text().splitlines()[1:]]
        assert max(len(each.lstrip("0.")) for row in rows for each in row) == longest, arguments
    (row, *_) = answers("--precision", "2")
    assert row["probability"] == round(row["probability"], 2)


def test_the_full_pass_says_why(home):
    everyone = ",".join(f"p{i}" for i in range(COUNT))
    done = call("predict", "run", "--nodes", everyone)
    assert done.exit_code == 0
    said = " ".join(done.stderr.split())
    assert "computed on the whole graph" in said
    assert "because" in said
    assert "of all edges matter" in said


def test_nodes_of_a_new_graph(home):
    new = ["--edges", "edges2.csv", "--nodes", "nodes2.csv"]
    full = {row["id"]: row for row in answers(*new)}
    assert len(full) == 60
    (row,) = answers(*new, "--nodes", "p1030")["predictions"]
    assert row["id"] == "p1030"
    assert row["p(red)"] == pytest.approx(full["p1030"]["p(red)"], abs=1e-4)


def test_written_to_a_file(home):
    found = answers("--nodes", "p5", "-o", "five.csv")
    assert (found["file"], found["rows"]) == ("five.csv", 1)
    assert found["effort"]["asked"] == 1
    assert (home / "five.csv").read_text().splitlines()[1].startswith('"p5"')


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nodes", "p5,nobody"], "has no node 'nobody'"),
        (["--nodes", "P5"], "the closest are p5"),
        (["--nodes", "@absent"], "absent cannot be read"),
        (["--nodes", ","], "at least one node"),
        (["--nodes", "p5", "--unlabelled"], "--nodes or --unlabelled"),
        (["--nodes", "nodes.csv"], "--nodes goes with --edges"),
        (["--edges", "edges2.csv", "--nodes", "nodes2.csv", "--nodes", "nodes.csv"], "Expected one node table"),
        (["--edges", "edges2.csv", "--nodes", "absent.csv"], "absent.csv"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_one_sentence(arguments, said, home):
    done = call("predict", "run", *arguments)
    assert done.exit_code == 1, done.output
    assert done.stderr.startswith("Error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_several_graphs(home):
    assert call("train", "chains", "-s", "epochs=1", "-s", "hidden=4", "-o", "chains", "--json").exit_code == 0
    done = call("predict", "chains", "--nodes", "1:5,0:0", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert [(row["graph"], row["id"]) for row in found["predictions"]] == [(1, 5), (0, 0)]
    assert found["effort"]["reason"] == "there are several graphs"
    for bad, said in (
        ("5", "GRAPH:NODE"),
        ("x:5", "GRAPH:NODE"),
        ("0:5000", "has no node '5000'"),
        ("99999:1", "99999"),
    ):
        done = call("predict", "chains", "--nodes", bad)
        assert done.exit_code == 1
        assert said in done.stderr


def test_help_says_how():
    done = call("predict", "--help")
    assert "@FILE" in done.output


@pytest.mark.parametrize(("option", "start"), [([], "'=1+1,"), (["--no-safe-csv"], "=1+1,")])
def test_ids_that_a_spreadsheet_would_run(home, option, start):
    edges, nodes = ((home / f"{name}2.csv").read_text().replace("p1000", "=1+1") for name in ("edges", "nodes"))
    (home / "edges3.csv").write_text(edges)
    (home / "nodes3.csv").write_text(nodes)
    new = ("--edges", "edges3.csv", "--nodes", "nodes3.csv")
    done = call("predict", "run", *new, "-o", "out.csv", *option)
    assert done.exit_code == 0, done.output
    lines = (home / "out.csv").read_text().replace('"', "").splitlines()
    assert any(line.startswith(start) for line in lines)
