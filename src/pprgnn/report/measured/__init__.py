"""What a report measures on a trained run: :mod:`pprgnn.report.measured.results` has all there is.

Imports neither torch nor PyG until something is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pprgnn.report.measured.kept import keep_measurements, kept_measurements

if TYPE_CHECKING:
    from pprgnn.report.measured.results import Measurements
    from pprgnn.training.run import Run

__all__ = ["keep_measurements", "kept_measurements", "measure"]


def measure(
    run: Run, seconds: float = 30.0, announce: Callable[[str], None] = lambda phrase: None
) -> Measurements:
    """Measure a run that has a model.

    Args:
        run: The run; nothing in its folder is changed.
        seconds: About how long it may take. What does not fit says so, and how to have it.
        announce: Is told what comes next, a phrase each.
    """
    from pprgnn.report.measured.all_parts import measure_all

    return measure_all(run, seconds, announce)
