"""Run what is missing of a grid, some cells at once, and keep each result as it arrives.

The workers are joblib's, so its backends for clusters (Dask, Ray) run the grid, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from pprgnn.experiments.cell import Cell
from pprgnn.experiments.run_cell import Line, run_cell
from pprgnn.experiments.store import Store
from pprgnn.training.errors import TrainingError

BACKENDS = ("loky", "multiprocessing", "threading", "dask", "ray")


class Watcher(Protocol):
    """Is told how the grid goes."""

    def started(self, missing: Sequence[Cell], done: int) -> None:
        """Before the first cell."""

    def finished(self, line: Line) -> None:
        """After each cell."""


class Unwatched:
    """Nobody is told."""

    def started(self, missing: Sequence[Cell], done: int) -> None:
        """Say nothing."""

    def finished(self, line: Line) -> None:
        """Say nothing."""


@dataclass(frozen=True)
class Workers:
    """How many cells at once, and where.

    Args:
        jobs: Cells at once; each has one CPU thread if there are several.
        backend: One of :data:`BACKENDS`.
        address: Of the cluster's scheduler, for Dask and Ray; empty: the one on this machine.
    """

    jobs: int = 1
    backend: str = "loky"
    address: str = ""


def run_missing(
    cells: Sequence[Cell],
    store: Store,
    workers: Workers | None = None,
    *,
    folder: Path | str = "runs/reproduce",
    retry: bool = False,
    watcher: Watcher | None = None,
) -> bool:
    """Run the cells that have no result yet, in their order; whether all have one in the end.

    Args:
        cells: The grid, the most telling cells first.
        store: Where the results are kept.
        workers: How many at once, and where; ``None``: one after the other, here.
        folder: Where unfinished trainings are kept, so that they go on.
        retry: Whether cells whose training broke off are run again.
        watcher: Is told how it goes.
    """
    workers, watcher = workers or Workers(), watcher or Unwatched()
    answers = store.answers(cells)
    done = {number for number, line in answers.items() if not (retry and "error" in line)}
    missing = [cell for number, cell in enumerate(cells) if number not in done]
    watcher.started(missing, len(done))
    together, alone = ([cell for cell in missing if cell.alone is kind] for kind in (False, True))
    for line in chain(_several(together, Path(folder), workers), _one_by_one(alone, Path(folder))):
        if line is None:
            return False
        store.add(line)
        watcher.finished(line)
    return True


def _one_by_one(cells: Sequence[Cell], folder: Path) -> Iterator[Line | None]:
    for cell in cells:
        yield run_cell(cell, folder)


def _several(cells: Sequence[Cell], folder: Path, workers: Workers) -> Iterator[Line | None]:
    here = workers.backend in ("loky", "multiprocessing", "threading")
    if not cells or (here and workers.jobs == 1):
        yield from _one_by_one(cells, folder)
        return
    joblib = _joblib()
    with _backend(workers):
        # One CPU thread each: threads of several processes would fight over the cores.
        jobs = [joblib.delayed(run_cell)(cell, folder.absolute(), 1) for cell in cells]
        backend = joblib.parallel.get_active_backend()[0]
        if getattr(backend, "supports_return_generator", False):
            yield from joblib.Parallel(workers.jobs, return_as="generator_unordered", batch_size=1)(jobs)
            return
        count = joblib.effective_n_jobs(workers.jobs)  # such a backend returns a list: small ones lose little
        for first in range(0, len(jobs), count):
            yield from joblib.Parallel(workers.jobs, batch_size=1)(jobs[first : first + count])


@contextmanager
def _backend(workers: Workers) -> Iterator[None]:
    """Where joblib works, for a while."""
    import joblib

    client: Any = None
    if workers.backend == "dask":
        distributed = _import("distributed", "Dask", "distributed")
        client = distributed.Client(workers.address) if workers.address else distributed.Client(processes=True)
    elif workers.backend == "ray":
        _import("ray.util.joblib", "Ray", "ray").register_ray()
        ray = import_module("ray")
        if not ray.is_initialized():
            ray.init(address=workers.address or None)
    try:
        with joblib.parallel_config(workers.backend, n_jobs=workers.jobs):
            yield
    finally:
        if client is not None:
            client.close()


def _joblib() -> Any:
    return _import("joblib", "Running several cells at once", "joblib")


def _import(module: str, what: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise TrainingError(f"{what} needs {package}; install it with `pip install {package}`.") from error
