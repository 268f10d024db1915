"""Data sets by name: where their files are, and reading them. Imports torch only when something is read."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pprgnn.data.catalog import COUNTS, Card, Source, find, handle
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
        if options:
            raise DataError(f"{name} is already prepared, so it takes no options; leave out {', '.join(options)}.")
        from pprgnn.data.store import open_file

        return open_file(name)
    folder = Path(root).expanduser() if root is not None else data_root()
    card = find(str(name), folder)
    if card.family == "generated":
        from pprgnn.data.generated import MAKERS

        return MAKERS[card.name](**_checked_options(card, MAKERS[card.name], options))
    from pprgnn.data import readers
    from pprgnn.data.store import prepared

    read = getattr(readers, card.family)
    options = _checked_options(card, read, options)
    files = _files(card, folder)

    def build() -> GraphDataset:
        return read(card, folder, **options)  # type: ignore[no-any-return]

    key = card.name.replace("-", "_")  # the store puts a dash behind it
    if options:
        text = json.dumps(options, sort_keys=True, default=repr)
        key += f".{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    dataset = prepared(key, files, build) if cache else build()
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
    if found.missing:
        places: dict[Path, list[str]] = {}
        for path in found.missing:
            places.setdefault(path.parent, []).append(path.name)
        where = " and ".join(f"{', '.join(names)} in {folder}" for folder, names in places.items())
        remedy = f"run `pprgnn data fetch {handle(card)}`, or copy them there"
        if found.word == "missing":
            more = f"`pprgnn data info {handle(card)}` tells more"
            remedy = f"copy them there, since they cannot be downloaded; {more}"
        raise DataError(f"{card.name} needs {where}: {remedy}. (PPRGNN_DATA names the data root, now {root}.)")
    needed = [source for source in card.sources if not source.optional]
    paths = [folder_of(card, source, root) / name for source in needed for name in (*source.files, *source.extra)]
    return [path for path in paths if path.is_file()]


def _checked_options(card: Card, make: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not the defaults anyway; an unknown one is an error."""
    parameters = inspect.signature(make).parameters.items()
    known = {name: each for name, each in parameters if name not in ("card", "root")}
    for option in options:
        if option not in known:
            close = difflib.get_close_matches(option, known, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known) or 'none'}."
            raise DataError(f"{card.name} takes no option {option!r}; {remedy}")
    return {option: value for option, value in options.items() if value != known[option].default}
