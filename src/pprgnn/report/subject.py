"""What a page is about: a finished run, or a study of several, with all that its folder tells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pprgnn.data.split import Split
from pprgnn.errors import DataError
from pprgnn.report.measured.results import Measurements, keep_measurements, kept_measurements
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.listener import Announce
from pprgnn.training.run import SUMMARY, Run
from pprgnn.training.study import STUDY, is_study
from pprgnn.training.systems import find_system

NEEDED = ("data", "metric", "protocol")


@dataclass(frozen=True)
class Subject:
    """One run or study."""

    folder: Path
    name: str  # what the page calls it
    config: Config
    summary: Mapping[str, Any]  # what came out; of a study, over all its runs
    detail: Mapping[str, Any]  # the summary of the run that the figures are about: of a study, its first
    detail_folder: Path  # where that run is kept
    environment: Mapping[str, Any]  # where that run took place
    records: Sequence[Mapping[str, Any]]  # its epochs
    split: Split
    command: str  # what was typed
    measured: Measurements
    look: int = 0  # number of its colour, dash and mark among several
    label: str = ""  # its name among several; alone it needs none

    @property
    def suffix(self) -> str:
        """What a title says of one among several."""
        return f": {self.label}" if self.label else ""

    @cached_property
    def system(self) -> str:
        """What the paper of its system calls it."""
        return find_system(self.config.model.system).title

    @property
    def data(self) -> str:
        """The name of the data set."""
        return str(self.summary["data"])

    @property
    def metric(self) -> str:
        """What counts."""
        return str(self.summary["metric"])

    @property
    def members(self) -> Sequence[Mapping[str, Any]]:
        """Of a study, what came out of each run."""
        found: Sequence[Mapping[str, Any]] = self.summary.get("runs", ())
        return found

    @property
    def is_study(self) -> bool:
        """Whether it is several runs."""
        return "runs" in self.summary

    @property
    def seconds(self) -> float:
        """What training took, all runs of a study together."""
        runs = self.members if self.is_study else [self.detail]
        return float(sum(each["seconds"] for each in runs))

    @property
    def optimistic(self) -> bool:
        """Whether the test part chose the epoch of any run."""
        return bool(self.detail["test_chose_the_epoch"])

    @property
    def chose(self) -> bool:
        """Whether a part chose the epoch; otherwise the last one counts."""
        return self.config.training.monitor != "last"

    def score(self, part: str, metric: str | None = None) -> tuple[float | None, float | None]:
        """Mean and, of a study, standard deviation on a part; ``None``: not known."""
        name = metric or self.metric
        if self.is_study:
            mean, std = (self.summary[key].get(part, {}).get(name) for key in ("mean", "std"))
            return mean, std
        return self.summary["scores"].get(part, {}).get(name), None


def open_subjects(
    folders: Sequence[Path | str], seconds: float, announce: Announce, again: bool = False
) -> list[Subject]:
    """All of them, measured; what was measured before is not measured again, unless ``again``."""
    paths = [Path(folder) for folder in folders]
    if not paths:
        raise DataError("A report needs at least one run; name its folder.")
    if len({path.resolve() for path in paths}) < len(paths):
        raise DataError("The same run was named twice; name each one once.")
    opened = []
    for look, (path, name) in enumerate(zip(paths, _names(paths), strict=True)):
        subject = _open(path, name, seconds, announce, again)
        opened.append(replace(subject, look=look, label=name if len(paths) > 1 else ""))
    return opened


def _names(paths: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as many as it takes to tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            break
    return names


def _open(folder: Path, name: str, seconds: float, announce: Announce, again: bool) -> Subject:
    if not folder.exists():
        raise TrainingError(f"There is no run at {folder}; check the path.")
    config = Run.open(folder).config  # or says that it is none
    try:
        found = _of_study(folder) if is_study(folder) else _of_run(folder)
        for key in NEEDED:
            found["summary"][key]
        find_system(config.model.system)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise DataError(
            f"The run in {folder} is damaged ({type(error).__name__}: {error}); train it again."
        ) from error
    measured = _measured(found["detail_folder"], seconds, announce, again)
    return Subject(folder, name, config, measured=measured, **found)


def _of_run(folder: Path) -> dict[str, Any]:
    run = Run.open(folder)
    summary = run.summary
    if summary is None or not summary["finished"]:
        remedy = f"continue it with `pprgnn train --resume {folder}`"
        raise TrainingError(f"The run in {folder} stopped before its end; {remedy}.")
    for part in summary["scores"].values():
        part[summary["metric"]]
    return {
        "summary": summary,
        "detail": summary,
        "detail_folder": folder,
        "environment": run.environment,
        "records": run.records(),
        "split": run.split,
        "command": run.environment.get("command", ""),
    }


def _of_study(folder: Path) -> dict[str, Any]:
    if not (folder / SUMMARY).is_file():
        remedy = f"continue it with `pprgnn train --resume {folder}`"
        raise TrainingError(f"No run of the study in {folder} is finished; {remedy}.")
    summary, facts = (json.loads((folder / name).read_text(encoding="utf-8")) for name in (SUMMARY, STUDY))
    first = _of_run(folder / summary["runs"][0]["run"])
    return first | {"summary": summary, "command": facts.get("command", "")}


def _measured(folder: Path, seconds: float, announce: Announce, again: bool) -> Measurements:
    run = Run.open(folder)
    kept = None if again else kept_measurements(run)
    if kept is not None and not (kept.needs_time() and seconds > kept.allowed):
        return kept
    if not run.model_path.is_file():
        raise TrainingError(f"The run in {folder} has no model any more ({run.model_path.name}); train it again.")
    from pprgnn.report.measured.measure import measure  # imports torch, and is rarely needed

    found = measure(run, seconds, lambda phrase: announce(f"Measuring {folder.name}: {phrase}"))
    try:
        keep_measurements(run, found)
    except TrainingError as error:  # a folder that may only be read can still be reported
        announce(f"Not kept for the next time: {error}")
    return found
