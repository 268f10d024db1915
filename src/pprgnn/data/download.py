"""One file from the network: resumed after a break, checked, and under its name only when it is whole.

`checksums.txt` lists the SHA-256 of the published files, as they were when their data sets were described.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import http.client
import json
import os
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

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
        return hashlib.file_digest(file, "sha256").hexdigest()


def matches(path: Path, expected: str, *, gzipped: bool) -> bool:
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
    return "ok" if matches(path, expected, gzipped=name.endswith(".gz")) else "bad"


# ----------------------------------------------------------------------------------------------------- download
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
    if sha256 is not None and not matches(part.path, sha256, gzipped=target.suffix == ".gz"):
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
        """A new version is about to arrive."""
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
                for block in _blocks(response):
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


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            block = response.read(BLOCK)
        except (OSError, http.client.HTTPException) as error:
            raise _Interrupted(_reason(error)) from error
        if not block:
            return
        yield block


def _reason(error: object) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
