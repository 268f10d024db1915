"""What is written beside every result: complete, JSON, and never a reason to fail."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pprgnn
from pprgnn.core.backend import kernel
from pprgnn.training import environment as module
from pprgnn.training.environment import (
    cpu_quota,
    environment,
    installed,
    memory_limit,
    memory_room,
    parse_blas,
)


def test_everything_is_there_and_json():
    facts = environment()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["versions"]["pprgnn"] == pprgnn.__version__
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["threads"]["torch"] == torch.get_num_threads()
    assert facts["cores"]["allowed"] >= 1
    assert facts["device"] in ("cpu", "cuda")
    assert facts["kernel"] == kernel.library_name()
    assert set(facts["extras"]) == {
        "matplotlib",
        "jinja2",
        "fastapi",
        "uvicorn",
        "grakel",
        "scikit-learn",
        "pymetis",
        "networkx",
        "optuna",
        "distributed",
    }
    if sys.platform == "linux":
        assert 0 < facts["memory"]["available"] < facts["memory"]["total"]
        assert facts["cpu"]


def test_a_package_that_is_not_there_has_no_version():
    assert installed("a-package-nobody-has") is None


def test_the_kernel_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("PPRGNN_KERNEL", "torch")
    assert environment()["kernel"] == "torch"


def test_roots_come_from_the_environment(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("PPRGNN_DATA", str(file))  # data_root() refuses it
    monkeypatch.setenv("PPRGNN_CACHE", str(tmp_path))
    facts = environment()
    assert facts["data_root"] is None
    assert facts["cache_root"] == str(tmp_path)


def test_without_torch_the_rest_is_told():
    code = (
        "import sys, json; sys.modules['torch'] = None\n"
        "from pprgnn.training.environment import environment\n"
        "print(json.dumps(environment()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    facts = json.loads(done.stdout)
    assert facts["threads"] is facts["kernel"] is facts["device"] is None
    assert facts["python"]


def test_importing_it_does_not_import_torch():
    code = "import sys, pprgnn.training.environment; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


# ------------------------------------------------------------------------------------------------------- commit
def git(folder: Path, *arguments: str) -> str:
    person = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *person, *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=clean).stdout.strip()


def test_commit_of_a_checkout(tmp_path):
    package = tmp_path / "src" / "pprgnn"
    package.mkdir(parents=True)
    (package / "a.py").write_text("1")
    assert module._commit(package) is None  # no repository
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "a")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert module._commit(package) == head
    (package / "a.py").write_text("2")
    assert module._commit(package) == f"{head}-dirty"
    elsewhere = tmp_path / "venv" / "pprgnn"  # installed inside somebody else's repository
    elsewhere.mkdir(parents=True)
    assert module._commit(elsewhere) is None


def test_without_git_there_is_no_commit(tmp_path, monkeypatch):
    package = tmp_path / "src" / "pprgnn"
    package.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    assert module._commit(package) is None  # not a repository after all
    monkeypatch.setenv("PATH", str(tmp_path))
    assert module._commit(package) is None


# ----------------------------------------------------------------------------------------------------- machine
def test_threads_of_one_core_are_one_physical_core(tmp_path, monkeypatch):
    parts = [f"model name\t: Old One\nphysical id\t: {s}\ncore id\t: {c}\n" for s in (0, 1) for c in (0, 1)]
    monkeypatch.setattr(module, "CPU_INFO", tmp_path / "cpuinfo")
    module.CPU_INFO.write_text("\n".join(parts * 2))
    assert module._physical_cores() == 4
    assert module._cpu_model() == "Old One"
    module.CPU_INFO.unlink()
    assert module._physical_cores() is None


@pytest.mark.parametrize(
    ("text", "library"),
    [
        ("Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build", "MKL 2024.2"),
        ("Build settings: BLAS_INFO=open, BUILD_TYPE=Release", "OpenBLAS"),
        ("Build settings: BLAS_INFO=accelerate, BUILD_TYPE=Release", "accelerate"),
        ("nothing about it", None),
    ],
)
def test_the_library_of_dense_products(text, library):
    openmp = "\n  - OpenMP 201511 (a.k.a. OpenMP 4.5)\n"
    found = parse_blas(text + openmp, "ATen parallel backend: OpenMP\n")
    assert found == {"library": library, "openmp": "4.5", "backend": "OpenMP", "instructions": None}


# ------------------------------------------------------------------------------------------------------ cgroups
def groups(tmp_path, lines: str, files: dict[str, str]):
    own = tmp_path / "own"
    own.write_text(lines)
    for name, text in files.items():
        path = tmp_path / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return own, tmp_path / "mount"


def test_limits_of_version_2_hold_for_the_groups_around(tmp_path):
    where = groups(
        tmp_path,
        "0::/outer/inner\n",
        {
            "outer/memory.max": "1000\n",
            "outer/memory.current": "700\n",
            "outer/memory.stat": "anon 300\ninactive_file 100\n",
            "outer/cpu.max": "150000 100000\n",
            "outer/inner/memory.max": "max\n",
            "outer/inner/memory.current": "10\n",
            "outer/inner/cpu.max": "max 100000\n",
        },
    )
    assert memory_limit(*where) == 1000
    assert memory_room(*where) == 400  # 1000 - (700 - 100)
    assert cpu_quota(*where) == 1.5


def test_limits_of_version_1_also_when_the_path_is_the_hosts(tmp_path):
    where = groups(
        tmp_path,
        "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n0::/\n",
        {
            "memory/memory.limit_in_bytes": "5000\n",
            "memory/memory.usage_in_bytes": "6000\n",
            "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 500\n",
            "cpu/cpu.cfs_quota_us": "50000\n",
            "cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert memory_limit(*where) == 5000
    assert memory_room(*where) == 0
    assert cpu_quota(*where) == 0.5


def test_no_limits(tmp_path):
    files = {
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/memory.usage_in_bytes": "1\n",
        "cpu/cpu.cfs_quota_us": "-1\n",
        "cpu/cpu.cfs_period_us": "100000\n",
    }
    where = groups(tmp_path, "4:memory:/\n1:cpu:/\n", files)
    assert (memory_limit(*where), memory_room(*where), cpu_quota(*where)) == (None, None, None)
    nowhere = (tmp_path / "absent", tmp_path / "mount")
    assert (memory_limit(*nowhere), memory_room(*nowhere), cpu_quota(*nowhere)) == (None, None, None)
