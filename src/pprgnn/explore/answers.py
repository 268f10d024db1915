"""Questions in, plain values out: what the page asks for, as JSON can hold it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pprgnn import __version__
from pprgnn.core.csr import ranges
from pprgnn.errors import DataError
from pprgnn.explore.dataset_view import DatasetView, NotThereError
from pprgnn.explore.run_view import GraphView, Opened, RunView
from pprgnn.explore.suggestions import suggestions
from pprgnn.explore.traced import Traced
from pprgnn.training.errors import TrainingError
from pprgnn.training.explain import FAR, MOST_OF_IT
from pprgnn.training.explain_features import explain_features
from pprgnn.training.listener import Announce
from pprgnn.training.reach import Readers

MOST_CLASSES = 20
LIMIT = 150  # nodes that the page draws
FEATURES = 12  # that the page lists
KEPT = 50  # explanations that are not found again
CLASS = "class:"
MOST_EDGES = 4000
FAR_SHARE = 5  # every fifth place is for a node far away


@dataclass(frozen=True)
class Question:
    """Which decision is asked about, and for which class instead of the predicted one."""

    run: int = 0
    graph: int = 0
    node: int | None = None
    name: str | None = None
    target: int | None = None


class Kept(dict[tuple[Any, ...], dict[str, Any]]):
    """The last answers, by what was asked; called, it answers and keeps."""

    def __init__(self, answer: Callable[..., dict[str, Any]]) -> None:
        super().__init__()
        self._answer = answer

    def __call__(self, *asked: Any) -> dict[str, Any]:
        found = self.pop(asked, None) or self._answer(*asked)
        self[asked] = found
        for old in list(self)[:-KEPT]:
            self.pop(old, None)
        return found


class Answers:
    """All that the page can ask about these runs, all on the first one's data set.

    ``problems`` are sentences about runs that could not be opened.
    """

    def __init__(self, opened: Sequence[Opened], problems: Sequence[str], say: Announce) -> None:
        self.known = DatasetView(opened[0].dataset)
        self.problems, self.views = list(problems), list[RunView]()
        for each in opened:
            self._add(each, len(opened) == 1, say)
        if not self.views:
            raise TrainingError(f"None of the runs can be shown. {self.problems[0]}")
        self.explain, self.features = Kept(self._explain), Kept(self._features)
        say("Looking for nodes worth a look ...")
        self.suggestions = suggestions(self.views[0])
        if self.suggestions:  # the page begins with it
            first = self.suggestions[0]
            self.explain(Question(0, first["graph"], first["node"]), LIMIT, False)
            self.known.names(first["graph"]).search("", 1)

    def _add(self, opened: Opened, alone: bool, say: Announce) -> None:
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
            results.append({"graph": place[0], "node": place[1], **view.describe(*place)})
        return {"results": results, "more": len(found) > limit}

    def _of_class(self, view: RunView, wanted: str, graph: int, limit: int) -> list[int]:
        """Predicted to be of a class whose name starts so; the surest first."""
        wanted, names = wanted.strip().casefold(), [name.casefold() for name in view.model.facts.class_names]
        classes = [i for i, name in enumerate(names) if name == wanted]
        classes = classes or [i for i, name in enumerate(names) if name.startswith(wanted)]
        if not classes:
            return []
        rows = view.logits[self.known.rows(graph)] if self.known.by_node else view.logits
        if not len(rows):
            return []
        if view.model.facts.multi_label:
            chosen = view.model.decide(rows)[:, classes].any(1).nonzero().flatten()
            sure = rows[chosen][:, classes].amax(1)
        else:
            chosen = torch.isin(rows.argmax(1), torch.tensor(classes)).nonzero().flatten()
            sure = view.model.probabilities(rows[chosen])[:, classes].amax(1)
        found: list[int] = chosen[sure.topk(min(limit, len(chosen))).indices].tolist()
        return found

    # ----------------------------------------------------------------------------------------------- explanations
    def _explain(self, question: Question, limit: int, all_nodes: bool = False) -> dict[str, Any]:
        """Why a node, or on graph tasks a graph, got its class."""
        begin = time.perf_counter()
        view, node = self._asked(question)
        _check_range("limit", limit, 1, 1000)
        graph, row = question.graph, node or 0
        picture = view.graph(graph)
        logits = picture.logits[row]
        target = int(logits.argmax()) if question.target is None else question.target
        traced = picture.trace(row, target, all_nodes)
        answer = {
            "run": question.run,
            "graph": graph,
            "node": node,
            "name": self.known.name(graph, node),
            "part": view.part(self.known.row(graph, node)),
            "decision": self._decision(view, graph, node, logits, target, traced),
            **_forming(view, picture, row, target),
            **self._picture(view, graph, node, traced.nodes, limit),
            "exact": not traced.left_out,
            "left_out": traced.left_out,
            "partial": traced.partial,
        }
        return answer | {"seconds": round(time.perf_counter() - begin, 4)}

    def _features(self, question: Question) -> dict[str, Any]:
        """What the features add to the score of a class: integrated gradients, through the whole graph."""
        view, node = self._asked(question)
        graph, target = question.graph, question.target
        found = explain_features(view.model, self.known.dataset, node, graph=graph, target=target, top=FEATURES)
        return found.to_dict()

    def _asked(self, question: Question) -> tuple[RunView, int | None]:
        """The run and the node of a question that can be answered."""
        view, node = self._view(question.run), self.known.find(question.graph, question.node, question.name)
        if question.target is not None:
            _check_range("target", question.target, 0, len(view.model.facts.class_names) - 1)
        return view, node

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
            "probability": float(view.model.probabilities(logits[None])[0, target]),
            "predicted": view.chosen(logits),
            "truth": self.known.truth(self.known.row(graph, node)),
            "score": traced.score,
            "inputs": inputs,
            "biases": traced.biases,
            "rest": traced.score - inputs - traced.biases,
        }

    def _picture(
        self, view: RunView, graph: int, node: int | None, contributions: Tensor, limit: int
    ) -> dict[str, Any]:
        """The nodes that are drawn with their contributions; of a node's decision, also how far away they are."""
        influence = contributions.abs()
        shares, readers = influence / max(float(influence.sum()), 1e-300), self.known.readers(graph)
        answer: dict[str, Any]
        if node is None:
            shown, hops, names = largest(shares, limit), None, self.known.node_names(graph)
            nothing: dict[str, Any] = {"predicted": [], "truth": None, "part": None}
            told = [{"name": names[each], **nothing} for each in shown]
            answer = {"hops": [], "unreachable": {"share": 0.0, "nodes": 0}, "radius": None}
        else:
            hops, before = readers.around(node)
            shown = chosen_nodes(node, shares, hops, before, limit)
            told = [view.describe(graph, each) for each in shown]
            answer = by_hop(hops, shares, contributions)
            if not view.depths:  # a network of fixed depth sees as far as there is influence
                answer["reach"] = [max((bar["hop"] for bar in answer["hops"] if bar["share"] > 0), default=0)]
        nodes = [
            {
                "node": each,
                **words,
                "hop": None if hops is None else int(hops[each]),
                "share": float(shares[each]) * (-1 if contributions[each] < 0 else 1),
                "contribution": float(contributions[each]),
            }
            for each, words in zip(shown, told, strict=True)
        ]
        drawn = {"nodes": nodes, "edges": edges_among(readers, shown), "shown_share": float(shares[shown].sum())}
        return answer | drawn


