"""One trial of a tuning: a training that ends early when it is hopeless. Workers do it, or this process."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import Split
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.journal import judged_trial
from pprgnn.training.loop import Record, Training
from pprgnn.training.train import load_data
from pprgnn.training.tuning_listener import Quiet, TuningListener

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

REPORTS = 10  # of one trial: at so many points may it be cut short
WARMUP = 0.2  # of the epochs belong to every trial


@dataclass(frozen=True)
class TrialJob:
    """All that a trial needs to know, wherever it runs."""

    number: int
    config: Config  # with the settings to try
    split: Split
    figure: str  # what is compared
    complete: list[FrozenTrial]  # what it is measured by
    seconds: float  # that it has


def direction_of(figure: str) -> str:
    """Whether less of it is better."""
    return "minimize" if figure == "loss" else "maximize"


def run_trial(
    job: TrialJob, dataset: GraphDataset | None = None, listener: TuningListener | None = None
) -> dict[str, Any] | None:
    """One training and what is kept of it, nothing of the test part; ``None``: it was stopped."""
    started = time.perf_counter()
    judge = _Judge(job, listener or Quiet())
    try:
        dataset = load_data(job.config) if dataset is None else dataset
        summary = Training(job.config, dataset, job.split, listener=judge).fit()
        if not summary["finished"]:
            return None
        scores = summary["scores"]["val"]
        outcome = {"state": "complete", "value": scores[job.figure], "val": scores}
        outcome |= {key: summary[key] for key in ("epochs", "best_epoch", "parameters", "warnings")}
    except _HopelessError:
        outcome = {"state": "pruned", "value": judge.best, "epochs": judge.epochs}
    except _OutOfTimeError:
        outcome = {"state": "out of time"}
    except (TrainingError, MemoryError, torch.cuda.OutOfMemoryError) as error:
        # For the sampler the worst there is; other errors are not the fault of the settings.
        outcome = {"state": "failed", "value": None, "epochs": judge.epochs, "error": str(error)}
    facts = {"trial": job.number, "seconds": time.perf_counter() - started, "reports": judge.reports}
    return outcome | facts


class _Judge:
    """Follows a training, and ends it when it is hopeless or out of time."""

    def __init__(self, job: TrialJob, listener: TuningListener) -> None:
        epochs = job.config.training.epochs
        self.job, self.listener = job, listener
        self.trial = judged_trial(job.complete, direction_of(job.figure), int(WARMUP * epochs))
        self.interval = math.ceil(epochs / REPORTS)
        self.deadline = time.monotonic() + job.seconds
        self.epochs, self.best, self.reports = 0, math.nan, dict[int, float]()
        self.training: Training | None = None

    def started(self, training: Training) -> None:
        """Remember it, for the listener."""
        self.training = training

    def epoch(self, record: Record) -> None:
        """Note the best so far now and then; raise to end the training."""
        assert self.training is not None
        self.listener.epoch(self.job.number, record, self.training)
        self.epochs = record.epoch
        if time.monotonic() >= self.deadline:
            raise _OutOfTimeError
        if record.best is None or record.epoch % self.interval:
            return
        self.best = -record.best if self.job.figure == "loss" else record.best
        self.reports[record.epoch] = self.best
        self.trial.report(self.best, record.epoch)
        if self.trial.should_prune():
            raise _HopelessError

    def warned(self, text: str) -> None:
        """Nothing: the trial's line in tune.json has its warnings."""

    def note(self, text: str) -> None:
        """Pass it on."""
        self.listener.note(text)

    def finished(self, summary: Mapping[str, Any]) -> None:
        """Nothing: the trial goes on to be told."""


class _HopelessError(Exception):
    """Half of the others were better by then."""


class _OutOfTimeError(Exception):
    """The time limit is reached."""
