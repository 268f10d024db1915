"""Trials in a journal, a file with a line per event: what optuna needs to go on after an end in between."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pprgnn.data.whole_file import drop_torn_line
from pprgnn.training.errors import TrainingError
from pprgnn.training.option import parse, toml
from pprgnn.training.search import Choice, Range

if TYPE_CHECKING:
    from optuna import Study, Trial


def load_optuna() -> Any:
    """The library, or one sentence on how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise TrainingError("Tuning needs optuna; install it with `pip install 'pprgnn[tune]'`.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_study(path: Path, direction: str, warmup: int) -> Study:
    """The study in this file, new or old; what a killed process left running is given up."""
    optuna = load_optuna()
    drop_torn_line(path)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    study: Study = optuna.create_study(
        storage=storage,
        study_name="pprgnn",
        direction=direction,
        pruner=optuna.pruners.MedianPruner(n_warmup_steps=warmup),
        load_if_exists=True,
    )
    for each in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(each.number, state=optuna.trial.TrialState.FAIL)
    return study


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
    if threading.current_thread() is not threading.main_thread():  # elsewhere Python allows no handlers
        yield
        return
    asked: list[int] = []
    old = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)
    if asked:
        raise KeyboardInterrupt
