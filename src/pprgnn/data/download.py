"""The files of data sets from the network: resumed after a break, checked, under their names only when whole.

`checksums.txt` lists the SHA-256 of the published files, as they were when their data sets were described.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import http.client
import json
import os
import shutil
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Literal
from urllib.parse import urlsplit

from pprgnn.data.catalog import Card, Source, handle
from pprgnn.data.registry import folder_of
from pprgnn.errors import DataError

Verdict = Literal["ok", "bad", "unknown", "missing"]
Progress = Callable[[str, int, int | None], None]  # gets the name, the bytes so far, and all of them if known

ATTEMPTS = 5  # in a row without a byte more than before
PAUSE = 1.0  # seconds before the second attempt, doubled each time
TIMEOUT = 30.0  # seconds without an answer
BLOCK = 1 << 16
PASSING = (408, 425, 429, 500, 502, 503, 504)  # answers that may be better in a moment


class DownloadError(DataError):
    """The network or the server did not give the file."""


class _Interrupted(Exception):
    """Worth another attempt."""


# ---------------------------------------------------------------------------------------------------- checksums
@cache
def known_checksums() -> dict[str, str]:
    """SHA-256 by path relative to the data root."""
    lines = (files("pprgnn.data") / "checksums.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("  ", 1) for line in lines if line and not line.startswith("#")]
    return {path: digest for digest, path in pairs}


def sha256(path: Path, *, gzipped: bool) -> str:
    """SHA-256 of a file; of a compressed one, of what is in it, since compressors differ."""
    with gzip.open(path) if gzipped else open(path, "rb") as file:
        found = hashlib.sha256()
        while block := file.read(1 << 20):
            found.update(block)
        return found.hexdigest()


def _matches(path: Path, expected: str, *, gzipped: bool) -> bool:
    """Whether a file has this SHA-256; a damaged archive has not."""
    try:
        return sha256(path, gzipped=gzipped) == expected
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return False


def check_file(path: Path, name: str) -> Verdict:
    """Whether this file is the one that is called `name` (relative to the data root) in the list."""
    if not path.is_file():
        return "missing"
    expected = known_checksums().get(name)
    if expected is None:
        return "unknown"
    return "ok" if _matches(path, expected, gzipped=name.endswith(".gz")) else "bad"


# -------------------------------------------------------------------------------------------------- a data set
def fetch(
    card: Card, root: Path, progress: Progress = lambda name, done, total: None, *, checked: bool = True
) -> list[Path]:
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
            lines.append(
                f"    or {Path(source.url).name} alone, and `pprgnn data fetch {handle(card)}` unpacks it"
            )
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
    packed = folder / Path(url).name
    if packed.is_file():  # brought here by hand
        return _unpack(source, packed, folder, checked)
    download(url, packed, progress)
    try:
        return _unpack(source, packed, folder, checked)
    finally:
        packed.unlink(missing_ok=True)


def _unpack(source: Source, packed: Path, folder: Path, checked: bool) -> list[Path]:
    """Unpack beside the target and check: files appear under their names only when all of them are right."""
    with (
        writing(folder),
        tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking-", ignore_cleanup_errors=True) as temporary,
    ):
        if source.zipped:
            _extract(packed, (*source.files, *source.extra), Path(temporary))
        else:
            rewrite_dgcnn(packed, source.files[0].removesuffix("_A.txt"), Path(temporary))
        for name in source.files:
            verdict = check_file(Path(temporary, name), f"{source.folder}/{name}")
            if verdict == "missing":
                raise DataError(f"{packed} must hold {name}, but does not; it is the archive of something else.")
            if verdict == "bad" and checked:
                raise DataError(
                    f"{name} in {packed} does not have the expected SHA-256: it is damaged or has changed since; "
                    f"get {packed.name} again, or take it as it is with `--unchecked`."
                )
        names = sorted(os.listdir(temporary))
        for name in names:
            os.replace(Path(temporary, name), folder / name)
    return [folder / name for name in names]


def _extract(archive: Path, wanted: tuple[str, ...], folder: Path) -> None:
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
    rows: dict[str, list[object]] = {"A": [], "graph_indicator": [], "graph_labels": [], "node_labels": []}
    try:
        lines = iter(text.read_text(encoding="utf-8").splitlines())
        for graph in range(1, int(next(lines)) + 1):
            size, label = (int(word) for word in next(lines).split())
            first = len(rows["node_labels"]) + 1  # TU files count the nodes of all graphs together, from 1
            rows["graph_labels"].append(label)
            for node in range(first, first + size):
                tag, degree, *neighbours = (int(word) for word in next(lines).split())
                if degree != len(neighbours) or not all(0 <= neighbour < size for neighbour in neighbours):
                    raise ValueError(f"line of node {node - first} of graph {graph}")
                rows["node_labels"].append(tag)
                rows["graph_indicator"].append(graph)
                rows["A"] += [f"{node}, {first + neighbour}" for neighbour in sorted(neighbours)]
    except (ValueError, StopIteration) as error:
        raise DataError(f"{text} is not a whole file in the format of DGCNN ({error}); fetch it again.") from error
    for kind, column in rows.items():
        (folder / f"{name}_{kind}.txt").write_text("".join(f"{row}\n" for row in column), encoding="utf-8")


# ----------------------------------------------------------------------------------------------------- one file
def download(url: str, target: Path, progress: Progress, sha256: str | None = None) -> None:
    """Get a file; what arrived before a break is kept beside the target as ``.part`` and resumed by the next call.

    ``sha256`` is that of the content; for a ``.gz`` file, of the decompressed content.
    """
    part = _Part(target)
    with writing(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
    try:
        _receive_all(url, part, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(part.promise(url)) from None
    if sha256 is not None and not _matches(part.path, sha256, gzipped=target.suffix == ".gz"):
        part.clear()
        raise DownloadError(
            f"{url} does not have the expected SHA-256 ({sha256[:12]}…): it was damaged on its way, or has "
            f"changed since; try again, or take it as it is with `--unchecked`."
        )
    with writing(target.parent):
        os.replace(part.path, target)
        part.clear()


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Say in one sentence why a folder cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(
                f"There is no space left in {folder}; free some, or set PPRGNN_DATA to a folder on another disk."
            ) from error
        raise DataError(
            f"{folder} cannot be written ({error.strerror or error}); set PPRGNN_DATA to a folder that can."
        ) from error


class _Part:
    """The beginning of a file, and what tells whether the rest on the server still belongs to it."""

    def __init__(self, target: Path) -> None:
        self.name = target.name
        self.path = target.with_name(f"{target.name}.part")
        self.note = target.with_name(f"{target.name}.part.json")

    def size(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    def validator(self, url: str) -> str | None:
        """What the server called this version of the file; None: it cannot be resumed."""
        try:
            note = json.loads(self.note.read_text(encoding="utf-8"))
            return str(note["validator"]) if note["url"] == url and self.size() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def begin(self, url: str, headers: Message) -> None:
        self.clear()
        tag = headers.get("ETag", "")
        validator = headers.get("Last-Modified") if not tag or tag.startswith("W/") else tag
        if validator:  # without one, nobody can tell whether a later rest fits this beginning
            self.note.write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)

    def promise(self, url: str) -> str:
        if self.validator(url) is None:
            return f"{self.name} is not complete; the same command starts it again."
        return f"{self.name}: {self.size():,} bytes are kept, and the same command resumes there."


def _receive_all(url: str, part: _Part, progress: Progress) -> None:
    """Attempts until the file is whole; those that bring something new cost nothing."""
    most, failures = 0, 0
    while True:
        try:
            return _receive(url, part, progress)
        except _Interrupted as error:  # noqa: PERF203
            failures = 1 if part.size() > most else failures + 1
            most = max(most, part.size())
            if failures >= ATTEMPTS:
                raise DownloadError(f"{url} broke off again and again ({error}). {part.promise(url)}") from error
            time.sleep(PAUSE * 2 ** (failures - 1))


def _receive(url: str, part: _Part, progress: Progress) -> None:
    validator = part.validator(url)
    kept = part.size() if validator else 0
    headers = {"User-Agent": "pprgnn", "Accept-Encoding": "identity"}
    if validator:  # If-Range: a file that changed meanwhile is sent from its beginning
        headers |= {"Range": f"bytes={kept}-", "If-Range": validator}
    with _open(urllib.request.Request(url, headers=headers), part) as response:
        resumed = response.status == http.client.PARTIAL_CONTENT
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {kept}-"):
            part.clear()
            raise _Interrupted("the server sent another part than asked for")
        done, length = kept if resumed else 0, response.headers.get("Content-Length")
        total = done + int(length) if length else None
        with writing(part.path.parent):
            if not resumed:
                part.begin(url, response.headers)
            with open(part.path, "ab") as file:
                while block := _read(response):
                    file.write(block)
                    done += len(block)
                    progress(part.name, done, total)
    if total is not None and part.size() != total:
        interrupted = _Interrupted(f"{part.size():,} of {total:,} bytes arrived")
        if part.size() > total:  # somebody else writes the same file
            part.clear()
        raise interrupted


def _open(request: urllib.request.Request, part: _Part) -> http.client.HTTPResponse:
    url = request.full_url
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)
        return response
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            with writing(part.path.parent):
                part.clear()
        elif error.code not in PASSING:
            raise DownloadError(f"{url} cannot be had: the server answers {error.code} {error.reason}.") from error
        raise _Interrupted(f"the server answered {error.code}") from error
    except urllib.error.URLError as error:  # no connection came about: waiting a second does not help
        host = urlsplit(url).hostname
        raise DownloadError(f"There is no connection to {host} ({_reason(error.reason)}).") from error
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(_reason(error)) from error


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(_reason(error)) from error


def _reason(error: object) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
