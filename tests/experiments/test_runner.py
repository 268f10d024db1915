"""Grids: what is missing runs, in order; results are kept as they come; a stop, a failure and a retry."""

import os
import signal
from contextlib import nullcontext

import pytest

from pprgnn.experiments import plan, runner
from pprgnn.experiments.runner import Workers, run_missing
from pprgnn.experiments.store import Store

from .tiny import tiny_cell, tiny_line


class Seen:
    """A watcher that remembers."""

    def __init__(self, stop_after=None):
        self.missing, self.done, self.lines, self.stop_after = None, None, [], stop_after

    def started(self, missing, done):
        self.missing, self.done = missing, done

    def finished(self, line):
        self.lines.append(line)
        if len(self.lines) == self.stop_after:
            raise KeyboardInterrupt


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


@pytest.fixture
def ran(monkeypatch):
    """Cells that ran, and a result for each without any training; those of `bad` seeds fail as told."""
    made = []

    def run(cell, folder, threads=0):
        made.append(cell.config.training.seed)
        (folder / cell.folder_name).mkdir(parents=True, exist_ok=True)
        reason = run.bad.get(cell.config.training.seed)
        if reason == "stopped":
            return None
        return tiny_line(cell) | ({reason: "Oh."} if reason else {})

    run.bad, run.seeds = {}, made
    monkeypatch.setattr(runner, "run_cell", run)
    return run


def cells(count=4, **facts):
    return [tiny_cell({"training.seed": seed}, **facts) for seed in range(count)]


def test_only_what_is_missing_runs_in_its_order(store, ran, tmp_path):
    store.add(tiny_line(cells()[1]))
    seen = Seen()
    assert run_missing(cells(), store, folder=tmp_path / "runs", watcher=seen)
    assert ran.seeds == [0, 2, 3]
    assert (len(seen.missing), seen.done, len(seen.lines)) == (3, 1, 3)
    assert len(Store(store.folder).answers(cells())) == 4
    assert list((tmp_path / "runs").iterdir()) == []  # kept, so no longer needed
    assert run_missing(cells(), store)
    assert ran.seeds == [0, 2, 3]


def test_a_changed_recipe_runs_again(store, ran, tmp_path):
    run_missing(cells(), store, folder=tmp_path)
    changed = [tiny_cell({"training.seed": 2, "training.lr": 0.5})]
    run_missing(changed, store, folder=tmp_path)
    assert ran.seeds == [0, 1, 2, 3, 2]


def test_a_stop_keeps_what_is_finished_and_the_same_call_goes_on(store, ran, tmp_path):
    ran.bad = {2: "stopped"}
    with pytest.raises(KeyboardInterrupt):
        run_missing(cells(), store, folder=tmp_path)
    assert len(Store(store.folder).lines("chains")) == 2
    ran.bad.clear()
    assert run_missing(cells(), store, folder=tmp_path)
    assert ran.seeds == [0, 1, 2, 2, 3]


def test_sigterm_is_a_stop_too(store, ran, tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(runner, "run_cell", lambda cell, folder: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(KeyboardInterrupt):
        run_missing(cells(), store, folder=tmp_path)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_failed_training_is_kept_and_runs_again_only_when_asked(store, ran, tmp_path):
    ran.bad = {1: "error"}
    assert run_missing(cells(), store, folder=tmp_path)
    assert ran.seeds == [0, 1, 2, 3]  # the rest still runs
    assert run_missing(cells(), store, folder=tmp_path)
    assert ran.seeds == [0, 1, 2, 3]
    ran.bad.clear()
    assert run_missing(cells(), store, folder=tmp_path, retry=True)
    assert ran.seeds == [0, 1, 2, 3, 1]
    assert "error" not in Store(store.folder).answers(cells())[1]


@pytest.mark.parametrize("reason", ["missing", "broken"])
def test_what_is_no_result_is_told_but_not_kept(store, ran, tmp_path, reason):
    ran.bad = {1: reason}
    seen = Seen()
    assert not run_missing(cells(), store, folder=tmp_path, watcher=seen)
    assert ran.seeds == [0, 1, 2, 3]
    assert seen.lines[1][reason] == "Oh."
    assert sorted(store.answers(cells())) == [0, 2, 3]


def test_the_order_is_kept_around_cells_that_run_alone(store, ran, tmp_path, monkeypatch):
    batches = []

    def at_once(run, group):
        batches.append([cell.config.training.seed for cell in group])
        yield from (tiny_line(cell) for cell in group)

    monkeypatch.setattr(runner, "at_work", lambda workers: nullcontext(at_once))
    grid = [tiny_cell({"training.seed": seed}, alone=seed in (2, 3)) for seed in range(6)]
    seen = Seen()
    assert run_missing(grid, store, Workers(2), folder=tmp_path, watcher=seen)
    assert batches == [[0, 1], [4, 5]]
    assert ran.seeds == [2, 3]
    assert [line["seed"] for line in seen.lines] == [0, 1, 2, 3, 4, 5]


def test_small_graphs_run_on_all_cores_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr(plan, "cores", lambda: {"allowed": 3})

    def usual(count, experiment, threads=0):
        cell = tiny_cell({"training.threads": threads}, experiment=experiment)
        return plan.usual_jobs([cell] * count)

    assert [usual(count, "graphs") for count in (0, 2, 4)] == [1, 2, 3]
    assert usual(4, "ppi") == 1
    assert usual(4, "graphs", threads=2) == 1
