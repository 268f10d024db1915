"""How long a part of the measurements may take, and what is said when that is too short."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from pprgnn.report.measured.results import Missing

TIMED_PARTS = 6  # that take time: each gets about so much of what is there


@dataclass(frozen=True)
class Allowance:
    """The time for one part, which begins now.

    Attributes:
        seconds: For this part.
        asked: For all parts together.
        folder: Of the run.
    """

    seconds: float
    asked: float
    folder: Path
    started: float = field(default_factory=time.perf_counter)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.perf_counter() - self.started)

    def allows(self, seconds: float) -> bool:
        """Whether so much is left."""
        return seconds <= self.left

    def among(self, count: int) -> Allowance:
        """An equal share of what is left, for one of so many."""
        return replace(self, seconds=self.left / count, started=time.perf_counter())

    def too_long(self, what: str, seconds: float) -> Missing:
        """It is not measured, because it would take so long; and how to have it measured."""
        enough = self.asked + TIMED_PARTS * max(seconds - max(self.left, 0.0), 1.0)
        return Missing(
            f"{what} would take about {math.ceil(seconds)} s; `pprgnn report {self.folder} --seconds "
            f"{10 * math.ceil(enough / 10)}` measures it.",
            seconds,
        )
