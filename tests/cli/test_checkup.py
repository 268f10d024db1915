"""The self-check sees a wrong result, and advice is given when, and only when, it is due."""

import os
import sys

import pytest
import torch

from pprgnn.cli import doctor as checkup
from pprgnn.cli.doctor import ALLOWED_ERROR, advice, disk, import_problems, kernel_speed, self_check
from pprgnn.core.backend import kernel
from pprgnn.core.problem import Problem

GOOD = {
    "cores": {"logical": 8, "physical": 4, "allowed": 8, "quota": None},
    "threads": {"torch": 4, "interop": 4, "OMP_NUM_THREADS": None, "MKL_NUM_THREADS": None},
    "kernel": "kernel_avx2",
    "memory": {"total": 16 << 30, "available": 8 << 30},
    "commit": None,
}


def changed(part, **values):
    return GOOD | {part: GOOD[part] | values}


@pytest.mark.parametrize("choice", ["", "torch"])
def test_a_solve_agrees_with_the_dense_reference(monkeypatch, choice):
    monkeypatch.setenv("PPRGNN_KERNEL", choice)
    assert self_check() < ALLOWED_ERROR


def test_a_wrong_step_is_seen(monkeypatch):
    monkeypatch.setenv("PPRGNN_KERNEL", "torch")
    right = Problem.step
    monkeypatch.setattr(Problem, "step", lambda self, n, *rest: right(self, n + 1, *rest))
    assert self_check() > ALLOWED_ERROR


def test_a_wrong_gradient_is_seen(monkeypatch):
    right = torch.autograd.grad
    calls = []

    def wrong(*arguments):
        calls.append(1)
        b_bar, weight_bar = right(*arguments)
        return (b_bar, weight_bar * (1.001 if len(calls) == 2 else 1))

    monkeypatch.setattr(torch.autograd, "grad", wrong)
    assert self_check() > ALLOWED_ERROR


@pytest.mark.skipif(kernel.library_name() == "torch", reason="the CPU kernel was not built")
def test_the_kernel_is_timed_and_the_choice_restored(monkeypatch):
    monkeypatch.delenv("PPRGNN_KERNEL", raising=False)
    assert 0.05 < kernel_speed(seconds=0.05) < 50
    assert "PPRGNN_KERNEL" not in os.environ
    monkeypatch.setenv("PPRGNN_KERNEL", "")
    assert kernel_speed(seconds=0.01) is not None
    assert os.environ["PPRGNN_KERNEL"] == ""
    monkeypatch.setenv("PPRGNN_KERNEL", "torch")
    assert kernel_speed() is None


def test_nothing_to_improve():
    assert advice(GOOD, speed=1.5, load=1.0) == []
    unknown = {"total": None, "available": None}
    no_torch = GOOD | {"threads": None, "kernel": None, "memory": unknown}
    assert advice(no_torch, speed=None, load=None) == []


@pytest.mark.parametrize(
    ("facts", "speed", "load", "sentence"),
    [
        (changed("threads", torch=8), 1.5, 1.0, "8 threads, but there are 4 cores"),
        (changed("cores", quota=2.5), 1.5, 1.0, "4 threads, but there are 2 cores"),
        (changed("cores", allowed=1), 1.5, 1.0, "OMP_NUM_THREADS=1."),
        (changed("threads", torch=1), 1.5, 1.0, "1 of 4 cores"),
        (changed("threads", OMP_NUM_THREADS="four"), 1.5, 1.0, "but is 'four'"),
        (changed("threads", OMP_NUM_THREADS="0"), 1.5, 1.0, "from 1 on"),
        (GOOD, 1.5, 6.25, "6.2 processes share 4 cores"),
        (GOOD, 0.5, 1.0, "slower than torch"),
        (GOOD | {"kernel": "torch"}, None, 1.0, "force-reinstall"),
        (GOOD | {"kernel": "torch", "commit": "abc"}, None, 1.0, "install -e ."),
        (changed("memory", available=1 << 30), 1.5, 1.0, "Only 1.0 GiB"),
    ],
)
def test_advice(monkeypatch, facts, speed, load, sentence):
    monkeypatch.delenv("PPRGNN_KERNEL", raising=False)
    (line,) = advice(facts, speed, load)
    assert sentence in line


def test_a_kernel_that_was_switched_off_is_not_to_be_built(monkeypatch):
    monkeypatch.setenv("PPRGNN_KERNEL", "torch")
    (line,) = advice(GOOD | {"kernel": "torch"}, None, 1.0)
    assert "unset" in line


def test_a_folder_that_does_not_exist_yet_is_judged_by_its_parent(tmp_path):
    writable, free = disk(tmp_path / "a" / "b")
    assert writable
    assert free > 0
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert not disk(tmp_path / "file")[0]


def test_packages_that_cannot_be_imported(monkeypatch):
    assert import_problems() == []
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    (line,) = import_problems()
    assert "torch-geometric cannot be imported" in line

    def broken(module):
        raise OSError("libfoo.so: not found\nmore")

    monkeypatch.setattr(checkup, "import_module", broken)
    (line,) = import_problems()
    assert "torch cannot be imported (libfoo.so: not found);" in line
