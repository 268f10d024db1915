"""One page about a trained model, or about several side by side; and the page of all results as one file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pprgnn.data.atomic_io import write_text
from pprgnn.errors import DataError
from pprgnn.training.listener import Announce, silent

if TYPE_CHECKING:
    from pprgnn.experiments.store import Store

__all__ = ["write_report", "write_results"]

NEEDS = ("matplotlib", "jinja2")


def write_report(
    runs: Sequence[Path | str],
    path: Path | str,
    *,
    seconds: float = 30.0,
    announce: Announce = silent,
    again: bool = False,
) -> Path:
    """Write one HTML page that needs no other file and no network.

    Args:
        runs: Folders of runs or of studies; several are compared.
        path: The page.
        seconds: About how long measuring a run may take; what was measured before is kept in its folder.
        announce: Told what is being measured.
        again: Whether to measure anew.
    """
    _check_installed()
    from pprgnn.report.page import render
    from pprgnn.report.subject import open_subjects

    subjects = open_subjects(runs, seconds, announce, again)
    announce("Drawing the page")
    return _write(Path(path), render(subjects, Path(path)))


def write_results(store: Store, page: Path, path: Path) -> Path:
    """Write the page of all results, ``RESULTS.md``, as one HTML file that needs no other.

    Args:
        store: The results that the page was made of.
        page: The page in Markdown.
        path: The page in HTML.
    """
    _check_installed()
    from pprgnn.report.page import render_results

    return _write(path, render_results(store, page))


def _check_installed() -> None:
    if any(find_spec(name) is None for name in NEEDS):
        raise DataError(f"A report needs {' and '.join(NEEDS)}; install them with `pip install 'pprgnn[report]'`.")


def _write(path: Path, text: str) -> Path:
    try:
        write_text(path, text)
    except OSError as error:
        raise DataError(
            f"The page {path} cannot be written ({error.strerror or error}); make room or choose another place."
        ) from error
    return path
