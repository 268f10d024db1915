"""Messy tables, each beside what a person means by it: they import, train and predict as the clean ones do.

A folder holds the tables, the clean ones in `meant`, and in `case.json` the options and how columns must be read.
"""

import json
from pathlib import Path

import pyarrow.csv
import pytest
from typer.testing import CliRunner

from pprgnn.cli.main import app
from pprgnn.data import from_tables, load

HERE = Path(__file__).parent
CASES = sorted(path.parent for path in HERE.glob("*/case.json"))
TINY = ("--set", "training.epochs=3", "--set", "model.hidden=4", "--no-report")


@pytest.fixture(params=CASES, ids=lambda path: path.name)
def case(request):
    if request.param.name == "excel":
        pytest.importorskip("openpyxl", reason="needs pprgnn[tables]")
    return request.param


def tables(case):
    edges, nodes = (next(case.glob(f"{kind}.*")) for kind in ("edges", "nodes"))
    return ["--edges", str(edges), "--nodes", str(nodes)], json.loads((case / "case.json").read_text("utf-8"))


def call(*arguments):
    done = CliRunner().invoke(app, [*arguments])
    assert done.exit_code == 0, done.output
    return done


def test_it_is_read_as_a_person_means_it(case, tmp_path):
    given, expected = tables(case)
    kept = str(tmp_path / "kept.safetensors")
    shown = call("data", "import", *given, *expected["options"], "--target", "team", "--json", "-o", kept)
    rows = json.loads(shown.stdout)["columns"]
    read = {row["column"]: "; ".join(filter(None, (row["read_as"], row["remark"]))) for row in rows}
    assert {name: read[name] for name in expected["read"]} == expected["read"]
    found = load(kept)
    meant = from_tables(case / "meant/edges.csv", case / "meant/nodes.csv", label="team")
    assert found.node_names == meant.node_names
    assert found.facts.class_names == meant.facts.class_names
    assert found._data.edge_index.equal(meant._data.edge_index)
    assert found._data.y.equal(meant._data.y)
    assert found._data.x.allclose(meant._data.x, atol=1e-6)
    assert ("edge_weight" in found._data) == ("edge_weight" in meant._data)
    if "edge_weight" in found._data:
        assert found._data.edge_weight.equal(meant._data.edge_weight)


def test_it_trains_and_predicts_the_same_tables_the_same_way(case, tmp_path, monkeypatch):
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path / "cache"))
    given, expected = tables(case)
    run = str(tmp_path / "run")
    call("train", *given, *expected["options"], "--target", "team", "-o", run, *TINY)
    answers = []
    for name, again in (("own.csv", ()), ("new.csv", given)):  # the options are kept with the model
        call("predict", run, *again, "-o", str(tmp_path / name))
        answers.append(pyarrow.csv.read_csv(tmp_path / name))
    assert answers[0].num_rows == 24
    assert answers[0].equals(answers[1])
