"""One cell of a grid: a system on a data set, one split, one seed. All that the tables are made of are cells.

Imports neither torch nor PyG: plans and pages are made without them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from pprgnn.training.config import Config

COORDINATES = ("experiment", "data", "system", "variant", "protocol", "at", "fold", "seed")
# Where a run computes and how often it is saved does not change what comes out, but for the last bits.
INCIDENTAL = ("device", "threads", "checkpoint_seconds", "memory")
OWN = "model.own"  # a table of settings: those of one system only


class Group(NamedTuple):
    """One entry of a table: its cells differ in fold and seed only."""

    data: str
    system: str
    variant: str
    protocol: str
    place: str  # ``at``, as JSON


@dataclass(frozen=True)
class Cell:
    """What to run, and where the result belongs.

    Args:
        experiment: The table or figure: ``graphs``, ``ppi``, ...
        config: All settings; data set, protocol, fold, seed and system are read from it.
        variant: Which settings of the system these are: ``paper``, ``improved``, the value of an ablation.
        at: The position on the axes of a figure: ``{"depth": 8}``.
        data: What the data set is called in the table, if not as in the config.
        keep_curve: Whether the score of every epoch is kept.
        alone: Whether nothing else may run beside it, because its time is a result.
        candidates: Settings to try, on validation alone; such a cell is no value of a table.
        inner: Into how many parts its training part is divided for that; 0: it has a validation part.
        waits: Whether settings are still to be chosen by trials; until then it can neither run nor have a result.
        last: Settings of another cell with the same training, whose score is that of the last epoch.
    """

    experiment: str
    config: Config
    variant: str = ""
    at: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    keep_curve: bool = False
    alone: bool = False
    candidates: tuple[Mapping[str, Any], ...] = ()
    inner: int = 0
    waits: bool = False
    last: Config | None = None

    @property
    def twin(self) -> Cell | None:
        """The cell that this one's training answers as well, by its last epoch."""
        return None if self.last is None else replace(self, config=self.last, last=None)

    @property
    def coordinates(self) -> dict[str, Any]:
        """Where the result belongs."""
        config = self.config
        return {
            "experiment": self.experiment,
            "data": self.data or config.data.name,
            "system": config.model.system,
            "variant": self.variant,
            "protocol": config.data.protocol,
            "at": dict(self.at),
            "fold": config.data.fold,
            "seed": config.training.seed,
        }

    @property
    def group(self) -> Group:
        """The entry of a table that it belongs to."""
        return group_of(self.coordinates)

    @property
    def label(self) -> str:
        """For people: `graphs MUTAG pprgnn improved honest fold 3 seed 0`."""
        return label_of(self.coordinates)

    @property
    def folder_name(self) -> str:
        """A name for its files that no other settings share."""
        settings = [settings_of(self.config), self.candidates, self.inner]
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        return f"{self.label.replace(' ', '-').replace('/', '-')}-{digest[:8]}"

    def is_answered_by(self, line: Mapping[str, Any]) -> bool:
        """Whether a line of a results file is of this cell, with these very settings.

        A setting that was invented after the line was written must have its usual value.
        """
        if self.waits or any(line.get(name) != value for name, value in self.coordinates.items()):
            return False
        if self.candidates:
            tried = [list(map(dict, self.candidates)), self.inner]
            if [[each["settings"] for each in line.get("trials", [])], line.get("inner")] != tried:
                return False
        usual, known = _usual_settings(self.config.model.system), line.get("config", {})
        then = usual | known | {OWN: usual[OWN] | known.get(OWN, {})}
        return all(then.get(name) == value for name, value in settings_of(self.config).items())


def without_twins(cells: Iterable[Cell]) -> tuple[list[Cell], set[str]]:
    """The cells that must run, and the addresses of those that their trainings answer as well."""
    by_address = {address_of(cell.coordinates): cell for cell in cells}
    twins = {address_of(cell.twin.coordinates) for cell in by_address.values() if cell.twin is not None}
    return [cell for address, cell in by_address.items() if address not in twins], twins & {*by_address}


def address_of(line: Mapping[str, Any]) -> str:
    """All coordinates of a line, as one text."""
    return json.dumps([line[name] for name in COORDINATES], sort_keys=True)


def label_of(line: Mapping[str, Any]) -> str:
    """What people call a cell, from its coordinates or its line."""
    at = " ".join(f"{name} {value}" for name, value in line["at"].items())
    words = (*(line[name] for name in COORDINATES[:5]), at, f"fold {line['fold']} seed {line['seed']}")
    return " ".join(word for word in words if word)


def group_of(line: Mapping[str, Any]) -> Group:
    """Where a line, or coordinates, belong."""
    place = json.dumps(line["at"], sort_keys=True)
    return Group(line["data"], line["system"], line["variant"], line["protocol"], place)


def settings_of(config: Config) -> dict[str, Any]:
    """Every setting that may change the result, by its name with section."""
    return {
        f"{section}.{name}": value
        for section, values in config.to_dict().items()
        for name, value in values.items()
        if name not in INCIDENTAL
    }


@cache
def _usual_settings(system: str) -> dict[str, Any]:
    return settings_of(Config.for_system(system))
