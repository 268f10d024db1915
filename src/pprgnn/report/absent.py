"""What was not measured is said, not left out."""

from __future__ import annotations

from collections.abc import Sequence

from pprgnn.report.measured.results import Missing
from pprgnn.report.shown import Shown
from pprgnn.report.subject import Subject

NO_LAYER = "There is no layer of infinite depth in this network."


def reasons(subjects: Sequence[Subject], part: str) -> list[str]:
    """Why a part was not measured; in a comparison, of whom."""
    several = len(subjects) > 1
    found = ((each, getattr(each.measured, part)) for each in subjects)
    return [
        f"{each.name}: {value.reason}" if several else value.reason
        for each, value in found
        if isinstance(value, Missing)
    ]


def missing_shown(name: str, title: str, why: Sequence[str]) -> Shown:
    """A figure that is not there, and why."""
    return Shown(name, title, missing="\n".join(dict.fromkeys(why)) or NO_LAYER)
