"""Data small enough to learn by heart within a second, one for each kind of task."""

import copy
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.data.split import Split
from pprgnn.training.config import Config


def random_edges(nodes: int, count: int, draw: torch.Generator) -> Tensor:
    """Undirected, each direction once, no self-loops; the last node stays alone."""
    pairs = torch.randint(nodes - 1, (2, count), generator=draw) if nodes > 1 else torch.empty(2, 0).long()
    pairs = pairs[:, pairs[0] != pairs[1]]
    return torch.cat([pairs, pairs.flip(0)], dim=1).unique(dim=1)


def facts(name: str, task: Any, classes: int, *, multi_label: bool = False, metric: Any = "accuracy") -> Facts:
    return Facts(name, task, multi_label, metric, tuple(f"class {number}" for number in range(classes)))


def without_signs(dataset: GraphDataset) -> GraphDataset:
    """The same with features that are not negative, as counts are."""
    dataset._data.x = dataset._data.x.abs()
    return dataset


def one_graph(
    nodes: int = 30,
    classes: int = 3,
    *,
    channels: int = 8,
    multi_label: bool = False,
    edges: int = 60,
    weighted: bool = False,
    seed: int = 0,
) -> GraphDataset:
    """A node task on one graph: the label is the largest feature, or the positive ones; channels=0 hides them."""
    draw = torch.Generator().manual_seed(seed)
    edge_index = random_edges(nodes, edges, draw)
    x = torch.randn(nodes, max(channels, classes), generator=draw)
    y = (x[:, :classes] > 0).float() if multi_label else x[:, :classes].argmax(1)
    data = Data(edge_index=edge_index, y=y, num_nodes=nodes)
    if channels:
        data.x = x
    if weighted:
        data.edge_weight = torch.rand(edge_index.size(1), generator=draw) + 0.1
    kind = facts(
        "hand", "node", classes, multi_label=multi_label, metric="micro-F1" if multi_label else "accuracy"
    )
    return GraphDataset.from_graphs([data], kind)


def wide_graph(nodes: int = 40, classes: int = 3, *, channels: int = 100, seed: int = 0) -> GraphDataset:
    """A node task whose features are so wide and so empty that they are kept in CSR: some words of each class."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % classes
    words = torch.rand(nodes, channels, generator=draw) < torch.where(
        torch.arange(channels) % classes == y.unsqueeze(1), 0.12, 0.02
    )
    x = words * (0.5 + torch.rand(nodes, channels, generator=draw))
    data = Data(edge_index=random_edges(nodes, 60, draw), x=x, y=y, num_nodes=nodes)
    return GraphDataset.from_graphs([data], facts("wide", "node", classes))


def with_dense_features(dataset: GraphDataset) -> GraphDataset:
    """The same, as it would be without CSR."""
    dense = copy.deepcopy(dataset)
    dense._data.x = dense._data.x.to_dense()
    return dense


def several_graphs(count: int = 24, classes: int = 2, *, task: Any = "graph", seed: int = 0) -> GraphDataset:
    """Graphs of one to seven nodes, with weights; some have no edges."""
    draw = torch.Generator().manual_seed(seed)
    graphs = []
    for number in range(count):
        nodes = 1 + number % 7
        edge_index = random_edges(nodes, 2 * (number % 3), draw)
        data = Data(
            x=torch.randn(nodes, 4, generator=draw), edge_index=edge_index, y=torch.tensor([number % classes])
        )
        if task == "node":
            data.y = data.x[:, :classes].argmax(1)
        data.edge_weight = torch.rand(edge_index.size(1), generator=draw) + 0.1
        data.num_nodes = nodes
        graphs.append(data)
    return GraphDataset.from_graphs(graphs, facts("several", task, classes))


def divided(dataset: GraphDataset, shares: tuple[int, int, int] = (2, 1, 1), *, unit: Any = None) -> Split:
    """Every fourth one validates and so on: nothing is left out."""
    unit = unit or dataset.facts.task
    size = dataset.num_nodes if unit == "node" else len(dataset)
    places = torch.arange(size) % sum(shares)
    first, second = shares[0], shares[0] + shares[1]
    parts = [places < first, (places >= first) & (places < second), places >= second]
    return Split.of(dataset, [part.nonzero().flatten() for part in parts], unit=unit)


def all_for_training(dataset: GraphDataset) -> Split:
    """Everything but two trains; one of them validates, one tests."""
    size = dataset.num_nodes if dataset.facts.task == "node" else len(dataset)
    whole = torch.arange(size)
    return Split.of(dataset, [whole[:-2], whole[-2:-1], whole[-1:]], unit=dataset.facts.task)


def quick(*settings: str) -> Config:
    """A small model that learns fast."""
    usual = ["hidden=16", "epochs=20", "dropout=0.0", "lr=0.02", "device=cpu", "patience=0", "weight_decay=0"]
    return Config().with_settings([*usual, *settings])


class Recorder:
    """A listener that writes everything down."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.summaries: list[Any] = []
        self.starts: list[Any] = []

    def started(self, training: Any) -> None:
        self.starts.append(training)

    def epoch(self, record: Any) -> None:
        self.records.append(record)

    def warned(self, text: str) -> None:
        self.warnings.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finished(self, summary: Any) -> None:
        self.summaries.append(summary)


def is_sentence(text: str) -> bool:
    """One line for a human: it starts large, or with the name of a setting, and ends as sentences do."""
    begins = text[0].isupper() or text[0] in "[/" or "." in text.split(maxsplit=1)[0]
    return "\n" not in text and text[-1] in ".?" and begins
