"""What came out of the checks of one convolution."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from textwrap import shorten

WIDTH = 110


class Outcome(Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "FAILED"
    SKIPPED = "skipped"
    EXPECTED_FAILURE = "expected failure"
    UNEXPECTED_PASS = "UNEXPECTED PASS"

    @property
    def good(self) -> bool:
        """Whether it is as it should be."""
        return self not in (Outcome.FAILED, Outcome.UNEXPECTED_PASS)


@dataclass(frozen=True)
class Result:
    """The outcome of one check, and why when it did not pass."""

    name: str
    outcome: Outcome
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(frozen=True)
class Report:
    """The results of all checks, in order; as text a table."""

    conv: str
    results: tuple[Result, ...]

    @property
    def failures(self) -> list[Result]:
        """The results that are not as they should be."""
        return [result for result in self.results if not result.outcome.good]

    def __getitem__(self, name: str) -> Result:
        """The result of the check of that name."""
        return {result.name: result for result in self.results}[name]

    def __str__(self) -> str:
        names = max(len(result.name) for result in self.results)
        outcomes = max(len(outcome.value) for outcome in Outcome)
        counts = {outcome: sum(r.outcome is outcome for r in self.results) for outcome in Outcome}
        total = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items() if count)
        rows = [
            f"{r.name:<{names}}  {r.outcome.value:<{outcomes}}  {shorten(r.reason, WIDTH)}".rstrip()
            for r in self.results
        ]
        return "\n".join([f"{self.conv}: {total}", *rows])


class ConformanceError(AssertionError):
    """A convolution does not do what its users may rely on; the message says what, check by check."""

    def __init__(self, report: Report) -> None:
        self.report = report
        failures = "\n".join(f"  {failure}" for failure in report.failures)
        super().__init__(
            f"{report.conv} fails {len(report.failures)} of {len(report.results)} checks.\n{failures}"
        )
