"""What the columns that a network reads are called, and which column of a table they were made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pprgnn.data.dataset import GraphDataset
from pprgnn.training.build import LARGE_DEGREE
from pprgnn.training.label_input import KINDS as LABEL_KINDS
from pprgnn.training.model import Model


@dataclass(frozen=True)
class FeatureColumn:
    """A column of features.

    Attributes:
        name: Its own name.
        source: What it was made from, such as a column of categories, each of which has a column of its own.
        mean, scale: A number of a table is ``mean + scale * x``.
    """

    name: str
    source: str
    mean: float = 0.0
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
    given += [
        FeatureColumn(f"sum of edge attribute {i}", f"sum of edge attribute {i}")
        for i in range(width - len(given))
    ]
    return given


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
