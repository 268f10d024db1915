"""Trials in a journal, a file with a line per event: what optuna needs to go on after an end in between."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pprgnn.data.atomic_io import drop_torn_line
from pprgnn.training.errors import TrainingError
from pprgnn.training.option import parse, toml
from pprgnn.training.search import Choice, Range
from pprgnn.training.workers import handling

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial


def load_optuna() -> Any:
    """The library, or one sentence on how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise TrainingError("Tuning needs optuna; install it with `pip install 'pprgnn[tune]'`.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_study(path: Path, direction: str) -> Study:
    """The study in this file, new or old; what a killed process left running is given up."""
    optuna = load_optuna()
    drop_torn_line(path)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    study: Study = optuna.create_study(
        storage=storage,
        study_name="pprgnn",
        direction=direction,
        load_if_exists=True,
    )
    for each in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(each.number, state=optuna.trial.TrialState.FAIL)
    return study


def complete_trials(study: Study) -> list[FrozenTrial]:
    """What the trials to come are measured by: how the complete ones went, without their settings."""
    optuna = load_optuna()
    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    create = optuna.trial.create_trial
    return [create(value=each.value, intermediate_values=each.intermediate_values) for each in complete]


def judged_trial(complete: Sequence[FrozenTrial], direction: str, warmup: int) -> Trial:
    """A trial outside of the journal, which knows when it is hopeless beside these: what a worker needs."""
    optuna = load_optuna()
    pruner = optuna.pruners.MedianPruner(n_warmup_steps=warmup)
    study = optuna.create_study(direction=direction, pruner=pruner)
    study.add_trials(complete)
    trial: Trial = study.ask()
    return trial


def sampler(seed: int, beside_others: bool) -> BaseSampler:
    """What suggests; beside other trials it keeps away from where they are."""
    optuna = load_optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # optuna 4: of the latter
        made: BaseSampler = optuna.samplers.TPESampler(seed=seed, constant_liar=beside_others)
    return made


def suggest(trial: Trial, key: str, wanted: Range | Choice) -> Any:
    """A value of the setting."""
    if isinstance(wanted, Choice):
        return parse(trial.suggest_categorical(key, [toml(value) for value in wanted.values]))
    if wanted.whole:
        return trial.suggest_int(key, int(wanted.low), int(wanted.high), log=wanted.log)
    return wanted.rounded(trial.suggest_float(key, wanted.low, wanted.high, log=wanted.log))


def suggestion(wanted: Range | Choice, value: Any) -> Any:
    """The inverse: a value as the journal has it; choices are written as in TOML."""
    return toml(value) if isinstance(wanted, Choice) else value


def importance(study: Study, enough: int) -> dict[str, float] | None:
    """How much each setting decides whether a trial is a good one; None: too few trials to say."""
    optuna = load_optuna()
    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if len(complete) < enough or len({each.value for each in complete}) == 1:
        return None
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()  # the one that needs no further package
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {key: float(value) for key, value in found.items()}


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C waits until this is over: half a line in the journal would be lost."""
    asked: list[int] = []
    with handling(signal.SIGINT, lambda number, frame: asked.append(number)):
        yield
    if asked:
        signal.raise_signal(signal.SIGINT)
