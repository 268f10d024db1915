"""Which features decided: about one node or graph, and in the mean over many; and what they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pprgnn.data.dataset import GraphDataset
from pprgnn.data.sparse_features import take_rows, to_dense
from pprgnn.training.attribution import Integrated, integrate, settled
from pprgnn.training.batches import Batches
from pprgnn.training.build import LARGE_DEGREE
from pprgnn.training.errors import TrainingError
from pprgnn.training.explain import check_system, one_graph
from pprgnn.training.label_input import KINDS as LABEL_KINDS
from pprgnn.training.model import Model

SAMPLE = 32  # nodes or graphs


@dataclass(frozen=True)
class FeatureContribution:
    """A feature and its part in the decision."""

    name: str  # as the source calls it
    value: float  # of the node; of a graph, the mean over its nodes. In the unit of the table, if there is one
    contribution: float  # what it adds to the score, on all nodes together; negative: against the target
    own: float  # the part of it that comes from the node itself; of a graph, all of it


@dataclass(frozen=True)
class FeatureExplanation:
    """What the features add to a score: ``score = baseline + contributions of all features + residual``.

    Attributes:
        target: The class or label that is explained.
        score: As in :class:`pprgnn.training.explain.Decision`.
        baseline: The score when all features of all nodes are 0; of a column of numbers, that is its mean.
        residual: What the integral of the gradients misses, as measured.
        gradients: How many were computed.
        num_features: How many there are.
        features: Those with the largest contributions, either sign.
    """

    target: str
    score: float
    baseline: float
    residual: float
    gradients: int
    num_features: int
    features: list[FeatureContribution]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def explain_features(
    model: Model,
    dataset: GraphDataset,
    node: int | None = None,
    *,
    graph: int = 0,
    target: int | None = None,
    top: int = 10,
    memory: int | None = None,
) -> FeatureExplanation:
    """Divide a score among the features, by integrated gradients from zeros to the input.

    Args:
        model: A model that reads features; it is left as it was.
        dataset: The graph.
        node: The number of the node in its graph; ``None`` on graph tasks.
        graph: Which graph, where there are several.
        target: The number of the class or label to explain; ``None``: the most probable one.
        top: How many features to name.
        memory: Bytes that states may take; ``None``: half of what is available.
    """
    part, batch = one_graph(model, dataset, graph, "graph" if node is None else "node", target)
    check_features_read(model)
    columns = feature_columns(model, part)
    assert batch.x is not None
    with settled(model, batch, memory) as (state, _):
        found = integrate(model, batch, state, node or 0, target)
    seen = to_dense(take_rows(batch.x, slice(None) if node is None else slice(node, node + 1)))
    values = seen.double().mean(0).cpu()
    order = torch.argsort(found.features.abs(), descending=True, stable=True)
    largest = []
    for i in order[: max(top, 0)].tolist():
        if found.features[i] != 0:
            value = columns[i].mean + columns[i].scale * float(values[i])
            amounts = float(found.features[i]), float(found.own[i])
            largest.append(FeatureContribution(columns[i].name, value, *amounts))
    return FeatureExplanation(
        target=model.facts.class_names[found.target],
        score=found.score,
        baseline=found.baseline,
        residual=found.residual,
        gradients=found.gradients,
        num_features=len(columns),
        features=largest,
    )


def check_features_read(model: Model) -> None:
    """Raise if the model learned a row for each node instead."""
    if model.shape.num_nodes is not None:
        raise TrainingError(
            "This model learned a row for each node and reads no features, so none of them decided; ask about "
            "nodes instead."
        )


# --------------------------------------------------------------------------------------------------- in the mean
@dataclass(frozen=True)
class FeatureImportance:
    """A feature, in the mean over some decisions."""

    name: str  # as the source calls it; columns that were made from one column of a table are one
    importance: float  # the mean of what it adds to the score of the predicted class, without signs
    share: float  # the same as a share of all features


@dataclass(frozen=True)
class OverallFeatures:
    """Which features decide, in the mean."""

    features: list[FeatureImportance]  # all of them, the most important first
    samples: int  # over how many nodes or graphs the mean was taken
    residual: float  # the share that the integrals missed, in the mean and without signs
    gradients: int  # how many were computed

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def overall_features(
    model: Model,
    batches: Batches,
    rows: Mapping[int, Sequence[int]],
    go_on: Callable[[int], bool] = lambda done: True,
) -> OverallFeatures:
    """The mean over some decisions of what each feature added.

    Args:
        model: A model that reads features; it is left as it was.
        batches: The graphs.
        rows: By graph, which nodes; on graph tasks ``[0]``. See :func:`drawn_rows`.
        go_on: Asked before each row but the first, with how many are done; those so far are enough if it says no.
    """
    check_system(model)
    check_features_read(model)
    found: list[Integrated] = []
    for graph, nodes in rows.items():
        if found and not go_on(len(found)):
            break
        batch = batches.batch(torch.tensor([graph], device=model.device))
        with settled(model, batch, None) as (state, _):
            for place, node in enumerate(nodes):
                if place and not go_on(len(found)):
                    break
                found.append(integrate(model, batch, state, node, None))
    columns = feature_columns(model, batches.dataset)
    names = list(dict.fromkeys(each.source for each in columns))
    number = {name: i for i, name in enumerate(names)}
    places = torch.tensor([number[each.source] for each in columns])
    sums = torch.zeros(len(found), len(names), dtype=torch.float64)
    sums.index_add_(1, places, torch.stack([each.features for each in found]))
    mean = sums.abs().mean(0)
    shares = mean / max(float(mean.sum()), 1e-300)
    missed, explained = (sum(abs(getattr(each, key)) for each in found) for key in ("residual", "difference"))
    order = torch.argsort(mean, descending=True, stable=True).tolist()
    return OverallFeatures(
        features=[FeatureImportance(names[i], float(mean[i]), float(shares[i])) for i in order],
        samples=len(found),
        residual=missed / max(explained, 1e-300),
        gradients=sum(each.gradients for each in found),
    )


def drawn_rows(batches: Batches, mask: Tensor, count: int) -> dict[int, list[int]]:
    """Some of the rows under a mask, by graph; always the same ones. On graph tasks each has one row, 0."""
    rows = mask.nonzero().flatten().cpu()
    chosen = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:count]].tolist()
    if batches.task == "graph":
        return {graph: [0] for graph in chosen}
    ends, drawn = batches.sizes.cumsum(0).cpu(), dict[int, list[int]]()
    for row in chosen:
        graph = int(torch.searchsorted(ends, row, right=True))
        drawn.setdefault(graph, []).append(row - int(ends[graph - 1] if graph else 0))
    return drawn


# --------------------------------------------------------------------------------------------------------- columns
@dataclass(frozen=True)
class FeatureColumn:
    """A column of features."""

    name: str
    source: str  # what it was made from, such as a column of categories, each of which has a column of its own
    mean: float = 0.0  # a number of a table is mean + scale * x
    scale: float = 1.0


def feature_columns(model: Model, dataset: GraphDataset) -> list[FeatureColumn]:
    """All columns that the network reads; they are numbered where the source has no names."""
    kind, width = model.feature_kind, model.shape.in_channels
    given = _given(model, dataset) if kind not in ("degree", "labels") else []
    if kind == "normalized":  # rows were divided by their sums: no units are left
        given = [replace(each, mean=0.0, scale=1.0) for each in given]
    if kind == "degree":
        given = [FeatureColumn(name, name) for name in ("one", "log(1 + degree)")]
    if kind == "given+degree":
        degrees = [*map(str, range(LARGE_DEGREE)), f"{LARGE_DEGREE} or more"]
        given += [FeatureColumn(f"degree = {degree}", "degree") for degree in degrees]
    if kind in LABEL_KINDS:
        labels = [*(f"label = {name}" for name in model.facts.class_names), "label is known"]
        given += [FeatureColumn(name, "label") for name in labels]
    sums = [f"sum of edge attribute {i}" for i in range(width - len(given))]
    return given + [FeatureColumn(name, name) for name in sums]


def _given(model: Model, dataset: GraphDataset) -> list[FeatureColumn]:
    width = dataset._data.x.size(1) if "x" in dataset._data else 0
    named = list(_of_table(model)) if model.facts.schema is not None else []
    return named if len(named) == width else [FeatureColumn(f"feature {i}", f"feature {i}") for i in range(width)]


def _of_table(model: Model) -> Iterator[FeatureColumn]:
    from pprgnn.data.own.features import Feature

    assert model.facts.schema is not None
    for values in model.facts.schema["features"]:
        feature = Feature.from_dict(values)
        # Of dates and times the table had no numbers that one would read.
        units = [] if feature.time else list(zip(feature.mean, feature.scale, strict=True))
        for i, name in enumerate(feature.outputs):
            mean, scale = units[i] if i < len(units) else (0.0, 1.0)
            yield FeatureColumn(name, feature.name, mean, scale)