def _forming(view: RunView, picture: GraphView, row: int, target: int) -> dict[str, Any]:
    """How the prediction forms as the network looks deeper."""
    formed = picture.formed(row)
    depths: list[int | None] = [*view.depths] or [None]
    probabilities = view.model.probabilities(formed)
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


# ------------------------------------------------------------------------------------------- which nodes are drawn
def chosen_nodes(node: int, influence: Tensor, distance: Tensor, before: Tensor, limit: int) -> list[int]:
    """The node that is explained, then others with a way to it, at most ``limit`` in all."""
    reached = distance > 0
    worth = torch.where(reached & ((influence > 0) | (distance == 1)), influence, -1.0)
    near = largest(worth, limit)
    far = largest(torch.where((distance > FAR) & (influence > 0), influence, -1.0), limit // FAR_SHARE)
    shown = {node: None}
    for each in _in_turn(near, far):
        way = [each]
        while way[-1] not in shown:
            way.append(int(before[way[-1]]))
        way.pop()
        if len(shown) + len(way) <= limit:
            shown |= dict.fromkeys(way)
    first, *others = shown
    return [first, *sorted(others, key=lambda each: -float(influence[each]))]


def largest(worth: Tensor, count: int) -> list[int]:
    """The nodes worth most; those below 0 are out of the question."""
    values, places = torch.topk(worth, min(count, len(worth)))
    found: list[int] = places[values >= 0].tolist()
    return found


def _in_turn(near: list[int], far: list[int]) -> Iterator[int]:
    waiting = iter(far)
    for count, each in enumerate(near, start=1):
        yield each
        if count % (FAR_SHARE - 1) == 0:
            yield from ([another] if (another := next(waiting, None)) is not None else [])
    yield from waiting


def edges_among(readers: Readers, nodes: list[int]) -> list[list[int]]:
    """All edges among these nodes, as pairs of places, each once and without direction; the first nodes' first."""
    shown = torch.tensor(nodes)
    place = torch.full((len(readers.crow) - 1,), -1)
    place[shown] = torch.arange(len(nodes))
    starts = readers.crow[shown].long()
    counts = readers.crow[shown + 1].long() - starts
    other = place[readers.col[ranges(starts, counts)].long()]
    one = torch.arange(len(nodes)).repeat_interleave(counts)
    pairs = torch.stack([torch.minimum(one, other), torch.maximum(one, other)], dim=1)
    pairs = pairs[(pairs[:, 0] >= 0) & (pairs[:, 0] != pairs[:, 1])]
    pairs = torch.unique(pairs, dim=0)
    found: list[list[int]] = pairs[:MOST_EDGES].tolist()
    return found


def by_hop(distance: Tensor, shares: Tensor, contributions: Tensor) -> dict[str, Any]:
    """How much comes from which distance, with and without its sign; and within how many hops most of it is."""
    reached = distance >= 0
    hops, farthest = distance[reached], int(distance.max()) + 1
    share = torch.zeros(farthest, dtype=torch.float64).index_add_(0, hops, shares[reached])
    signs = (shares * contributions.sign())[reached]
    signed = torch.zeros(farthest, dtype=torch.float64).index_add_(0, hops, signs)
    counts = torch.bincount(hops, minlength=farthest)
    bars = zip(share.tolist(), signed.tolist(), counts.tolist(), strict=True)
    within = (share.cumsum(0) >= MOST_OF_IT - 1e-9).nonzero().flatten()
    return {
        "hops": [{"hop": i, "share": a, "signed": s, "nodes": n} for i, (a, s, n) in enumerate(bars)],
        "unreachable": {"share": float(shares[~reached].sum()), "nodes": int((~reached).sum())},
        "radius": int(within[0]) if len(within) else None,
    }
