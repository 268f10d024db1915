"""One run, ready for questions: what it predicts for every row, how deep it goes, and its graphs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.norm import GraphNorm, PairNorm

from pprgnn.core.depth import Fixed
from pprgnn.core.solution import Status
from pprgnn.data.dataset import GraphDataset
from pprgnn.explore.dataset_view import GRAPHS_KEPT, DatasetView, Parts
from pprgnn.explore.graph_view import GraphView
from pprgnn.explore.traced import follow_biases
from pprgnn.nn.infinite_layer import infinite_layers, set_tolerance
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import main_metrics
from pprgnn.training.guard import collected_warnings
from pprgnn.training.listener import Announce, silent
from pprgnn.training.memory import memory_budget, plan_terms
from pprgnn.training.model import Model
from pprgnn.training.run import Run
from pprgnn.training.systems import find_system


@dataclass(frozen=True)
class Opened:
    """A run that could be opened.

    Attributes:
        path: Where it is.
        model, dataset: What is asked, and what about.
        run: Its folder, if the data set is the one it was trained on.
    """

    path: Path
    model: Model
    dataset: GraphDataset
    run: Run | None


class RunView:
    """What the explorer tells about one run. The model is the view's own: it stays as this leaves it."""

    def __init__(self, opened: Opened, index: int, known: DatasetView, say: Announce) -> None:
        self.index, self.name, self.known = index, opened.path.absolute().name, known
        self.model = model = opened.model
        self.title = find_system(model.config.model.system).title
        self.warnings: list[str] = []
        say(f"Evaluating {self.name} on {known.facts.name} ...")
        self.batches = model.batches(known.dataset)
        self.summary = {} if opened.run is None else opened.run.summary or {}
        logits, self.layers = self._evaluated()
        if not bool(torch.isfinite(logits).all()):
            raise TrainingError(
                "The logits of this model are not finite here, so there is nothing to explain; train it with a "
                "smaller training.lr or a larger model.eps."
            )
        self.logits = logits.cpu()
        self.parts = Parts(known, None if opened.run is None else opened.run.split)
        self.depths = offered_depths(max((layer["depth"] for layer in self.layers), default=None))
        self._settle()
        self._say, self.graph = say, lru_cache(GRAPHS_KEPT)(self._graph)
        if len(known.dataset) == 1 and known.by_node:
            self.graph(0)  # all that is asked here

    def _evaluated(self) -> tuple[Tensor, list[dict[str, Any]]]:
        """Logits of all rows, and what is known about the layers."""
        layers, known = infinite_layers(self.model.network), list[dict[str, Any]]()
        if len(self.known.dataset) == 1:  # measuring depths takes several passes: found when the run was scored
            known = [facts for facts in self.summary.get("layers", ()) if _is_whole(facts)]
        depths = {facts["layer"]: facts["depth"] for facts in known}
        if is_known := bool(layers) and depths.keys() == {name for name, _ in layers}:
            for name, layer in layers:
                layer.depth_rule = Fixed(depths[name])
        with collected_warnings(self.warnings.append, set()):
            logits, found = self.model.evaluate(self.batches)
        return logits, known if is_known else found

    def _settle(self) -> None:
        """From here on the layers go as deep as was found, and gradients flow to inputs and biases alone."""
        network, found = self.model.network, {layer["layer"]: layer["depth"] for layer in self.layers}
        network.eval()
        set_tolerance(network, self.model.config.training.eval_tol)
        self.settled = [(layer, found[name]) for name, layer in infinite_layers(network) if name in found]
        cut = [(layer, depth) for layer, depth in self.settled if layer.has_terms]
        budget = memory_budget(None, self.model.device)
        self.terms, checkpoint = plan_terms(cut, int(self.known.sizes.max()), budget)
        for layer, depth in self.settled:
            layer.depth_rule, layer.grad_terms, layer.checkpoint = Fixed(depth), self.terms, checkpoint
        follow_biases(network)

    def _graph(self, graph: int) -> GraphView:
        return GraphView(self, graph, self._say if len(self.known.dataset) == 1 else silent)

    # ---------------------------------------------------------------------------------------------------- answers
    def chosen(self, logits: Tensor) -> list[str]:
        """What is predicted for one row of logits."""
        decided, names = self.model.decide(logits), self.model.facts.class_names
        if self.model.facts.multi_label:
            return [names[each] for each in decided.nonzero().flatten().tolist()]
        return [names[int(decided)]]

    def describe(self, graph: int, node: int | None) -> dict[str, Any]:
        """What is known and what is predicted."""
        row = self.known.row(graph, node)
        return {
            "name": self.known.name(graph, node),
            "predicted": self.chosen(self.logits[row]),
            "truth": self.known.truth(row),
            "part": self.parts.of(row),
        }

    def reach(self, depth: int) -> int | None:
        """How many hops a row sees when no layer goes deeper; ``None``: all of the graph."""
        if any(isinstance(each, GraphNorm | PairNorm) for each in self.model.network.modules()):
            return None
        hops: int = sum(
            min(depth, deepest) * getattr(layer, "hops", 1) + bool(getattr(layer, "smooth_input", False))
            for layer, deepest in self.settled
        )
        return hops

    def to_dict(self) -> dict[str, Any]:
        """For the list of runs."""
        known, model = self.known, self.model
        metric = main_metrics(model.config, model.facts)[0]
        scores = self.summary.get("scores", {})
        return {
            "index": self.index,
            "name": self.name,
            "system": model.config.model.system,
            "title": self.title,
            "data": known.facts.title,
            "task": known.facts.task,
            "multi_label": model.facts.multi_label,
            "num_graphs": len(known.dataset),
            "num_nodes": int(known.sizes.sum()),
            "num_edges": known.dataset.num_edges,
            "classes": list(model.facts.class_names),
            "has_features": model.shape.num_nodes is None,
            "metric": metric,
            "scores": {part: scores[part].get(metric) for part in ("val", "test") if part in scores},
            "test_chose_the_epoch": bool(self.summary.get("test_chose_the_epoch", False)),
            "layers": [_layer(each) for each in self.layers],
            "depths": self.depths,
            "note": " ".join([text for text in (known.facts.note, *self.warnings) if text]),
        }


def offered_depths(deepest: int | None) -> list[int]:
    """Every depth at first, then ever fewer, and the deepest."""
    if deepest is None:
        return []
    depths, depth, step = list(range(min(deepest, 7))), 8, 2
    while depth < deepest:
        depths.append(depth)
        depth += step
        if depth >= 8 * step:
            step *= 2
    return [*depths, deepest]


def _is_whole(facts: Any) -> bool:
    """Whether all is there that a summary should tell about a layer."""
    try:
        return Status[_layer(facts)["status"]] is not None and int(facts["depth"]) >= 0
    except (KeyError, TypeError, ValueError):
        return False


def _layer(facts: dict[str, Any]) -> dict[str, Any]:
    numbers = {key: facts[key] for key in ("truncation_bound", "eps", "weight_norm")}
    return {
        "layer": facts["layer"],
        "depth": facts["depth"],
        "status": facts["status"],
        "sentence": Status[facts["status"]].value,
        **{key: value if value is not None and math.isfinite(value) else None for key, value in numbers.items()},
    }
