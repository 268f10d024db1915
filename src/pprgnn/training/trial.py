"""One trial of a tuning: a training that ends early when it is hopeless. Workers do it, or this process.

Below it, the study of all trials in optuna's journal, a file with a line per event.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pprgnn.data.atomic_io import drop_torn_line
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import Split
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.listener import Listener
from pprgnn.training.loop import Record, Training
from pprgnn.training.train import load_data

if TYPE_CHECKING:
    from optuna import Study
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


def run_trial(
    job: TrialJob, dataset: GraphDataset | None = None, listener: Listener | None = None
) -> dict[str, Any] | None:
    """One training and what is kept of it, nothing of the test part; ``None``: it was stopped."""
    optuna, started = load_optuna(), time.perf_counter()
    judge = _Judge(job, listener or Listener())
    try:
        dataset = load_data(job.config) if dataset is None else dataset
        summary = Training(job.config, dataset, job.split, listener=judge).fit()
        if not summary["finished"]:
            return None
        scores = summary["scores"]["val"]
        outcome = {"state": "complete", "value": scores[job.figure], "val": scores}
        outcome |= {key: summary[key] for key in ("epochs", "best_epoch", "parameters", "warnings")}
    except optuna.TrialPruned:
        outcome = {"state": "pruned", "value": judge.best, "epochs": judge.epochs}
    except OutOfTimeError:
        outcome = {"state": "out of time"}
    except (TrainingError, MemoryError, torch.cuda.OutOfMemoryError) as error:
        # For the sampler the worst there is; other errors are not the fault of the settings.
        outcome = {"state": "failed", "value": None, "epochs": judge.epochs, "error": str(error)}
    facts = {"trial": job.number, "seconds": time.perf_counter() - started, "reports": judge.reports}
    return outcome | facts


class _Judge(Listener):
    """Follows a training, and ends it when it is hopeless or out of time."""

    def __init__(self, job: TrialJob, listener: Listener) -> None:
        optuna, epochs = load_optuna(), job.config.training.epochs
        self.job, self.listener = job, listener
        # A trial beside those that it is measured by, in memory: workers need no way to the journal.
        pruner = optuna.pruners.MedianPruner(n_warmup_steps=int(WARMUP * epochs))
        study = optuna.create_study(direction=direction_of(job.figure), pruner=pruner)
        study.add_trials(job.complete)
        self.trial = study.ask()
        self.interval = math.ceil(epochs / REPORTS)
        self.deadline = time.monotonic() + job.seconds
        self.epochs, self.best, self.reports = 0, math.nan, dict[int, float]()

    def started(self, training: Training) -> None:
        """Pass it on."""
        self.listener.started(training)

    def epoch(self, record: Record) -> None:
        """Note the best so far now and then; raise to end the training."""
        self.listener.epoch(record)
        self.epochs = record.epoch
        if time.monotonic() >= self.deadline:
            raise OutOfTimeError
        if record.best is None or record.epoch % self.interval:
            return
        self.best = -record.best if self.job.figure == "loss" else record.best
        self.reports[record.epoch] = self.best
        self.trial.report(self.best, record.epoch)
        if self.trial.should_prune():
            raise load_optuna().TrialPruned

    def note(self, text: str) -> None:
        """Pass it on; warnings are in the trial's line of tune.json."""
        self.listener.note(text)


class OutOfTimeError(Exception):
    """The time limit is reached."""


# -------------------------------------------------------------------------------------------------------- optuna
def load_optuna() -> Any:
    """The library, or one sentence on how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise TrainingError("Tuning needs optuna; install it with `pip install 'pprgnn[tune]'`.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def direction_of(figure: str) -> str:
    """Whether less of it is better."""
    return "minimize" if figure == "loss" else "maximize"


def open_study(path: Path, direction: str) -> Study:
    """The study in this file, new or old; what a killed process left running is given up."""
    optuna = load_optuna()
    drop_torn_line(path)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    study: Study = optuna.create_study(
        storage=storage, study_name="pprgnn", direction=direction, load_if_exists=True
    )
    for each in trials_of(study, "RUNNING"):
        study.tell(each.number, state=optuna.trial.TrialState.FAIL)
    return study


def trials_of(study: Study, *states: str) -> list[FrozenTrial]:
    """The trials in these states, in their order."""
    known = load_optuna().trial.TrialState
    return study.get_trials(deepcopy=False, states=tuple(known[state] for state in states))


def importance(study: Study, enough: int) -> dict[str, float] | None:
    """How much each setting decides whether a trial is a good one; None: too few trials to say."""
    complete, optuna = trials_of(study, "COMPLETE"), load_optuna()
    if len(complete) < enough or len({each.value for each in complete}) == 1:
        return None
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()  # the one that needs no further package
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {key: float(value) for key, value in found.items()}
