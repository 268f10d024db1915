"""`pprgnn train --nproc`: the real processes, started, killed, and going on."""

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pprgnn.training.model import Model
from pprgnn.training.run import Run
from tests import warm

SMALL = ["data.options.nodes=400", "dropout=0", "hidden=8", "patience=0", "checkpoint_seconds=0", "device=cpu"]
LONG = ["epochs=100000"]


def start(*arguments: str, cwd: Path, epochs: int | None = None, name: str = "sbm") -> Any:
    """The launcher; those that it starts are fresh processes."""
    settings = [*SMALL, f"epochs={epochs}"] if epochs else SMALL
    changes = [] if name == "" else [name, *(word for each in settings for word in ("--set", each))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    output = cwd / f"output-{len([*cwd.glob('output-*')])}"
    with output.open("w") as file:
        files = (0, file.fileno(), file.fileno())
        process = warm.start(
            warm.ENTRY, "train", *changes, *arguments, files=files, folder=cwd, environment=environment
        )
    process.output = output
    return process


def finished(process: Any, within: float = 120) -> tuple[int, str]:
    process.join(within)
    assert process.exitcode is not None, f"it did not end within {within} s"
    return process.exitcode, process.output.read_text()


def until_epoch(folder: Path, epoch: int, process: Any, within: float = 120) -> None:
    """Wait until the run has a checkpoint, and so many lines."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        assert process.is_alive(), process.output.read_text()
        if (folder / "checkpoint.safetensors").is_file() and len(Run(folder).records()) >= epoch:
            return
        time.sleep(0.1)
    raise AssertionError(f"no epoch {epoch} within {within} s")


def pid_of(rank: int, folder: Path) -> int:
    """The process of this rank that trains in this folder."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode().split("\0")
            environment = (path / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if f"RANK={rank}" in environment and str(folder.name) in " ".join(words):
            return int(path.name)
    raise AssertionError(f"there is no process of rank {rank}")


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")


def test_two_processes_end_as_one_does(tmp_path):
    one = start("-o", "one", "--json", cwd=tmp_path, epochs=4)
    two = start("--nproc", "2", "-o", "two", "--json", cwd=tmp_path, epochs=4)
    answers = []
    for process in (one, two):
        code, output = finished(process)
        assert code == 0, output
        answers.append(json.loads(output))  # one voice: nothing but one summary
    first, second = answers
    assert (first["processes"], second["processes"]) == (1, 2)
    for part, scores in first["scores"].items():
        assert second["scores"][part] == pytest.approx(scores, abs=1e-4)
    Model.load(tmp_path / "two")
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == sorted(
        path.name for path in (tmp_path / "one").iterdir()
    )


@needs_proc
def test_a_killed_process_ends_the_job_and_it_goes_on_with_another_number(tmp_path):
    folder = tmp_path / "killed-run"
    process = start("--nproc", "2", "-o", folder.name, "--set", LONG[0], cwd=tmp_path)
    until_epoch(folder, 3, process)
    os.kill(pid_of(1, folder), signal.SIGKILL)
    code, output = finished(process, within=30)
    assert code == 1
    assert "Error: Process 1 of 2 was ended by SIGKILL" in output
    assert f"Go on with `pprgnn train --resume {folder.name}`." in output
    assert "Traceback" not in output
    assert not [*folder.glob("*.part"), *folder.glob(".tmp*")]
    epochs = len(Run(folder).records())
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(re.sub(r"epochs = \d+", f"epochs = {epochs + 2}", text, count=1))
    code, output = finished(start("--resume", folder.name, "--nproc", "1", cwd=tmp_path, name=""))
    assert code == 0, output
    assert "resumed" in output
    assert Run(folder).summary["processes"] == 1
    assert [record["epoch"] for record in Run(folder).records()] == [*range(1, epochs + 3)]


@needs_proc
def test_no_process_outlives_a_killed_launcher(tmp_path):
    folder = tmp_path / "left-run"
    process = start("--nproc", "2", "-o", folder.name, "--set", LONG[0], cwd=tmp_path)
    until_epoch(folder, 2, process)
    ranks = [pid_of(rank, folder) for rank in (0, 1)]
    process.kill()
    process.join(30)
    end = time.monotonic() + 10
    while (left := [pid for pid in ranks if Path(f"/proc/{pid}/cmdline").exists()]) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left


@needs_proc
def test_with_restarts_it_goes_on_by_itself(tmp_path):
    folder = tmp_path / "restarted-run"
    process = start("--nproc", "2", "--restarts", "1", "-o", folder.name, cwd=tmp_path, epochs=60)
    until_epoch(folder, 3, process)
    os.kill(pid_of(0, folder), signal.SIGKILL)
    code, output = finished(process)
    assert code == 0, output
    assert "resumed" in output
    assert len(Run(folder).records()) == 60


def test_several_processes_and_several_trainings_do_not_mix(tmp_path):
    code, output = finished(start("--nproc", "2", "--folds", "2", cwd=tmp_path))
    assert code == 1
    assert "Several processes train one model; for several trainings at once use --jobs." in output
