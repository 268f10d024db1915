"""What cannot be answered."""

from __future__ import annotations

from pprgnn.errors import DataError


class NotThereError(DataError):
    """A run, a graph, a node or a page that does not exist."""
