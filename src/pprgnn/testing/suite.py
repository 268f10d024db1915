"""The suite: all checks, one by one or together, and what came out of them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from textwrap import shorten
from unittest import SkipTest

import torch

from pprgnn.testing import module_checks, value_checks
from pprgnn.testing.trial import Factory, Trial, set_seed

WIDTH = 110  # of a reason in the table


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


@dataclass(frozen=True)
class Check:
    """One check: called with a factory it returns, fails with an AssertionError or skips with a SkipTest.

    Attributes:
        function: What is done with a :class:`~pprgnn.testing.trial.Trial`.
    """

    function: Callable[[Trial], None]

    @property
    def __name__(self) -> str:  # pytest takes it as the id of a parameter
        return self.function.__name__

    @property
    def sentence(self) -> str:
        """What must hold."""
        return self.function.__doc__ or ""

    def __call__(
        self, factory: Factory, *, in_channels: int = 4, out_channels: int = 8, tol: float = 1e-6
    ) -> None:
        """Run it on layers from the factory; the arguments are those of :func:`check_conv`."""
        self.run(Trial(factory, in_channels, out_channels, tol))

    def run(self, trial: Trial) -> None:
        """Run it; random numbers elsewhere are not disturbed."""
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            # PyG's advice about speed to whoever gives it a COO matrix, as a check does.
            warnings.filterwarnings("ignore", message="Converting sparse tensor to CSR format")
            set_seed(0)
            self.function(trial)


def conv_checks() -> list[Check]:
    """All checks, for example as ``pytest.mark.parametrize`` takes them: each is called with a factory."""
    return [
        Check(function)
        for room in (value_checks, module_checks)
        for name, function in vars(room).items()
        if not name.startswith("_") and inspect.isfunction(function) and function.__module__ == room.__name__
    ]


def check_conv(
    factory: Factory,
    *,
    in_channels: int = 4,
    out_channels: int = 8,
    expected_failures: Mapping[str, str] | None = None,
    tol: float = 1e-6,
    skip: Collection[str] = (),
) -> Report:
    """Check that a convolution does what users of PyTorch Geometric rely on.

    Args:
        factory: Called with ``(in_channels, out_channels)`` it returns a fresh layer; often the class itself.
        in_channels: Size of each input sample.
        out_channels: Size of each output sample.
        expected_failures: Names of checks that the layer is known to fail, each with the reason.
        tol: How far values that must agree may differ, relative to the largest; they are computed in double
            precision, and layers with an attribute ``tol`` are told to solve more exactly.
        skip: Names of checks to leave out.

    Returns:
        A report of every check; as text a table.

    Raises:
        ConformanceError: A check failed, or one that was expected to fail passed.

    Example:
        >>> from pprgnn.nn import PPRConv
        >>> from pprgnn.testing import check_conv
        >>> report = check_conv(PPRConv)
        >>> print(report["permutation"].outcome.value)
        passed
    """
    expected = dict(expected_failures or {})
    checks = conv_checks()
    names = [check.__name__ for check in checks]
    unknown = sorted({*expected, *skip} - set(names))
    if unknown:
        raise ValueError(f"There is no check {', '.join(unknown)}; the checks are {', '.join(names)}.")
    results, trial = [], Trial(factory, in_channels, out_channels, tol)
    conv = _name(trial)
    for check in checks:
        name = check.__name__
        if name in skip:
            results.append(Result(name, Outcome.SKIPPED, "left out on request"))
            continue
        outcome, reason = _outcome(check, trial)
        if name in expected and outcome is Outcome.FAILED:
            outcome, reason = Outcome.EXPECTED_FAILURE, expected[name]
        elif name in expected and outcome is Outcome.PASSED:
            outcome, reason = Outcome.UNEXPECTED_PASS, f"It was expected to fail ({expected[name]}), but holds."
        results.append(Result(name, outcome, reason))
    report = Report(conv, tuple(results))
    if report.failures:
        raise ConformanceError(report)
    return report


def _name(trial: Trial) -> str:
    with torch.random.fork_rng(devices=[]):
        conv = trial.conv()
        if trial.conv() is conv:
            raise ValueError("The factory must return a fresh layer each time, but returned the same one twice.")
    return type(conv).__name__


def _outcome(check: Check, trial: Trial) -> tuple[Outcome, str]:
    try:
        check.run(trial)
    except SkipTest as reason:
        return Outcome.SKIPPED, str(reason)
    except AssertionError as failure:
        return Outcome.FAILED, str(failure) or f"{check.sentence} But an assertion without words failed."
    except Exception as error:  # a layer may raise anything; the sentence says what should have held
        return Outcome.FAILED, f"{check.sentence} But {type(error).__name__} came: {error}"
    return Outcome.PASSED, ""
