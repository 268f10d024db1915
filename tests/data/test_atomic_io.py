"""Files that are there whole or not at all."""

import os
import stat
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from pprgnn.data import atomic_io
from pprgnn.data.atomic_io import read_tensors, replacing, write_tensors, write_text
from pprgnn.errors import DataError


def test_text(tmp_path):
    path = tmp_path / "new" / "folder" / "a.txt"
    write_text(path, "größer\n")
    write_text(path, "ganz neu\n")
    assert path.read_text(encoding="utf-8") == "ganz neu\n"
    assert [each.name for each in path.parent.iterdir()] == ["a.txt"]


def test_what_a_killed_process_left_is_swept_at_the_next_write(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = atomic_io.HERE
    dead, alive, elsewhere, other = (
        tmp_path / f"{name}.{node}.{process}.0123abcd.part"
        for name, node, process in (
            ("a.txt", here, ended.pid),
            ("a.txt", here, os.getpid()),
            ("a.txt", f"{here}x", ended.pid),
            ("b.txt", here, ended.pid),
        )
    )
    for each in (dead, alive, elsewhere, other):
        each.write_text("half")
    write_text(tmp_path / "a.txt", "whole")
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "a.txt", alive, elsewhere, other])


def test_tensors(tmp_path):
    path = tmp_path / "a.safetensors"
    whole = torch.arange(12.0).view(3, 4)
    tensors = {
        "whole": whole,
        "again": whole,  # safetensors refuses tensors that share memory
        "part": whole[1:],
        "turned": whole.t(),
        "none": torch.empty(0, 3),
        "number": torch.tensor(3),
        "bits": torch.tensor([True, False]),
    }
    write_tensors(path, tensors, {"fact": "größer"})
    found, facts = read_tensors(path)
    assert facts.keys() == {"fact", "digest"}
    assert facts["fact"] == "größer"
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert all(found[name].dtype == tensors[name].dtype for name in tensors)


def test_what_was_read_survives_its_file(tmp_path):
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"a": torch.ones(1000)}, {})
    found = read_tensors(path)[0]["a"]
    write_tensors(path, {"a": torch.zeros(1000)}, {})
    assert torch.equal(found, torch.ones(1000))
    path.unlink()
    assert torch.equal(found, torch.ones(1000))


def test_no_metadata(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors")
    assert read_tensors(tmp_path / "a.safetensors")[1] == {}


@pytest.mark.parametrize("fault", [OSError("full"), KeyboardInterrupt(), ValueError("x")])
def test_a_fault_keeps_the_old_file(tmp_path, fault):
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def interrupted():
        with replacing(path) as partial:
            partial.write_text("half")
            raise fault

    with pytest.raises(type(fault)):
        interrupted()
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_is_an_os_error(tmp_path, monkeypatch):
    from safetensors import SafetensorError

    def full(*_):
        raise SafetensorError("No space left on device")

    path = tmp_path / "a.safetensors"
    write_tensors(path, {"a": torch.ones(2)}, {})
    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        write_tensors(path, {"a": torch.zeros(2)}, {})
    monkeypatch.undo()
    assert torch.equal(read_tensors(path)[0]["a"], torch.ones(2))
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_others_may_read_it_as_the_umask_says(tmp_path):
    old = os.umask(0o022)
    try:
        write_tensors(tmp_path / "a.safetensors", {"a": torch.ones(1)}, {})
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.safetensors").stat().st_mode) == 0o644


@pytest.mark.parametrize("length", [0, 1, 8, 40, -1])
def test_a_part_of_a_file_is_refused(tmp_path, length):
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"a": torch.ones(100)}, {"x": "y"})
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DataError, match=r"a\.safetensors must be a whole safetensors file"):
        read_tensors(path)


def test_an_absent_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="absent"):
        read_tensors(tmp_path / "absent")
