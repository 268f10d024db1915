"""Which data sets are at hand: the paper's own where their files are, a stand-in otherwise."""

from __future__ import annotations

from collections.abc import Collection

from pprgnn.data.catalog import find
from pprgnn.data.roots import data_root
from pprgnn.errors import DataError


def available(*names: str, known: Collection[str] = ()) -> list[str]:
    """The first whose files are there, or the last, so that an error says how to get it.

    ``known`` ones have results already: if there are such, it is them, whatever files are here.
    """
    with_results = [name for name in names if name in known]
    return with_results or [next((name for name in names if _has_files(name)), names[-1])]


def _has_files(name: str) -> bool:
    try:
        root = data_root()
        card = find(name, root)
    except DataError:
        return False
    sources = [source for source in card.sources if not source.optional]
    return bool(sources) and all(path.is_file() for source in sources for path in source.paths(root))
