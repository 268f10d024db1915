"""One system that can be trained: who wrote about it, what it can do, and which settings it reads.

Imports neither torch nor PyG: the command line lists systems before anything heavy is loaded.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, Literal

from pprgnn.training.errors import TrainingError
from pprgnn.training.option import checked, described, option

Task = Literal["node", "graph"]
ALL_TASKS: tuple[Task, ...] = ("node", "graph")
EXTRAS = {"grakel": "kernels", "sklearn": "kernels"}  # which extra of ours brings a module


def choice(text: str, *values: str) -> Any:
    """A setting that takes one of these texts; the first is its default."""
    return Literal[values], option(values[0], text)


def options(**settings: Any) -> type[Any]:
    """A dataclass of settings, each made by :func:`option` or :func:`choice`; its default tells its type.

    Where the default is several numbers, one of them or several may be given.
    """
    made = []
    for name, setting in settings.items():
        kind, field = setting if isinstance(setting, tuple) else (type(setting.default), setting)
        if kind is tuple:
            kind = type(field.default[0]) | tuple[float, ...]
        made.append((name, kind, field))
    return make_dataclass("Options", made, frozen=True)


@dataclass(frozen=True)
class System:
    """A system: who wrote about it, what it can do, and which settings it reads."""

    name: str  # what `--model` calls it
    title: str  # what its paper calls it
    paper: str  # the title of the paper
    year: int
    link: str
    summary: str  # one sentence: what it does
    build: str  # "module:Class" of the layer or network
    # infinite: a layer in the place of ours, in the same networks; network: a network of its own; kernel: a graph
    # kernel with a support vector machine; labels: nothing but labels
    kind: Literal["infinite", "network", "kernel", "labels"] = "network"
    tasks: tuple[Task, ...] = ALL_TASKS  # whether it labels nodes, graphs or both
    edge_weights: bool = True  # whether it uses them
    new_graphs: bool = True  # whether it can label graphs that it has not seen in training
    whole_gradient: bool = True  # whether that of its logits goes through all that makes them, for explanations
    reads: tuple[str, ...] = ("hidden", "layers", "dropout", "pooling")  # of [model], besides `system` and `own`
    own: type[Any] = field(default_factory=options)  # a dataclass of the settings that only this system has
    settings: Mapping[str, Any] = field(default_factory=dict)  # its usual ones, where not our defaults, by key
    facts: tuple[str, ...] = ()  # what its network must know of the data besides the usual: typical_nodes
    requires: tuple[str, ...] = ()  # modules that must be installed
    aliases: tuple[str, ...] = ()  # other names of it

    def load(self) -> Any:
        """The class of the layer or network; says what to install if something is missing."""
        if self.missing:
            raise TrainingError(f"{self.title} needs what is not installed; run `{self.missing}`.")
        module, _, name = self.build.partition(":")
        return getattr(importlib.import_module(module), name)

    @property
    def missing(self) -> str | None:
        """The command that installs what it needs and is not there; ``None``: all of it is there."""
        extras = {EXTRAS[module] for module in self.requires if importlib.util.find_spec(module) is None}
        return f"pip install 'pprgnn[{','.join(sorted(extras))}]'" if extras else None

    @property
    def own_names(self) -> tuple[str, ...]:
        return tuple(each.name for each in fields(self.own))

    def own_settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All of the system's own settings: the given ones, checked, and the others' defaults."""
        known = self.own_names
        for name in given:
            if name not in known:
                has = f"has {', '.join(known)}" if known else "has none"
                raise TrainingError(f"{self.title} has no setting {name!r} of its own: it {has}.")
        values = self.own(
            **{name: checked(self.own, "model.own", name, given[name], "The setting") for name in given}
        )
        return {name: getattr(values, name) for name in known}

    def describe_own(self) -> Iterator[tuple[str, Any, str, str]]:
        """Name, default, kind and sentence of each of its own settings."""
        return described(self.own())
