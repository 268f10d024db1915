"""Where data lives: the root of the raw files (may be read-only), the cache of prepared graphs, and grakel.

Imports neither torch nor grakel.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_cache_path

from pprgnn.errors import DataError


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


def bundled_folder(name: str) -> Path | None:
    """The folder with the files of this TU data set inside the installed `grakel`, or None."""
    spec = find_spec("grakel")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(package) / "tests" / "data" / name
        if (folder / f"{name}_A.txt").is_file():
            return folder
    return None
