"""Data sets that installed packages bring along. Imports neither torch nor those packages."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def bundled_folder(name: str) -> Path | None:
    """The folder with the files of this TU data set inside the installed `grakel`, or None."""
    spec = find_spec("grakel")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(package) / "tests" / "data" / name
        if (folder / f"{name}_A.txt").is_file():
            return folder
    return None
