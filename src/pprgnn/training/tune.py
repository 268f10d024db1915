"""Search for good settings: many short trainings, judged by validation alone, the hopeless ones cut short.

A tuning is a folder:

================  =====================================================================
base.toml         the settings to start from
search.json       what is searched, and how many trials
split.json        which nodes or graphs train, validate and test in every trial
data.safetensors  the graph itself, when it was the user's own
trials.log        optuna's journal, a line per event: how a tuning goes on after it was stopped or killed
tune.json         all trials so far
best.toml         the best settings so far, as a complete recipe
================  =====================================================================

Trial number n draws from a seed of its own (of `training.seed` and n) and from the trials before it. So a tuning
that was stopped or killed suggests what it would have suggested otherwise.

Several at once go in rounds: all trials of a round know those of the rounds before, for what they draw and when
they are hopeless, whichever worker is the first. So the same seed and the same number of workers give the same
trials. A round that was stopped is the exception: what is missing of it then knows what is finished of it.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pprgnn.data.atomic_io import write_text
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import Split
from pprgnn.data.store import save
from pprgnn.errors import DataError
from pprgnn.training.config import Config
from pprgnn.training.defaults import settle
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import main_metrics
from pprgnn.training.listener import Listener, stopping, undisturbed
from pprgnn.training.loop import Record, Training
from pprgnn.training.run import CONFIG, DATA, SPLIT, locked, made, on_copy, read_json, write_json
from pprgnn.training.search import (
    Space,
    as_text,
    default_space,
    direction_of,
    first_guess,
    importance,
    load_optuna,
    open_study,
    search_space,
    trials_of,
)
from pprgnn.training.train import choose_split, load_data
from pprgnn.training.workers import AtOnce, StoppedError, Workers, at_work
from pprgnn.wording import counted

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

BASE, SEARCH, JOURNAL, RESULT, BEST = "base.toml", "search.json", "trials.log", "tune.json", "best.toml"
PATIENCE = 3  # trials that fail before one succeeds: then it is not the settings
ENOUGH = 10  # trials, for a word on which settings matter
REPORTS = 10  # of one trial: at so many points may it be cut short
WARMUP = 0.2  # of the epochs belong to every trial


def tune(
    config: Config,
    folder: Path | str,
    *,
    trials: int = 30,
    dataset: GraphDataset | None = None,
    search: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    workers: Workers | None = None,
    listener: Listener | None = None,
    command: str = "",
) -> dict[str, Any]:
    """Search for good settings; returns what is in tune.json.

    Args:
        config: Where to start, and all that is not searched.
        folder: Where to keep the search.
        trials: How many trainings.
        dataset: What to learn from, if not what the config names; the folder keeps a copy.
        search: ``{"lr": "0.001..0.1:log", "hidden": [32, 64]}``; ``None``: what usually matters.
        timeout: Seconds after which no training goes on; what was stopped starts again when the tuning goes on.
        workers: How many trials at once, each with one CPU thread, and where; ``None``: one after the other, here.
        listener: Is told how it goes.
        command: What started it, for the record.
    """
    load_optuna()
    folder = Path(folder)
    for name in (BASE, CONFIG):
        if (folder / name).exists():
            how = f"continue with `pprgnn tune --resume {folder}`, or " if name == BASE else ""
            raise TrainingError(f"{folder} is already in use; {how}choose another folder with -o.")
    trials = _checked_trials(trials)
    space = default_space(config) if search is None else search_space(search, config)
    own, dataset = dataset, load_data(config) if dataset is None else dataset
    split = choose_split(config, dataset)
    _check_honest(config, split)
    config = settle(config, dataset, [split])
    if config.data.name.endswith(".safetensors"):  # best.toml must find it, wherever it is used
        config = config.with_values({"data.name": str(Path(config.data.name).resolve())})
    workers = workers or Workers()
    with made(folder):
        if own is not None:
            save(own, folder / DATA)
        split.save(folder / SPLIT)
        facts = {"trials": trials, "search": as_text(space), "workers": asdict(workers), "command": command}
        write_json(folder / SEARCH, facts)
        write_text(folder / BASE, config.to_toml())  # last: the tuning is there when this is
    return Tuning(folder, config, space, trials, dataset, split, workers, listener or Listener()).run(timeout)


def resume_tuning(
    folder: Path | str,
    *,
    trials: int | None = None,
    timeout: float | None = None,
    workers: Workers | None = None,
    listener: Listener | None = None,
) -> dict[str, Any]:
    """Go on with a tuning, as it was begun or up to another number of ``trials``, with other ``workers``."""
    load_optuna()
    folder = Path(folder)
    if not (folder / BASE).is_file():
        raise TrainingError(f"{folder} must be the folder of a tuning, but has no {BASE}; check the path.")
    config, facts = Config.from_toml(folder / BASE), read_json(folder / SEARCH, "tuning")
    try:
        wanted, search = facts["trials"], facts["search"]
        workers = workers or Workers(**facts.get("workers", {}))
    except (KeyError, TypeError) as error:
        raise DataError(f"{folder / SEARCH} cannot be read ({error}); the tuning is damaged.") from error
    if trials is not None:
        wanted = _checked_trials(trials)
        write_json(folder / SEARCH, facts | {"trials": trials})
    config = on_copy(config, folder)
    split, space, dataset = Split.load(folder / SPLIT), search_space(search, config), load_data(config)
    return Tuning(folder, config, space, wanted, dataset, split, workers, listener or Listener()).run(timeout)


@dataclass
class Tuning:
    """A search in its folder."""

    folder: Path
    config: Config
    space: Space
    trials: int  # that there will be
    dataset: GraphDataset
    split: Split
    workers: Workers
    listener: Listener

    def __post_init__(self) -> None:
        by_loss = self.config.training.monitor == "loss"
        self.figure = "loss" if by_loss else main_metrics(self.config, self.dataset.facts)[0]  # what is compared
        self.study = open_study(self.folder / JOURNAL, direction_of(self.figure))

    # ------------------------------------------------------------------------------------------------ the search
    def run(self, timeout: float | None = None) -> dict[str, Any]:
        """All trials that are missing; then the summary."""
        with locked(self.folder), stopping(self.listener):
            self.deadline = math.inf if timeout is None else time.monotonic() + timeout
            self.listener.tuning_started(self)
            summary = self._summary(self._run_missing()) | {"importance": importance(self.study, ENOUGH)}
            self._write(summary)
            return summary

    def _run_missing(self) -> str | None:
        """Rounds of trials; returns what stopped them."""
        go_on = f"`pprgnn tune --resume {self.folder}`"
        workers = self.workers if self._missing() else Workers()  # none are started for nothing
        try:
            with at_work(workers, go_on=f"{go_on} goes on", announce=self.listener.note) as at_once:
                while (numbers := self._missing()) and time.monotonic() < self.deadline:
                    self._round(numbers[: self.workers.jobs], at_once)
        except StoppedError:
            return "Ctrl-C"
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(f"go on with {go_on}.") from error
        return "time" if numbers else None

    def _round(self, numbers: Sequence[int], at_once: AtOnce) -> None:
        """Suggest, train, and tell the journal as results arrive; a trial that is stopped does not count."""
        asked: dict[int, tuple[Trial, dict[str, Any]]] = {}
        try:
            for number in numbers:
                asked[number] = self._ask(number)
            jobs = [self._job(number, settings) for number, (_, settings) in asked.items()]
            run: Callable[..., Any] = run_trial
            if self.workers.is_this_process:  # then the data are here, and the listener sees every epoch
                run = partial(run_trial, dataset=self.dataset, listener=self.listener)
            with closing(at_once(run, jobs)) as outcomes:
                for outcome in outcomes:
                    if outcome["state"] == "out of time":
                        self.deadline = -math.inf  # the others have their ends on their own
                    else:
                        self._tell(*asked.pop(outcome["trial"]), outcome)
        finally:
            with undisturbed():
                for trial, _ in asked.values():
                    self.study.tell(trial, state=load_optuna().trial.TrialState.FAIL)

    def _ask(self, number: int) -> tuple[Trial, dict[str, Any]]:
        """A trial of the journal, and its settings."""
        optuna, seed = load_optuna(), (self.config.training.seed * 1_000_003 + number) % 2**32
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # optuna 4: of constant_liar
            # Beside other trials it keeps away from where they are.
            self.study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=self.workers.jobs > 1)
        if number == 1 and not trials_of(self.study, "WAITING"):
            self.study.enqueue_trial(first_guess(self.space, self.config))
        trial = self.study.ask()
        settings = {key: wanted.suggest(trial, key) for key, wanted in self.space.items()}
        self.listener.trial_started(number, settings)
        return trial, settings

    def _job(self, number: int, settings: Mapping[str, Any]) -> TrialJob:
        config = self.config.with_values(settings)
        if not self.workers.is_this_process:  # threads of several processes would fight over the cores
            config = on_copy(config.with_values({"training.threads": 1}), self.folder.absolute())
        complete, left = trials_of(self.study, "COMPLETE"), self.deadline - time.monotonic()
        return TrialJob(number, config, self.split, self.figure, complete, left)

    def _tell(self, trial: Trial, settings: Mapping[str, Any], outcome: dict[str, Any]) -> None:
        """Keep how a trial went."""
        with undisturbed():
            for epoch, value in outcome.pop("reports").items():
                trial.report(value, epoch)
            trial.set_user_attr("outcome", outcome | {"settings": settings})
            complete, states = outcome["state"] == "complete", load_optuna().trial.TrialState
            value, state = (outcome["value"], states.COMPLETE) if complete else (None, states.PRUNED)
            self.study.tell(trial, value, state=state)
        entries = self.entries()
        self.listener.trial_finished(next(each for each in entries if each["trial"] == outcome["trial"]))
        if len(entries) >= min(PATIENCE, self.trials) and all(each["state"] == "failed" for each in entries):
            all_of_them = counted(len(entries), "trial")
            raise TrainingError(f"All {all_of_them} failed, the last one so: {entries[-1]['error']}")
        self._write(self._summary())

    # -------------------------------------------------------------------------------------------------- the end
    def entries(self) -> list[dict[str, Any]]:
        """All trials that count, in their order."""
        outcomes = [each.user_attrs["outcome"] for each in trials_of(self.study, "COMPLETE", "PRUNED")]
        entries = [{"trial": i, **each} for i, each in enumerate(outcomes, start=1)]  # or its own number
        return sorted(entries, key=lambda each: each["trial"])

    def _missing(self) -> list[int]:
        there = {each["trial"] for each in self.entries()}
        return [number for number in range(1, self.trials + 1) if number not in there]

    def _summary(self, stopped: str | None = None) -> dict[str, Any]:
        entries = self.entries()
        ranking = ranked(entries, self.figure)
        return {
            "finished": len(entries) >= self.trials,
            "stopped": stopped,
            "data": self.dataset.facts.title,
            "protocol": self.split.protocol,
            "split": self.split.description,
            "figure": self.figure,
            "wanted": self.trials,
            "search": as_text(self.space),
            "best": ranking[0] if ranking else None,
            "trials": entries,
            "seconds": sum(each["seconds"] for each in entries),
            "folder": str(self.folder),
            "recipe": str(self.folder / BEST) if ranking else None,
            "command": f"pprgnn train {self.folder / BEST}" if ranking else None,
        }

    def _write(self, summary: Mapping[str, Any]) -> None:
        """After every trial: a killed tuning has its best settings, too."""
        write_json(self.folder / RESULT, summary)
        if summary["best"] is not None:
            config = on_copy(self.config.with_values(summary["best"]["settings"]), self.folder, DATA)
            write_text(self.folder / BEST, config.to_toml())


def ranked(entries: list[dict[str, Any]], figure: str) -> list[dict[str, Any]]:
    """The complete trials, best first; of equal ones that with the smaller loss, then the earlier one."""
    complete = [each for each in entries if each["state"] == "complete"]
    sign = 1 if figure == "loss" else -1
    return sorted(complete, key=lambda each: (sign * each["value"], each["val"]["loss"], each["trial"]))


# ------------------------------------------------------------------------------------------------------- checks
def _checked_trials(trials: int) -> int:
    if not isinstance(trials, int) or trials < 1:
        raise TrainingError(f"The number of trials must be a whole number from 1 on, but is {trials!r}.")
    return trials


def _check_honest(config: Config, split: Split) -> None:
    """The test part must not choose settings; without a validation part it would."""
    if not len(split.val) or config.data.protocol != "honest":
        raise TrainingError(
            "Tuning compares validation scores, which need the honest protocol; set data.protocol=honest "
            "(best.toml can be trained under another one)."
        )


# ---------------------------------------------------------------------------------------------------- one trial
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
        outcome = {"state": judge.verdict, "value": judge.best, "epochs": judge.epochs}
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
        self.epochs, self.best, self.reports, self.verdict = 0, math.nan, dict[int, float](), "pruned"

    def epoch(self, record: Record) -> None:
        """Note the best so far now and then; raise to end the training."""
        self.listener.epoch(record)
        self.epochs = record.epoch
        if time.monotonic() >= self.deadline:
            self.verdict = "out of time"
            raise load_optuna().TrialPruned
        if record.best is None or record.epoch % self.interval:
            return
        self.best = -record.best if self.job.figure == "loss" else record.best
        self.reports[record.epoch] = self.best
        self.trial.report(self.best, record.epoch)
        if self.trial.should_prune():
            raise load_optuna().TrialPruned

    def started(self, training: Training) -> None:
        self.listener.started(training)

    def note(self, text: str) -> None:
        """Pass it on; warnings are in the trial's line of tune.json."""
        self.listener.note(text)
