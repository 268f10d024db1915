"""Equal conditions: what all share nobody changes, everybody has as many trials, and no test part takes part."""

import itertools
from dataclasses import replace

import pytest
import torch

from pprgnn.data.roots import data_root
from pprgnn.data.split import Split
from pprgnn.experiments import EXPERIMENTS, Extent
from pprgnn.experiments.cell import address_of, without_twins
from pprgnn.experiments.chains import LENGTHS, conditions
from pprgnn.experiments.conditions import Conditions
from pprgnn.experiments.graphs import CONDITIONS as GRAPHS
from pprgnn.experiments.heterophily import CONDITIONS as HETEROPHILY
from pprgnn.experiments.run_cell import run_cell
from pprgnn.experiments.runner import run_missing
from pprgnn.experiments.store import Store
from pprgnn.experiments.trials import inner_splits
from pprgnn.training.config import Config
from pprgnn.training.systems import find_system
from pprgnn.training.train import choose_split, load_data, train

from .tiny import CHAINS, QUICK, hurry, tiny_cell, tiny_line

SMALL = Conditions(
    "chains",
    equal={"model.hidden": 4, "training.epochs": 2},
    choices={"training.lr": [0.01, 0.02, 0.03]},
    own={"gat": {"own.heads": [1, 2]}},
    trials=3,
)


@pytest.fixture(autouse=True)
def no_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path / "cache"))
    hurry(monkeypatch)


def test_what_is_equal_cannot_be_chosen():
    with pytest.raises(ValueError, match=r"training.lr is equal for all in t, so gcn cannot choose it"):
        Conditions("t", {"training.lr": 0.1}, own={"gcn": {"training.lr": [0.1, 0.2]}})
    with pytest.raises(ValueError, match=r"model.layers is not for gcn to choose in chains"):
        SMALL.config("gcn", {"name": "chains"}, {"model.layers": 3})


@pytest.mark.parametrize("shown", [GRAPHS, HETEROPHILY, *map(conditions, LENGTHS)], ids=lambda each: each.table)
def test_every_cell_has_the_equal_settings_and_every_system_as_many_trials(shown):
    grid = EXPERIMENTS[shown.table]
    systems = {cell.config.model.system for cell in grid.cells(Extent(1, 1))}
    for system in systems:
        candidates = shown.candidates(system)
        combinations = len(list(itertools.product(*shown.space(system).values())))
        assert len(candidates) == min(shown.trials, combinations)
        assert all(candidates.count(each) == 1 for each in candidates)
        assert candidates == shown.candidates(system)  # always the same
        for protocol in shown.protocols:
            config = shown.config(system, {"name": "chains"}, candidates[-1], protocol)
            for key, value in {**shown.equal, **shown.protocols[protocol]}.items():
                if not key.startswith("model.") or key[6:] in find_system(system).reads:
                    assert config.value(key) == value, (system, key)


def test_a_cell_waits_for_its_trials_and_then_has_what_they_chose(tmp_path):
    store = Store(tmp_path / "results")
    data = {key.removeprefix("data."): value for key, value in CHAINS.items()}

    def cells():
        return list(SMALL.cells(Extent(store=store), "gcn", data, seeds=range(2)))

    trials, *waiting = cells()
    assert [cell.waits for cell in waiting] == [True, True]
    line = run_cell(trials, tmp_path / "runs")
    assert trials.is_answered_by(line)
    assert line["experiment"] == "chains-trials"
    assert line["trainings"] == 3
    assert "scores" not in line
    assert "test" not in line
    best = max(line["trials"], key=lambda each: (each["val"], -each["loss"]))
    assert line["chosen"] == best["settings"]
    store.add(line)
    again, *ready = cells()
    assert again == trials
    assert [cell.waits for cell in ready] == [False, False]
    assert {cell.config.training.lr for cell in ready} == {line["chosen"]["training.lr"]}
    other = Conditions("chains", SMALL.equal, {"training.lr": [0.5, 0.6]}, trials=2)
    assert all(cell.waits for cell in list(other.cells(Extent(store=store), "gcn", data))[1:])


def test_inner_parts_cover_the_training_part_and_nothing_of_the_test_part():
    config = Config().with_values(CHAINS | QUICK)
    dataset = load_data(config)
    split = choose_split(config, dataset)
    inner = list(inner_splits(dataset, split, 3))
    assert torch.equal(torch.cat([each.val for each in inner]).sort().values, split.train)
    for each in inner:
        assert torch.equal(torch.cat([each.train, each.val]).sort().values, split.train)
    assert list(inner_splits(dataset, split, 0)) == [split]


