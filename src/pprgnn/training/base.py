"""What all ways to train have in common: what they are given, what they are judged by, and their summary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import Split
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import choose_device, final_metrics, main_metrics, trivial_levels
from pprgnn.training.listener import Listener, Silent
from pprgnn.training.model import Model
from pprgnn.training.run import Run
from pprgnn.training.thresholds import Rule


class BaseTraining:
    """One run: from a config and its data to a model and a summary."""

    model: Model
    accept_divergence = False  # ends with the best epoch so far and a warning, where there is one; else: an error

    def __init__(
        self, config: Config, dataset: GraphDataset, split: Split, run: Run | None, listener: Listener | None
    ) -> None:
        self.config, self.dataset, self.split, self.run = config, dataset, split, run
        self.listener, self.settings = listener or Silent(), config.training
        self.device = choose_device(self.settings.device)
        self.metrics = main_metrics(config, dataset.facts)
        self.rule = Rule.of(self.settings.threshold, split, dataset.facts.multi_label)
        # PAPER: without a validation part the test part chooses; the summary says so.
        self.monitored = "test" if split.optimistic else "val"
        self.chooses = self.settings.monitor != "last"

    @property
    def undefined(self) -> str:
        """What is said when the main metric cannot be computed."""
        return (
            f"The {self.metrics[0]} of the {self.monitored} part cannot be computed, because all of its labels "
            f"are alike; divide differently, change training.metric, or set training.monitor=loss."
        )

    def figure(self, scores: Mapping[str, float]) -> float:
        """What is compared; the largest is chosen."""
        figure = -scores["loss"] if self.settings.monitor == "loss" else scores[self.metrics[0]]
        if math.isnan(figure):
            raise TrainingError(self.undefined)
        return figure

    def summary(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What was asked and what it is measured by; then what was found."""
        facts, split = self.dataset.facts, self.split
        tested = self.dataset.labels()[split.masks(self.dataset)["test"]]
        metrics = final_metrics(self.config, facts)
        return {
            "finished": True,
            "data": facts.title,
            "note": facts.note,
            "protocol": split.protocol,
            "split": split.description,
            "fold": self.config.data.fold,
            "seed": self.settings.seed,
            "metric": self.metrics[0],
            "threshold": self.model.threshold.to_dict() if facts.multi_label else None,
            "trivial": trivial_levels(self.model.prior, tested, facts.multi_label, metrics),
            # PAPER: honest runs never let the test part choose; this says when it did.
            "test_chose_the_epoch": split.optimistic and self.chooses,
            "layers": [],
            "processes": 1,
            "warnings": [],
            **found,
        }
