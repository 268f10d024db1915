"""Which data sets are at hand: the paper's own where their files are, a stand-in otherwise."""

from __future__ import annotations

from pprgnn.data.catalog import find
from pprgnn.data.errors import DataError
from pprgnn.data.roots import data_root


def available(*names: str) -> list[str]:
    """Those whose files are there; none of them: the last, so that the error says how to get it."""
    found = [name for name in names if _has_files(name)]
    return found or [names[-1]]


def _has_files(name: str) -> bool:
    try:
        root = data_root()
        card = find(name, root)
    except DataError:
        return False
    sources = [source for source in card.sources if not source.optional]
    return bool(sources) and all(path.is_file() for source in sources for path in source.paths(root))
