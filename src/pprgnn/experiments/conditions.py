"""What is the same for all systems of a table, what each may choose for itself, and how many tries it has.

Imports neither torch nor PyG.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pprgnn.experiments.cell import Cell
from pprgnn.experiments.experiment import Extent, of_fold, repeated
from pprgnn.training.config import Config
from pprgnn.training.systems import find_system

Settings = Mapping[str, Any]
Choices = Mapping[str, Any]  # lists to choose from; what is no list is the only choice
NOTHING: Settings = {}


class Tuned(NamedTuple):
    """Where the trials of a system are made."""

    dataset: Settings
    at: Mapping[str, Any]


@dataclass(frozen=True)
class Conditions:
    """A table's conditions. A cell has the settings that are equal and those that its trials chose, and no others.

    Args:
        table: The experiment.
        equal: The settings that all share; those of ``[model]`` where a system reads them.
        choices: What a system may choose between, where it reads the setting.
        own: The same for one system alone.
        trials: How many of these a system tries, in each fold, on validation alone; the same for all.
        inner: In so many parts of the training part, one after the other validating; 0: the split's own one.
        protocols: What a protocol changes, for all systems.
        one_training: Whether the honest protocol scores the last epoch of the training under the paper's one.
    """

    table: str
    equal: Settings
    choices: Choices = field(default_factory=dict)
    own: Mapping[str, Choices] = field(default_factory=dict)
    trials: int = 6
    inner: int = 0
    protocols: Mapping[str, Settings] = field(default_factory=lambda: {"honest": NOTHING})
    one_training: bool = False

    def __post_init__(self) -> None:
        fixed = {*self.equal, *itertools.chain(*self.protocols.values())}
        for name, space in {"all": self.choices, **self.own}.items():
            if both := sorted(fixed & {*space}):
                raise ValueError(f"{both[0]} is equal for all in {self.table}, so {name} cannot choose it.")

    def config(self, system: str, data: Settings, chosen: Settings = NOTHING, protocol: str = "honest") -> Config:
        """All settings of a system: its usual ones, those that are equal, and those that it chose."""
        if beyond := sorted({*chosen} - {*self.space(system)}):
            raise ValueError(f"{beyond[0]} is not for {system} to choose in {self.table}.")
        settings = {**self.equal, **self.protocols[protocol]}
        kept = {key: value for key, value in settings.items() if _is_read(key, system)}
        named = {f"data.{key}": value for key, value in {**data, "protocol": protocol}.items()}
        return Config.for_system(system).with_values({**kept, **named, **chosen})

    def space(self, system: str) -> dict[str, list[Any]]:
        """What a system may choose; what has no epochs chooses on its own, inside the same parts."""
        if not has_epochs(system):
            return {}
        read = {key: values for key, values in self.choices.items() if _is_read(key, system)}
        space = {**read, **self.own.get(system, {})}
        return {key: values if isinstance(values, list) else [values] for key, values in space.items()}

    def candidates(self, system: str) -> list[dict[str, Any]]:
        """The settings to try: the system's usual ones, as far as they are among them, and draws."""
        space = self.space(system)
        usual = Config.for_system(system)
        first = {
            key: usual.value(key) if usual.value(key) in values else values[len(values) // 2]
            for key, values in space.items()
        }
        draw = random.Random(f"{self.table} {system}")
        others = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
        others.remove(first)
        return [first, *draw.sample(others, min(self.trials - 1, len(others)))]

    def cells(
        self,
        extent: Extent,
        system: str,
        dataset: Settings,
        folds: Iterable[int] = (0,),
        seeds: Iterable[int] = (0,),
        paper_seeds: Iterable[int] | None = None,
        tuned: Tuned | None = None,
        **place: Any,
    ) -> Iterator[Cell]:
        """For each fold the trials, and with each seed a training with what these chose; ``place`` of cells.

        ``paper_seeds``: of the paper's protocol, if others. ``tuned``: where the trials are made, if not here.
        """
        seeds, candidates = list(seeds), self.candidates(system)
        where = tuned or Tuned(dataset, place.get("at", {}))
        for fold in folds:
            chosen: Settings | None = candidates[0]
            if len(candidates) > 1:
                base = of_fold(self.config(system, where.dataset), fold, 0)
                at = {**where.at, "trials": len(candidates)}
                names = {name: place.get(name, "") for name in ("data", "variant")}
                trials = Cell(
                    f"{self.table}-trials", base, at=at, candidates=tuple(candidates), inner=self.inner, **names
                )
                if where.dataset == dataset:
                    yield trials
                chosen = extent.chosen(trials)
            for protocol in extent.protocols:
                if protocol in self.protocols:
                    config = self.config(system, dataset, chosen or NOTHING, protocol)
                    its = seeds if protocol != "paper" or paper_seeds is None else paper_seeds
                    cells = repeated(self.table, config, [fold], its, waits=chosen is None, **place)
                    if protocol == "paper" and self.one_training and has_epochs(system):
                        honest = self.config(system, dataset, chosen or NOTHING)
                        cells = (
                            replace(cell, last=of_fold(honest, fold, cell.config.training.seed)) for cell in cells
                        )
                    yield from cells


def has_epochs(system: str) -> bool:
    """Whether it is a network; kernels and label propagation are fitted at once."""
    return find_system(system).kind not in ("kernel", "labels")


def _is_read(key: str, system: str) -> bool:
    section, _, name = key.partition(".")
    return section != "model" or name in find_system(system).reads
