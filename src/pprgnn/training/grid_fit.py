"""Systems that learn without a gradient: they try every choice of a few settings, and keep the best one.

Label propagation is one of them; graph kernels are in :mod:`pprgnn.training.kernel_fit`.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pprgnn.baselines.label_propagation import LabelPropagationNet
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import Split
from pprgnn.training.base import BaseTraining
from pprgnn.training.build import Shape, build_network, features
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import final_metrics, prior_logits, score_parts
from pprgnn.training.label_input import VisibleLabels
from pprgnn.training.listener import Listener
from pprgnn.training.metrics import Meter, best_threshold
from pprgnn.training.model import Model, forward
from pprgnn.training.optimization import Objective
from pprgnn.training.run import Run
from pprgnn.training.systems import find_system

NEGLIGIBLE = 1e-7  # weight of a step that is left out


@dataclass(frozen=True)
class Tried:
    """A choice of all settings, and its scores on rows that it had not seen."""

    number: int
    settings: dict[str, float]
    scores: dict[str, float]
    figure: float  # the largest is chosen


class GridTraining(BaseTraining):
    """One run; made and used as :class:`pprgnn.training.loop.Training`; its listener is told in notes alone."""

    def __init__(
        self,
        config: Config,
        dataset: GraphDataset,
        split: Split,
        *,
        run: Run | None = None,
        listener: Listener | None = None,
    ) -> None:
        super().__init__(config, dataset, split, run, listener)
        self.title = find_system(config.model.system).title
        self.tried: list[Tried] = []

    def fit(self, *, resume: bool = False) -> dict[str, Any]:
        """Choose, fit, score; return the summary. A run that was stopped starts again."""
        if self.run is not None and resume:
            self.run.rewind(0)
        self.tried, started = [], time.perf_counter()
        found, best = self._fit(), self.best
        chosen = {"best_epoch": best.number if best else 1, "best": best.figure if best else None}
        found |= {"epochs": max(len(self.tried), 1), "seconds": time.perf_counter() - started} | chosen
        summary = self.summary(found)
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
        several = self.dataset.facts.multi_label
        meter = Meter(multi_label=several, metrics=self.metrics)
        meter.add(logits, y, Objective(several)(logits, y))
        scores = meter.scores(meter.best_threshold(self.rule))
        tried = Tried(len(self.tried) + 1, settings, scores, self.figure(scores))
        self.tried.append(tried)
        best = self.best or tried
        if self.run is not None:
            record = {"epoch": tried.number, **settings, "val": scores, "best": best.figure}
            self.run.append(record | {"best_epoch": best.number, "seconds": seconds})
        return tried

    def _scores(self, *parts: tuple[str, Tensor, Tensor]) -> dict[str, Any]:
        """Of logits and labels of some parts; and which classes are predicted for test."""
        scores, predicted = score_parts(self.model, parts, final_metrics(self.config, self.dataset.facts))
        return {"scores": scores, "predicted": predicted.get("test")}


# ----------------------------------------------------------------------------------------------- label propagation
class LabelTraining(GridTraining):
    """One run of label propagation on one graph with labels of nodes; ``data.features`` play no part."""

    def __init__(self, config: Config, dataset: GraphDataset, split: Split, **options: Any) -> None:
        super().__init__(config, dataset, split, **options)
        facts = dataset.facts
        if len(dataset) != 1 and facts.task == "node":
            raise TrainingError(
                f"{self.title} takes labels from nodes to others of the same graph, but {facts.name} has "
                f"{len(dataset)} graphs; use a network."
            )
        self.masks = {part: mask.to(self.device) for part, mask in split.masks(dataset).items()}
        self.chooses &= bool(self.masks[self.monitored].any())
        train = split.masks(dataset)["train"]
        visible = VisibleLabels.of(dataset, train, "labels") if facts.task == "node" else None
        x = features(dataset, "labels", visible) if visible else torch.empty(0, 0)
        assert x is not None
        shape = Shape.of(dataset, x, bound=visible is not None)
        network = build_network(config.model, shape).to(self.device)  # which refuses labels of graphs
        assert isinstance(network, LabelPropagationNet)
        assert visible is not None
        network.several.fill_(facts.multi_label)
        network.prior.copy_(visible.rows.float().mean(0))
        self.network, self.x, self.share = network, x.to(self.device), len(visible.nodes) / dataset.num_nodes
        self.model = Model(network, config, facts, shape, "labels", visible)
        self.model.prior = prior_logits(dataset.labels()[train], shape.num_classes)

    def _fit(self) -> dict[str, Any]:
        if self.chooses:
            self._try_all()
        best = self.best
        chosen = best.settings if best else self._settings()[0]
        self._choose(chosen)
        return self._scored() | {
            "chosen": chosen,
            "chosen_by": f"the {self.monitored} part" if best else "the order of the settings",
            "parameters": 0,  # none that is learned from labels by descent
        }

    def _settings(self) -> list[dict[str, float]]:
        """All that can be chosen."""
        net = self.network
        every = itertools.product(net.spreads, net.dampings, net.prior_weights)
        return [{"by_rows": float(a == "row"), "damping": b, "prior_weight": c} for a, b, c in every]

    def _choose(self, settings: dict[str, float]) -> None:
        values = (settings["damping"], settings["prior_weight"] * self.share, settings["by_rows"])
        self.network.chosen.copy_(torch.tensor(values))

    @torch.no_grad()
    def _try_all(self) -> None:
        mask = self.masks[self.monitored]
        y = self.dataset.labels().to(self.device)[mask]
        by_rows, states = math.nan, dict[float, Tensor]()
        for settings in self._settings():
            started = time.perf_counter()
            self._choose(settings)
            if settings["by_rows"] != by_rows:
                by_rows, states = settings["by_rows"], self._states(mask)
            logits = self.network.decode(states[settings["damping"]])
            self._try(settings, logits, y, time.perf_counter() - started)

    def _states(self, mask: Tensor) -> dict[float, Tensor]:
        """What arrives at the nodes under a mask, for each damping: all of them share their products."""
        net, rows = self.network, mask.nonzero().flatten()
        adj = self.model.batches(self.dataset).adj
        assert adj is not None
        rows = rows if adj.rank is None else adj.rank[rows]  # all steps are in the inner order of nodes
        weights = {damping: net.weights(damping) for damping in net.dampings}
        states = {damping: torch.zeros(len(rows), self.x.size(1), device=self.device) for damping in weights}
        term = adj.permute(self.x).clone()  # which is written over
        spare = torch.empty_like(term)
        for step in range(net.steps + 1):
            if step:
                term, spare = adj.product(term, out=spare), term
            for damping, factors in weights.items():
                if factors[step] > NEGLIGIBLE:
                    states[damping].add_(term[rows], alpha=factors[step])
        return states

    def _scored(self) -> dict[str, Any]:
        """The scores of all parts; of the training part, of a fifth of the nodes while their labels are hidden."""
        batches = self.model.batches(self.dataset)
        assert batches.y is not None
        assert self.model.visible is not None
        order = torch.Generator().manual_seed(self.settings.seed)
        fold = next(iter(self.model.visible.folds(self.dataset.num_nodes, order))).to(self.device)
        hidden = batches.batch(batches.all_graphs(), fold, hide=True)
        with torch.no_grad():
            unseen = forward(self.network, hidden)
        logits, (val, test) = self.model.evaluate(batches)[0], (self.masks["val"], self.masks["test"])
        self.model.threshold = best_threshold(logits[val], batches.y[val], self.rule)
        others = (("val", logits[val], batches.y[val]), ("test", logits[test], batches.y[test]))
        return self._scores(("train", unseen, hidden.y), *others)
