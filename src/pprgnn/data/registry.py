"""Data sets by name: where their files are, and reading them. Imports torch only when something is read."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from pprgnn.data.card import COUNTS, Card, Source
from pprgnn.data.catalog import find, handle
from pprgnn.data.roots import bundled_folder, data_root
from pprgnn.errors import DataError

if TYPE_CHECKING:
    from pprgnn.data.dataset import GraphDataset

Readiness = Literal["ready", "ready (inside grakel)", "generated", "needs download", "missing"]
BUNDLED = "MUTAG"  # grakel carries its files


@dataclass(frozen=True)
class State:
    """Whether a set can be read now; if not, which files are not there."""

    word: Readiness
    missing: tuple[Path, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether the set can be read."""
        return not self.missing


def state(card: Card, root: Path) -> State:
    """Whether a set can be read from this root."""
    if card.family == "generated":
        return State("generated")
    missing = tuple(card.missing(root))
    if not missing:
        return State("ready")
    if _bundled(card) is not None:
        return State("ready (inside grakel)")
    lacking = (source for source in card.sources if not source.optional and set(source.paths(root)) & set(missing))
    return State("needs download" if all(source.url for source in lacking) else "missing", missing)


def folder_of(card: Card, source: Source, root: Path) -> Path:
    """Where the files of a source are read from."""
    bundled = _bundled(card)
    return bundled if bundled is not None and card.missing(root) and not source.optional else root / source.folder


def attributes_file(card: Card, root: Path) -> str:
    """The file with numbers for the nodes that a TU set has beside their labels; empty: there is none."""
    for source in card.sources:
        folder = folder_of(card, source, root)
        for name in (*source.files, *source.extra):
            if name.endswith("_node_attributes.txt") and (name in source.files or (folder / name).is_file()):
                return name
    return ""


def load(name: str | Path, root: Path | str | None = None, *, cache: bool = True, **options: Any) -> GraphDataset:
    """A data set by its name, or from a prepared file (``*.safetensors``).

    Sets are prepared once and kept in the cache, see `pprgnn.data.store`. Options are those of the reader of its
    family, or of the function that generates it; an unknown one is refused.
    """
    if str(name).endswith(".safetensors"):
        return _open_prepared(Path(name), options)
    folder = Path(root).expanduser() if root is not None else data_root()
    card = find(str(name), folder)
    family = import_module(f"pprgnn.data.{card.family}")
    options = _checked_options(card, family, options)

    def build() -> GraphDataset:
        return family.read(card, folder, **options)  # type: ignore[no-any-return]

    if card.family == "generated":
        return build()
    files = _files(card, folder)
    from pprgnn.data.store import prepared

    dataset = prepared(_key(card, options), files, build) if cache else build()
    dataset.home = folder  # published splits lie beside the data
    return dataset


def differences(card: Card, dataset: GraphDataset) -> list[str]:
    """Where the counts of a set that was read are not those of its card."""
    found = (len(dataset), dataset.num_nodes, dataset.num_edges, dataset.num_features, dataset.num_classes)
    expected = [getattr(card, what) for what in COUNTS]
    return [
        f"{count:,} {what} instead of {wanted:,}"
        for what, count, wanted in zip(COUNTS, found, expected, strict=True)
        if wanted is not None and wanted != count
    ]


def _bundled(card: Card) -> Path | None:
    return bundled_folder(card.name) if card.name == BUNDLED else None


def _files(card: Card, root: Path) -> list[Path]:
    """The files a set is read from, all of them there."""
    found = state(card, root)
    if not found.ready:
        raise DataError(_absent(card, root, found))
    needed = [source for source in card.sources if not source.optional]
    paths = [folder_of(card, source, root) / name for source in needed for name in (*source.files, *source.extra)]
    return [path for path in paths if path.is_file()]


def _absent(card: Card, root: Path, found: State) -> str:
    places: dict[Path, list[str]] = {}
    for path in found.missing:
        places.setdefault(path.parent, []).append(path.name)
    where = " and ".join(f"{', '.join(names)} in {folder}" for folder, names in places.items())
    if found.word == "missing":
        remedy = f"copy them there, since they cannot be downloaded; `pprgnn data info {handle(card)}` tells more"
    else:
        remedy = f"run `pprgnn data fetch {handle(card)}`, or copy them there"
    return f"{card.name} needs {where}: {remedy}. (PPRGNN_DATA names the data root, now {root}.)"


def _open_prepared(path: Path, options: Mapping[str, Any]) -> GraphDataset:
    if options:
        raise DataError(f"{path} is already prepared, so it takes no options; leave out {', '.join(options)}.")
    from pprgnn.data.store import open_file

    return open_file(path)


def _checked_options(card: Card, family: ModuleType, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not the defaults anyway; an unknown one is an error."""
    if card.family == "generated":  # each has a function of its own
        known = dict(inspect.signature(family.MAKERS[card.name]).parameters)
    else:
        known = dict(list(inspect.signature(family.read).parameters.items())[2:])  # after the card and the root
    for option in options:
        if option not in known:
            close = difflib.get_close_matches(option, known, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known) or 'none'}."
            raise DataError(f"{card.name} takes no option {option!r}; {remedy}")
    return {option: value for option, value in options.items() if value != known[option].default}


def _key(card: Card, options: Mapping[str, Any]) -> str:
    """A name for the prepared file in which no ``-`` occurs, since the store puts one behind it."""
    name = card.name.replace("-", "_")
    if not options:
        return name
    text = json.dumps(options, sort_keys=True, default=repr)
    return f"{name}.{hashlib.sha256(text.encode()).hexdigest()[:8]}"
