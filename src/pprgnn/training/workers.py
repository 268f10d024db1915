"""Run independent jobs, some at once, and hand their results back as they arrive.

On this machine the workers are joblib's processes (loky); Dask and Ray have some on others, too.
"""

from __future__ import annotations

import logging
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from multiprocessing import resource_tracker
from typing import Any

from pprgnn.training.errors import TrainingError
from pprgnn.training.listener import Interruption, ended_by_sigterm

# Processes only: seeds of torch belong to a whole process, so jobs in threads would disturb each other.
BACKENDS = ("loky", "dask", "ray")
Job = Callable[[Any], Any]  # None is the result of one that was stopped
AtOnce = Callable[[Job, Iterable[Any]], Generator[Any]]


@dataclass(frozen=True)
class Workers:
    """How many jobs at once, and where.

    Args:
        jobs: At once; each has one CPU thread if there are several.
        backend: One of :data:`BACKENDS`.
        address: Of the cluster's scheduler, for Dask and Ray; empty: one on this machine, for the while.
    """

    jobs: int = 1
    backend: str = "loky"
    address: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.jobs, int) or self.jobs < 1:
            raise TrainingError(f"The jobs at once must be a whole number from 1 on, but are {self.jobs!r}.")
        if self.backend not in BACKENDS:
            raise TrainingError(f"The backend must be one of {', '.join(BACKENDS)}, but is {self.backend!r}.")
        if self.address and self.backend == "loky":
            raise TrainingError("An address is that of a cluster; name its kind with --backend dask or ray.")

    @property
    def is_this_process(self) -> bool:
        """Whether the jobs run here, one after the other."""
        return self.jobs == 1 and self.backend == "loky"


class StoppedError(KeyboardInterrupt):
    """Ctrl-C ended the jobs, and they kept what they had."""


def _announce(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def at_work(
    workers: Workers, *, go_on: str = "the same command goes on", announce: Callable[[str], None] = _announce
) -> Iterator[AtOnce]:
    """Start the workers, and end them afterwards; gives a function of a job and its items to their results.

    One after the other in this process, if that is what is wanted.

    With loky, Ctrl-C reaches the jobs as well: a training saves. Their results still arrive before
    :class:`StoppedError`. Other workers end at once, with :class:`KeyboardInterrupt`; so do all at SIGTERM.

    Args:
        workers: How many, and where.
        go_on: How to go on after a worker was killed.
        announce: Is told that Ctrl-C was heard.
    """
    if workers.is_this_process:
        started: AbstractContextManager[AtOnce] = nullcontext(_here)
    elif workers.backend == "loky":
        started = _loky(workers, announce)
    else:
        started = _dask(workers) if workers.backend == "dask" else _ray(workers)
    try:
        with ended_by_sigterm(), started as at_once:
            yield at_once
    except _KilledError as error:
        raise TrainingError(
            f"A worker was killed, most likely because memory ran out; try fewer at once. What is finished is "
            f"kept, and {go_on}."
        ) from error


class _KilledError(Exception):
    """A worker ended without a result."""


# ---------------------------------------------------------------------------------------------------- this machine
def _here(run: Job, items: Iterable[Any]) -> Generator[Any]:
    yield from map(_unless_stopped, map(run, items))


@contextmanager
def _loky(workers: Workers, announce: Callable[[str], None]) -> Iterator[AtOnce]:
    joblib = _import("joblib", "Running several jobs at once")
    trackers = _import("joblib.externals.loky.backend.resource_tracker", "Running several jobs at once")

    def at_once(run: Job, items: Iterable[Any]) -> Generator[Any]:
        parallel = joblib.Parallel(
            workers.jobs,
            "loky",
            return_as="generator_unordered",
            batch_size=1,
            pre_dispatch=workers.jobs,  # so that a stop leaves none waiting
            initializer=_ignore_sigint,
        )
        with warnings.catch_warnings(), Interruption(announce) as stop, ended_by_sigterm():
            # At a stop some are given up, and a worker may be so; one that grew by importing torch is replaced.
            warnings.filterwarnings("ignore", ".*(tasks (which|have)|worker stopped)", module="joblib")
            before_stop = takewhile(lambda _: not stop.wanted, items)
            wanted = (joblib.delayed(_with_sigint)(run, item) for item in before_stop)
            # Python and loky each start a process that tracks resources, and let Ctrl-C through again afterwards.
            resource_tracker.ensure_running()
            trackers.ensure_running()
            try:
                with _sigint_blocked():  # workers start here
                    results = parallel(wanted)
                with closing(results):
                    for result in results:
                        if result is None:
                            stop.wanted = True
                        else:
                            yield result
            except BrokenExecutor as error:
                if not stop.wanted:
                    raise _KilledError from error
            if stop.wanted:
                raise StoppedError

    yield at_once


def _ignore_sigint() -> None:
    """A worker without a job ignores Ctrl-C: its end would be taken for a death, and end the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Processes that start meanwhile hear no Ctrl-C before they can ignore it; this one hears it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _with_sigint(run: Job, item: Any) -> Any:
    """A job hears Ctrl-C; a training then saves."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run(item)
    except KeyboardInterrupt:
        return None
    finally:
        _ignore_sigint()


# -------------------------------------------------------------------------------------------------------- clusters
@contextmanager
def _dask(workers: Workers) -> Iterator[AtOnce]:
    distributed = _import("distributed", "Dask")

    def at_once(run: Job, items: Iterable[Any]) -> Generator[Any]:
        futures = client.map(run, list(items), pure=False)
        try:
            for future in distributed.as_completed(futures):
                yield _unless_stopped(future.result())
        except distributed.KilledWorker as error:  # several times: Dask gives a lost job to another worker
            raise _KilledError from error
        finally:
            client.cancel(futures)

    with distributed.Client(workers.address) if workers.address else _own_dask(distributed, workers) as client:
        threads = max(client.nthreads().values(), default=1)
        if threads > 1:
            raise TrainingError(
                f"A Dask worker must have one thread, since its seed belongs to the whole process, but one has "
                f"{threads}; start them with `dask worker --nthreads 1`."
            )
        yield at_once


def _own_dask(distributed: Any, workers: Workers) -> Any:
    """A cluster in processes of this machine; nothing listens to others, and there is no dashboard."""
    client = distributed.Client(
        n_workers=workers.jobs,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
        memory_limit=0,  # as with loky, the machine's own
        silence_logs=logging.CRITICAL,  # a failure is told by what it raises
    )
    client.run(_ignore_sigint)  # this process ends them
    return client


@contextmanager
def _ray(workers: Workers) -> Iterator[AtOnce]:
    ray = _import("ray", "Ray")
    pools = _import("ray.util.multiprocessing", "Ray")
    where = {"address": workers.address} if workers.address else {"address": "local", "num_cpus": workers.jobs}
    ray.init(**where, log_to_driver=False)
    try:
        with pools.Pool(workers.jobs) as pool:

            def at_once(run: Job, items: Iterable[Any]) -> Generator[Any]:
                yield from map(_unless_stopped, pool.imap_unordered(run, items))

            yield at_once
    except ray.exceptions.RayActorError as error:
        raise _KilledError from error
    finally:
        ray.shutdown()


def _unless_stopped(result: Any) -> Any:
    if result is None:
        raise StoppedError
    return result


def _import(module: str, what: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise TrainingError(f"{what} needs {package}; install it with `pip install {package}`.") from error
