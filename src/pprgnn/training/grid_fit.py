"""Systems that learn without a gradient: they try every choice of a few settings, and keep the best one."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import Split
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import choose_device, final_metrics, main_metrics, trivial_levels
from pprgnn.training.listener import Listener, Silent
from pprgnn.training.metrics import Meter, predicted_classes
from pprgnn.training.model import Model
from pprgnn.training.optimization import Objective
from pprgnn.training.run import Run
from pprgnn.training.systems import find_system
from pprgnn.training.thresholds import Rule


@dataclass(frozen=True)
class Tried:
    """A choice of all settings, and its scores on rows that it had not seen."""

    number: int
    settings: dict[str, float]
    scores: dict[str, float]
    figure: float  # the largest is chosen


class GridTraining:
    """One run; to be used as :class:`pprgnn.training.loop.Training`.

    Args:
        config: All settings.
        dataset: What to learn from.
        split: Which part of it does what.
        run: The folder to keep it in, or ``None``.
        listener: Is told how it goes, in notes.
    """

    model: Model
    undefined: str  # what is said when the main metric cannot be computed

    def __init__(
        self,
        config: Config,
        dataset: GraphDataset,
        split: Split,
        *,
        run: Run | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.config, self.dataset, self.split, self.run = config, dataset, split, run
        self.listener, self.settings = listener or Silent(), config.training
        self.title = find_system(config.model.system).title
        self.device = choose_device(self.settings.device)
        self.metrics = main_metrics(config, dataset.facts)
        self.rule = Rule.of(self.settings.threshold, split, dataset.facts.multi_label)
        self.tried: list[Tried] = []

    def fit(self, *, resume: bool = False) -> dict[str, Any]:
        """Choose, fit, score; return the summary. A run that was stopped starts again."""
        if self.run is not None and resume:
            self.run.rewind(0)
        self.tried, started = [], time.perf_counter()
        found = self._fit()
        summary = self._summary() | found | {"seconds": time.perf_counter() - started}
        if self.run is not None:
            self.model.save(self.run.model_path)
            self.run.finish(summary)
        self.listener.finished(summary)
        return summary

    def _fit(self) -> dict[str, Any]:
        """Try all, keep the best; return ``scores`` and whatever else of the summary is known here alone."""
        raise NotImplementedError

    @property
    def best(self) -> Tried | None:
        """Of equals the first; ``None``: nothing was tried."""
        return max(self.tried, key=lambda each: each.figure, default=None)

    def _try(self, settings: dict[str, float], logits: Tensor, y: Tensor, seconds: float) -> Tried:
        """Score a choice, and write a line."""
        meter = self._meter(logits, y, self.metrics)
        scores = meter.scores(meter.best_threshold(self.rule))
        figure = -scores["loss"] if self.settings.monitor == "loss" else scores[self.metrics[0]]
        if math.isnan(figure):
            raise TrainingError(self.undefined)
        tried = Tried(len(self.tried) + 1, settings, scores, figure)
        self.tried.append(tried)
        best = self.best or tried
        if self.run is not None:
            record = {"epoch": tried.number, **settings, "val": scores, "best": best.figure}
            self.run.append(record | {"best_epoch": best.number, "seconds": seconds})
        return tried

    def _meter(self, logits: Tensor, y: Tensor, metrics: Sequence[str]) -> Meter:
        several = self.dataset.facts.multi_label
        meter = Meter(multi_label=several, metrics=metrics)
        meter.add(logits, y, Objective(several)(logits, y))
        return meter

    def _scores(self, parts: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
        """Of logits and labels of every part, as far as it has rows; and which classes are predicted for test."""
        facts, threshold = self.dataset.facts, self.model.threshold
        metrics = final_metrics(self.config, facts)
        parts = {part: rows for part, rows in parts.items() if len(rows[0])}
        tested = parts.get("test")
        return {
            "scores": {part: self._meter(*rows, metrics).scores(threshold) for part, rows in parts.items()},
            "predicted": predicted_classes(*tested, facts, threshold=threshold) if tested else None,
        }

    def _summary(self) -> dict[str, Any]:
        """What all of them have in common with a network's."""
        facts, best = self.dataset.facts, self.best
        tested = self.dataset.labels()[self.split.masks(self.dataset)["test"]]
        metrics = final_metrics(self.config, facts)
        return {
            "finished": True,
            "data": facts.title,
            "note": facts.note,
            "protocol": self.split.protocol,
            "split": self.split.description,
            "fold": self.config.data.fold,
            "seed": self.settings.seed,
            "metric": self.metrics[0],
            "threshold": self.model.threshold.to_dict() if facts.multi_label else None,
            "trivial": trivial_levels(self.model.prior, tested, facts.multi_label, metrics),
            "epochs": max(len(self.tried), 1),
            "best_epoch": best.number if best else 1,
            "best": best.figure if best else None,
            "layers": [],
            "processes": 1,
            "warnings": [],
        }
