"""What tuning may change: a range or some values for each setting, as in `--search lr=0.001..0.1:log`.

Below it, the trials in optuna's journal, a file with a line per event. Importing this imports neither torch nor
optuna: the command line checks a search space before anything heavy is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pprgnn.data.atomic_io import drop_torn_line
from pprgnn.training.config import Config, resolve, settings
from pprgnn.training.errors import TrainingError
from pprgnn.training.option import parse, read_toml, toml
from pprgnn.training.systems import find_system

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

SIGNIFICANT = 3  # digits of a suggested number; more would only look exact
FIXED = ("training.metric", "training.monitor", "training.seed")
EXAMPLES = "lr=0.001..0.1:log, dropout=0..0.8 or hidden=32,64,128"


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, whole ones if both are; ``log``: equal factors are equally likely."""

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def holds(self, value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and self.low <= value <= self.high

    def rounded(self, value: float) -> float:
        """The suggested number with few digits, still inside."""
        return value if self.whole else min(max(float(f"{value:.{SIGNIFICANT}g}"), self.low), self.high)

    def suggest(self, trial: Trial, key: str) -> float:
        """What optuna suggests for a setting."""
        if self.whole:
            return trial.suggest_int(key, int(self.low), int(self.high), log=self.log)
        return self.rounded(trial.suggest_float(key, self.low, self.high, log=self.log))

    def __str__(self) -> str:
        return f"{self.low}..{self.high}{':log' if self.log else ''}"


@dataclass(frozen=True)
class Choice:
    """Some values, in no order."""

    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        return value in self.values

    def suggest(self, trial: Trial, key: str) -> Any:
        """What optuna suggests for a setting; to it, values are texts as in TOML, since it takes no lists."""
        return parse(trial.suggest_categorical(key, list(map(toml, self.values))))

    def __str__(self) -> str:
        return ",".join(map(toml, self.values))


Space = dict[str, Range | Choice]


def default_space(config: Config) -> Space:
    """What usually matters, as far as the system of the config has it."""
    system, kind = find_system(config.model.system), config.model.architecture
    _refuse_kernels(config)
    usual_width = Config.for_system(system.name).model.hidden
    wanted: dict[str, Any] = {
        "training.lr": Range(1e-3, 0.1, log=True),
        "training.weight_decay": Range(1e-6, 1e-2, log=True),
        "model.hidden": Choice((max(usual_width // 2, 1), usual_width, 2 * usual_width)),
        "model.dropout": Range(0.0, 0.8),
        "model.learn_eps": Choice(("no", "yes")),
        "model.eps": Range(0.05, 2.0, log=True),
        "model.layers": Range(1, 2),
    }
    if not isinstance(config.model.eps, float):  # several rates are a choice that a range would undo
        del wanted["model.eps"]
    if kind == "ppi":
        del wanted["model.dropout"]
    # A deep network is meant to be one, and how many layers a baseline has is part of what it is.
    if system.kind != "infinite" or kind not in ("auto", "node", "graph") or config.model.layers > 2:
        del wanted["model.layers"]
    known = {each.key for each in settings(system.name)}
    return search_space({key: each for key, each in wanted.items() if key in known}, config)


def search_space(given: Mapping[str, Any], config: Config) -> Space:
    """Check ``{setting: range or values}``; every value must be one that the setting takes.

    A range is a :class:`Range` or a text like ``"0.001..0.1:log"``; values are a list or a text like ``"32,64"``.
    """
    _refuse_kernels(config)
    space: Space = {}
    for key, wanted in given.items():
        name = _full_name(key, config)
        if name in space:
            raise TrainingError(f"{name} must be searched once, but came twice; drop one of them.")
        space[name] = _fitted(name, _read(key, wanted), config)
    if not space:
        raise TrainingError(f"There is nothing to search; give a range or values, such as {EXAMPLES}.")
    return space


def _refuse_kernels(config: Config) -> None:
    kind = find_system(config.model.system).kind
    if kind == "kernel":
        raise TrainingError("A graph kernel chooses its settings by itself, inside the training part; train it.")
    if kind == "labels":
        raise TrainingError("Label propagation chooses its settings by itself, on the validation part; train it.")


def read_search(words: Sequence[str]) -> dict[str, Any]:
    """``key=range`` words, and TOML files of them, as one mapping; what comes later counts."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if equals:
            found[key.strip()] = text.strip()
        elif word.endswith(".toml"):
            found |= _flat(read_toml(word, "The search space"))
        else:
            raise TrainingError(f"A search must look like {EXAMPLES}, or be a .toml file, but came as {word!r}.")
    return found


def first_guess(space: Space, config: Config) -> dict[str, Any]:
    """The config's own values, as far as they may be suggested, as optuna stores them."""
    values = {key: config.value(key) for key, wanted in space.items() if wanted.holds(config.value(key))}
    return {key: toml(value) if isinstance(space[key], Choice) else value for key, value in values.items()}


def as_text(space: Space) -> dict[str, str]:
    """The inverse of :func:`search_space`, for files."""
    return {key: str(wanted) for key, wanted in space.items()}


# ----------------------------------------------------------------------------------------------------- reading
def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return flat


def _full_name(key: str, config: Config) -> str:
    section, field, entry = resolve(key, config.model.system)
    name = f"{section}.{field}"
    if name == "model.own" and entry:
        return f"{name}.{entry}"
    if entry:
        config.with_settings([f"{key}=0"])  # refuses it unless there is such a table
        raise TrainingError(f"{key!r} is an entry of a table, which cannot be searched; choose it with --set.")
    if name == "model.own":
        raise TrainingError("model.own is a table; search its entries by their names, such as alpha=0.05..0.5.")
    if name == "model.system":
        raise TrainingError("model.system cannot be searched; tune each system by itself, with --model NAME.")
    if name in FIXED or (name.startswith("data.") and name != "data.features"):
        raise TrainingError(
            f"{name} cannot be searched: scores would no longer be comparable; choose it with --set {name}=..."
        )
    return name


def _read(key: str, wanted: Any) -> Range | Choice:
    """A range or some values, not yet compared with the setting."""
    if isinstance(wanted, (Range, Choice)):
        return wanted
    if isinstance(wanted, (list, tuple)):
        return Choice(tuple(wanted))
    if not isinstance(wanted, str):
        raise TrainingError(f"The search for {key} must look like {EXAMPLES}, but is {wanted!r}.")
    low, dots, rest = wanted.partition("..")
    if not dots:
        parts = re.split(r",(?![^\[]*\])", wanted)  # not at the commas of a list
        return Choice(tuple(parse(part.strip()) for part in parts if part.strip()))
    high, colon, how = rest.partition(":")
    ends = [parse(end.strip()) for end in (low, high)]
    if (colon and how != "log") or not all(type(end) in (int, float) for end in ends):
        raise TrainingError(f"The range of {key} must look like 0.001..0.1 or 0.001..0.1:log, but is {wanted!r}.")
    return Range(ends[0], ends[1], log=bool(colon))


def _fitted(name: str, wanted: Range | Choice, config: Config) -> Range | Choice:
    """The same in the type of the setting; the setting itself refuses what it does not take."""

    def fit(value: Any) -> Any:
        return config.with_values({name: value}).value(name)

    if isinstance(wanted, Choice):
        values = tuple(dict.fromkeys(map(fit, wanted.values)))
        if not values:
            raise TrainingError(f"The search for {name} must have values, but has none.")
        return Choice(values)
    low, high = fit(wanted.low), fit(wanted.high)
    if not low < high:
        raise TrainingError(f"The range of {name} must rise, but goes from {low} to {high}; swap or widen it.")
    if wanted.log and low <= 0:
        raise TrainingError(f"A range of {name} with :log must start above 0, but starts at {low}.")
    return Range(low, high, wanted.log)


# ------------------------------------------------------------------------------------------------------- optuna
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
