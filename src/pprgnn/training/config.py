"""Everything that decides a run, as dataclasses: the same names in Python, TOML, `--set key=value` and `--help`.

Imports neither torch nor PyG: the command line reads recipes with it before anything heavy is loaded.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from pprgnn.training.errors import TrainingError
from pprgnn.training.option import checked, described, option, parse, read_toml, toml
from pprgnn.training.systems import SYSTEMS, find_system

Architecture = Literal["auto", "node", "graph", "ppi", "co-purchase", "paper-graph", "labels"]
Features = Literal[
    "auto", "given", "normalized", "given+degree", "edges", "embedding", "degree", "labels", "given+labels"
]


@dataclass(frozen=True)
class DataConfig:
    """What to learn from."""

    name: str = option("", "data set, or a .safetensors file that `pprgnn data import` wrote")
    protocol: Literal["honest", "paper"] = option("honest", "how the data is divided; see `pprgnn data info`")
    fold: int = option(0, "which of the splits, where there are several", least=0)
    split_seed: int = option(0, "seed of the division", least=0)
    split: dict[str, Any] = option({}, "options of the division, such as fraction")
    options: dict[str, Any] = option({}, "options of the data set, such as length")
    features: Features = option(
        "auto",
        "as they are; rows scaled to sum 1; with the degree, one-hot, beside them; with the sums of the "
        "attributes of a node's edges, such as bonds; a learned row per node (no new nodes then); the degree; the "
        "labels of the training nodes, alone or beside the features (one graph; no node sees its own while it is "
        "scored). auto: what the data set has, otherwise embedding for one graph and degree for several",
    )
    standardize: bool = option(
        False, "columns of the features that hold other numbers than 0 and 1: to mean 0, deviation 1 in training"
    )


@dataclass(frozen=True)
class ModelConfig:
    """What learns."""

    system: str = option("pprgnn", "what learns; `pprgnn models` lists them")
    architecture: Architecture = option(
        "auto",
        "around infinite-depth layers: node, graph: the general ones; ppi, co-purchase, paper-graph: the paper's; "
        "labels: starts as label propagation, for features = labels",
    )
    hidden: int = option(64, "width", least=1)
    layers: int = option(1, "layers, one after the other", least=1)
    eps: float | tuple[float, ...] = option(1.0, "decay rate; several, [1.0, 0.1], share the channels", above=0)
    learn_eps: Literal["no", "yes", "channel"] = option("no", "learn the decay rate, or one per channel")
    activation: Literal["relu", "leaky_relu", "tanh", "identity"] = option("relu", "of the recursion")
    norm: Literal["none", "batch", "layer", "graph"] = option("none", "normalisation after each layer")
    dropout: float = option(0.5, "before the head and between layers", least=0, most=0.95)
    input_dropout: float = option(0.0, "on the features", least=0, most=0.95)
    input_layer: bool = option(False, "a linear layer with ReLU before the first infinite one")
    residual: bool = option(False, "add the input of a layer to its output")
    jk: Literal["none", "last", "cat", "max"] = option("none", "jumping knowledge: what the head sees")
    pooling: Literal["sum", "mean", "max"] = option("sum", "nodes to graph")
    self_loops: bool = option(True, "give every node a self-loop")
    normalize: Literal["sym", "row"] = option("sym", "of the adjacency matrix")
    smooth_input: bool = option(False, "average the input over the neighbours first, as the paper does")
    weight_init: Literal["glorot", "identity"] | float = option(
        "glorot",
        "how W starts; from identity a layer starts as personalised PageRank and needs few labels; a number w "
        "stands for w times the identity",
    )
    bias: bool = option(True, "learn an additive bias in each layer")
    depth: Literal["measured", "certificate", "influence"] | int = option(
        "measured", "how the depth is found: a rule, or a number of hops", least=0
    )
    max_depth: int = option(500, "the cap; reaching it warns", least=1)
    grad_terms: int = option(5, "terms of the gradient; 0: all", least=0)
    own: dict[str, Any] = option({}, "settings that only this system has; `pprgnn models NAME` lists them")


@dataclass(frozen=True)
class TrainingConfig:
    """How it learns."""

    epochs: int = option(500, "most epochs", least=1)
    lr: float = option(0.01, "learning rate", above=0)
    optimizer: Literal["adam", "adamw"] = option("adam", "adam adds weight decay to the gradient, adamw does not")
    weight_decay: float = option(5e-4, "pulls the weights towards 0", least=0)
    recursion_lr: float = option(1.0, "learning rate of W, as a part of lr", above=0)
    recursion_weight_decay: Literal["same"] | float = option(
        "same", "weight decay of W; of a baseline, of the layers that its paper treats apart", least=0
    )
    average: float = option(
        0.0, "evaluate a running average of the weights, of which each step keeps this part", least=0, most=0.9999
    )
    schedule: Literal["none", "plateau", "one-cycle", "cosine"] = option("none", "of the learning rate")
    plateau_factor: float = option(0.9, "plateau: the learning rate falls by this factor ...", above=0, most=1)
    plateau_patience: int = option(24, "... when the training loss has not fallen for so many epochs", least=0)
    clip: float = option(0.0, "largest norm of the gradient; 0: any", least=0)
    patience: int = option(100, "epochs without a better validation before it stops; 0: never", least=0)
    metric: Literal["auto", "accuracy", "micro-F1", "macro-F1", "ROC AUC", "oracle micro-F1"] = option(
        "auto",
        "what counts; auto: the data set's own, or ROC AUC where one of two classes is rare (below 15 %); oracle: "
        "the number of labels of each node is known",
    )
    monitor: Literal["metric", "loss", "last"] = option(
        "metric", "which validation figure chooses the epoch; last: none does, the last one counts"
    )
    threshold: Literal["auto", "validation", "per-class", "half"] = option(
        "auto",
        "with several labels: above which probability one is predicted. validation: where micro-F1 is best on the "
        "validation part; per-class: where the F1 of each class is; auto: validation, but half under the paper's "
        "protocol",
    )
    class_weights: Literal["none", "balanced"] = option("none", "weigh rare classes up")
    start_at_prior: bool = option(
        False, "start from how frequent each class is: with many rare labels, most steps go into learning that"
    )
    batch_size: int = option(0, "graphs per step; 0: 1 on node tasks, 128 on graph tasks", least=0)
    tol: float = option(1e-3, "error allowed in a solve while learning", above=0)
    depth_every: int = option(
        1,
        "depths are looked at in one of so many steps of learning: on small graphs a look costs as much as a step",
        least=1,
    )
    eval_tol: float = option(1e-5, "error allowed in the final scores and in predictions", above=0)
    eval_every: int = option(1, "epochs between validations", least=1)
    seed: int = option(0, "of the weights, dropout and order of the batches", least=0, most=2**32 - 1)
    deterministic: bool = option(False, "refuse operations whose result may differ between runs")
    memory: Literal["auto", "keep", "checkpoint"] = option(
        "auto", "keep the states that the gradient needs, or compute them again; auto: as memory allows"
    )
    checkpoint_seconds: float = option(10.0, "least time between two checkpoints", least=0)
    device: str = option("auto", "cpu, cuda, cuda:1, ...; auto: cuda if there is one")
    threads: int = option(0, "CPU threads; 0: one for small graphs, otherwise as torch has it", least=0)
    states: str = option("", "folder to keep states in that do not fit into memory; empty: memory")
    partition: Literal["auto", "metis", "range", "random"] = option(
        "auto", "how one graph is divided among several processes; auto: metis if it is installed, else range"
    )


# Where labels are of whole graphs: layers that all reach the head, the mean over neighbours inside a layer and
# the sum over nodes at the end, the degree of a node beside its features, averaged weights. The last epoch counts:
# the validation part of a small set has some 20 graphs, and may choose an epoch that has learned nothing.
# Found by `python -m benchmarks.graph_search`.
OF_GRAPHS: Mapping[str, Any] = {
    "data.features": "given+degree",
    "data.standardize": True,
    "model.layers": 3,
    "model.norm": "batch",
    "model.jk": "cat",
    "model.normalize": "row",
    "model.self_loops": False,
    "model.dropout": 0.3,
    "training.epochs": 60,
    "training.lr": 0.01,
    "training.weight_decay": 0.0,
    "training.schedule": "one-cycle",
    "training.batch_size": 32,
    "training.average": 0.95,
    "training.patience": 0,
    "training.monitor": "last",
    "training.depth_every": 25,
}


@dataclass(frozen=True)
class Config:
    """A run, complete: `[data]`, `[model]` and `[training]` of a TOML file.

    ``given`` are the settings that somebody has chosen, by their keys; the others may still follow from the data
    (:mod:`pprgnn.training.defaults`). ``None``: none of them may, as after reading a recipe. ``settled`` are those
    that have followed. Both are marks of one config, not fields: they do not count in comparisons.
    """

    given: ClassVar[frozenset[str] | None] = None
    settled: ClassVar[tuple[str, ...]] = ()
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        """Write out the system's own settings; refuse those that it would not read, and an unknown system."""
        system, model, usual = find_system(self.model.system), self.model, ModelConfig()
        for each in fields(model):
            value = getattr(model, each.name)
            if each.name not in (*system.reads, "system", "own") and value != getattr(usual, each.name):
                raise TrainingError(
                    f"The setting model.{each.name} = {value!r} is not one that {system.title} reads; leave it "
                    f"out (`pprgnn models {system.name}` lists those)."
                )
        own = system.own_settings(model.own)
        object.__setattr__(self, "model", replace(model, system=system.name, own=own))

    # ----------------------------------------------------------------------------------------------- from outside
    @classmethod
    def for_system(cls, name: str, data: DataConfig | None = None) -> Config:
        """The usual settings of a system; ours are the defaults of all sections."""
        system = find_system(name)
        sections: dict[str, dict[str, Any]] = {"data": {}, "model": {"system": system.name}, "training": {}}
        for key, value in system.settings.items():
            section, _, field_name = key.partition(".")
            sections[section][field_name] = value
        model, training = ModelConfig(**sections["model"]), TrainingConfig(**sections["training"])
        return cls(data or DataConfig(**sections["data"]), model, training)

    @classmethod
    def for_task(cls, task: str) -> Config:
        """Our usual settings where there is no recipe: for labels of nodes, or of whole graphs."""
        return cls().with_values(OF_GRAPHS) if task == "graph" else cls().marked(frozenset())

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], origin: str = "The configuration") -> Config:
        """Check every name and value of a nested mapping; what is missing has its default."""
        sections = [each.name for each in fields(cls)]
        for name, section in values.items():
            if name not in sections:
                raise TrainingError(f"{origin} must have the sections data, model and training, but has {name!r}.")
            if not isinstance(section, Mapping):
                raise TrainingError(f"[{name}] of {origin} must be a section, but is {section!r}.")
        system = values.get("model", {}).get("system", ModelConfig.system)
        with _telling(origin):
            usual = cls.for_system(system) if isinstance(system, str) else cls()  # no text is refused below
        parts = {name: _section(getattr(usual, name), name, values.get(name, {}), origin) for name in sections}
        with _telling(origin):
            return cls(**parts)

    @classmethod
    def from_toml(cls, path: Path | str) -> Config:
        return cls.from_dict(read_toml(path, "The recipe"), str(path))

    def with_settings(self, settings: Sequence[str]) -> Config:
        """Apply ``key=value`` settings, in their order; a key may do without its section.

        Another ``system`` comes first, as in :meth:`with_values`.
        """
        values: dict[str, Any] = {}
        for setting in settings:
            key, equals, text = setting.partition("=")
            if not equals:
                raise TrainingError(f"A setting must look like key=value, but came as {setting!r}.")
            key = "model.system" if key.strip() == "system" else key.strip()
            values.pop(key, None)  # of one that is said twice, the last counts, in its place
            values[key] = parse(text.strip())
        return self.with_values(values)

    def with_values(self, values: Mapping[str, Any]) -> Config:
        """Replace fields, or entries of tables such as ``split.fraction``; a key may do without its section.

        Another ``system`` comes first and brings its usual settings for ``[model]`` and ``[training]``.
        """
        config, given = self, self.given
        wanted = values.get("model.system", values.get("system", config.model.system))
        system = find_system(checked(ModelConfig, "model", "system", wanted, "The setting"))
        if system.name != config.model.system:
            config = Config.for_system(system.name, config.data)
            given = None if given is None else frozenset(key for key in given if key.startswith("data."))
        changes: dict[str, dict[str, Any]] = {section.name: {} for section in fields(config)}
        for key, value in values.items():
            section, name, rest = resolve(key, system.name)
            given = None if given is None else given | {".".join(filter(None, (section, name, rest)))}
            part, changed = getattr(config, section), changes[section]
            if rest:
                table = changed.get(name, getattr(part, name))
                if not isinstance(table, dict):
                    raise TrainingError(f"There is no setting {key!r}: {section}.{name} is not a table.")
                value = table | {rest: value}
            own = name == "own" and rest  # which the system checks
            changed[name] = value if own else checked(type(part), section, name, value, "The setting")
        sections = {name: replace(getattr(config, name), **changed) for name, changed in changes.items()}
        return Config(**sections).marked(given, self.settled)

    def marked(self, given: frozenset[str] | None, settled: Sequence[str] = ()) -> Config:
        """Put these marks on it, and return it."""
        object.__setattr__(self, "given", given)
        object.__setattr__(self, "settled", tuple(settled))
        return self

    # -------------------------------------------------------------------------------------------------- outwards
    def value(self, key: str) -> Any:
        """A setting by its name, with or without its section: ``lr``, ``training.lr``, ``own.heads``."""
        section, name, rest = resolve(key, self.model.system)
        found = getattr(getattr(self, section), name)
        return found[rest] if rest else found

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """For JSON: tuples become lists."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    def to_toml(self) -> str:
        """As a recipe, every field written out."""
        lines = []
        for section in fields(self):
            part = getattr(self, section.name)
            lines.append(f"[{section.name}]")
            lines += [f"{each.name} = {toml(getattr(part, each.name))}" for each in fields(part)]
            lines.append("")
        return "\n".join(lines)


@dataclass(frozen=True)
class Setting:
    """One line of `--help`."""

    section: str  # data, model, model.own, training
    name: str
    default: Any
    kind: str
    text: str

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"


def settings(system: str | None = None) -> Iterator[Setting]:
    """Every setting with its default, kind and sentence; of a system, what it reads, with its usual values."""
    chosen = None if system is None else find_system(system)
    usual = Config() if system is None else Config.for_system(system)
    for section in fields(Config):
        part = getattr(usual, section.name)
        for name, default, kind, text in described(part):
            if chosen is None or section.name != "model" or name in ("system", *chosen.reads):
                yield Setting(section.name, name, default, kind, text)
        if chosen is not None and section.name == "model":
            yield from (Setting("model.own", *each) for each in chosen.describe_own())


# ----------------------------------------------------------------------------------------------------- look-up
def _section(usual: Any, name: str, values: Mapping[str, Any], origin: str) -> Any:
    kind = type(usual)
    known = [each.name for each in fields(kind)]
    for key in values:
        if key not in known:
            raise TrainingError(f"[{name}] of {origin} has no setting {key!r}{_hint(key, known)}")
    return replace(
        usual, **{key: checked(kind, name, key, values[key], f"[{name}] of {origin}:") for key in values}
    )


@contextmanager
def _telling(origin: str) -> Iterator[None]:
    """What is wrong with the system and its settings is said of the file that they come from."""
    try:
        yield
    except TrainingError as error:
        raise TrainingError(f"[model] of {origin}: {error}") from error


def resolve(key: str, system: str) -> tuple[str, str, str]:
    """``lr`` or ``training.lr`` to its section and name; what follows a table's name is an entry of it.

    A setting that only the system has is an entry of ``model.own``.
    """
    all_names = _all_names()
    head, _, tail = key.partition(".")
    if head in all_names and tail.partition(".")[0] in all_names[head]:
        name, _, rest = tail.partition(".")
        return head, name, rest
    for section, names in all_names.items():
        if head in names:
            return section, head, tail
    name = key.removeprefix("model.")
    owners = [each.name for each in SYSTEMS if name in each.own_names]
    if system in owners:
        return "model", "own", name
    this = find_system(system)
    if owners:
        raise TrainingError(f"There is no setting {key!r} in {this.title}; it is one of {', '.join(owners)}.")
    known = [name for names in (*all_names.values(), this.own_names) for name in names]
    raise TrainingError(f"There is no setting {key!r}{_hint(key.rpartition('.')[2], known)}")


@cache
def _all_names() -> dict[str, list[str]]:
    """The names of each section; grids of experiments look up a hundred thousand."""
    return {each.name: [f.name for f in fields(each.default_factory)] for each in fields(Config)}  # type: ignore


def _hint(key: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, known, 1)
    return f"; did you mean {close[0]!r}?" if close else "; see `pprgnn train --settings`."
