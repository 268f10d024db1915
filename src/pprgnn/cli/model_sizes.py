"""`pprgnn models --data`: how many parameters a system has on some data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pprgnn.cli.training_options import config_for
from pprgnn.data.dataset import GraphDataset
from pprgnn.errors import DataError
from pprgnn.training.build import Shape, build_network, feature_kind, features
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.label_input import VisibleLabels
from pprgnn.training.systems import System
from pprgnn.training.terminal import paragraph, table, width
from pprgnn.training.train import load_data


def sizes(systems: Sequence[System], data: str) -> list[dict[str, Any]]:
    """How many parameters each would have in `pprgnn train DATA --model NAME`."""
    found: list[dict[str, Any]] = []
    loaded: dict[str, GraphDataset] = {}
    for system in systems:
        config = config_for(data, model=system.name)
        dataset = _load(config, loaded)
        try:
            parameters, why = _parameters(system, config, dataset), ""
        except DataError as error:  # of the system: it cannot be used with these data
            parameters, why = None, str(error)
        found.append({"name": system.name, "data": dataset.facts.name, "parameters": parameters, "why": why})
    return found


def _load(config: Config, loaded: dict[str, GraphDataset]) -> GraphDataset:
    """The data of a config; systems usually share them."""
    key = json.dumps([config.data.name, config.data.options])
    if key not in loaded:
        loaded[key] = load_data(config)
    return loaded[key]


def _parameters(system: System, config: Config, dataset: GraphDataset) -> int:
    if "edge_weight" in dataset._data and not system.edge_weights:
        raise TrainingError(f"{system.title} cannot use edge weights, but {dataset.facts.name} has some.")
    kind = feature_kind(dataset, config.data.features)
    nobody = torch.zeros(dataset.num_nodes, dtype=torch.bool)  # only the width matters here
    visible = VisibleLabels.of(dataset, nobody, kind)
    shape = Shape.of(dataset, features(dataset, kind, visible), bound=visible is not None)
    with torch.device("meta"):  # shapes without numbers
        network = build_network(config.model, shape)
    if system.kind == "kernel":
        raise TrainingError(f"{system.title} has support vectors instead of parameters.")
    return sum(each.numel() for each in network.parameters())


def size_lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """A row for each, with why it has no number."""
    rows = [{"name": each["name"], "parameters": each["parameters"]} for each in found]
    header, *lines = table(rows, (), None)
    size = max(map(len, lines))
    pairs = zip(lines, found, strict=True)
    return [header, *(paragraph(f"{line:<{size}}  ", each["why"], width()).rstrip() for line, each in pairs)]
