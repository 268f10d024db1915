"""Jobs at once: results as they arrive, from joblib's processes and from Dask's; a failure, a death and a stop."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from pprgnn.training.errors import TrainingError
from pprgnn.training.workers import BACKENDS, StoppedError, Workers, at_work

HERE = Path(__file__).resolve().parents[2]


def squared(number):
    return os.getpid(), number * number


def late_if_first(number):
    time.sleep(0 if number else 1.5)
    return number


def failing(number):
    raise TrainingError("It cannot be.")


def dying(number):
    os.kill(os.getpid(), signal.SIGKILL)


def waiting(folder):
    """Runs until Ctrl-C, which it has the time to answer."""
    Path(folder, "started").touch()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        Path(folder, "saved").touch()
    return None


def results(workers, run, items, **options):
    with at_work(workers, **options) as at_once, closing(at_once(run, items)) as found:
        return list(found)


KILLED = (
    "A worker was killed, most likely because memory ran out; try fewer at once. What is finished is kept, "
    "and `this` goes on."
)


@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_jobs_run_in_other_processes_and_arrive_as_they_end(backend):
    with pytest.raises(TrainingError) as caught:
        some_jobs_then_death(Workers(2, backend))
    assert str(caught.value) == KILLED


def some_jobs_then_death(workers):
    with at_work(workers, go_on="`this` goes on") as at_once:
        found = list(at_once(squared, range(5)))
        assert sorted(square for _, square in found) == [0, 1, 4, 9, 16]
        assert os.getpid() not in {process for process, _ in found}
        assert list(at_once(late_if_first, range(3)))[-1] == 0  # the same workers; the slow one does not hold up
        if workers.backend == "dask":
            assert listening_addresses() == {"127.0.0.1"}
        with pytest.raises(TrainingError, match="It cannot be"):
            list(at_once(failing, range(3)))
        list(at_once(dying, range(2)))


def listening_addresses():
    """Of this process and those that it started."""
    import psutil  # Dask needs it itself

    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    sockets = [each for one in processes for each in one.net_connections("inet")]
    return {each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN}


def test_workers_of_dask_with_threads_are_refused():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        distributed.LocalCluster(**options, host="127.0.0.1", protocol="tcp") as cluster,
        pytest.raises(
            TrainingError, match=r"one thread, .* but one has 2; start them with `dask worker --nthreads 1`"
        ),
    ):
        results(Workers(2, "dask", cluster.scheduler_address), squared, range(2))


STOPPED = """
import sys
from contextlib import closing
from pprgnn.training.workers import StoppedError, Workers, at_work
from tests.training.test_workers import waiting
if __name__ == "__main__":
    with at_work(Workers(2)) as at_once, closing(at_once(waiting, [sys.argv[1]])) as found:
        try:
            list(found)
        except StoppedError:
            print("stopped")
"""


def test_ctrl_c_reaches_the_jobs_and_waits_for_them(tmp_path):
    """One worker has a job, the other has none: its end must not end the first."""
    command = [sys.executable, "-c", STOPPED, str(tmp_path)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, cwd=HERE, **options) as process:
        began = time.monotonic()
        while not (tmp_path / "started").exists() and time.monotonic() - began < 60:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, said = process.communicate(timeout=30)
    assert (out, process.returncode) == ("stopped\n", 0)
    assert said == "Stopping after this epoch; press Ctrl-C again to stop at once.\n"
    assert (tmp_path / "saved").exists()


MASKS = """
import signal
from joblib.externals.loky.backend import fork_exec
from pprgnn.training.workers import Workers, at_work
from tests.training.test_workers import squared
launch, masks = fork_exec.fork_exec, []
def watched(*arguments, **options):
    masks.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    return launch(*arguments, **options)
fork_exec.fork_exec = watched
if __name__ == "__main__":
    with at_work(Workers(2)) as at_once:
        list(at_once(squared, range(2)))
    print(masks)
"""


def test_workers_start_deaf_to_ctrl_c():
    """Whatever starts first in a fresh process, no worker can be interrupted while it is imported."""
    done = subprocess.run([sys.executable, "-c", MASKS], cwd=HERE, capture_output=True, text=True, check=True)
    assert done.stdout == "[True, True]\n"


def test_a_job_that_was_stopped_stops_the_others():
    with pytest.raises(StoppedError):
        results(Workers(2), none_for_two, range(50))


def none_for_two(number):
    return None if number == 2 else number


def test_handlers_are_as_they_were():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    results(Workers(2), squared, range(3))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_workers_that_make_no_sense():
    with pytest.raises(TrainingError, match="must be one of loky, dask, ray, but is 'threading'"):
        Workers(2, "threading")
    with pytest.raises(TrainingError, match="name its kind with --backend dask or ray"):
        Workers(2, address="tcp://there:8786")
    with pytest.raises(TrainingError, match="whole number from 1 on, but are 0"):
        Workers(0)
    assert set(BACKENDS) == {"loky", "dask", "ray"}
    assert Workers().is_this_process
    assert not Workers(1, "dask").is_this_process


@pytest.mark.parametrize(("backend", "module"), [("loky", "joblib"), ("dask", "distributed"), ("ray", "ray")])
def test_a_package_that_is_not_there_is_named(monkeypatch, backend, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TrainingError, match=f"needs {module}; install it with `pip install {module}`"):
        results(Workers(2, backend), squared, range(2))
