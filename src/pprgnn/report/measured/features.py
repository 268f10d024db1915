"""Which features decide, in the mean over some nodes or graphs of the test part."""

from __future__ import annotations

import time

from pprgnn.report.measured.budget import Allowance
from pprgnn.report.measured.results import FeatureShares, Missing
from pprgnn.report.measured.trained_run import TrainedRun
from pprgnn.training.attribution import FEWEST
from pprgnn.training.errors import TrainingError
from pprgnn.training.explain import check_system
from pprgnn.training.explain_features import SAMPLE, check_features_read, drawn_rows, overall_features

LISTED = 20
PASSES = 6 * FEWEST  # that the features of a decision take at least: gradients, each as long as three passes


def features(trained: TrainedRun, allowance: Allowance) -> FeatureShares | Missing:
    """The shares of the most important ones."""
    each, started = PASSES * trained.pass_seconds, time.perf_counter()

    def go_on(done: int) -> bool:
        return allowance.allows(1.5 * (time.perf_counter() - started) / done)

    try:
        check_system(trained.model)
        check_features_read(trained.model)
        if not allowance.allows(each):
            return allowance.too_long("Which features decide", each)
        rows = drawn_rows(trained.batches, trained.masks[trained.part], SAMPLE)
        found = overall_features(trained.model, trained.batches, rows, go_on)
    except TrainingError as error:
        return Missing(str(error))
    shown = [each for each in found.features[:LISTED] if each.importance > 0]
    if not shown:
        return Missing("No feature adds anything to the decisions that were looked at; biases decide.")
    return FeatureShares(
        [each.name for each in shown],
        [each.share for each in shown],
        len(found.features),
        trained.model.facts.task,
        found.samples,
        found.residual,
    )
