"""The benchmarks of drop-in use and of the usual settings: what they draw, choose and write."""

import json
import re
from dataclasses import replace

import pytest
import torch
from tests.training.small_data import several_graphs

from benchmarks import defaults, dropin, graph_search
from pprgnn.data import load
from pprgnn.nn import PPRConv
from pprgnn.training.config import Config


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)  # the benchmarks set one


def test_a_part_of_a_set_is_the_same_each_time_and_has_its_shares_of_classes():
    dataset = several_graphs(200)
    part = graph_search.drawn(dataset, 80)
    assert len(part) == 80
    assert torch.equal(part.labels(), graph_search.drawn(dataset, 80).labels())
    shares = [each.labels().bincount() / len(each) for each in (dataset, part)]
    torch.testing.assert_close(*shares, atol=0.02, rtol=0)
    assert graph_search.drawn(dataset, 1000) is dataset


def test_who_learns_who_chooses_and_who_judges_are_different_graphs():
    dataset = several_graphs(100)
    split, choose, judge = graph_search.divided(dataset, 0)
    parts = [split.train.tolist(), split.val.tolist(), choose.tolist(), judge.tolist()]
    assert [len(part) for part in parts] == [54, 6, 20, 20]
    assert sorted(row for part in parts for row in part) == list(range(100))
    assert split.test.tolist() == sorted([*choose, *judge])


def test_every_candidate_is_a_config_and_another_system_has_its_own():
    for settings in graph_search.CANDIDATES.values():
        Config().with_values(settings)
    assert {defaults.config_of(each).model.system for each in defaults.SYSTEMS.values()} == {
        "pprgnn",
        "gin",
        "gcn",
        "wl",
    }


def trial(name, candidate, choose):
    level = {"choose": 0.5, "judge": 0.5}
    facts = {"graphs": 80, "repeat": 0, "judge": 0.5, "majority": level, "seconds": 1.0, "commit": "0" * 40}
    return {"set": name, "candidate": candidate, "choose": choose, **facts}


def test_a_set_has_no_say_in_what_it_is_judged_by():
    """One set alone prefers another candidate, by far: the others do not."""
    sets, liked, odd = ("MUTAG", "PTC_MR", "NCI1"), "base", "mean"
    trials = [trial(name, each, 0.6 if each == liked else 0.5) for name in sets for each in ("former", liked, odd)]
    trials[2] = trial("MUTAG", odd, 0.99)
    found = graph_search.Found(trials)
    assert found.chosen(sets[1:]) == liked
    assert found.chosen(sets) == odd
    page = graph_search.section(trials)
    assert f"All sets together choose **{odd}**" in page
    assert re.search(rf"\| MUTAG +\| {liked} ", page)
    assert re.search(rf"\| NCI1 +\| {odd} ", page)


def test_a_candidate_that_some_sets_have_not_run_is_not_chosen():
    trials = [trial(name, each, 0.5) for name in ("MUTAG", "PTC_MR", "NCI1") for each in ("former", "base")]
    found = graph_search.Found([*trials, trial("MUTAG", "far", 0.9)])
    assert found.candidates == ["former", "base"]
    assert found.dropped == ["far"]


def test_a_part_of_a_set_does_not_take_the_published_folds():
    whole = several_graphs(100)
    whole.facts = replace(whole.facts, name="NCI1")
    part = graph_search.drawn(whole, 70)
    assert sum(len(split.test) for split in part.splits()) == 70
    assert whole.facts.name == "NCI1"


def test_a_table_goes_on_where_it_stopped(tmp_path, data_root, monkeypatch, capsys):
    monkeypatch.setenv("PPRGNN_DATA", str(data_root))
    monkeypatch.setattr(defaults, "SYSTEMS", {"ours": "pprgnn", "GIN": "gin"})
    given = ["MUTAG", "--seeds", "3", "--runs", "1", "--graphs", "60", "--epochs", "1"]
    given += ["--output", str(tmp_path / "found"), "--trials", str(tmp_path / "none")]
    defaults.main(given)
    before = json.loads((tmp_path / "found.json").read_text())
    assert set(before["found"]["MUTAG"]) == {"graphs", "ours", "GIN"}
    monkeypatch.setattr(defaults, "measure", None)  # nothing is measured again
    defaults.main(given)
    assert json.loads((tmp_path / "found.json").read_text()) == before
    assert "## Beside others" in (tmp_path / "found.md").read_text()
    with pytest.raises(SystemExit, match="go on with that, or choose another --output"):
        defaults.main([*given, "--epochs", "2"])


def test_the_page_says_where_ours_is_behind_and_where_nothing_warned():
    run = {"test": 0.5, "majority": 0.6, "warned": True}
    found = {"A": {"ours": {"0": run}, "GIN": {"0": run | {"test": 0.6}, "1": run}}}
    assert "at least level with GIN on 0 of 1 sets; it is behind on A (-10.0)." in defaults.verdict(found)
    assert "below the majority class: 1 (A), 0 of them without a warning." in defaults.verdict(found)
    found["A"]["ours"]["0"] = run | {"test": 0.7}
    assert "level with GIN on 1 of 1 sets." in defaults.verdict(found)


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
