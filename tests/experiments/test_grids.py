"""The grids of all experiments: distinct cells, in a fixed order, with settings that hold, and quick to make."""

import time
from functools import cache

import pytest

from pprgnn.experiments import EXPERIMENTS, Extent
from pprgnn.experiments.cell import address_of
from pprgnn.experiments.graphs import PAPER_ROWS
from pprgnn.training.errors import TrainingError
from pprgnn.training.systems import find_system


@cache
def cells_of(experiment):
    """The whole grid, made once."""
    return experiment.cells()


ALL = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)


def test_all_grids_are_made_within_seconds():
    started = time.process_time()
    assert sum(len(each.cells()) for each in EXPERIMENTS.values()) > 3000
    assert time.process_time() - started < 5


@ALL
def test_every_cell_has_a_place_of_its_own(experiment):
    cells = cells_of(experiment)
    assert len({address_of(cell.coordinates) for cell in cells}) == len(cells)
    assert len({cell.folder_name for cell in cells}) == len(cells)
    assert {cell.experiment for cell in cells if not cell.candidates} == {experiment.name}
    assert {cell.experiment for cell in cells if cell.candidates} <= {f"{experiment.name}-trials"}


@ALL
def test_the_order_is_always_the_same(experiment):
    assert experiment.cells() == cells_of(experiment)


@ALL
def test_settings_hold_and_smoke_cells_are_small(experiment):
    usual = experiment.cells(Extent(1, 1))
    small = experiment.cells(Extent(1, 1), smoke=True)
    trained = [cell for cell in usual if find_system(cell.config.model.system).kind != "kernel"]
    found = {(cell.experiment, *cell.group[:-1]) for cell in small}  # trials are no values of the table
    assert {(cell.experiment, *cell.group[:-1]) for cell in trained} <= found  # one place of each axis ...
    assert len(found) == len(small)
    order = [cell.coordinates for cell in usual]
    assert [order.index(cell.coordinates) for cell in small] == sorted(
        order.index(cell.coordinates) for cell in small
    )
    kernels = [cell for cell in small if find_system(cell.config.model.system).kind == "kernel"]
    assert {cell.config.data.name for cell in kernels} <= {"MUTAG", "PTC"}  # ... but no slow kernel
    for cell in small:
        assert cell.config.with_values({}) == cell.config  # every setting is checked again
        assert cell.config.training.epochs <= 2
        assert cell.config.model.max_depth <= 30 or cell.config.model.max_depth == 500  # not read
        assert not cell.alone
    assert any(cell.config.training.epochs > 10 for cell in usual) or usual[0].config.model.system in PAPER_ROWS


def test_narrowing_by_what_cells_are_called():
    cells = EXPERIMENTS["amazon"].cells(Extent(only=["Labels as input", "fraction 0.05"]))
    assert {cell.variant for cell in cells} == {"labels as input"}
    assert {cell.at["fraction"] for cell in cells} == {0.05}
    assert {"amazon", "amazon-trials"} == {cell.experiment for cell in cells}


@ALL
def test_narrowing(experiment):
    whole = cells_of(experiment)
    system, data = whole[-1].config.model.system, whole[-1].config.data.name
    some = experiment.cells(Extent(models=[system.upper()], data=[data.lower()]))
    assert some == [c for c in whole if (c.config.model.system, c.config.data.name) == (system, data)]
    assert some
    few = experiment.cells(Extent(folds=1, seeds=1))
    assert {(cell.config.data.fold, cell.config.training.seed) for cell in few} == {(0, 0)}
    assert len(few) == len({cell.group for cell in whole})
    assert len(experiment.cells(Extent(seeds=2))) > len(experiment.cells(Extent(seeds=1)))
    parts = [experiment.cells(Extent(protocols=[each])) for each in ("honest", "paper")]
    assert sorted(cell.label for part in parts for cell in part) == sorted(cell.label for cell in whole)
    assert all(cell.config.data.protocol == "honest" for cell in parts[0])


def test_an_unknown_model_is_refused():
    with pytest.raises(TrainingError, match="There is no model 'gcnx'; did you mean 'gcn'"):
        EXPERIMENTS["chains"].cells(Extent(models=["gcnx"]))


def test_only_the_papers_own_tables_follow_its_protocol():
    protocols = {name: {c.config.data.protocol for c in cells_of(each)} for name, each in EXPERIMENTS.items()}
    assert {name for name, found in protocols.items() if "paper" in found} == {"graphs", "amazon"}
    assert all("honest" in found for found in protocols.values())


def test_cells_whose_time_is_a_result_run_alone():
    assert {name for name, each in EXPERIMENTS.items() if any(c.alone for c in cells_of(each))} == {"timing"}
    assert all(cell.alone for cell in cells_of(EXPERIMENTS["timing"]))


@pytest.mark.parametrize(
    ("name", "data"), [("graphs", "MUTAG"), ("graphs", "PROTEINS"), ("depth", "Cora"), ("heterophily", "texas")]
)
def test_the_test_part_chooses_the_epoch_under_the_papers_protocol_only(name, data, data_root):
    _check_splits(name, data)


def test_chains_are_honest():
    _check_splits("chains", "chains")


def _check_splits(name, data):
    from pprgnn.training.train import choose_split, load_data

    cells = EXPERIMENTS[name].cells(Extent(data=[data], seeds=1, models=["gcn"]))
    assert cells
    loaded = load_data(cells[0].config)
    for cell in cells:
        if cell.config.data.options == cells[0].config.data.options:
            split = choose_split(cell.config, loaded)
            assert split.optimistic is (cell.config.data.protocol == "paper")
            nothing_chooses = cell.config.training.monitor == "last"
            assert bool(len(split.val)) is not (split.optimistic or nothing_chooses)
