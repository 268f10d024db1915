"""What would run, and how long it may take: estimates from the results that are most alike."""

import pytest

from pprgnn.experiments.plan import Estimates, make_plan
from pprgnn.experiments.store import Store

from .tiny import tiny_cell, tiny_line


def of(seconds, system="gcn", **facts):
    return tiny_line(tiny_cell(system=system, **facts), total_seconds=seconds)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([of(1.0, variant="a"), of(3.0, variant="a"), of(9.0, variant="a"), of(50.0)], (3.0, "the same variant")),
        ([of(5.0, variant="b"), of(50.0, experiment="depth")], (5.0, "other variants")),
        ([of(6.0, experiment="depth", variant="a"), of(50.0, "mlp")], (6.0, "other experiments")),
        ([of(7.0, "mlp"), of(50.0, "mlp", experiment="depth")], (7.0, "other systems")),
        ([of(50.0, "mlp", experiment="depth"), of(50.0, data="other")], None),
        ([of(1.0, variant="a") | {"error": "Oh."}], None),
    ],
)
def test_the_nearest_results_give_the_time(lines, expected):
    assert Estimates(lines).of(tiny_cell(variant="a")) == expected


def test_what_runs_alone_does_not_share_its_time():
    estimates = Estimates([of(4.0)])
    cells = [tiny_cell(), tiny_cell(), tiny_cell(alone=True), tiny_cell(data="other")]
    assert estimates.total(cells, 1) == (12.0, 1)
    assert estimates.total(cells, 2) == (8.0, 1)


def test_estimates_learn_as_results_arrive():
    estimates = Estimates()
    assert estimates.of(tiny_cell()) is None
    estimates.add(of(4.0))
    assert estimates.of(tiny_cell()) == (4.0, "the same variant")


def test_rows_of_a_plan(tmp_path):
    store = Store(tmp_path)
    grid = [tiny_cell({"training.seed": seed}, system=system) for system in ("gcn", "mlp") for seed in range(3)]
    grid.append(tiny_cell(data="other"))
    store.add(tiny_line(grid[0], total_seconds=4.0))
    store.add(tiny_line(grid[1], error="Oh."))
    plan = make_plan(grid, store, ["chains"], jobs=2, retry=False)
    gcn, mlp, other = plan.rows
    assert (gcn.experiment, gcn.system, gcn.data) == ("chains", "gcn", "chains")
    assert (gcn.cells, gcn.done, gcn.seconds, gcn.sources) == (3, 2, 4.0, ["the same variant"])
    assert (mlp.cells, mlp.done, mlp.seconds, mlp.sources) == (3, 0, 12.0, ["other systems"])
    assert (other.cells, other.seconds, other.without_estimate) == (1, 0.0, 1)
    assert (plan.cells, plan.done, plan.seconds, plan.without_estimate) == (7, 2, 8.0, 1)
    assert make_plan(grid, store, ["chains"], jobs=2, retry=True).done == 1
