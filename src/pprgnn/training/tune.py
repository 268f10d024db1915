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
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pprgnn.data.dataset import GraphDataset
from pprgnn.data.errors import DataError
from pprgnn.data.split import Split
from pprgnn.data.store import save
from pprgnn.data.whole_file import write_text
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import main_metrics
from pprgnn.training.journal import importance, load_optuna, open_study, suggest, suggestion, undisturbed
from pprgnn.training.loop import Record, Training
from pprgnn.training.run import CONFIG, DATA, SPLIT
from pprgnn.training.search import Space, as_text, default_space, search_space
from pprgnn.training.train import choose_split, load_data
from pprgnn.training.tuning_listener import Quiet, TuningListener

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.trial import FrozenTrial

BASE, SEARCH, JOURNAL, RESULT, BEST = "base.toml", "search.json", "trials.log", "tune.json", "best.toml"
REPORTS = 10  # of one trial: at so many points may it be cut short; each costs a few milliseconds of disk
WARMUP = 0.2  # of the epochs belong to every trial
PATIENCE = 3  # trials that fail before one succeeds: then it is not the settings
ENOUGH = 10  # trials, for a word on which settings matter


def tune(
    config: Config,
    folder: Path | str,
    *,
    trials: int = 30,
    dataset: GraphDataset | None = None,
    search: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    listener: TuningListener | None = None,
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
        listener: Is told how it goes.
        command: What started it, for the record.
    """
    load_optuna()
    folder = Path(folder)
    for name in (BASE, CONFIG):
        if (folder / name).exists():
            how = f"continue with `pprgnn tune --resume {folder}`, or " if name == BASE else ""
            raise TrainingError(f"{folder} is already in use; {how}choose another folder with -o.")
    _check_trials(trials)
    space = default_space(config) if search is None else search_space(search, config)
    own, dataset = dataset, load_data(config) if dataset is None else dataset
    split = choose_split(config, dataset)
    _check_honest(config, split)
    if config.data.name.endswith(".safetensors"):  # best.toml must find it, wherever it is used
        config = config.with_values({"data.name": str(Path(config.data.name).resolve())})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if own is not None:
            save(own, folder / DATA)
        split.save(folder / SPLIT)
        facts = {"trials": trials, "search": as_text(space), "command": command}
        write_text(folder / SEARCH, json.dumps(facts, indent=1))
        write_text(folder / BASE, config.to_toml())  # last: the tuning is there when this is
    except OSError as error:
        reason = error.strerror or error
        raise TrainingError(
            f"The folder {folder} cannot be written ({reason}); choose another with -o."
        ) from error
    return Tuning(folder, config, space, trials, dataset, split, listener).run(timeout)


def resume_tuning(
    folder: Path | str,
    *,
    trials: int | None = None,
    timeout: float | None = None,
    listener: TuningListener | None = None,
) -> dict[str, Any]:
    """Go on with a tuning, up to its number of trials or, with ``trials``, up to another one."""
    load_optuna()
    folder = Path(folder)
    if not (folder / BASE).is_file():
        raise TrainingError(f"{folder} must be the folder of a tuning, but has no {BASE}; check the path.")
    config = Config.from_toml(folder / BASE)
    try:
        facts = json.loads((folder / SEARCH).read_text(encoding="utf-8"))
        wanted, search = facts["trials"], facts["search"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / SEARCH} cannot be read ({error}); the tuning is damaged.") from error
    if trials is not None:
        _check_trials(trials)
        wanted = trials
        write_text(folder / SEARCH, json.dumps(facts | {"trials": trials}, indent=1))
    if (folder / DATA).is_file():
        config = config.with_values({"data.name": str(folder / DATA), "data.options": {}})
    split = Split.load(folder / SPLIT)
    space = search_space(search, config)
    return Tuning(folder, config, space, wanted, load_data(config), split, listener).run(timeout)


class Tuning:
    """A search in its folder."""

    def __init__(
        self,
        folder: Path,
        config: Config,
        space: Space,
        trials: int,
        dataset: GraphDataset,
        split: Split,
        listener: TuningListener | None = None,
    ) -> None:
        self.folder, self.config, self.space, self.trials = folder, config, space, trials
        self.dataset, self.split, self.listener = dataset, split, listener or Quiet()
        self.metric = main_metrics(config, dataset.facts)[0]
        self.figure = "loss" if config.training.monitor == "loss" else self.metric  # what is compared
        direction = "minimize" if self.figure == "loss" else "maximize"
        self.study = open_study(folder / JOURNAL, direction, int(WARMUP * config.training.epochs))
        self.deadline = math.inf

    # ------------------------------------------------------------------------------------------------ the search
    def run(self, timeout: float | None = None) -> dict[str, Any]:
        """All trials that are missing; then the summary."""
        if timeout is not None:
            self.deadline = time.monotonic() + timeout
        self.listener.started(self)
        stopped = None
        try:
            while len(self._counted()) < self.trials:
                if time.monotonic() >= self.deadline:
                    raise _OutOfTimeError
                self._one_trial(len(self._counted()) + 1)
                self._check_failures()
                self._write(self._summary())
        except _OutOfTimeError:
            stopped = "time"
        except _InterruptedError:
            stopped = "Ctrl-C"
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(f"go on with `pprgnn tune --resume {self.folder}`.") from error
        summary = self._summary(stopped) | {"importance": importance(self.study, ENOUGH)}
        self._write(summary)
        return summary

    def _one_trial(self, number: int) -> None:
        """Suggest, train, and tell the journal; a trial that is stopped does not count."""
        optuna = load_optuna()
        states = optuna.trial.TrialState
        seed = (self.config.training.seed * 1_000_003 + number) % 2**32
        self.study.sampler = optuna.samplers.TPESampler(seed=seed)
        if number == 1 and not self.study.get_trials(deepcopy=False, states=(states.WAITING,)):
            self.study.enqueue_trial(self._own_values())  # the recipe is the first guess
        trial = self.study.ask()
        state, value = states.FAIL, None
        started = time.perf_counter()
        try:
            settings = {key: suggest(trial, key, wanted) for key, wanted in self.space.items()}
            self.listener.trial(number, settings)
            outcome = self._train(trial, number, settings)
            outcome |= {"seconds": time.perf_counter() - started, "settings": _plain(settings)}
            trial.set_user_attr("outcome", outcome)
            value = outcome["value"]
            state = states.COMPLETE if outcome["state"] == "complete" else states.PRUNED
        finally:
            with undisturbed():
                self.study.tell(trial, value if state is states.COMPLETE else None, state=state)
        self.listener.ended(self.entries()[-1])

    def _train(self, trial: Trial, number: int, settings: Mapping[str, Any]) -> dict[str, Any]:
        """One training and what is kept of it; nothing of the test part."""
        pruned = load_optuna().TrialPruned
        reporter = _Reporter(self, trial, number)
        try:
            training = Training(self.config.with_values(settings), self.dataset, self.split, listener=reporter)
            summary = training.fit()
        except pruned:
            return {"state": "pruned", "value": reporter.best, "epochs": reporter.epochs}
        except (TrainingError, MemoryError, torch.cuda.OutOfMemoryError) as error:
            # For the sampler the worst there is; other errors are not the fault of the settings.
            return {"state": "failed", "value": None, "epochs": reporter.epochs, "error": str(error)}
        if not summary["finished"]:
            raise _InterruptedError
        scores = summary["scores"]["val"]
        facts = {key: summary[key] for key in ("epochs", "best_epoch", "parameters", "warnings")}
        return {"state": "complete", "value": scores[self.figure], "val": scores} | facts

    def _own_values(self) -> dict[str, Any]:
        """What the config itself has, as far as it is searched."""
        values = {}
        for key, wanted in self.space.items():
            value = self.config.value(key)
            if wanted.holds(value):
                values[key] = suggestion(wanted, value)
        return values

    def _check_failures(self) -> None:
        """Nothing but failures: then it is not the settings."""
        entries = self.entries()
        if len(entries) >= min(PATIENCE, self.trials) and all(each["state"] == "failed" for each in entries):
            raise TrainingError(f"All {len(entries)} trials failed, the last one so: {entries[-1]['error']}")

    # -------------------------------------------------------------------------------------------------- the end
    def _counted(self) -> list[FrozenTrial]:
        states = load_optuna().trial.TrialState
        return self.study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED))

    def entries(self) -> list[dict[str, Any]]:
        """All trials that count, in their order."""
        counted = self._counted()
        return [{"trial": i, **each.user_attrs["outcome"]} for i, each in enumerate(counted, start=1)]

    def _summary(self, stopped: str | None = None) -> dict[str, Any]:
        entries = self.entries()
        ranking = ranked(entries, self.figure)
        return {
            "finished": len(entries) >= self.trials,
            "stopped": stopped,
            "data": self.dataset.facts.name,
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
        write_text(self.folder / RESULT, json.dumps(summary, indent=1))
        if summary["best"] is not None:
            config = self.config.with_values(summary["best"]["settings"])
            if (self.folder / DATA).is_file():
                config = config.with_values({"data.name": DATA, "data.options": {}})  # beside the recipe
            write_text(self.folder / BEST, config.to_toml())


def ranked(entries: list[dict[str, Any]], figure: str) -> list[dict[str, Any]]:
    """The complete trials, best first; of equal ones that with the smaller loss, then the earlier one."""
    complete = [each for each in entries if each["state"] == "complete"]
    sign = 1 if figure == "loss" else -1
    return sorted(complete, key=lambda each: (sign * each["value"], each["val"]["loss"], each["trial"]))


class _Reporter:
    """Tells the journal how a training goes, and ends it when it is hopeless or out of time."""

    def __init__(self, tuning: Tuning, trial: Trial, number: int) -> None:
        self.tuning, self.study_trial, self.number = tuning, trial, number
        self.interval = math.ceil(tuning.config.training.epochs / REPORTS)
        self.epochs, self.best = 0, math.nan
        self.training: Training | None = None

    def started(self, training: Training) -> None:
        """Remember it, for the listener."""
        self.training = training

    def epoch(self, record: Record) -> None:
        """Report the best so far now and then; raise to end the training."""
        assert self.training is not None
        self.tuning.listener.epoch(self.number, record, self.training)
        self.epochs = record.epoch
        if time.monotonic() >= self.tuning.deadline:
            raise _OutOfTimeError
        if record.best is None or record.epoch % self.interval:
            return
        self.best = -record.best if self.tuning.figure == "loss" else record.best
        self.study_trial.report(self.best, record.epoch)
        if self.study_trial.should_prune():
            raise load_optuna().TrialPruned

    def warned(self, text: str) -> None:
        """Nothing: the trial's line in tune.json has its warnings."""

    def note(self, text: str) -> None:
        """Pass it on."""
        self.tuning.listener.note(text)

    def finished(self, summary: Mapping[str, Any]) -> None:
        """Nothing: the trial goes on to be told."""


class _OutOfTimeError(Exception):
    """The time limit is reached."""


class _InterruptedError(Exception):
    """Ctrl-C ended a training early."""


# ------------------------------------------------------------------------------------------------------- checks
def _check_trials(trials: int) -> None:
    if not isinstance(trials, int) or trials < 1:
        raise TrainingError(f"The number of trials must be a whole number from 1 on, but is {trials!r}.")


def _check_honest(config: Config, split: Split) -> None:
    """The test part must not choose settings; without a validation part it would."""
    if split.optimistic or config.data.protocol != "honest":
        raise TrainingError(
            "Tuning compares validation scores, which need the honest protocol; set data.protocol=honest "
            "(best.toml can be trained under another one)."
        )


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
