"""Where data lives: the root of the raw files (may be read-only), and the cache of prepared graphs."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

from pprgnn.data.errors import DataError


def data_root() -> Path:
    """The folder of the raw data sets: ``PPRGNN_DATA``, or ``data`` in the user's cache folder."""
    named = os.environ.get("PPRGNN_DATA")
    if not named:
        return user_cache_path("pprgnn", appauthor=False) / "data"
    root = Path(named).expanduser()
    if root.exists() and not root.is_dir():
        raise DataError(f"PPRGNN_DATA must name a folder, but {root} is a file; name the folder of the data.")
    return root


def cache_root() -> Path:
    """The folder of everything that can be made again: ``PPRGNN_CACHE``, or the user's cache folder."""
    named = os.environ.get("PPRGNN_CACHE")
    return Path(named).expanduser() if named else user_cache_path("pprgnn", appauthor=False)
