"""Counts as people say them."""

from __future__ import annotations


def noun(count: int, thing: str, things: str | None = None) -> str:
    """The word for so many of them: `run` for one, `runs` for two."""
    return thing if count == 1 else things or f"{thing}s"


def counted(count: int, thing: str, things: str | None = None) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {noun(count, thing, things)}"
