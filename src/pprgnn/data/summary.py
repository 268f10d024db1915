"""What a data set looks like, before anything is trained on it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import PARTS


@dataclass(frozen=True)
class Summary:
    """Counts of all graphs together; `edges` as in :attr:`GraphDataset.num_edges`."""

    name: str
    task: str
    graphs: int
    nodes: int
    edges: int
    directed: bool
    weighted: bool
    self_loops: int
    isolated: int
    components: int
    largest_component: int
    degree: dict[str, float]  # min, median, mean, max; of a directed graph: edges that arrive
    features: int
    labelled: int
    to_predict: int
    multi_label: bool
    classes: dict[str, int]  # how often each occurs
    homophily: float | None  # see `_homophily`; None: not defined
    parts: dict[str, int]  # of a split column
    guessed: tuple[str, ...]
    columns: tuple[dict[str, str], ...] = ()  # of tables: how each was read

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def summarise(dataset: GraphDataset) -> Summary:
    """Everything in one pass over the edges; takes seconds at ten million of them."""
    source, destination = _all_edges(dataset)
    nodes = dataset.num_nodes
    loops = int((source == destination).sum())
    directed = dataset.facts.directed
    degree = torch.bincount(destination[source != destination], minlength=nodes)
    touched = degree if not directed else degree + torch.bincount(source[source != destination], minlength=nodes)
    pattern = coo_array(
        (np.ones(len(source), dtype=np.int8), (source.numpy(), destination.numpy())), shape=(nodes, nodes)
    )
    components, member = connected_components(pattern, directed=directed, connection="weak")
    has_labels = dataset._data.y is not None
    labelled = dataset.labelled() if has_labels else torch.zeros(nodes, dtype=torch.bool)
    y = dataset.labels()[labelled] if has_labels else labelled.long()
    counts = y.sum(dim=0).long() if y.dim() == 2 else torch.bincount(y, minlength=dataset.num_classes)
    part = dataset._all("part") if "part" in dataset._data else None
    parts = {} if part is None else {name: int((part == i).sum()) for i, name in enumerate(PARTS)}
    return Summary(
        name=dataset.facts.name,
        task=dataset.facts.task,
        graphs=len(dataset),
        nodes=nodes,
        edges=dataset.num_edges,
        directed=directed,
        weighted="edge_weight" in dataset._data,
        self_loops=loops,
        isolated=int((touched == 0).sum()),
        components=int(components),
        largest_component=int(np.bincount(member).max()),
        degree={
            "min": int(degree.min()),
            "median": float(np.median(degree.numpy())),
            "mean": float(degree.double().mean()),
            "max": int(degree.max()),
        },
        features=dataset.num_features,
        labelled=int(labelled.sum()),
        to_predict=int((~labelled).sum()),
        multi_label=dataset.facts.multi_label,
        classes=dict(zip(dataset.facts.class_names, counts.tolist(), strict=True)) if has_labels else {},
        homophily=_homophily(dataset, source, destination, labelled) if has_labels else None,
        parts=parts,
        guessed=dataset.facts.guessed,
        columns=tuple(
            dict(zip(("table", "column", "read_as", "remark"), row, strict=True)) for row in dataset.facts.columns
        ),
    )


def _all_edges(dataset: GraphDataset) -> tuple[Tensor, Tensor]:
    """The edges of all graphs as those of one, nodes counted through."""
    if dataset.slices is None:
        source, destination = dataset._data.edge_index
        return source, destination
    starts = np.cumsum([0, *dataset.graph_sizes[:-1]])
    joined = torch.cat([data.edge_index + int(start) for data, start in zip(dataset, starts, strict=True)], dim=1)
    return joined[0], joined[1]


def _homophily(dataset: GraphDataset, source: Tensor, destination: Tensor, labelled: Tensor) -> float | None:
    """Share of edges between labelled nodes that join nodes of one class; of several classes, their overlap.

    The overlap of two sets of classes is |A ∩ B| / |A ∪ B|, averaged over the edges.
    """
    if dataset.facts.task != "node":
        return None
    both = labelled[source] & labelled[destination] & (source != destination)
    if not bool(both.any()):
        return None
    source, destination, y = source[both], destination[both], dataset.labels()
    if y.dim() == 1:
        return float((y[source] == y[destination]).double().mean())
    total = 0.0
    chunk = 1 << 18  # bounds the scratch memory
    for start in range(0, len(source), chunk):
        part = slice(start, start + chunk)
        a, b = y[source[part]] > 0, y[destination[part]] > 0
        union = (a | b).sum(dim=1)
        total += float(((a & b).sum(dim=1) / union.clamp(min=1)).sum())
    return total / len(source)
