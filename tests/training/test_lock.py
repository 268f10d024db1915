"""A folder belongs to one process at a time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pprgnn.training.errors import TrainingError
from pprgnn.training.run import locked

HOLDER = """
import sys, time
from pprgnn.training.run import locked
with locked(sys.argv[1]):
    print("mine", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "mine\n"
        yield process
        process.kill()


def test_another_process_is_named_and_its_end_frees_the_folder(tmp_path, holder):
    named = rf"in use by another process \({holder.pid}\); wait"
    with pytest.raises(TrainingError, match=named), locked(tmp_path):
        raise AssertionError
    holder.kill()  # -9: it cannot tidy up
    holder.wait()
    with locked(tmp_path):
        pass


def test_the_folder_is_made_and_nothing_is_left_in_it(tmp_path):
    with locked(tmp_path / "a" / "b"):
        assert list((tmp_path / "a" / "b").iterdir()) == []
    with locked(tmp_path / "a" / "b"):
        pass


def test_another_folder_is_free(tmp_path, holder):
    with locked(tmp_path / "other"):
        pass


def test_where_there_can_be_no_folder_others_say_so(tmp_path):
    (tmp_path / "file").touch()
    with locked(tmp_path / "file" / "run"):
        pass


def test_the_owner_of_a_lock_is_not_always_told(tmp_path, holder, monkeypatch):
    monkeypatch.setattr("pprgnn.training.run.LOCKS", tmp_path / "none")
    with pytest.raises(TrainingError, match="in use by another process; wait"), locked(tmp_path):
        raise AssertionError


def test_a_child_does_not_inherit_it(tmp_path):
    with locked(tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with locked(tmp_path):
            pass
    finally:
        child.kill()
        child.wait()
