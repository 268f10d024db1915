"""Label propagation: nothing is learned, but how far labels go is chosen on the validation part."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import torch
from torch import Tensor

from pprgnn.baselines.label_propagation import LabelPropagationNet
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import Split
from pprgnn.distributed.team import Team
from pprgnn.training.build import Shape, build_network, features
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import prior_logits
from pprgnn.training.grid_fit import GridTraining
from pprgnn.training.label_input import VisibleLabels
from pprgnn.training.metrics import best_threshold
from pprgnn.training.model import Model, forward

NEGLIGIBLE = 1e-7  # weight of a step that is left out


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
        # As with networks, without a validation part the test part chooses, and the summary says so.
        self.monitored = "test" if split.optimistic else "val"
        self.chooses = self.settings.monitor != "last" and bool(self.masks[self.monitored].any())
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
        self.undefined = (
            f"The {self.metrics[0]} of the {self.monitored} part cannot be computed, because all of its labels "
            f"are alike; divide differently, change training.metric, or set training.monitor=loss."
        )

    def _fit(self) -> dict[str, Any]:
        if self.chooses:
            self._try_all()
        best = self.best
        chosen = best.settings if best else self._settings()[0]
        self._choose(chosen)
        return self._scored() | {
            "test_chose_the_epoch": self.split.optimistic and self.chooses,
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
        found = {"train": (unseen, hidden.y)}
        logits, _ = self.model.evaluate(batches)
        found |= {part: (logits[self.masks[part]], batches.y[self.masks[part]]) for part in ("val", "test")}
        self.model.threshold = best_threshold(*found["val"], self.rule, Team.alone())
        return self._scores(found)
