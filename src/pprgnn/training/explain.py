"""Why a model decided as it did: from how far away the decision came, and from which nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from pprgnn.data.dataset import GraphDataset, node_name
from pprgnn.training.attribution import Attribution, LayerReach, attribute
from pprgnn.training.batches import Batch
from pprgnn.training.errors import TrainingError
from pprgnn.training.model import Model
from pprgnn.training.reach import hops_to
from pprgnn.training.systems import find_system
from pprgnn.wording import counted

MOST_OF_IT = 0.95  # of the influence lies within the radius
FAR = 3  # hops; usual networks do not look farther


@dataclass(frozen=True)
class Decision:
    """What was decided, and what the score is made of: ``score = inputs + biases + rest``."""

    target: str  # the class or label that is explained
    probability: float  # what the model gives it
    predicted: list[str]  # the class that the model chooses; of several labels, all above its threshold
    truth: list[str] | None  # the right answer, in the same form; ``None``: not known
    score: float  # the logit of ``target``; with one class out of several, less the mean of the other logits
    inputs: float  # the part of the score that comes from the inputs of all nodes
    biases: float  # the part that comes from the network's biases, whatever the inputs
    # What gradient × input does not explain: the constants of norms, and curved activations. 0 with ReLU or the
    # identity, without norms, and with all terms of the gradient.
    rest: float


@dataclass(frozen=True)
class InfluentialNode:
    """A node and its part in the decision."""

    node: int  # its number in the graph
    name: str  # what the source calls it
    distance: int | None  # hops to the node that is explained; ``None``: no path, or a graph is explained
    contribution: float  # what its input adds to the score
    share: float  # of the contributions of all nodes, taken without sign; negative: against the target
    classes: list[str] | None  # its own label; ``None``: not known


@dataclass(frozen=True)
class GraphExplanation:
    """Why a graph got its class."""

    graph: int  # its number in the data set
    decision: Decision
    layers: list[LayerReach]  # how deep each went, and whether all of its gradient was used
    influential: list[InfluentialNode]  # with the largest contributions, either sign

    @property
    def complete(self) -> bool:
        """Whether all terms of the gradient were used; otherwise they did not fit into memory."""
        return all(layer.terms > layer.depth for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"complete": self.complete}


@dataclass(frozen=True)
class NodeExplanation(GraphExplanation):
    """Why a node got its class."""

    node: int  # its number in the graph
    name: str  # what the source calls it
    # For 0, 1, 2, ... hops, the share of the influence that comes from nodes so far away: contributions without
    # their sign, divided by those of all nodes.
    share_by_distance: list[float]
    signed_by_distance: list[float]  # the same, with signs
    nodes_by_distance: list[int]  # how many nodes are so far away
    unreachable_nodes: int  # without a path to this one; only norms over all nodes give them a share
    unreachable_share: float
    # Within how many hops 95 % of the influence lies; ``None``: there is none, or too much of it has no path.
    radius: int | None
    far: list[InfluentialNode]  # the nodes more than 3 hops away with the largest contributions


def explain_node(
    model: Model,
    dataset: GraphDataset,
    node: int,
    *,
    target: int | None = None,
    top: int = 10,
    graph: int = 0,
    memory: int | None = None,
) -> NodeExplanation:
    """Explain the class, or one of the labels, of a node.

    Args:
        model: A model for labels per node; it is left as it was.
        dataset: The graph.
        node: The number of the node in its graph.
        target: The number of the class or label to explain; ``None``: the most probable one.
        top: How many influential nodes to name.
        graph: Which graph, where there are several.
        memory: Bytes that states may take; ``None``: half of what is available. What does not fit is left out of
            the gradient, and :attr:`LayerReach.left_out` bounds it.
    """
    part, batch = one_graph(model, dataset, graph, "node", target)
    size, data = part.num_nodes, part[0]
    if not 0 <= node < size:
        raise TrainingError(f"The node must be a number from 0 to {size - 1}, but came as {node}.")
    found = attribute(model, batch, node, target, memory)
    distance = hops_to(data.edge_index, size, node)
    shares, reached = _shares(found.nodes), distance >= 0
    hops, farthest = distance[reached], int(distance.max()) + 1
    absolute = torch.zeros(farthest, dtype=torch.float64).index_add_(0, hops, shares[reached].abs())
    signed = torch.zeros(farthest, dtype=torch.float64).index_add_(0, hops, shares[reached])
    within = (absolute.cumsum(0) >= MOST_OF_IT - 1e-9).nonzero().flatten()
    return NodeExplanation(
        graph=graph,
        decision=_decision(model, found, _classes(dataset, data, node)),
        layers=found.layers,
        influential=_largest(top, found.nodes, dataset, graph, distance),
        node=node,
        name=node_name(dataset, node, graph),
        share_by_distance=absolute.tolist(),
        signed_by_distance=signed.tolist(),
        nodes_by_distance=torch.bincount(hops, minlength=farthest).tolist(),
        unreachable_nodes=int((~reached).sum()),
        unreachable_share=float(shares[~reached].abs().sum()),
        radius=int(within[0]) if bool(found.nodes.any()) and len(within) else None,
        far=_largest(top, found.nodes, dataset, graph, distance, distance > FAR),
    )


def explain_graph(
    model: Model,
    dataset: GraphDataset,
    index: int,
    *,
    target: int | None = None,
    top: int = 10,
    memory: int | None = None,
) -> GraphExplanation:
    """Explain the class, or one of the labels, of a graph; options as in :func:`explain_node`."""
    part, batch = one_graph(model, dataset, index, "graph", target)
    found, data = attribute(model, batch, 0, target, memory), part[0]
    truth = true_classes(data.get("y"), None, 0, dataset.facts.class_names)
    influential = _largest(top, found.nodes, dataset, index)
    return GraphExplanation(index, _decision(model, found, truth), found.layers, influential)


# ------------------------------------------------------------------------------------------------------ questions
def one_graph(
    model: Model, dataset: GraphDataset, graph: int, task: str, target: int | None
) -> tuple[GraphDataset, Batch]:
    """The graph that is asked about, also as a batch; refuses what cannot be explained."""
    if model.facts.task != task:
        raise TrainingError(
            f"This model was trained for labels per {model.facts.task}, so it has nothing to say about a single "
            f"{task}; explain a {model.facts.task} instead."
        )
    check_system(model)
    if not 0 <= graph < len(dataset):
        raise TrainingError(
            f"{dataset.facts.name} has {counted(len(dataset), 'graph')}, numbered from 0, but "
            f"graph {graph} was asked for."
        )
    if target is not None and not 0 <= target < model.shape.num_classes:
        raise TrainingError(
            f"The target must be the number of a class, 0 to {model.shape.num_classes - 1}, but came as {target}."
        )
    part: GraphDataset = dataset if len(dataset) == 1 else dataset[[graph]]
    batches = model.batches(part)
    return part, batches.batch(batches.all_graphs())


def check_system(model: Model, done: str = "explained") -> None:
    """Raise if there is no gradient to explain it with."""
    system = find_system(model.config.model.system)
    if system.kind == "kernel" or not system.whole_gradient:
        raise TrainingError(
            f"What {system.title} decides cannot be {done}, because there is no gradient from its logits back "
            f"to all nodes; train a system that has one, such as pprgnn or gcn."
        )


# -------------------------------------------------------------------------------------------------------- answers
def _decision(model: Model, found: Attribution, truth: list[str] | None) -> Decision:
    probabilities, names = model.probabilities(found.logits[None])[0], model.facts.class_names
    decided = model.decide(found.logits)
    chosen = decided.nonzero().flatten().tolist() if model.facts.multi_label else [int(decided)]
    inputs = float(found.nodes.sum())
    return Decision(
        target=names[found.target],
        probability=float(probabilities[found.target]),
        predicted=[names[each] for each in chosen],
        truth=truth,
        score=found.score,
        inputs=inputs,
        biases=found.biases,
        rest=found.score - inputs - found.biases,
    )


def _shares(contributions: Tensor) -> Tensor:
    return contributions / max(float(contributions.abs().sum()), 1e-300)


def _largest(
    top: int,
    contributions: Tensor,
    dataset: GraphDataset,
    graph: int,
    distance: Tensor | None = None,
    among: Tensor | None = None,
) -> list[InfluentialNode]:
    """The largest contributions, of these nodes only if some are given; those of 0 are none."""
    matters = contributions != 0
    chosen = (matters if among is None else among & matters).nonzero().flatten()
    order = torch.argsort(contributions[chosen].abs(), descending=True, stable=True)
    data, shares, found = dataset[graph], _shares(contributions), []
    for node in chosen[order[: max(top, 0)]].tolist():
        hops = None if distance is None or distance[node] < 0 else int(distance[node])
        amounts = float(contributions[node]), float(shares[node])
        classes = _classes(dataset, data, node)
        found.append(InfluentialNode(node, node_name(dataset, node, graph), hops, *amounts, classes))
    return found


def _classes(dataset: GraphDataset, data: Any, node: int) -> list[str] | None:
    if dataset.facts.task != "node":
        return None
    return true_classes(data.get("y"), data.get("labelled"), node, dataset.facts.class_names)


def true_classes(y: Tensor | None, labelled: Tensor | None, row: int, names: Sequence[str]) -> list[str] | None:
    """The names of the classes in a row of labels; ``None`` if it is not labelled."""
    if y is None or (labelled is not None and not bool(labelled[row])):
        return None
    if y.dim() == 2:
        return [names[each] for each in (y[row] > 0).nonzero().flatten().tolist()]
    return None if int(y[row]) < 0 else [names[int(y[row])]]
