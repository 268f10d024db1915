"""Getting the files of a data set into their folder, and checking them."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from pprgnn.data.card import Card, Source
from pprgnn.data.catalog import handle
from pprgnn.data.download import DownloadError, Progress, Verdict, check_file, download, known_checksums, writing
from pprgnn.data.registry import folder_of
from pprgnn.errors import DataError

__all__ = ["by_hand", "download", "fetch", "verify"]


def _silent(name: str, done: int, total: int | None) -> None:
    """Show nothing."""


def fetch(card: Card, root: Path, progress: Progress = _silent, *, checked: bool = True) -> list[Path]:
    """Download what is missing or damaged; returns the files that are new.

    ``checked=False`` takes files whose SHA-256 is not the one of the description.
    """
    written: list[Path] = []
    for source in sorted(card.sources, key=lambda source: source.optional):
        if not _lacking(source, root, checked):
            continue
        if source.url is None:
            raise DataError(f"{card.name} cannot be downloaded.\n{by_hand(card, root, checked=checked)}")
        try:
            written += _fetch_source(source, source.url, root, progress, checked)
        except DownloadError as error:
            complete = f" {card.name} itself is complete; this is an addition to it." if source.optional else ""
            raise DataError(f"{error}{complete}\n{by_hand(card, root, checked=checked)}") from error
    return written


def verify(card: Card, root: Path) -> list[tuple[Path, Verdict]]:
    """Compare the files of a set with their SHA-256; of optional files, those that are there."""
    verdicts = []
    for source in card.sources:
        folder = folder_of(card, source, root)
        for name in source.files:
            verdict = check_file(folder / name, f"{source.folder}/{name}")
            if not (source.optional and verdict == "missing"):
                verdicts.append((folder / name, verdict))
    return verdicts


def by_hand(card: Card, root: Path, *, checked: bool = True) -> str:
    """Which files go into which folder, and where they come from: for a machine without a network."""
    lines, folder = ["Put these files there by hand:"], ""
    for source in card.sources:
        lacking = _lacking(source, root, checked)
        if not lacking:
            continue
        if source.folder != folder:
            folder = source.folder
            lines.append(f"  {root / folder}{os.sep}{'  (optional)' if source.optional else ''}")
        if len(lacking) == 1:
            lines.append(f"    {lacking[0]}  from {source.url or card.source}")
            continue
        lines += [f"    {name}" for name in lacking]
        if source.url is not None:
            lines.append(f"    or {_name_of(source.url)} alone, and `pprgnn data fetch {handle(card)}` unpacks it")
        lines.append(f"    from {source.url}" if source.url else f"    (origin: {card.source})")
    return "\n".join(lines)


def _lacking(source: Source, root: Path, checked: bool) -> list[str]:
    """The files that are missing or damaged."""
    folder = root / source.folder
    if not checked:
        return [name for name in source.files if not (folder / name).is_file()]
    verdicts = {name: check_file(folder / name, f"{source.folder}/{name}") for name in source.files}
    return [name for name, verdict in verdicts.items() if verdict in ("missing", "bad")]


def _fetch_source(source: Source, url: str, root: Path, progress: Progress, checked: bool) -> list[Path]:
    folder = root / source.folder
    if not (source.zipped or source.dgcnn_text):
        (name,) = source.files
        expected = known_checksums().get(f"{source.folder}/{name}") if checked else None
        download(url, folder / name, progress, expected)
        return [folder / name]
    packed = folder / _name_of(url)
    if packed.is_file():  # brought here by hand
        return _unpack(source, packed, folder, checked)
    download(url, packed, progress)
    try:
        return _unpack(source, packed, folder, checked)
    finally:
        packed.unlink(missing_ok=True)


def _unpack(source: Source, packed: Path, folder: Path, checked: bool) -> list[Path]:
    """Unpack beside the target and check: files appear under their names only when all of them are right."""
    with writing(folder):
        temporary = Path(tempfile.mkdtemp(dir=folder, prefix=".unpacking-"))
        try:
            if source.zipped:
                _extract(packed, (*source.files, *source.extra), temporary)
            else:
                rewrite_dgcnn(packed, source.files[0].removesuffix("_A.txt"), temporary)
            for name in source.files:
                _check_unpacked(temporary / name, f"{source.folder}/{name}", packed, checked)
            names = sorted(path.name for path in temporary.iterdir())
            for name in names:
                os.replace(temporary / name, folder / name)
            return [folder / name for name in names]
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _extract(archive: Path, wanted: Iterable[str], folder: Path) -> None:
    """Take the wanted members out of an archive, whatever folder they are in; anything else stays inside."""
    try:
        with zipfile.ZipFile(archive) as file:
            members: dict[str, str] = {}
            for member in file.namelist():
                path = PurePosixPath(member)
                if path.is_absolute() or ".." in path.parts or "\\" in member:
                    raise DataError(f"{archive} holds the unsafe path {member!r}, so nothing of it is unpacked.")
                members.setdefault(path.name, member)
            for name in wanted:
                if name in members:
                    with file.open(members[name]) as content, open(folder / name, "wb") as target:
                        shutil.copyfileobj(content, target)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{archive} is not a whole zip archive ({error}); get it again.") from error


def rewrite_dgcnn(text: Path, name: str, folder: Path) -> None:
    """Write the text format of DGCNN and GIN as the files of a TU set, ``NAME_A.txt`` and its companions.

    It holds the number of graphs; then for each graph a line `nodes label`, and for each of its nodes a line
    `tag degree neighbour neighbour ...`, with neighbours counted from 0 within the graph.
    """
    edges: list[str] = []
    graph_of: list[str] = []
    classes: list[str] = []
    tags: list[str] = []
    try:
        lines = iter(text.read_text(encoding="utf-8").splitlines())
        for graph in range(1, int(next(lines)) + 1):
            size, label = (int(word) for word in next(lines).split())
            first = len(tags) + 1  # TU files count the nodes of all graphs together, from 1
            classes.append(str(label))
            for node in range(first, first + size):
                tag, degree, *neighbours = (int(word) for word in next(lines).split())
                if degree != len(neighbours) or not all(0 <= neighbour < size for neighbour in neighbours):
                    raise ValueError(f"line of node {node - first} of graph {graph}")
                tags.append(str(tag))
                graph_of.append(str(graph))
                edges += [f"{node}, {first + neighbour}" for neighbour in sorted(neighbours)]
    except (ValueError, StopIteration) as error:
        raise DataError(f"{text} is not a whole file in the format of DGCNN ({error}); fetch it again.") from error
    columns = {"A": edges, "graph_indicator": graph_of, "graph_labels": classes, "node_labels": tags}
    for kind, column in columns.items():
        (folder / f"{name}_{kind}.txt").write_text("".join(f"{row}\n" for row in column), encoding="utf-8")


def _check_unpacked(path: Path, name: str, packed: Path, checked: bool) -> None:
    verdict = check_file(path, name)
    if verdict == "missing":
        raise DataError(f"{packed} must hold {path.name}, but does not; it is the archive of something else.")
    if verdict == "bad" and checked:
        raise DataError(
            f"{path.name} in {packed} does not have the expected SHA-256: it is damaged or has changed since; "
            f"get {packed.name} again, or take it as it is with `--unchecked`."
        )


def _name_of(url: str) -> str:
    return url.rsplit("/", 1)[1]