def test_test_labels_do_not_change_the_choice(tmp_path, monkeypatch):
    cell = tiny_cell(candidates=({"training.lr": 0.01}, {"training.lr": 0.1}), at={"trials": 2})
    one = run_cell(cell, tmp_path / "one")
    config = cell.config
    dataset, load = load_data(config), load_data
    test = choose_split(config, dataset).masks(dataset)["test"]

    def other_labels(config):
        changed = load(config)
        changed._data.y[test] = 1 - changed._data.y[test]
        return changed

    def same_split(config, dataset):
        split = choose_split(config, load(config))
        return Split.of(dataset, (split.train, split.val, split.test), unit=split.unit)

    monkeypatch.setattr("pprgnn.training.train.load_data", other_labels)
    monkeypatch.setattr("pprgnn.training.train.choose_split", same_split)
    two = run_cell(cell, tmp_path / "two")
    assert [each["val"] for each in one["trials"]] == [each["val"] for each in two["trials"]]
    assert one["chosen"] == two["chosen"]


def test_a_candidate_that_fails_is_not_chosen_and_a_stop_loses_one_training(tmp_path, monkeypatch):
    cell = tiny_cell(candidates=({"training.lr": 1e30}, {"training.lr": 0.01}), at={"trials": 2})
    trained = []

    def counted(*arguments, **options):
        trained.append(1)
        if len(trained) == 2:
            raise KeyboardInterrupt
        return train(*arguments, **options)

    monkeypatch.setattr("pprgnn.experiments.trials.train", counted)
    with pytest.raises(KeyboardInterrupt):
        run_cell(cell, tmp_path)
    line = run_cell(cell, tmp_path)
    assert len(trained) == 3  # the first one is not trained again
    assert line["chosen"] == {"training.lr": 0.01}
    assert line["trials"][0]["val"] is None
    assert line["trials"][0]["error"]


def test_the_command_runs_trials_and_then_what_they_chose(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from pprgnn.cli.main import app
    from pprgnn.experiments.experiment import Experiment

    data = {key.removeprefix("data."): value for key, value in CHAINS.items()}

    def grid(extent):
        return SMALL.cells(extent, "gcn", data, at={"length": 4})

    tiny = Experiment("chains", "Chains", "About.", grid)
    monkeypatch.setitem(EXPERIMENTS, "chains", tiny)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["reproduce", "chains", "--no-report", "--jobs", "1"])
    assert done.exit_code == 0, done.output
    assert "chains-trials chains gcn honest length 4 trials 3" in done.output
    assert "3 candidates, the best with" in done.output
    store = Store(tmp_path / "results")
    (trials,), (line,) = store.lines("chains-trials"), store.lines("chains")
    assert line["config"]["training.lr"] == trials["chosen"]["training.lr"]


def test_one_training_answers_both_protocols_as_two_would(tmp_path):
    if not (data_root() / "MUTAG").is_dir():
        pytest.skip("MUTAG is not here; set PPRGNN_DATA")
    quick = Conditions(
        "graphs",
        {**GRAPHS.equal, "training.epochs": 4, "model.hidden": 4},
        protocols=GRAPHS.protocols,
        one_training=True,
    )
    store = Store(tmp_path / "results")
    for system in ("gin", "pprgnn"):
        cells = list(quick.cells(Extent(), system, {"name": "MUTAG"}))
        alone = run_cell(cells[0], tmp_path / "alone")
        assert run_missing(cells, store, folder=tmp_path / "runs")
        honest, paper = (store.answer(cell) for cell in cells)
        assert (paper["test_chose_the_epoch"], honest["test_chose_the_epoch"]) == (True, False)
        assert honest["test"] == alone["test"]
        assert honest["scores"]["test"]["loss"] == pytest.approx(alone["scores"]["test"]["loss"], abs=1e-4)
        assert paper["test"] >= honest["test"]
    assert len(store.lines("graphs")) == 4


def test_an_answered_twin_is_not_written_again(tmp_path, monkeypatch):
    cell = tiny_cell({"training.seed": 1})
    both = replace(tiny_cell({"training.seed": 2}), last=cell.config)
    assert without_twins([cell, both]) == ([both], {address_of(cell.coordinates)})
    assert without_twins([both]) == ([both], set())
    monkeypatch.setattr(
        "pprgnn.experiments.runner.run_cell",
        lambda each, folder, threads=0: tiny_line(each) | {"also": tiny_line(each.twin)},
    )
    store = Store(tmp_path / "results")
    store.add(tiny_line(cell, test=0.9))
    assert run_missing([cell, both], store, folder=tmp_path / "runs")
    assert [line["test"] for line in store.lines("chains")] == [0.9, 0.5]
    assert all("also" not in line for line in store.lines("chains"))
