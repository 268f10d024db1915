"""Run one cell, in this process: train, score, and what it took. What workers do."""

from __future__ import annotations

import gc
import os
import resource
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from pprgnn.core.solution import ConvergenceWarning
from pprgnn.errors import DataError
from pprgnn.experiments.cell import Cell, settings_of
from pprgnn.experiments.plan import wants_one_thread
from pprgnn.experiments.trials import run_trials
from pprgnn.training.config import Config
from pprgnn.training.environment import environment
from pprgnn.training.errors import TrainingError
from pprgnn.training.run import Run
from pprgnn.training.systems import find_system
from pprgnn.training.train import resume, train

Line = dict[str, Any]
CLEAR = Path("/proc/self/clear_refs")
STATUS = Path("/proc/self/status")


def run_cell(cell: Cell, folder: Path, threads: int = 0) -> Line | None:
    """The line for the results file; ``None`` if it was stopped, and then the same call goes on with it.

    A training that diverges has the score of its best epoch before that, if validation saw one. One that cannot go
    on for other reasons (its memory does not suffice) is a result, too: its line has an ``error``. The line of the
    cell's twin, if it has one, is under ``also``. A line with ``missing`` (data or a package are not there) or
    ``broken`` (a mistake in the code) is none and not to be kept. What a training wrote stays until
    :func:`forget`: its line may get lost on its way.

    Args:
        cell: What to run.
        folder: Where to keep unfinished trainings.
        threads: CPU threads; 0: one for small graphs, otherwise as torch has it.
    """
    _set_imports_aside()
    threads = threads or int(wants_one_thread(cell))
    config = cell.config.with_values({"training.threads": threads}) if threads else cell.config
    line: Line = {**cell.coordinates}
    started, cpu_started = time.perf_counter(), time.process_time()
    with _threads(config.training.threads), peak_memory(line), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the summary has them
        try:
            own = folder / cell.folder_name
            found = run_trials(cell, config, own) if cell.candidates else _one_training(cell, config, own)
        except TrainingError as error:
            if isinstance(error.__cause__, OSError):  # of the disk, not of the training
                raise
            line |= {"error": str(error), "total_seconds": time.perf_counter() - started}
        except DataError as error:
            return line | {"missing": str(error)}
        except Exception as error:
            if os.environ.get("PPRGNN_DEBUG"):
                traceback.print_exc()
            forget(cell, folder)  # it may be what breaks the training
            return line | {"broken": f"{type(error).__name__}: {error}"}
        else:
            if found is None:
                return None
            line |= found
            # What went before a stop counts; loading the data does, too.
            line["total_seconds"] = max(time.perf_counter() - started, line["seconds"])
            line["cpu_seconds"] = time.process_time() - cpu_started
    facts = environment()
    line |= {
        "threads": line.get("threads") or threads or (facts["threads"] or {}).get("torch"),
        "cpu": facts["cpu"],
        "commit": facts["commit"],
        "version": facts["versions"]["pprgnn"],
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "config": settings_of(cell.config),
    }
    last = line.pop("last", {})
    if cell.twin is not None:
        also = {**line, **cell.twin.coordinates, "config": settings_of(cell.twin.config)}
        line["also"] = also if "error" in line else also | last
    return line


def forget(cell: Cell, folder: Path) -> None:
    """Remove what its training wrote."""
    shutil.rmtree(folder / cell.folder_name, ignore_errors=True)


def _one_training(cell: Cell, config: Config, folder: Path) -> Line | None:
    run = _trained(config, folder, f"pprgnn reproduce {cell.experiment}")
    if not run.finished:
        return None
    return _results(cell, run.summary or {}, run.records()) | {"threads": run.config.training.threads}


def _trained(config: Config, folder: Path, command: str) -> Run:
    """The run after training, from the start or from where it was stopped."""
    try:
        find_system(config.model.system).load()
    except TrainingError as error:  # what it needs is not installed
        raise DataError(str(error)) from error
    run = _left_behind(folder)
    if run is None:
        train(config, folder=folder, command=command, accept_divergence=True)
    elif not run.finished:
        resume(folder, accept_divergence=True)
    return Run.open(folder)


def _left_behind(folder: Path) -> Run | None:
    """A run that can go on, or only waits to be read; one that is damaged is removed."""
    try:
        run = Run.open(folder)
        run.config, run.split, run.environment, run.finished, run.records(), run.load_checkpoint()
    except (DataError, KeyError):
        shutil.rmtree(folder, ignore_errors=True)
        return None
    return run


def _results(cell: Cell, summary: dict[str, Any], records: list[dict[str, Any]]) -> Line:
    """What the tables need of a summary."""
    metric, scores = summary["metric"], summary["scores"]
    line = {
        "metric": metric,
        "test": scores["test"][metric],
        "val": scores.get("val", {}).get(metric),
        "scores": scores,
        "trivial": {name: levels.get(metric) for name, levels in summary.get("trivial", {}).items()},
        "threshold": summary.get("threshold"),
        "test_chose_the_epoch": summary["test_chose_the_epoch"],
        "depth": [layer["depth"] for layer in summary["layers"]],
        "layers": summary["layers"],
        "epochs": summary["epochs"],
        "best_epoch": summary["best_epoch"],
        "parameters": summary["parameters"],
        "seconds": summary["seconds"],
        "warnings": summary["warnings"],
        "note": summary["note"],
    }
    if "chosen" in summary:
        line["chosen"] = summary["chosen"]
    if cell.twin is not None:
        final = records[-1]  # the test part was scored after every epoch
        line["last"] = {
            "test": final["val"][metric],
            "scores": {"test": final["val"]},
            "test_chose_the_epoch": False,
            "best_epoch": final["epoch"],
            "depth": final["depth"],
            "layers": [],
            "note": "The last epoch of the training under the paper's protocol, which is the same training.",
        }
    if cell.keep_curve:
        line["curve"] = [
            {"epoch": each["epoch"], "seconds": each["seconds"], "val": (each["val"] or {}).get(metric)}
            for each in records
        ]
    return line


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many, also where data are prepared and not trained on; 0: as torch has it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _set_imports_aside() -> None:
    """What importing made stays: looking through it for garbage takes longer than some epochs."""
    gc.collect()
    gc.freeze()


@contextmanager
def peak_memory(line: Line) -> Iterator[None]:
    """Write the most memory that this process had, in bytes; with Linux, during the block, otherwise ever."""
    gc.collect()
    try:
        CLEAR.write_text("5")
        resets = True
    except OSError:
        resets = False
    try:
        yield
    finally:
        line["peak_bytes"] = _high_water_mark() if resets else _ever()


def _high_water_mark() -> int:
    mark = next(each for each in STATUS.read_text().splitlines() if each.startswith("VmHWM:"))
    return int(mark.split()[1]) * 1024


def _ever() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
