"""From a config and a data set to the features and the network."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pprgnn.core.depth import Certificate, Influence
from pprgnn.data.catalog import Task
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.sparse_features import (
    beside,
    has_negative,
    is_sparse,
    normalize_rows,
    not_finite,
    on_values,
    tensors_of,
)
from pprgnn.nn import CoPurchaseNet, GraphNet, LabelNet, NodeNet, PaperGraphNet, PPINet
from pprgnn.nn.features import read_sparse
from pprgnn.nn.network import EmbeddedNet, Network
from pprgnn.training import label_input
from pprgnn.training.config import ModelConfig
from pprgnn.training.errors import TrainingError
from pprgnn.training.label_input import VisibleLabels
from pprgnn.training.systems import System, find_system

EDGES = ("edge_index", "edge_weight")
DROPOUT = ("dropout", "input_dropout")
STACKED = ("hidden", "layers", "norm", *DROPOUT, "input_layer", "residual", "jk", "smooth_input", "bias")
LARGE_DEGREE = 9  # and more: as one, so that graphs to come have no columns of their own


@dataclass(frozen=True)
class Shape:
    """What a network must fit: the widths at its two ends, and how many nodes have a learned row."""

    task: Task
    in_channels: int
    num_classes: int
    num_nodes: int | None = None
    edges: str | None = None  # with learned rows or labels as input, the digest of the edges of these nodes
    typical_nodes: int | None = None  # graph tasks: three fifths of the graphs have at least so many nodes

    @classmethod
    def of(cls, dataset: GraphDataset, x: Tensor | None, *, bound: bool = False) -> Shape:
        """The shape for this data set; without features every node gets a learned row.

        ``bound``: the features are of these very nodes, so that the network is for this graph alone.
        """
        if not dataset.num_classes:
            raise TrainingError(
                f"{dataset.facts.name} has no classes to learn; name the label column with --target."
            )
        if x is None:
            return cls(dataset.facts.task, 0, dataset.num_classes, dataset.num_nodes, digest(dataset, EDGES))
        sizes = sorted(dataset.graph_sizes, reverse=True)
        typical = sizes[math.ceil(0.6 * len(sizes)) - 1] if dataset.facts.task == "graph" else None
        edges = digest(dataset, EDGES) if bound else None
        return cls(dataset.facts.task, x.size(1), dataset.num_classes, edges=edges, typical_nodes=typical)


def digest(dataset: GraphDataset, names: Sequence[str] = (*EDGES, "x")) -> str:
    """A short text that tells these tensors of a data set from others, also in another process."""
    found = hashlib.blake2b(digest_size=8)
    for name in names:
        if name in dataset._data:
            tensor = dataset._all(name)
            for each in tensors_of(tensor).values() if is_sparse(tensor) else [tensor]:
                found.update(each.reshape(-1).cpu().view(torch.uint8).numpy().data)
    return found.hexdigest()


def feature_kind(dataset: GraphDataset, wanted: str) -> str:
    """What ``auto`` stands for with this data set."""
    given = "x" in dataset._data and dataset._data.x.size(1) > 0
    one_graph = dataset.facts.task == "node" and len(dataset) == 1
    if wanted == "auto":
        return "given" if given else "embedding" if one_graph else "degree"
    if wanted == "given+degree" and not given:
        return "degree"
    if wanted == "edges" and "edge_attr" not in dataset._data:
        raise TrainingError(
            f"The edges of {dataset.facts.name} have no attributes, so data.features = 'edges' cannot be used; "
            f"try 'auto'."
        )
    if wanted in ("given", "normalized", "given+labels") and not given:
        raise TrainingError(
            f"{dataset.facts.name} has no features, so data.features = {wanted!r} cannot be used; try 'auto'."
        )
    if wanted == "normalized" and has_negative(dataset._all("x")):
        raise TrainingError(
            f"data.features = 'normalized' makes rows sum to 1, but {dataset.facts.name} has negative features, "
            f"as standardised columns have; use 'given'."
        )
    if wanted == "embedding" and not one_graph:
        raise TrainingError(
            f"A learned row per node needs one graph and a node task, but {dataset.facts.name} has "
            f"{len(dataset)} graphs and labels per {dataset.facts.task}; try data.features = 'degree'."
        )
    if wanted in label_input.KINDS and not one_graph:
        raise TrainingError(
            f"Training labels can be input where they are of nodes in the one graph that is asked about, but "
            f"{dataset.facts.name} has {len(dataset)} graphs and labels per {dataset.facts.task}; try "
            f"data.features = 'auto'."
        )
    return wanted


def features(dataset: GraphDataset, kind: str, visible: VisibleLabels | None = None) -> Tensor | None:
    """The features of all nodes, one graph after another; None when they are to be learned.

    With labels as input, ``visible`` are those that are shown.
    """
    if kind == "embedding":
        return None
    if kind in label_input.KINDS:
        if visible is None:
            raise TrainingError(f"With data.features = {kind!r}, a model must be told the training labels.")
        labels = visible.columns(dataset.num_nodes)
        given = features(dataset, "given") if kind == "given+labels" else None
        return labels if given is None else beside(given, labels)
    if kind == "degree":  # a one and the logarithm of the degree: what every graph has
        degree = _degrees(dataset).float()
        return torch.stack([torch.ones_like(degree), torch.log1p(degree)], dim=1)
    if kind == "edges":
        return _with_edges(dataset)
    if "x" not in dataset._data:
        raise TrainingError(f"The model reads features of nodes, but {dataset.facts.name} has none.")
    x = dataset._all("x").float()
    if (wrong := not_finite(x)) is not None:
        node, column, value = wrong
        raise TrainingError(
            f"Features must be finite, but feature {column} of node {node} of {dataset.facts.name} is {value}; "
            f"fill or drop such values."
        )
    if kind == "given+degree":
        return beside(x, one_hot(_degrees(dataset).clamp(max=LARGE_DEGREE), LARGE_DEGREE + 1).float())
    return normalize_rows(x) if kind == "normalized" else on_values(_aligned, x)


def _aligned(x: Tensor) -> Tensor:
    """Where torch puts its own tensors: in a mapped file they begin anywhere, and sums differ in the last bits."""
    return x if x.data_ptr() % 64 == 0 else x.clone()


def _with_edges(dataset: GraphDataset) -> Tensor:
    """The features, and for each node the sums of the attributes of the edges that end there."""
    parts = []
    for data in dataset:
        attributes = data.edge_attr.float().reshape(data.edge_index.size(1), -1)
        sums = attributes.new_zeros(data.num_nodes, attributes.size(1))
        sums.index_add_(0, data.edge_index[1], attributes)
        parts.append(sums if data.x is None else beside(data.x.float(), sums))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _degrees(dataset: GraphDataset) -> Tensor:
    """Edges that end at each node."""
    whole = dataset.copy() if dataset._indices is not None else dataset
    sizes, ends = torch.tensor(whole.graph_sizes), whole._data.edge_index[1]
    if whole.slices is not None:  # nodes are counted in each graph anew
        ends = ends + torch.repeat_interleave(sizes.cumsum(0) - sizes, whole.slices["edge_index"].diff())
    return torch.bincount(ends, minlength=int(sizes.sum()))


def build_network(config: ModelConfig, shape: Shape, *, checkpoint: bool = False, tol: float = 1e-5) -> Network:
    """A new network with fresh weights."""
    system = find_system(config.system)
    if shape.task not in system.tasks:
        raise TrainingError(
            f"{system.title} labels {system.tasks[0]}s, but here labels are per {shape.task}; `pprgnn models` "
            f"tells which systems label {shape.task}s."
        )
    try:
        if system.kind == "infinite":
            network = _infinite_network(system, config, shape, checkpoint, tol)
        else:
            network = _own_network(system, config, shape)
    except ValueError as error:  # settings that do not go together
        raise TrainingError(str(error)) from error
    if shape.num_nodes is None:
        read_sparse(network, shape.in_channels)
    return network


def _own_network(system: System, config: ModelConfig, shape: Shape) -> Network:
    """A system with a network of its own; where nodes have no features, it reads learned rows."""
    options = {name: _value(config, name) for name in system.reads} | system.own_settings(config.own)
    if "typical_nodes" in system.facts:
        options["typical_nodes"] = shape.typical_nodes
    width = config.hidden if shape.num_nodes else shape.in_channels
    network: Network = system.load()(width, shape.num_classes, shape.task, **options)
    return EmbeddedNet(network, shape.num_nodes, width) if shape.num_nodes else network


def _infinite_network(system: System, config: ModelConfig, shape: Shape, checkpoint: bool, tol: float) -> Network:
    """An infinite-depth layer in one of the networks made for them; the paper's are as published."""
    kind = shape.task if config.architecture == "auto" else config.architecture
    _check_kind(kind, shape)
    read = [
        name for name in ("eps", "learn_eps", "activation", "grad_terms", "weight_init") if name in system.reads
    ]
    conv = {name: _value(config, name) for name in (*read, "depth", "max_depth", "normalize")} | {
        "layer": system.load(),
        "add_self_loops": config.self_loops,
        **system.own_settings(config.own),
        "checkpoint": checkpoint,
        "tol": tol,
    }
    sizes = (shape.in_channels, shape.num_classes, config.hidden)
    if kind == "ppi":
        return PPINet(*sizes, **conv)
    if kind == "paper-graph":
        return PaperGraphNet(*sizes, config.dropout, **conv)
    if kind == "labels":
        return LabelNet(*sizes, config.dropout, **conv)
    if kind == "co-purchase":
        assert shape.num_nodes is not None
        return CoPurchaseNet(shape.num_nodes, *sizes[1:], config.dropout, **conv)
    options = {name: getattr(config, name) for name in STACKED} | conv
    options |= {name: None for name in ("norm", "jk") if options[name] == "none"}
    if kind == "graph":
        return GraphNet(shape.in_channels, shape.num_classes, pooling=config.pooling, **options)
    in_channels = None if shape.num_nodes else shape.in_channels
    return NodeNet(in_channels, shape.num_classes, num_nodes=shape.num_nodes, **options)


