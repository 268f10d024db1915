"""Run one cell, in this process: train, score, and what it took. What workers do."""

from __future__ import annotations

import gc
import resource
import shutil
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pprgnn.experiments.cell import Cell, settings_of

Line = dict[str, Any]
CLEAR = Path("/proc/self/clear_refs")
STATUS = Path("/proc/self/status")


def run_cell(cell: Cell, folder: Path, threads: int = 0) -> Line | None:
    """The line for the results file; ``None`` if it was stopped, and then the same call goes on with it.

    A training that cannot go on (its loss overflows, its memory does not suffice) is a result, too: the line says so.

    Args:
        cell: What to run.
        folder: Where to keep unfinished trainings.
        threads: CPU threads; 0: as torch has it.
    """
    from pprgnn.core.solution import ConvergenceWarning
    from pprgnn.data.errors import DataError
    from pprgnn.training.environment import environment
    from pprgnn.training.errors import TrainingError
    from pprgnn.training.run import CONFIG, Run
    from pprgnn.training.train import resume, train

    kept = folder / cell.folder_name
    config = cell.config.with_values({"training.threads": threads}) if threads else cell.config
    line: Line = {**cell.coordinates}
    with peak_memory(line), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the summary has them
        started = time.perf_counter()
        try:
            if (kept / CONFIG).is_file():
                trained = resume(kept) if not Run.open(kept).finished else None
            else:
                trained = train(config, folder=kept, command=f"pprgnn reproduce {cell.experiment}")
        except TrainingError as error:
            line |= {"error": str(error), "total_seconds": time.perf_counter() - started}
        except DataError as error:  # a checkpoint that is damaged, a file that is missing: not a result
            raise type(error)(f"{cell.label}: {error}") from error
        else:
            summary = Run.open(kept).summary
            assert summary is not None
            if trained is not None and not summary["finished"]:
                return None
            line |= _results(cell, summary, Run.open(kept).records())
            line["total_seconds"] = time.perf_counter() - started
    facts = environment()
    line |= {
        "threads": (facts["threads"] or {}).get("torch") if not threads else threads,
        "cpu": facts["cpu"],
        "commit": facts["commit"],
        "version": facts["versions"]["pprgnn"],
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "config": settings_of(cell.config),
    }
    shutil.rmtree(kept, ignore_errors=True)
    return line


def _results(cell: Cell, summary: dict[str, Any], records: list[dict[str, Any]]) -> Line:
    """What the tables need of a summary."""
    metric, scores = summary["metric"], summary["scores"]
    line = {
        "metric": metric,
        "test": scores["test"][metric],
        "val": scores.get("val", {}).get(metric),
        "scores": scores,
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
    if cell.keep_curve:
        line["curve"] = [
            {"epoch": each["epoch"], "seconds": each["seconds"], "val": (each["val"] or {}).get(metric)}
            for each in records
        ]
    return line


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
