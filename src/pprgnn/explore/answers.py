"""Questions in, plain values out: what the page asks for, as JSON can hold it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pprgnn import __version__
from pprgnn.errors import DataError
from pprgnn.explore.errors import NotThereError
from pprgnn.explore.graph_view import GraphView
from pprgnn.explore.known import Known
from pprgnn.explore.picture import chosen_nodes, edges_among, largest
from pprgnn.explore.run_view import Opened, RunView, Say
from pprgnn.explore.suggestions import suggestions
from pprgnn.explore.traced import Traced
from pprgnn.training.errors import TrainingError
from pprgnn.training.explain import MOST_OF_IT
from pprgnn.training.explain_features import explain_features

MOST_CLASSES = 20
LIMIT = 150  # nodes that the page draws
FEATURES = 12  # that the page lists
KEPT = 50  # explanations that are not found again
CLASS = "class:"


class Answers:
    """All that the page can ask.

    Args:
        opened: The runs, all on the first one's data set.
        problems: Sentences about runs that could not be opened.
        say: Is told what is being prepared.
    """

    def __init__(self, opened: Sequence[Opened], problems: Sequence[str], say: Say) -> None:
        self.known = Known(opened[0].dataset)
        self.problems, self.views = list(problems), list[RunView]()
        for each in opened:
            self._add(each, len(opened) == 1, say)
        if not self.views:
            raise TrainingError(f"None of the runs can be shown. {self.problems[0]}")
        self.explain, self.features = lru_cache(KEPT)(self._explain), lru_cache(KEPT)(self._features)
        say("Looking for nodes worth a look ...")
        self.suggestions = suggestions(self.views[0])
        if self.suggestions:  # the page begins with it
            first = self.suggestions[0]
            self.explain(0, first["graph"], first["node"], None, None, LIMIT, False)
            self.known.names(first["graph"]).search("", 1)

    def _add(self, opened: Opened, alone: bool, say: Say) -> None:
        try:
            self.views.append(RunView(opened, len(self.views), self.known, say))
        except DataError as error:
            if alone:
                raise
            self.problems.append(f"{opened.path}: {error}")

    def runs(self) -> dict[str, Any]:
        """What was opened."""
        return {
            "runs": [view.to_dict() for view in self.views],
            "problems": self.problems,
            "suggestions": self.suggestions,
            "version": __version__,
        }

    # ----------------------------------------------------------------------------------------------------- search
    def search(self, q: str, graph: int, run: int, limit: int) -> dict[str, Any]:
        """Nodes by name or by class; on graph tasks, graphs by number."""
        view = self._view(run)
        self.known.check_graph(graph)
        _check_range("limit", limit, 1, 200)
        if q.casefold().startswith(CLASS):
            found = self._of_class(view, q[len(CLASS) :], graph, limit + 1)
        else:
            found = self.known.names(graph).search(q, limit + 1)
        results = []
        for number in found[:limit]:
            place = (graph, number) if self.known.by_node else (number, None)
            results.append({"graph": place[0], "node": place[1], **view.told(*place)})
        return {"results": results, "more": len(found) > limit}

    def _of_class(self, view: RunView, wanted: str, graph: int, limit: int) -> list[int]:
        """Predicted to be of a class whose name starts so; the surest first."""
        wanted, names = wanted.strip().casefold(), [name.casefold() for name in view.model.facts.class_names]
        classes = [i for i, name in enumerate(names) if name == wanted]
        classes = classes or [i for i, name in enumerate(names) if name.startswith(wanted)]
        if not classes:
            return []
        rows = view.logits
        if self.known.by_node:
            start = int(self.known.starts[graph])
            rows = rows[start : start + int(self.known.sizes[graph])]
        if not len(rows):
            return []
        if view.model.facts.multi_label:
            chosen = view.model.decide(rows)[:, classes].any(1).nonzero().flatten()
            sure = rows[chosen][:, classes].amax(1)
        else:
            chosen = torch.isin(rows.argmax(1), torch.tensor(classes)).nonzero().flatten()
            sure = view.probabilities(rows[chosen])[:, classes].amax(1)
        found: list[int] = chosen[sure.topk(min(limit, len(chosen))).indices].tolist()
        return found

    # ----------------------------------------------------------------------------------------------- explanations
    def _explain(
        self,
        run: int,
        graph: int,
        node: int | None,
        name: str | None,
        target: int | None,
        limit: int,
        all_nodes: bool = False,
    ) -> dict[str, Any]:
        """Why a node, or on graph tasks a graph, got its class."""
        begin = time.perf_counter()
        view, node = self._view(run), self.known.find(graph, node, name)
        _check_range("limit", limit, 1, 1000)
        classes = view.model.facts.class_names
        if target is not None:
            _check_range("target", target, 0, len(classes) - 1)
        picture = view.graph(graph)
        row = node or 0
        logits = picture.logits[row]
        target = int(logits.argmax()) if target is None else target
        traced = picture.trace(row, target, all_nodes)
        influence = traced.nodes.abs()
        shares = influence / max(float(influence.sum()), 1e-300)
        answer = {
            "run": run,
            "graph": graph,
            "node": node,
            "name": self.known.name(graph, node),
            "part": view.parts.of(self.known.row(graph, node)),
            "decision": self._decision(view, graph, node, logits, target, traced),
            **_forming(view, picture, row, target),
        }
        if node is None:
            drawn = self._graph_picture(graph, shares, traced.nodes, limit)
        else:
            drawn = self._node_picture(view, graph, node, shares, traced.nodes, limit)
        answer |= drawn
        answer |= {"exact": not traced.left_out, "left_out": traced.left_out, "partial": traced.partial}
        return answer | {"seconds": round(time.perf_counter() - begin, 4)}

    def _features(
        self, run: int, graph: int, node: int | None, name: str | None, target: int | None
    ) -> dict[str, Any]:
        """What the features add to the score of a class: integrated gradients, through the whole graph."""
        view, node = self._view(run), self.known.find(graph, node, name)
        if target is not None:
            _check_range("target", target, 0, len(view.model.facts.class_names) - 1)
        found = explain_features(view.model, self.known.dataset, node, graph=graph, target=target, top=FEATURES)
        return found.to_dict()

    def _view(self, run: int) -> RunView:
        if not 0 <= run < len(self.views):
            raise NotThereError(f"There are runs 0 to {len(self.views) - 1}, but run {run} was asked for.")
        return self.views[run]

    def _decision(
        self, view: RunView, graph: int, node: int | None, logits: Tensor, target: int, traced: Traced
    ) -> dict[str, Any]:
        inputs = float(traced.nodes.sum())
        return {
            "target": target,
            "class": view.model.facts.class_names[target],
            "probability": float(view.probabilities(logits[None])[0, target]),
            "predicted": view.chosen(logits),
            "truth": self.known.truth(self.known.row(graph, node)),
            "score": traced.score,
            "inputs": inputs,
            "biases": traced.biases,
            "rest": traced.score - inputs - traced.biases,
        }

    def _node_picture(
        self, view: RunView, graph: int, node: int, shares: Tensor, contributions: Tensor, limit: int
    ) -> dict[str, Any]:
        readers = self.known.readers(graph)
        distance, before = readers.around(node)
        shown = chosen_nodes(node, shares, distance, before, limit)
        reached = distance >= 0
        hops, farthest = distance[reached], int(distance.max()) + 1
        share = torch.zeros(farthest, dtype=torch.float64).index_add_(0, hops, shares[reached])
        signs = (shares * contributions.sign())[reached]
        signed = torch.zeros(farthest, dtype=torch.float64).index_add_(0, hops, signs)
        counts = torch.bincount(hops, minlength=farthest)
        within = (share.cumsum(0) >= MOST_OF_IT - 1e-9).nonzero().flatten()
        bars = zip(share.tolist(), signed.tolist(), counts.tolist(), strict=True)
        nodes = [
            {
                "node": each,
                **view.told(graph, each),
                "hop": int(distance[each]),
                "share": float(shares[each]) * (-1 if contributions[each] < 0 else 1),
                "contribution": float(contributions[each]),
            }
            for each in shown
        ]
        answer: dict[str, Any] = {
            "hops": [{"hop": i, "share": a, "signed": s, "nodes": n} for i, (a, s, n) in enumerate(bars)],
            "unreachable": {"share": float(shares[~reached].sum()), "nodes": int((~reached).sum())},
            "radius": int(within[0]) if len(within) else None,
            "nodes": nodes,
            "edges": edges_among(readers, shown),
            "shown_share": float(shares[shown].sum()),
        }
        if not view.depths:  # a network of fixed depth sees as far as there is influence
            seen = (share > 0).nonzero().flatten()
            answer["reach"] = [int(seen[-1]) if len(seen) else 0]
        return answer

    def _graph_picture(self, graph: int, shares: Tensor, contributions: Tensor, limit: int) -> dict[str, Any]:
        shown, names = largest(shares, limit), self.known.node_names(graph)
        nodes: list[dict[str, Any]] = [
            {
                "node": each,
                "name": names[each],
                "hop": None,
                "share": float(shares[each]) * (-1 if contributions[each] < 0 else 1),
                "contribution": float(contributions[each]),
                "predicted": [],
                "truth": None,
                "part": None,
            }
            for each in shown
        ]
        return {
            "hops": [],
            "unreachable": {"share": 0.0, "nodes": 0},
            "radius": None,
            "nodes": nodes,
            "edges": edges_among(self.known.readers(graph), shown),
            "shown_share": float(shares[shown].sum()),
        }


def _forming(view: RunView, picture: GraphView, row: int, target: int) -> dict[str, Any]:
    """How the prediction forms as the network looks deeper."""
    formed = picture.formed(row)
    depths: list[int | None] = [*view.depths] or [None]
    probabilities = view.probabilities(formed)
    classes = probabilities[-1].argsort(descending=True, stable=True)[:MOST_CLASSES].tolist()
    if target not in classes:
        classes[-1] = target
    return {
        "classes": classes,
        "by_depth": [
            {"depth": depth, "probabilities": of_all[classes].tolist(), "predicted": view.chosen(logits)}
            for depth, of_all, logits in zip(depths, probabilities, formed, strict=True)
        ],
        "reach": [view.reach(depth) for depth in view.depths] or [None],
    }


def _check_range(name: str, value: int, first: int, last: int) -> None:
    if not first <= value <= last:
        raise TrainingError(f"{name} must be between {first} and {last}, but came as {value}.")
