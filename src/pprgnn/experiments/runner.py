"""Run what is missing of a grid, some cells at once, and keep each result as it arrives.

On this machine the workers are joblib's processes; Dask and Ray have some on others.
"""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn, Protocol

from pprgnn.experiments.cell import Cell, address_of
from pprgnn.experiments.run_cell import Line, forget, run_cell
from pprgnn.experiments.store import Store
from pprgnn.training.errors import TrainingError

# Processes only: seeds of torch belong to a whole process, so cells in threads would disturb each other.
BACKENDS = ("loky", "dask", "ray")
Run = Callable[[Cell], Line | None]


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
        address: Of the cluster's scheduler, for Dask and Ray; empty: one on this machine, for the while.
    """

    jobs: int = 1
    backend: str = "loky"
    address: str = ""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise TrainingError(f"The backend must be one of {', '.join(BACKENDS)}, but is {self.backend!r}.")
        if self.address and self.backend == "loky":
            raise TrainingError("An address is that of a cluster; name its kind with --backend dask or ray.")

    @property
    def is_this_process(self) -> bool:
        """Whether the cells run here, one after the other."""
        return self.jobs == 1 and self.backend == "loky"


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

    Ctrl-C and SIGTERM end it with :class:`KeyboardInterrupt`; the same call goes on.

    Args:
        cells: The grid, the most telling cells first.
        store: Where the results are kept.
        workers: How many at once, and where; ``None``: one after the other, here.
        folder: Where unfinished trainings are kept, so that they go on.
        retry: Whether cells whose training broke off are run again.
        watcher: Is told how it goes.
    """
    workers, watcher, folder = workers or Workers(), watcher or Unwatched(), Path(folder).absolute()
    answers = store.answers(cells)
    done = {number for number, line in answers.items() if not (retry and "error" in line)}
    missing = [cell for number, cell in enumerate(cells) if number not in done]
    by_address = {address_of(cell.coordinates): cell for cell in missing}
    watcher.started(missing, len(done))
    complete = True
    with _ended_by_sigterm(), closing(_lines(missing, folder, workers)) as lines:
        for line in lines:
            if line is None:
                raise KeyboardInterrupt
            if "missing" in line or "broken" in line:
                complete = False
            else:
                store.add(line)
                forget(by_address[address_of(line)], folder)
            watcher.finished(line)
    return complete


def _lines(cells: Sequence[Cell], folder: Path, workers: Workers) -> Generator[Line | None]:
    """What comes out of the cells; in their order but for those at once."""
    at_once = {"loky": _on_loky, "dask": _on_dask, "ray": _on_ray}[workers.backend]
    for alone, group in groupby(cells, key=lambda cell: cell.alone):
        if alone or workers.is_this_process:
            yield from (run_cell(cell, folder) for cell in group)
        else:  # one CPU thread each: threads of several processes would fight over the cores
            yield from at_once(partial(run_cell, folder=folder, threads=1), list(group), workers)


def _on_loky(run: Run, cells: Sequence[Cell], workers: Workers) -> Iterator[Line | None]:
    joblib = _import("joblib", "Running several cells at once")
    parallel = joblib.Parallel(workers.jobs, "loky", return_as="generator_unordered", batch_size=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*tasks (which|have)", module="joblib")  # at a stop: some are given up
        try:
            yield from parallel(joblib.delayed(run)(cell) for cell in cells)
        except BrokenExecutor as error:
            raise _killed() from error


def _on_dask(run: Run, cells: Sequence[Cell], workers: Workers) -> Iterator[Line | None]:
    distributed = _import("distributed", "Dask")
    local = {"n_workers": workers.jobs, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.Client(workers.address) if workers.address else distributed.Client(**local) as client:
        threads = max(client.nthreads().values(), default=1)
        if threads > 1:
            raise TrainingError(
                f"A Dask worker must have one thread, since its seed belongs to the whole process, but one has "
                f"{threads}; start them with `dask worker --nthreads 1`."
            )
        futures = client.map(run, cells, pure=False)
        try:
            for future in distributed.as_completed(futures):
                yield future.result()
        except distributed.KilledWorker as error:
            raise _killed() from error
        finally:
            client.cancel(futures)


def _on_ray(run: Run, cells: Sequence[Cell], workers: Workers) -> Iterator[Line | None]:
    ray = _import("ray", "Ray")
    pools = _import("ray.util.multiprocessing", "Ray")
    where = {"address": workers.address} if workers.address else {"address": "local", "num_cpus": workers.jobs}
    ray.init(**where, log_to_driver=False)
    try:
        with pools.Pool(workers.jobs) as pool:
            yield from pool.imap_unordered(run, cells)
    except ray.exceptions.RayActorError as error:
        raise _killed() from error
    finally:
        ray.shutdown()


def _killed() -> TrainingError:
    return TrainingError(
        "A worker was killed, most likely because memory ran out; try fewer --jobs. What is finished is kept, and "
        "the same command goes on."
    )


def _import(module: str, what: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise TrainingError(f"{what} needs {package}; install it with `pip install {package}`.") from error


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends this as Ctrl-C does, so that no worker stays behind."""

    def stop(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # elsewhere Python allows no handlers
        yield
        return
    old = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)
