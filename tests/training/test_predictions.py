"""Predictions as a table."""

import pyarrow as pa
import pytest
import torch
from pyarrow import csv, parquet

from pprgnn.data import from_tables, load
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.predictions import predict_table, unlabelled_rows, without_formulas, write_table
from pprgnn.training.train import train

QUICK = Config().with_settings(["epochs=2", "hidden=4"])


def people(label=True, offset=0):
    names = [f"p{i + offset}" for i in range(24)]
    edges = pa.table({"source": names, "target": names[1:] + names[:1]})
    nodes = {"id": names, "age": [20 + (i * 7) % 30 for i in range(24)]}
    if label:
        nodes["team"] = [None if i % 6 == 5 else ("red", "blue")[i % 2] for i in range(24)]
    return edges, pa.table(nodes)


@pytest.fixture(scope="module")
def trained():
    return train(QUICK, dataset=from_tables(*people(), label="team"))


def test_a_row_per_node_in_the_names_of_the_source(trained):
    dataset = from_tables(*people(), label="team")
    table = predict_table(trained.model, dataset)
    assert table.column_names == ["id", "label", "prediction", "probability", "p(blue)", "p(red)"]
    assert table["id"].to_pylist() == dataset.node_names
    logits = trained.model.logits(dataset)
    torch.testing.assert_close(torch.tensor(table["p(red)"].to_pylist()), logits.softmax(1)[:, 1])
    for row in table.to_pylist():
        assert row["prediction"] == ("red" if row["p(red)"] > row["p(blue)"] else "blue")
        assert row["probability"] == max(row["p(red)"], row["p(blue)"])
    assert [row is None for row in table["label"].to_pylist()] == [i % 6 == 5 for i in range(24)]


def test_unlabelled_rows_only(trained):
    dataset = from_tables(*people(), label="team")
    rows = unlabelled_rows(dataset)
    assert predict_table(trained.model, dataset, rows)["id"].to_pylist() == ["p5", "p11", "p17", "p23"]
    with pytest.raises(TrainingError, match="labelled already"):
        unlabelled_rows(load("chains", length=3))


def test_new_people_without_labels(trained):
    dataset = from_tables(*people(label=False, offset=100), schema=trained.model.facts.schema)
    table = predict_table(trained.model, dataset)
    assert "label" not in table.column_names
    assert table["id"][0].as_py() == "p100"
    assert len(unlabelled_rows(dataset)) == 24


def test_several_graphs_and_graph_tasks():
    chains = load("chains", length=3)
    table = predict_table(train(QUICK, dataset=chains).model, chains)
    assert table["graph"].to_pylist()[:4] == [0, 0, 0, 1]
    assert table["id"].to_pylist()[:4] == [0, 1, 2, 0]


def test_several_labels_are_joined():
    edges, nodes = people(label=False)
    nodes = nodes.append_column("tags", pa.array([("a|b", "b", "a")[i % 3] for i in range(24)]))
    dataset = from_tables(edges, nodes, label="tags")
    model = train(QUICK, dataset=dataset).model
    table, [threshold] = predict_table(model, dataset), model.threshold.probabilities
    assert "probability" not in table.column_names
    for row in table.to_pylist():
        chosen = [name for name in ("a", "b") if row[f"p({name})"] > threshold]
        assert row["prediction"] == "|".join(chosen)
        assert set(row["label"].split("|")) <= {"a", "b"}


def test_files(trained, tmp_path, monkeypatch):
    table = predict_table(trained.model, from_tables(*people(), label="team"))
    write_table(table, tmp_path / "p.parquet")
    assert parquet.read_table(tmp_path / "p.parquet").equals(table)
    write_table(table, tmp_path / "p.csv")
    back = csv.read_csv(tmp_path / "p.csv")
    assert back["prediction"].to_pylist() == table["prediction"].to_pylist()
    write_table(table, tmp_path / "p.tsv")
    assert (tmp_path / "p.tsv").read_text().startswith('"id"\t"label"')
    with pytest.raises(TrainingError, match=r"must end in .csv, .tsv, .parquet or .xlsx"):
        write_table(table, tmp_path / "p.ods")
    before = (tmp_path / "p.csv").read_bytes()
    monkeypatch.setattr("pprgnn.data.atomic_io.os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(TrainingError, match=r"p.csv cannot be written \(full\)"):
        write_table(table, tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_bytes() == before


def test_text_that_spreadsheets_would_run_gets_an_apostrophe():
    texts = ["=1+1", "+a", "-b", "@c", "\td", "-5", "+1e3", "ann", "a=b", "", None]
    table = pa.table({"id": texts, "number": [-1.0] * len(texts)})
    safe = without_formulas(table)
    assert safe["id"].to_pylist() == ["'=1+1", "'+a", "'-b", "'@c", "'\td", "-5", "+1e3", "ann", "a=b", "", None]
    assert safe["number"].to_pylist() == table["number"].to_pylist()
