"""What an experiment is: a grid of cells, and what its rows are called."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from pprgnn.data.catalog import find
from pprgnn.data.roots import data_root
from pprgnn.errors import DataError
from pprgnn.experiments.cell import Cell
from pprgnn.experiments.store import Store
from pprgnn.training.config import Config
from pprgnn.training.recipes import find_recipe
from pprgnn.training.systems import find_system

OURS = "pprgnn"
PLAIN, IMPROVED = "paper's recipe", "improved recipe"  # variants of ours
PROTOCOLS: tuple[Literal["paper", "honest"], ...] = ("honest", "paper")


@dataclass(frozen=True)
class Extent:
    """How much of a grid is wanted.

    Args:
        folds: How many splits; ``None``: as many as the experiment usually takes.
        seeds: How many seeds; ``None``: likewise.
        models: Which systems, in the order given; ``None``: all.
        protocols: Which protocols.
        data: Which data sets; ``None``: all.
        only: What the labels of cells must contain, all of it.
        known: Data sets that have results, for pages: they count, whether their files are here or not.
        store: Where the trials are that choose settings; ``None``: none were made.
    """

    folds: int | None = None
    seeds: int | None = None
    models: Sequence[str] | None = None
    protocols: Sequence[str] = PROTOCOLS
    data: Sequence[str] | None = None
    only: Sequence[str] = ()
    known: Collection[str] = ()
    store: Store | None = None

    def chosen(self, trials: Cell) -> Mapping[str, Any] | None:
        """What these trials have chosen; ``None``: nothing yet."""
        line = None if self.store is None else self.store.answer(trials)
        return None if line is None else line.get("chosen")

    def fold_range(self, usual: int) -> range:
        """The splits to run."""
        return range(usual if self.folds is None else min(self.folds, usual))

    def seed_range(self, usual: int) -> range:
        """The seeds to run."""
        return range(usual if self.seeds is None else self.seeds)

    def narrowed(self, cells: Iterable[Cell]) -> list[Cell]:
        """The cells that are wanted, in their order."""
        names = None if self.data is None else {each.lower() for each in self.data}
        wanted = None if self.models is None else {find_system(each).name for each in self.models}
        return [
            cell
            for cell in cells
            if (wanted is None or cell.config.model.system in wanted)
            and cell.config.data.protocol in self.protocols
            and (names is None or names & {cell.config.data.name.lower(), cell.data.lower()})
            and all(text.lower() in cell.label.lower() for text in self.only)
        ]


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Args:
        name: As in ``pprgnn reproduce NAME``.
        title: Its heading.
        about: A paragraph: what is run, how, and what to bear in mind.
        grid: Makes its cells, the most telling ones first.
        compared: Whether ours and baselines are compared under equal conditions.
    """

    name: str
    title: str
    about: str
    grid: Callable[[Extent], Iterable[Cell]]
    compared: bool = False

    def cells(self, extent: Extent | None = None, *, smoke: bool = False) -> list[Cell]:
        """What is to run; with ``smoke``, one place of each axis, small networks and trainings of two epochs."""
        extent = extent or Extent()
        cells = extent.narrowed(self.grid(extent))
        if not smoke:
            return cells
        first = {
            (cell.experiment, *cell.group[:-1], cell.config.data.fold, cell.config.training.seed): cell
            for cell in cells[::-1]
        }
        chosen = {id(cell) for cell in first.values() if not _is_slow_kernel(cell)}
        return [_small(cell) for cell in cells if id(cell) in chosen]


def _is_slow_kernel(cell: Cell) -> bool:
    """Kernels have nothing that could be made smaller, so a smoke test has them on small sets alone."""
    kernel = find_system(cell.config.model.system).kind == "kernel"
    return kernel and cell.config.data.name not in ("MUTAG", "PTC")


def _small(cell: Cell) -> Cell:
    """The same for a smoke test: it shows that everything runs, not how good it is."""
    system = find_system(cell.config.model.system)
    changes: dict[str, Any] = {"training.epochs": 2, "training.patience": 0}
    if "hidden" in system.reads:
        changes["model.hidden"] = min(8, cell.config.model.hidden)
    if "layers" in system.reads:
        changes["model.layers"] = min(4, cell.config.model.layers)
    if system.kind == "infinite":
        changes["model.max_depth"] = 30
    candidates = tuple(
        {key: changes.get(key, value) for key, value in each.items()} for each in cell.candidates[:2]
    )
    small = cell.config.with_values(changes)
    return replace(cell, config=small, alone=False, candidates=candidates, waits=False, last=None)


# ------------------------------------------------------------------------------------------------------- settings
def recipe(name: str, data: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Config:
    """A shipped recipe with some of its settings changed."""
    path = find_recipe(name)
    if path is None:
        raise FileNotFoundError(f"There is no recipe {name}.")
    return _with_data(Config.from_toml(path), data).with_values(changes or {})


def baseline(system: str, data: Mapping[str, Any], shared: Mapping[str, Any]) -> Config:
    """A system's recipe for these data if there is one, or its usual settings with what all baselines share here.

    Settings that the system does not read are left out of ``shared``.
    """
    special = find_recipe(f"{str(data['name']).lower()}-{system}")
    if special is not None:
        return _with_data(Config.from_toml(special), data)
    reads = find_system(system).reads
    read = {key: value for key, value in shared.items() if not key.startswith("model.") or key[6:] in reads}
    return _with_data(Config.for_system(system), data).with_values(read)


def _with_data(config: Config, data: Mapping[str, Any]) -> Config:
    return config.with_values({f"data.{key}": value for key, value in data.items()})


def of_fold(config: Config, fold: int, seed: int) -> Config:
    """The same on another split, with another seed; quicker than ``with_values``, since grids are large."""
    data, training = replace(config.data, fold=fold), replace(config.training, seed=seed)
    return replace(config, data=data, training=training)


def repeated(
    experiment: str, config: Config, folds: Iterable[int], seeds: Iterable[int], **place: Any
) -> Iterator[Cell]:
    """A cell for each split and seed; ``place`` is what else a cell has."""
    for seed, fold in product(seeds, folds):
        yield Cell(experiment, of_fold(config, fold, seed), **place)


# ------------------------------------------------------------------------------------------- data that are at hand
def available(*names: str, known: Collection[str] = ()) -> list[str]:
    """The first whose files are there, or the last, so that an error says how to get it.

    ``known`` ones have results already: if there are such, it is them, whatever files are here.
    """
    with_results = [name for name in names if name in known]
    return with_results or [next((name for name in names if _has_files(name)), names[-1])]


def _has_files(name: str) -> bool:
    try:
        root = data_root()
        card = find(name, root)
    except DataError:
        return False
    sources = [source for source in card.sources if not source.optional]
    return bool(sources) and all(path.is_file() for source in sources for path in source.paths(root))
