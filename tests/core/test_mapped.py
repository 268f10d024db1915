"""States in files: the same numbers, and nothing is left behind."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time

import pytest
import torch

from pprgnn import Measured, release_buffers, solve
from pprgnn.core.backend import buffers
from pprgnn.core.backend.buffers import acquire, release, states_on_disk
from tests.problems import ZOO, draw_b, draw_weight

GRAPH = ZOO["directed_weighted"]
LIKE = torch.empty(100, 7)


@pytest.fixture(autouse=True)
def large_from_the_first_byte(monkeypatch):
    monkeypatch.setattr(buffers, "SMALL", 0)
    monkeypatch.delenv("PPRGNN_STATES", raising=False)
    release_buffers()
    yield
    release_buffers()


def files_of_this_process(folder):
    """Mapped files of a folder, named or not."""
    with open("/proc/self/maps") as maps:
        return [line for line in maps if f" {folder}/" in line]


def state_and_gradients(options, reorder):
    inputs = [draw_b(6, 3).requires_grad_(), draw_weight(3, 2.0).requires_grad_(), torch.tensor(0.5).double()]
    inputs[2].requires_grad_()
    b, weight, eps = inputs
    state = solve(b, weight, GRAPH.adjacency(reorder=reorder), eps=eps, **options).state
    return state, *torch.autograd.grad((state**2).sum(), inputs)


@pytest.mark.parametrize("reorder", [False, True])
@pytest.mark.parametrize(
    "options",
    [{"depth": 9}, {"depth": 9, "checkpoint": True}, {"depth": 9, "activation": "tanh"}, {"depth": Measured()}],
    ids=["kernel", "checkpoint", "tanh", "measured"],
)
def test_results_are_those_of_states_in_memory(tmp_path, options, reorder):
    in_memory = state_and_gradients(options, reorder)
    with states_on_disk(tmp_path):
        for _ in range(3):  # fresh files, then files used before
            on_disk = state_and_gradients(options, reorder)
            assert buffers.folder_of(on_disk[0]) == str(tmp_path)
            for one, other in zip(on_disk, in_memory, strict=True):
                assert torch.equal(one, other)


def test_files_have_no_names_and_vanish_with_the_tensors(tmp_path):
    with states_on_disk(tmp_path):
        state = acquire(LIKE)
        assert state.shape == LIKE.shape
        assert state.dtype == LIKE.dtype
        state.fill_(3)
        row = state[5]
        assert list(tmp_path.iterdir()) == []
        assert len(files_of_this_process(tmp_path)) == 1
    del state
    assert row.tolist() == [3] * 7  # outlives the block: it is the caller's
    del row
    assert files_of_this_process(tmp_path) == []


def test_a_state_given_back_is_used_again_in_its_place_only(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    in_memory = acquire(LIKE)
    release(in_memory)
    with states_on_disk(tmp_path):
        first = acquire(LIKE)
        assert first.data_ptr() != in_memory.data_ptr()
        address = first.data_ptr()
        release(first)
        with states_on_disk(other):
            inner = acquire(LIKE)
            assert buffers.folder_of(inner) == str(other)
        assert buffers.folder_of(acquire(LIKE.double())) == str(tmp_path)
        assert acquire(LIKE).data_ptr() == address
    release(inner)  # too late: nobody would take it again, so it must not be kept
    del first, inner
    assert files_of_this_process(tmp_path) == []
    assert acquire(LIKE).data_ptr() == in_memory.data_ptr()
    assert buffers.folder_of(acquire(LIKE)) is None


def test_states_kept_for_the_next_solve_are_released(tmp_path):
    with states_on_disk(tmp_path):
        release(acquire(LIKE))
        assert len(files_of_this_process(tmp_path)) == 1
        release_buffers()
        assert files_of_this_process(tmp_path) == []
        release(acquire(LIKE))
    assert files_of_this_process(tmp_path) == []  # also by leaving
    assert not buffers._folder_by_address  # an address may be another tensor's next time


def test_small_states_stay_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(buffers, "SMALL", LIKE.nbytes)
    with states_on_disk(tmp_path):
        assert buffers.folder_of(acquire(LIKE)) == str(tmp_path)
        assert buffers.folder_of(acquire(LIKE[1:])) is None
        assert acquire(LIKE[:0]).shape == (0, 7)


def test_the_environment_chooses_for_the_whole_program(tmp_path, monkeypatch):
    monkeypatch.setenv("PPRGNN_STATES", str(tmp_path))
    assert buffers.folder_of(acquire(LIKE)) == str(tmp_path)
    monkeypatch.setenv("PPRGNN_STATES", str(tmp_path / "missing"))
    with pytest.raises(ValueError, match=r"missing', which does not exist; create it first"):
        acquire(LIKE)


def test_a_missing_folder_is_refused_at_the_door(tmp_path):
    with pytest.raises(ValueError, match="does not exist"), states_on_disk(tmp_path / "missing"):
        pytest.fail("went in")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="does not exist"), states_on_disk(tmp_path / "file"):
        pytest.fail("went in")
    assert buffers.folder_of(acquire(LIKE)) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ValueError, match="may not write"), states_on_disk(tmp_path):
        pytest.fail("went in")


def test_a_full_disk_is_one_sentence_and_nothing_is_lost(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with states_on_disk(tmp_path):
        before = acquire(LIKE).fill_(1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", full)
            with pytest.raises(OSError, match=r"^A state of 2.8e-06 GB .* \(No space left"):
                acquire(LIKE)
        assert before.eq(1).all()
        assert buffers.folder_of(acquire(LIKE)) == str(tmp_path)  # goes on when there is room again


def test_space_is_reserved_before_the_work(tmp_path):
    """A limit on the size of files stands for a disk that is almost full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with states_on_disk(tmp_path):
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIKE.nbytes - 1, before[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                acquire(LIKE)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert acquire(LIKE).shape == LIKE.shape


def test_a_killed_process_leaves_nothing(tmp_path):
    code = (
        "import sys, time, torch; from pprgnn.core.backend.buffers import acquire, states_on_disk\n"
        "with states_on_disk(sys.argv[1]):\n"
        "    state = acquire(torch.empty(1000, 100)).fill_(1)\n"
        "    print('there', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "there\n"
    with open(f"/proc/{child.pid}/maps") as maps:
        assert any(f" {tmp_path}/" in line for line in maps)
    started = time.monotonic()
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert time.monotonic() - started < 30
    assert list(tmp_path.iterdir()) == []
