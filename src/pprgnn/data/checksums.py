"""SHA-256 of the published files: whether a file is what it was when its data set was described."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

Verdict = Literal["ok", "bad", "unknown", "missing"]
BLOCK = 1 << 20


@cache
def known() -> dict[str, str]:
    """SHA-256 by path relative to the data root, as `checksums.txt` lists them."""
    lines = (files("pprgnn.data") / "checksums.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("  ", 1) for line in lines if line and not line.startswith("#")]
    return {path: digest for digest, path in pairs}


def digest(path: Path, *, gzipped: bool) -> str:
    """SHA-256 of a file; of a compressed one, of what is in it, since compressors differ."""
    total = hashlib.sha256()
    with gzip.open(path) if gzipped else open(path, "rb") as file:
        while block := file.read(BLOCK):
            total.update(block)
    return total.hexdigest()


def matches(path: Path, expected: str, *, gzipped: bool) -> bool:
    """Whether a file has this SHA-256; a damaged archive has not."""
    try:
        return digest(path, gzipped=gzipped) == expected
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return False


def check(path: Path, name: str) -> Verdict:
    """Whether this file is the one that is called `name` (relative to the data root) in the list."""
    if not path.is_file():
        return "missing"
    expected = known().get(name)
    if expected is None:
        return "unknown"
    return "ok" if matches(path, expected, gzipped=name.endswith(".gz")) else "bad"
