"""The benchmarks of drop-in use and of the usual settings: what they draw, choose and write."""

import json
from dataclasses import replace

import pytest
import torch
from tests.training.small_data import several_graphs

from benchmarks import defaults, dropin
from pprgnn.data import load
from pprgnn.nn import PPRConv


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)  # the benchmarks set one


def test_a_part_of_a_set_is_the_same_each_time():
    dataset = several_graphs(200)
    part = defaults.drawn(dataset, 80, None)
    assert len(part) == 80
    assert torch.equal(part.labels(), defaults.drawn(dataset, 80, None).labels())
    assert len(defaults.drawn(dataset, 80, dataset.num_nodes)) == 80
    assert len(defaults.drawn(dataset, 180, 1)) == 60  # large graphs: fewer, but not none
    assert defaults.drawn(dataset, 1000, None) is dataset


def test_every_candidate_is_a_config_and_another_system_has_its_own():
    usual = defaults.config_of("pprgnn", {})
    different = {name: defaults.config_of("pprgnn", each) for name, each in defaults.CANDIDATES.items()}
    assert [name for name, config in different.items() if config == usual] == ["usual"]
    assert {defaults.config_of(each, {}).model.system for each in defaults.SYSTEMS.values()} == {
        "pprgnn",
        "gin",
        "gcn",
        "wl",
    }


def test_a_set_has_no_say_in_what_it_is_judged_by():
    """One set alone prefers another candidate, by far: the others do not."""
    run = {"test": 0.5, "majority": 0.5, "seconds": 1.0}
    found = {
        name: {each: {"0": run | {"val": 0.6 if each == "usual" else 0.5}} for each in defaults.CANDIDATES}
        for name in ("a", "b", "c")
    }
    odd = list(defaults.CANDIDATES)[-1]
    found["a"][odd]["0"] = run | {"val": 0.99}
    assert defaults.chosen(found, ["b", "c"]) == "usual"
    assert defaults.chosen(found, ["a", "b", "c"]) == odd


def test_a_part_of_a_set_does_not_take_the_published_folds():
    whole = several_graphs(100)
    whole.facts = replace(whole.facts, name="NCI1")
    part = defaults.drawn(whole, 70, None)
    assert sum(len(split.test) for split in part.splits()) == 70
    assert whole.facts.name == "NCI1"


def test_a_search_goes_on_where_it_stopped(tmp_path, data_root, monkeypatch, capsys):
    monkeypatch.setenv("PPRGNN_DATA", str(data_root))
    monkeypatch.setattr(defaults, "CANDIDATES", {"usual": {}, "mean pooling": {"model.pooling": "mean"}})
    given = ["MUTAG", "--search", "--folds", "3", "--runs", "1", "--graphs", "60", "--epochs", "1"]
    given += ["--output", str(tmp_path / "found")]
    defaults.main(given)
    before = json.loads((tmp_path / "found.json").read_text())
    assert set(before["search"]["found"]["MUTAG"]["runs"]) == {"usual", "mean pooling"}
    monkeypatch.setattr(defaults, "measure", None)  # nothing is measured again
    defaults.main(given)
    assert json.loads((tmp_path / "found.json").read_text())["search"] == before["search"]
    assert "## The search" in (tmp_path / "found.md").read_text()
    with pytest.raises(SystemExit, match="go on with that, or choose another --output"):
        defaults.main([*given, "--epochs", "2"])


def test_sparse_rows_are_the_features(data_root, monkeypatch):
    monkeypatch.setenv("PPRGNN_DATA", str(data_root))
    data = load("Cora")[0]
    net = dropin.TwoLayers(PPRConv, data.x, 4, 7).eval()
    x = net.conv1(net.lin(data.x), data.edge_index).relu()
    torch.testing.assert_close(net(data.edge_index), net.conv2(x, data.edge_index))


def test_the_page_tells_how_many_runs_there_are():
    data = {"command": "it", "commit": "0" * 40, "edited": False, "date": "2026-01-01", "found": {}}
    data["found"]["Cora"] = {"GCNConv": {"0": 0.5, "1": 0.7}}
    assert "| 60.0 ± 14.1 (2) |" in dropin.markdown(data)
