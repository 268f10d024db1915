"""`pprgnn data import`: what it shows of a user's graph, what it keeps, and how it ends."""

import json
import os

import networkx as nx
import numpy as np
import pytest
from typer.testing import CliRunner

from pprgnn.cli import data_import
from pprgnn.cli.main import app
from pprgnn.data import load
from tests import warm

from .test_data import ANSI, on_terminal

EDGES = "source,target,weight\nann,bob,1\nbob,cleo,2\ncleo,dan,1\neve,eve,1\n"
NODES = """\
id,age,team,split
ann,3,red,train
bob,,blue,val
cleo,5,red,test
dan,6,,
eve,7,blue,train
fay,1,red,test
"""
SHOWN = """\
graph        edges, undirected, weighted
nodes        6, 2 of them isolated
edges        4, both directions counted as one, 1 of them from a node to itself
components   3, the largest has 66.7 % of the nodes
degrees      0 to 2, median 1, mean 1
features     2
labels       5 labelled, 1 to predict
             red  ████████████         3 (60.0 %)
             blue ████████             2 (40.0 %)
homophily    0.0 % of the edges join equal classes
split        2 train, 1 val, 2 test
columns      edges.csv
               source  start of the edge
               target  end of the edge
               weight  weight of the edge
             nodes.csv
               id      node id
               age     number; 1 of 6 values are missing
               team    label, one of 2 classes
               split   split
guessed      edges run from column 'source' to column 'target'
             edge weights are in column 'weight'
             node ids are in column 'id'
             the split is in column 'split'
             1 class with fewer than 3 nodes, too few for training, validation and test: blue (2)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PPRGNN_DEBUG", raising=False)
    (tmp_path / "edges.csv").write_text(EDGES)
    (tmp_path / "nodes.csv").write_text(NODES)
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(app, ["data", "import", *map(str, arguments)])


TABLES = ("--edges", "edges.csv", "--nodes", "nodes.csv", "--target", "team")


# --------------------------------------------------------------------------------------------------- what is shown
def test_a_graph_is_shown():
    done = call(*TABLES)
    assert done.exit_code == 0
    assert done.stdout == f"{SHOWN}\nNothing was kept; add -o FILE.safetensors to keep the graph.\n"


def test_a_graph_is_kept(folder):
    done = call(*TABLES, "-o", "deep/er/mine.safetensors")
    assert done.exit_code == 0
    assert done.stdout.endswith(
        "\nKept in deep/er/mine.safetensors; train on it with `pprgnn train deep/er/mine.safetensors`.\n"
    )
    dataset = load("deep/er/mine.safetensors")
    assert dataset.node_names == ["ann", "bob", "cleo", "dan", "eve", "fay"]
    assert dataset.facts.class_names == ("blue", "red")
    assert dataset._data.y.tolist() == [1, 0, 1, -1, 0, 1]
    assert dataset._data.part.tolist() == [0, 1, 2, -1, 0, 2]
    again = call("deep/er/mine.safetensors")
    assert again.stdout.startswith(SHOWN)
    assert call("deep/er/mine.safetensors", "--name", "ours").stdout.startswith("graph        ours, undirected")


def test_json():
    done = call(*TABLES, "--json", "-o", "mine.safetensors")
    found = json.loads(done.stdout)
    assert (found["nodes"], found["edges"], found["isolated"], found["components"]) == (6, 4, 2, 3)
    assert found["classes"] == {"blue": 2, "red": 3}
    assert found["parts"] == {"train": 2, "val": 1, "test": 2}
    assert found["file"] == "mine.safetensors"
    assert json.loads(call(*TABLES, "--json").stdout)["file"] is None


def test_a_graph_without_anything():
    done = call("--edges", "edges.csv", "--weight", "")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["graph        edges, undirected", "nodes        5, 1 of them isolated"]
    assert lines[5:7] == ["features     none: a model learns from the edges alone", "labels       none"]
    assert not any(line.startswith(("homophily", "split")) for line in lines)


def test_many_classes_and_long_names(folder):
    rows = [f"{i},{'long name ' * 5}{i % 15}" for i in range(60)] + ["60,rare"]
    (folder / "nodes.csv").write_text("id,label\n" + "\n".join(rows))
    (folder / "edges.csv").write_text("a,b\n1,2\n")
    lines = call("--edges", "edges.csv", "--nodes", "nodes.csv").stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("labels")) + 1
    assert lines[first] == f"{'':13}{'long name ' * 2}lon… ██{'':18} 4 (6.6 %)"
    assert lines[first + 12] == f"{'':13}and 4 more classes, down to 1 labels"


def test_several_classes(folder):
    (folder / "nodes.csv").write_text("id,p,q\nann,1,0\nbob,1,1\ncleo,0,0\ndan,,\neve,1,0\n")
    done = call("--edges", "edges.csv", "--nodes", "nodes.csv", "--target", "p,q", "--ignore", "")
    assert "labels       4 labelled, 1 to predict, any number each" in done.stdout
    assert "homophily    25.0 % shared classes, averaged over the edges" in done.stdout


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--directed",), {"directed": True, "edges": 4}),
        (("--weight", ""), {"weighted": False}),
        (("--split", ""), {"parts": {}}),
        (("--name", "mine"), {"name": "mine"}),
        (("--features", "age"), {"features": 2}),
        (("--features", ""), {"features": 0}),
        (("--ignore", "age,split"), {"features": 0}),
        (("--categorical", "age"), {"features": 6}),
        (("--source", "target", "--destination", "source", "--directed"), {"edges": 4, "directed": True}),
        (("--id", "id", "--header"), {"nodes": 6}),
        (("--label-separator", "e"), {"multi_label": True, "classes": {"blu": 2, "d": 3, "r": 3}}),
    ],
)
def test_options(options, expected):
    done = call(*TABLES, "--json", *options)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {key: found[key] for key in expected} == expected


def test_no_header(folder):
    (folder / "edges.csv").write_text("1,2\n2,3\n")
    assert json.loads(call("--edges", "edges.csv", "--no-header", "--json").stdout)["edges"] == 2
    assert json.loads(call("--edges", "edges.csv", "--header", "--json").stdout)["edges"] == 1


def test_graphml_and_npz(folder):
    graph = nx.DiGraph([("a", "b", {"cost": 2.0}), ("b", "c", {"cost": 3.0})])
    nx.set_node_attributes(graph, {"a": "x", "b": "y", "c": "x"}, "kind")
    nx.write_graphml(graph, folder / "my.graphml")
    found = json.loads(call("my.graphml", "--target", "kind", "--weight", "cost", "--json").stdout)
    assert (found["name"], found["nodes"], found["edges"], found["directed"], found["weighted"]) == (
        "my",
        3,
        2,
        True,
        True,
    )
    assert found["classes"] == {"x": 2, "y": 1}
    np.savez(folder / "my.npz", edges=np.array([[0, 1], [1, 0], [1, 2]]))
    assert json.loads(call("my.npz", "--json").stdout)["edges"] == 2
    assert json.loads(call("my.npz", "--json", "--directed", "--name", "n").stdout)["edges"] == 3


# ----------------------------------------------------------------------------------------------------- how it ends
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Expected either one GRAPH file or --edges FILE (with --nodes FILE); see --help."),
        (("my.npz", "--edges", "edges.csv"), "Expected either one GRAPH file or --edges FILE (with --nodes FILE)"),
        (("my.npz", "--nodes", "nodes.csv"), "--nodes goes with --edges, but my.npz was given as a whole graph"),
        (("my.npz", "--header"), "--header goes with --edges, but my.npz was given as a whole graph"),
        (("my.npz", "--target", "x"), "my.npz has no named columns, so --target cannot be used with it; drop it."),
        (("my.npz", "--label-separator", ""), "my.npz has no named columns, so --label-separator cannot be used"),
        (("my.safetensors", "--directed"), "my.safetensors already says whether it is directed; drop --directed."),
        (
            ("edges.csv",),
            "edges.csv must be a .graphml, .npz or .safetensors file; tables go to --edges and --nodes.",
        ),
        (("my.npz",), "my.npz does not exist; name an npz file."),
        (("my.graphml",), "my.graphml does not exist; name a GraphML file."),
        (("my.safetensors",), "my.safetensors must be a whole safetensors file, but cannot be read"),
        (("--edges", "no.csv"), "no.csv does not exist; name a CSV, TSV, Parquet or Excel file."),
        (
            ("--edges", "edges.csv", "--source", "x"),
            "edges.csv has no column 'x'; its columns are source, target, weight.",
        ),
        (
            (*TABLES, "-o", "mine.txt"),
            "The output must be a .safetensors file, but is mine.txt; try mine.txt.safetensors.",
        ),
        ((*TABLES, "-o", "edges.csv/mine.safetensors"), "edges.csv/mine.safetensors cannot be written"),
    ],
)
def test_errors_are_one_sentence(folder, arguments, message):
    done = call(*arguments)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {message}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert sorted(os.listdir(folder)) == ["edges.csv", "nodes.csv"]


def test_unknown_options_are_usage_errors():
    done = call("--edge", "edges.csv")
    assert done.exit_code == 2
    assert "No such option: --edge" in done.stderr


def test_a_full_disk_keeps_the_old_graph(folder, monkeypatch):
    assert call(*TABLES, "-o", "mine.safetensors").exit_code == 0
    before = (folder / "mine.safetensors").read_bytes()

    def fail(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", fail)
    done = call("--edges", "edges.csv", "-o", "mine.safetensors")
    assert done.exit_code == 1
    assert (
        "mine.safetensors cannot be written (No space left on device); choose another folder or make room."
        in done.stderr
    )
    assert (folder / "mine.safetensors").read_bytes() == before
    assert sorted(os.listdir(folder)) == ["edges.csv", "mine.safetensors", "nodes.csv"]


def test_help_has_an_example_and_every_option_a_line():
    done = call("--help")
    assert "Example: pprgnn data import --edges edges.csv --nodes nodes.csv --target topic" in done.stdout


# ------------------------------------------------------------------------------------- as a process, on a terminal
def test_as_a_process():
    done = warm.run(warm.ENTRY, "data", "import", *TABLES, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["nodes"] == 6


def test_on_a_narrow_terminal():
    shown, code = on_terminal("import", *TABLES, columns=50)
    lines = ANSI.sub("", shown).splitlines()
    assert code == 0
    assert lines[0] == "Reading edges.csv and nodes.csv ..."
    assert max(map(len, lines)) <= 60
    assert "components   3, the largest has 66.7 % of the" in lines
    assert "             red  ████████████         3 (60.0 %)" in lines
    assert "\x1b[" in shown


def test_json_on_a_terminal_is_json_alone(monkeypatch):
    monkeypatch.setattr(data_import, "is_terminal", lambda: True)
    assert json.loads(call(*TABLES, "--json").stdout)["nodes"] == 6
