"""Nodes, or graphs, that are worth a look: mistakes, doubts, hubs, and one of some classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pprgnn.training.explain import FAR

if TYPE_CHECKING:
    from pprgnn.explore.run_view import RunView

MOST = 12
EACH = 3  # mistakes, and doubts
FEW, TRIED = 10_000, 8  # nodes of graphs where some are traced, and how many
SURE = 0.5  # probability of a mistake worth showing


def suggestions(view: RunView) -> list[dict[str, Any]]:
    """At most a dozen; the first is what the page begins with."""
    found: dict[int, str] = {}
    for row, why in _candidates(view):
        found.setdefault(row, why)
        if len(found) == MOST:
            break
    places = [(*view.known.place(row), why) for row, why in found.items()]
    return [
        {"graph": graph, "node": node, "name": view.known.name(graph, node), "why": why}
        for graph, node, why in places
    ]


def _candidates(view: RunView) -> Iterator[tuple[int, str]]:
    rows = view.rows.get("test")
    if rows is None or not len(rows):
        rows = torch.arange(len(view.logits))
    if not len(rows):
        return
    probabilities = view.model.probabilities(view.logits[rows])
    yield from _mistakes(view, rows, probabilities)
    yield from _hub(view)
    yield from _far(view, rows, probabilities)
    yield from _doubts(view, rows, probabilities)
    yield from _classes(view, rows, probabilities)
    for row in rows[: MOST // 2].tolist():
        yield row, f"predicted {_words(view.chosen(view.logits[row]))}"


def _mistakes(view: RunView, rows: Tensor, probabilities: Tensor) -> Iterator[tuple[int, str]]:
    """Of which the model is sure."""
    labels, labelled = view.known.labels, view.known.labelled
    if labels is None or labelled is None:
        return
    known = labelled[rows]
    y = labels[rows]
    if view.model.facts.multi_label:
        sure, said = torch.where(y > 0, -1.0, probabilities).max(1)
        wrong = known
    else:
        sure, said = probabilities.max(1)
        wrong = known & (said != y)
    values, places = torch.where(wrong, sure, -1.0).topk(min(EACH, len(rows)))
    names = view.model.facts.class_names
    for value, place in zip(values.tolist(), places.tolist(), strict=True):
        if value > SURE:
            truth = _words(view.known.truth(int(rows[place])) or [])
            yield int(rows[place]), f"confidently wrong: said {names[int(said[place])]} ({value:.0%}), is {truth}"


def _hub(view: RunView) -> Iterator[tuple[int, str]]:
    if not view.known.by_node:
        return
    crow = view.known.readers(0).crow
    degree = crow.diff()
    if len(degree):
        node = int(degree.argmax())
        yield node, f"a hub: {int(degree[node]):,} neighbours"


def _far(view: RunView, rows: Tensor, probabilities: Tensor) -> Iterator[tuple[int, str]]:
    """Of a few that are right, the one whose influence comes from farthest away; where that is quickly told."""
    labels = view.known.labels
    if not view.known.by_node or labels is None or labels.dim() == 2 or len(view.logits) > FEW:
        return
    right = rows[(probabilities.argmax(1) == labels[rows]).nonzero().flatten()]
    best = (0.0, -1)
    for row in right[:: max(len(right) // TRIED, 1)][:TRIED].tolist():
        graph, node = view.known.place(row)
        influence = view.graph(graph).trace(node or 0, int(view.logits[row].argmax())).nodes.abs()
        distance, _ = view.known.readers(graph).around(node or 0)
        best = max(best, (float(influence[distance > FAR].sum() / influence.sum().clamp(min=1e-300)), row))
    if best[0] > 0.01:
        yield best[1], f"from afar: {best[0]:.0%} of the influence comes from more than {FAR} hops away"


def _doubts(view: RunView, rows: Tensor, probabilities: Tensor) -> Iterator[tuple[int, str]]:
    if view.model.facts.multi_label or probabilities.size(1) == 1:
        threshold = probabilities.new_tensor(view.model.threshold.probabilities)
        doubt, which = (probabilities - threshold).abs().min(1)
        second = which
    else:
        top, order = probabilities.topk(2, dim=1)
        doubt, which, second = top[:, 0] - top[:, 1], order[:, 0], order[:, 1]
    names = view.model.facts.class_names
    for place in doubt.topk(min(EACH, len(rows)), largest=False).indices.tolist():
        one, other = int(which[place]), int(second[place])
        what = names[one] if one == other else f"{names[one]} or {names[other]}"
        yield int(rows[place]), f"undecided: {what} ({float(probabilities[place, one]):.0%})"


def _classes(view: RunView, rows: Tensor, probabilities: Tensor) -> Iterator[tuple[int, str]]:
    """The surest one that is right, of each class."""
    labels = view.known.labels
    for number, name in enumerate(view.model.facts.class_names):
        sure = probabilities[:, number]
        if labels is not None:
            of_all = labels[rows]
            right = of_all[:, number] > 0 if of_all.dim() == 2 else of_all == number
            sure = torch.where(right, sure, -1.0)
        best = int(sure.argmax())
        if float(sure[best]) > SURE:
            yield int(rows[best]), f"a sure {name} ({float(sure[best]):.0%})"


def _words(classes: list[str]) -> str:
    if len(classes) > 3:
        return f"{', '.join(classes[:3])} and {len(classes) - 3} more"
    return ", ".join(classes) or "none"