def _value(config: ModelConfig, name: str) -> Any:
    """A setting as the layers want it."""
    value = getattr(config, name)
    if name == "learn_eps":
        return {"no": False, "yes": True, "channel": "channel"}[value]
    if name == "depth" and isinstance(value, str):
        return {"measured": None, "certificate": Certificate(), "influence": Influence()}[value]
    return (value or None) if name == "grad_terms" else value


def _check_kind(kind: str, shape: Shape) -> None:
    if (kind in ("graph", "paper-graph")) != (shape.task == "graph"):
        raise TrainingError(
            f"model.architecture = {kind!r} does not go with labels per {shape.task}; use {shape.task!r}."
        )
    if kind == "co-purchase" and shape.num_nodes is None:
        raise TrainingError(
            "model.architecture = 'co-purchase' learns a row for each node of one graph; set "
            "data.features = 'embedding'."
        )
    if kind == "labels" and (shape.edges is None or shape.in_channels != shape.num_classes + 1):
        raise TrainingError(
            "model.architecture = 'labels' reads the labels of training nodes and nothing else; set "
            "data.features = 'labels'."
        )
    if kind == "ppi" and shape.num_nodes is not None:
        raise TrainingError(
            f"model.architecture = {kind!r} reads features of nodes, but there are none; set "
            f"data.features = 'degree', or use 'node'."
        )
