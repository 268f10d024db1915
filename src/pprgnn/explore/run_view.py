"""One run, ready for questions: what it predicts for every row, how deep it goes, and from which inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.nn.norm import GraphNorm, PairNorm

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.buffers import release_buffers
from pprgnn.core.depth import Fixed
from pprgnn.core.solution import Status
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import PARTS
from pprgnn.explore.dataset_view import GRAPHS_KEPT, DatasetView
from pprgnn.explore.local import LocalGraph
from pprgnn.explore.traced import LinearGraph, Traced, WholeGraph, check_asker, follow_biases, is_linear
from pprgnn.local.neighbourhood import NotWorthwhile
from pprgnn.nn.infinite_layer import infinite_layers, set_tolerance
from pprgnn.nn.ppr_conv import PPRConv
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import main_metrics
from pprgnn.training.listener import Announce, silent
from pprgnn.training.memory import memory_budget, plan_terms
from pprgnn.training.model import Model, at_depths, head
from pprgnn.training.optimization import collected_warnings
from pprgnn.training.reach import stages
from pprgnn.training.run import Run
from pprgnn.training.systems import find_system

AT_ONCE = 3e7  # numbers that a way back may compute: a quarter of a second, about
MOST_LEVELS = 1 << 30  # bytes


# ------------------------------------------------------------------------------------------------------- one graph
class GraphView:
    """Answers for the rows of one graph: their logits at every depth, and which inputs these come from."""

    def __init__(self, view: RunView, graph: int, say: Announce) -> None:
        self.model, self.layers, self.terms, self.depths = view.model, view.settled, view.terms, view.depths
        self.batch = view.batches.batch(torch.tensor([graph], device=view.model.device))
        self.logits = view.logits[view.known.rows(graph)]
        self._way = self._way_back(say)
        before = () if isinstance(self._way, LinearGraph) else self.depths[:-1]
        self._formed = [self._at(depth, say) for depth in before]
        release_buffers()

    # ----------------------------------------------------------------------------------------------------- depths
    def _at(self, depth: int, say: Announce) -> Tensor:
        """Logits of all rows at a depth, or the states they are made of where these are smaller."""
        say(f"Preparing depth {depth} of {self.depths[-1]} ...")
        network, batch = self.model.network, self.batch
        with at_depths((layer, min(depth, deepest)) for layer, deepest in self.layers), torch.no_grad():
            state = network.encode(batch.x, batch.edges, batch.edge_weight)
            by_rows = batch.graph is None and state.size(1) < self.logits.size(1)
            return state if by_rows else head(network, batch, state).cpu()

    def formed(self, row: int) -> Tensor:
        """The logits of a row at each depth, the last of them included."""
        last = self.logits[row : row + 1]
        if isinstance(self._way, LinearGraph):
            return torch.cat([self._way.formed(row, self.depths[:-1]), last])
        rows = [kept[row : row + 1] for kept in self._formed]
        with torch.no_grad():
            parts = [
                each if each.size(1) == last.size(1) else self.model.network.decode(each).cpu() for each in rows
            ]
        return torch.cat([*parts, last])

    # ------------------------------------------------------------------------------------------------ attribution
    def trace(self, row: int, target: int, all_nodes: bool = False) -> Traced:
        """Where the score of a class comes from: gradient × input.

        On large graphs only some nodes are followed, unless all are asked for.
        """
        return self._way.trace(row, target, all_nodes)

    def _way_back(self, say: Announce) -> WholeGraph | LinearGraph | LocalGraph:
        """Through the whole graph if that is quick, otherwise by the quickest way that the network allows."""
        batch, convs = self.batch, cast("Sequence[tuple[PPRConv, int]]", self.layers)
        each_row = sum((layer.out_channels or 0) * (depth + 1) for layer, depth in convs) or 1
        num_nodes = len(self.logits)
        if batch.graph is not None or num_nodes * each_row <= AT_ONCE or not self._treats_rows_alone():
            return WholeGraph(self.model, batch, self._cut())
        if is_linear(self.model.network) and (convs[0][1] + 2) * num_nodes * 4 <= MOST_LEVELS:
            return LinearGraph(self.model, batch, *convs[0])
        say("Keeping the states of all levels ...")
        return LocalGraph(self.model, batch, convs, self.terms, max(int(AT_ONCE / each_row), 1))

    def _treats_rows_alone(self) -> bool:
        """Whether all but the recursions is done row by row, so that some can be followed alone."""
        try:
            found = stages(self.model.network)
        except NotWorthwhile:
            return False
        return isinstance(self.batch.edges, Adjacency) and all(
            stage.conv.activation.from_output for stage in found
        )

    def _cut(self) -> str:
        cut = [depth for layer, depth in self.layers if layer.has_terms and depth >= (self.terms or depth + 1)]
        if not cut:
            return ""
        return (
            f"Memory allows {self.terms} of {max(cut) + 1} terms of the gradient, so influence over longer ways "
            f"is missing."
        )


# --------------------------------------------------------------------------------------------------------- the run
@dataclass(frozen=True)
class Opened:
    """A run that could be opened."""

    path: Path
    model: Model
    dataset: GraphDataset
    run: Run | None  # if the data set is the one it was trained on


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
        masks = None if opened.run is None else opened.run.split.masks(known.dataset)
        self.rows = {} if masks is None else {part: masks[part].nonzero().flatten() for part in PARTS}
        self._codes = torch.full((len(self.logits),), -1, dtype=torch.int8)  # the part of each row
        for code, part in enumerate(self.rows):
            self._codes[self.rows[part]] = code
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
        for module in network.modules():
            module.register_forward_pre_hook(check_asker)

    def _graph(self, graph: int) -> GraphView:
        return GraphView(self, graph, self._say if len(self.known.dataset) == 1 else silent)

    # ---------------------------------------------------------------------------------------------------- answers
    def chosen(self, logits: Tensor) -> list[str]:
        """What is predicted for one row of logits."""
        decided, names = self.model.decide(logits), self.model.facts.class_names
        if self.model.facts.multi_label:
            return [names[each] for each in decided.nonzero().flatten().tolist()]
        return [names[int(decided)]]

    def part(self, row: int) -> str | None:
        """Which part of the split a row belongs to."""
        code = int(self._codes[row])
        return None if code < 0 else PARTS[code]

    def describe(self, graph: int, node: int | None) -> dict[str, Any]:
        """What is known and what is predicted."""
        row = self.known.row(graph, node)
        return {
            "name": self.known.name(graph, node),
            "predicted": self.chosen(self.logits[row]),
            "truth": self.known.truth(row),
            "part": self.part(row),
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
