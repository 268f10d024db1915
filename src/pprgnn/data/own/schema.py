"""Which columns are what, how they are read, and how they become numbers: all that a later table needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pprgnn.data.errors import DataError
from pprgnn.data.own.features import Feature
from pprgnn.data.own.labels import Label
from pprgnn.data.own.reading import Reading, Style

LISTS = ("label", "features", "ignore", "categorical")  # fields of `Columns` below
LEARNED = (*LISTS, "label_separator")  # what a schema has settled
OF_NODES = ("id", "split", *LEARNED, "unknown_nodes", "duplicates")  # what needs a node table
CHOICES = {  # fields of `Columns`, the default first
    "unknown_nodes": ("error", "drop", "add"),
    "duplicates": ("error", "first", "last"),
    "empty_ids": ("error", "drop"),
    "empty_edges": ("error", "allow"),
}


@dataclass(frozen=True)
class Columns:
    """Which column is what and how tables are read; ``None`` is guessed (and the guess is told)."""

    source: str | None = None
    destination: str | None = None
    weight: str | None = None  # "": there is none
    id: str | None = None
    label: tuple[str, ...] | None = None  # (): there is none
    split: str | None = None  # "": there is none
    features: tuple[str, ...] | None = None  # None: every other column
    ignore: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    label_separator: str | None = None  # "": never a list
    directed: bool = False
    encoding: str | None = None  # of text files; None: UTF-8
    decimal: str | None = None  # "." or ","
    thousands: str | None = None  # ",", ".", " " or "'"
    date: str | None = None  # "dmy", "mdy" or "ymd"
    unknown_nodes: str = "error"  # edges to nodes without a row: "drop" them, or "add" the nodes
    duplicates: str = "error"  # rows with the same node id: the "first" or the "last" counts
    empty_ids: str = "error"  # rows without a node id: "drop" them
    empty_edges: str = "error"  # "allow" a graph without edges

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise DataError(
                    f"The option {name} must be one of {', '.join(known)}, but is {getattr(self, name)!r}."
                )
        _ = self.style  # refuses what it does not know

    @property
    def style(self) -> Style:
        """How values are written, as far as that was said."""
        return Style(self.decimal, self.thousands, self.date)


@dataclass(frozen=True)
class Schema:
    """How tables become a graph, completely: what prediction needs to treat new tables the same way."""

    columns: Columns
    features: tuple[Feature, ...]
    label: Label | None
    weight: Reading | None = None  # how the weights of edges are written, if they came as text

    def with_style(self, style: Style) -> Schema:
        """The same, with values that are written as the user says now."""
        if style == Style():
            return self
        features = tuple(feature.with_style(style) for feature in self.features)
        return replace(self, features=features, weight=(self.weight or Reading()).with_style(style))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        features = [feature.to_dict() for feature in self.features]
        label = None if self.label is None else self.label.to_dict()
        plain = {"columns": asdict(self.columns), "features": features, "label": label}
        plain["weight"] = None if self.weight is None else asdict(self.weight)
        return dict(json.loads(json.dumps(plain)))  # the same before and after it was written to a file

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Schema:
        """The inverse of :meth:`to_dict`."""
        lists: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values["columns"].items()}
        label = None if values["label"] is None else Label.from_dict(values["label"])
        weight = None if values.get("weight") is None else Reading.from_dict(values["weight"])
        return cls(Columns(**lists), tuple(Feature.from_dict(f) for f in values["features"]), label, weight)


def as_fields(named: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name as the fields of `Columns`, or an error for one that it does not have."""
    for key in named:
        if key not in Columns.__dataclass_fields__:
            options = ", ".join(Columns.__dataclass_fields__)
            raise DataError(f"There is no option {key!r}; the options are {options}.")
    several = {key: [value] if isinstance(value, str) else value for key, value in named.items() if key in LISTS}
    return dict(named) | {k: None if names is None else tuple(filter(None, names)) for k, names in several.items()}
