"""One system that can be trained: who wrote about it, what it can do, and which settings it reads.

Imports neither torch nor PyG: the command line lists systems before anything heavy is loaded.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, Literal, get_type_hints

from pprgnn.training.errors import TrainingError
from pprgnn.training.option import checked, kind_of, option

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
    """A system.

    Attributes:
        name: what `--model` calls it.
        title: what its paper calls it.
        paper: the title of the paper.
        year: of the paper.
        link: to the paper.
        summary: one sentence: what it does.
        build: ``"module:Class"`` of the layer or network.
        kind: ``infinite``: a layer in the place of ours, in the same networks; ``network``: a network of its own;
            ``kernel``: a graph kernel with a support vector machine; ``labels``: nothing but labels.
        tasks: whether it labels nodes, graphs or both.
        edge_weights: whether it uses the weights of edges.
        new_graphs: whether it can label graphs that it has not seen in training.
        whole_gradient: whether the gradient of its logits goes through all that makes them, as explanations need.
        reads: which settings of ``[model]`` it reads, besides ``system`` and ``own``.
        own: a dataclass of the settings that only this system has, ``own`` of ``[model]`` in a recipe.
        settings: its usual settings where they are not our defaults, by ``section.name``.
        facts: what its network must know of the data besides the usual: ``typical_nodes``.
        requires: modules that must be installed.
        aliases: other names of it.
    """

    name: str
    title: str
    paper: str
    year: int
    link: str
    summary: str
    build: str
    kind: Literal["infinite", "network", "kernel", "labels"] = "network"
    tasks: tuple[Task, ...] = ALL_TASKS
    edge_weights: bool = True
    new_graphs: bool = True
    whole_gradient: bool = True
    reads: tuple[str, ...] = ("hidden", "layers", "dropout", "pooling")
    own: type[Any] = field(default_factory=options)
    settings: Mapping[str, Any] = field(default_factory=dict)
    facts: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

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
        """The names of its own settings."""
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
        hints = get_type_hints(self.own)
        for each in fields(self.own):
            yield each.name, each.default, kind_of(hints[each.name]), each.metadata["help"]
