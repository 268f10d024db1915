"""All measurements on one run, the important and cheap ones first, in the time that there is."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from pprgnn.core.solution import ConvergenceWarning
from pprgnn.report.measured.baselines import baselines
from pprgnn.report.measured.budget import Allowance
from pprgnn.report.measured.classes import classes
from pprgnn.report.measured.convergence import convergence
from pprgnn.report.measured.cost import cost
from pprgnn.report.measured.decay import decay
from pprgnn.report.measured.features import features
from pprgnn.report.measured.kept import fingerprint
from pprgnn.report.measured.reach import reach
from pprgnn.report.measured.results import Measurements, Missing
from pprgnn.report.measured.smoothing import smoothing
from pprgnn.report.measured.trained_run import TrainedRun
from pprgnn.report.measured.truncation import truncation
from pprgnn.training.environment import environment
from pprgnn.training.listener import Announce, silent
from pprgnn.training.run import Run
from pprgnn.wording import counted

Part = Callable[[TrainedRun, Allowance], Any]
# What each part is called, and its share of the time that is left when its turn comes, beside those after it.
PARTS: tuple[tuple[str, Part, str, float], ...] = (
    ("classes", classes, "scores by class", 0.0),
    ("baselines", baselines, "scores to compare with", 0.0),
    ("decay", decay, "decay", 0.0),
    ("convergence", convergence, "error against depth", 3.0),
    ("reach", reach, "reach of decisions", 3.0),
    ("truncation", truncation, "gradients of few terms", 2.0),
    ("smoothing", smoothing, "over-smoothing", 2.0),
    ("features", features, "features that decide", 2.0),
    ("cost", cost, "time and memory", 2.0),
)
MARGIN = 1.2  # over what a part expects to take
FROM_LABELS = "baselines"  # needs no network


def measure(run: Run, seconds: float = 30.0, announce: Announce = silent) -> Measurements:
    """Measure a run that has a model.

    Args:
        run: The run; nothing in its folder is changed.
        seconds: About how long it may take. What does not fit says so, and how to have it.
        announce: Is told what comes next, a phrase each.
    """
    started = time.perf_counter()
    announce("model and data")
    found: dict[str, Any] = {}
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore", ConvergenceWarning)  # what is known of each solve is among the results
        trained = TrainedRun(run)
        for number, (name, part, phrase, weight) in enumerate(PARTS):
            announce(phrase)
            if trained.trouble is not None and name != FROM_LABELS:
                found[name] = trained.trouble
                continue
            left = max(started + seconds - time.perf_counter(), 0.0)
            share = weight / sum(each[3] for each in PARTS[number:])
            one = part(trained, Allowance(left * share, seconds, run.folder))
            if isinstance(one, Missing) and one.seconds is not None and MARGIN * one.seconds <= left:
                # On a large graph, a few parts are better than a share of the time for each and none of them.
                one = part(trained, Allowance(MARGIN * one.seconds, seconds, run.folder))
            found[name] = one
    facts = environment()
    return Measurements(
        fingerprint=fingerprint(run.model_path),
        seconds=time.perf_counter() - started,
        allowed=seconds,
        commit=facts["commit"],
        date=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        machine=f"{facts['cpu'] or 'unknown processor'}, {counted(torch.get_num_threads(), 'thread')}",
        **found,
    )
