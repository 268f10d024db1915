"""A trained model: a network, how it was made, and what its outputs mean. One safetensors file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pprgnn.baselines.ignn import EquilibriumConv
from pprgnn.core.depth import Fixed
from pprgnn.core.problem import finite
from pprgnn.data.atomic_io import read_tensors, write_tensors
from pprgnn.data.dataset import Facts, GraphDataset
from pprgnn.errors import DataError
from pprgnn.nn.infinite_layer import InfiniteLayer, infinite_layers, measure_afresh, set_tolerance
from pprgnn.nn.network import Network
from pprgnn.training.batches import Batch, Batches
from pprgnn.training.build import EDGES, Shape, build_network, digest, features
from pprgnn.training.config import Config
from pprgnn.training.errors import TrainingError
from pprgnn.training.label_input import KINDS as LABEL_KINDS
from pprgnn.training.label_input import VisibleLabels
from pprgnn.training.scaling import Scaling
from pprgnn.training.thresholds import Threshold

FORMAT = "pprgnn model, version 1"
GRAPHS_PER_PASS = 128
NODES_PER_PASS = 4096  # of small graphs, in node tasks
ERRORS = ("truncation_bound", "error_bound", "measured_error", "estimated_error", "rounding_error")


@dataclass
class Model:
    """A network and all that is needed to use it elsewhere."""

    network: Network
    config: Config
    facts: Facts  # of the data it was trained on: classes, metric, and how tables became numbers
    shape: Shape
    feature_kind: str
    visible: VisibleLabels | None = None  # with labels as input: those of the training nodes
    threshold: Threshold = Threshold()  # with several labels: above it one is predicted
    prior: tuple[float, ...] = ()  # what it has to beat; see pprgnn.training.evaluation
    scaling: Scaling | None = None  # of the given features, by the training part

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    # ------------------------------------------------------------------------------------------------ predicting
    def check_data(self, dataset: GraphDataset, edges: str | None = None) -> None:
        """Raise unless the network can be used on these graphs; ``edges`` is their digest, if it is known."""
        if dataset.facts.task != self.facts.task:
            raise TrainingError(
                f"This model was trained for labels per {self.facts.task}, but {dataset.facts.name} has them per "
                f"{dataset.facts.task}; use data of the same kind as {self.facts.name}."
            )
        if self.visible is not None:
            self.visible.check(dataset)
        if self.shape.num_nodes is not None and dataset.num_nodes != self.shape.num_nodes:
            raise TrainingError(
                f"This model learned a row for each of the {self.shape.num_nodes} nodes of {self.facts.name} and "
                f"cannot be used on {dataset.facts.name} with {dataset.num_nodes}; train on data with features."
            )
        if self.shape.edges is not None and self.shape.edges != (edges or digest(dataset, EDGES)):
            has = "learned a row for each node" if self.visible is None else "reads the labels of training nodes"
            raise TrainingError(
                f"This model {has} of {self.facts.name} and cannot be used on a graph with other edges "
                f"({dataset.facts.name}); train on data with features."
            )

    def check_width(self, dataset: GraphDataset, width: int) -> None:
        """Raise unless the network reads so many features per node."""
        if width != self.shape.in_channels:
            raise TrainingError(
                f"This model reads {self.shape.in_channels} features per node, but {dataset.facts.name} has "
                f"{width}; use data of the same kind as {self.facts.name}."
            )

    def features(self, dataset: GraphDataset) -> Tensor | None:
        """What the network reads about each node; None: learned rows."""
        x = features(dataset, self.feature_kind, self.visible)
        if x is None or self.scaling is None:
            return x
        self.check_width(dataset, x.size(1))
        return self.scaling(x)

    def batches(self, dataset: GraphDataset) -> Batches:
        """The graphs of a data set as this network wants them."""
        self.check_data(dataset)
        x = self.features(dataset)
        if x is not None:
            self.check_width(dataset, x.size(1))
        label_columns = 0 if self.visible is None else self.visible.width
        batches = Batches(dataset, x, self.network.adjacency_options, self.device, label_columns)
        if dataset.facts.task == "graph":
            batches.per_pass = GRAPHS_PER_PASS
        elif self.network.separable:  # small graphs that do not depend on each other
            small = NODES_PER_PASS * len(dataset) // max(dataset.num_nodes, 1)  # so many have that many nodes
            batches.per_pass = max(1, min(small, len(dataset)))
        return batches

    def logits(self, dataset: GraphDataset, nodes: Tensor | Sequence[int] | None = None) -> Tensor:
        """One row per node or graph, to the final tolerance. Depends on weights and graphs alone.

        With ``nodes``, one row for each of them, from their neighbourhood alone where that is proved to be enough;
        :class:`pprgnn.training.few_nodes.FewNodes` answers again and again, and tells what it took.
        """
        if nodes is not None:
            from pprgnn.training.few_nodes import FewNodes

            return FewNodes(self, dataset).logits(nodes)[0]
        return self.evaluate(self.batches(dataset))[0]

    def evaluate(self, batches: Batches) -> tuple[Tensor, list[dict[str, Any]]]:
        """The logits of all graphs, and for each layer what is known about its deepest solve."""
        logits, layers = [], dict[str, dict[str, Any]]()
        with self.precise(), torch.no_grad():
            for batch in batches.cut(batches.all_graphs(), batches.at_once):
                logits.append(forward(self.network, batch))
                for facts in layer_facts(self.network):
                    if facts["depth"] >= layers.get(facts["layer"], facts)["depth"]:
                        layers[facts["layer"]] = facts
        return torch.cat(logits), list(layers.values())

    def evaluate_unseen(self, batches: Batches) -> tuple[Tensor, list[dict[str, Any]]]:
        """As :meth:`evaluate`, for scores: where labels are input, those of a node are hidden from its own row."""
        logits, layers = self.evaluate(batches)
        if self.visible is not None:
            order = torch.Generator().manual_seed(self.config.training.seed)
            with self.precise(), torch.no_grad():
                for fold in self.visible.folds(batches.dataset.num_nodes, order):
                    batch = batches.batch(batches.all_graphs(), batches.own_labels(fold), hide=True)
                    logits[batch.rows] = forward(self.network, batch)
        return logits, layers

    @contextmanager
    def precise(self) -> Iterator[None]:
        """Within it the network evaluates: no dropout, final tolerance, depths measured anew."""
        layers, modules = (layer for _, layer in infinite_layers(self.network)), self.network.modules()
        with measure_afresh(self.network), restored(layers, "tol"), restored(modules, "training"):
            self.network.eval()
            set_tolerance(self.network, self.config.training.eval_tol)
            yield

    def probabilities(self, logits: Tensor) -> Tensor:
        """Of each class: they add up to 1, or each is between 0 and 1 with several labels."""
        return logits.sigmoid() if self.facts.multi_label else logits.softmax(dim=1)

    def decide(self, logits: Tensor) -> Tensor:
        """The class of each row; with several labels, a bool for each class: whether it is above the threshold."""
        return self.threshold.marks(logits) if self.facts.multi_label else logits.argmax(dim=-1)

    # ---------------------------------------------------------------------------------------------------- file
    def save(self, path: Path | str, weights: Mapping[str, Tensor] | None = None) -> None:
        """Write it whole, or leave the old file; ``weights``: of the network, if they are not all in it."""
        metadata = {
            "format": FORMAT,
            "config": json.dumps(self.config.to_dict()),
            "facts": self.facts.to_json(),
            "shape": json.dumps(asdict(self.shape)),
            "features": self.feature_kind,
            "threshold": json.dumps(asdict(self.threshold)),
            "prior": json.dumps(self.prior),
            "scaling": json.dumps(None if self.scaling is None else asdict(self.scaling)),
        }
        tensors = dict(self.network.state_dict() if weights is None else weights)
        if self.visible is not None:
            tensors |= self.visible.tensors()
        try:
            write_tensors(Path(path), tensors, metadata)
        except OSError as error:
            raise TrainingError(
                f"The model cannot be written to {path} ({error.strerror or error}); choose another folder."
            ) from error

    @classmethod
    def load(cls, path: Path | str, device: str | torch.device = "cpu") -> Model:
        """Read what :meth:`save` wrote; nothing in the file can run code."""
        path = Path(path)
        if path.is_dir():
            path = path / "model.safetensors"
        tensors, metadata = read_tensors(path)
        if metadata.get("format") != FORMAT:
            raise DataError(f"{path} is not a model ({FORMAT}); train one with `pprgnn train`.")
        try:
            config = Config.from_dict(json.loads(metadata["config"]), str(path))
            facts = Facts.from_json(metadata["facts"])
            shape = Shape(**json.loads(metadata["shape"]))
            with torch.random.fork_rng(devices=[]):  # the caller's random numbers are none of its business
                network = build_network(config.model, shape, tol=config.training.eval_tol)
            kind = metadata["features"]
            chosen = metadata.get("threshold")  # models from before there was a choice have none
            threshold = Threshold() if chosen is None else Threshold.from_dict(json.loads(chosen))
            prior = tuple(map(float, json.loads(metadata.get("prior", "[]"))))
            scaling = json.loads(metadata.get("scaling", "null"))
            scaling = scaling and Scaling(tuple(scaling["mean"]), tuple(scaling["scale"]))
            visible = VisibleLabels.taken_from(tensors) if kind in LABEL_KINDS else None
            network.load_state_dict(tensors)
        except TrainingError:  # such as a package that is not installed
            raise
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            what = " ".join(str(error).split())
            raise DataError(f"{path} is damaged ({type(error).__name__}: {what}); copy it again.") from error
        broken = next((name for name, tensor in tensors.items() if not finite(tensor)), None)
        if broken is not None:
            raise DataError(f"{path} holds numbers that are not finite ({broken}); train the model again.")
        network.to(device).eval()
        return cls(network, config, facts, shape, kind, visible, threshold, prior, scaling)


def forward(network: Network, batch: Batch) -> Tensor:
    """Logits of the scored rows of a batch."""
    return head(network, batch, network.encode(batch.x, batch.edges, batch.edge_weight))


def head(network: Network, batch: Batch, state: Tensor) -> Tensor:
    """From the state of all nodes to the logits of the scored rows."""
    if batch.graph is None:
        return network.decode(batch.scored(state))
    return network.decode(state, batch.graph, batch.num_graphs)


def layer_facts(network: Network) -> Iterator[dict[str, Any]]:
    """What is known about the last solve of each infinite-depth layer."""
    for name, layer in infinite_layers(network):
        solution = layer.last_solution
        if solution is not None:
            yield {
                "layer": name,
                "depth": solution.depth,
                "status": solution.status.name,
                **{kind: getattr(solution, kind) for kind in ERRORS},
                "weight_norm": largest_norm(layer),
                "eps": smallest_eps(layer.eps),
            }


def weight_norm(weight: Tensor) -> float:
    """‖W‖₂, or nan when W is not finite."""
    weight = weight.detach()
    return float(torch.linalg.matrix_norm(weight, ord=2)) if bool(torch.isfinite(weight).all()) else math.nan


def largest_norm(layer: InfiniteLayer) -> float:
    """The largest ‖W‖₂ of what a step multiplies by; nan when something is not finite, 0 without weights."""
    norms = [weight_norm(weight) for weight in layer.weights()]
    return math.nan if any(map(math.isnan, norms)) else max(norms, default=0.0)


def smallest_eps(eps: float | Tensor) -> float:
    """The slowest decay of a layer's channels."""
    return float(eps.detach().min()) if isinstance(eps, Tensor) else float(eps)


@contextmanager
def restored(objects: Iterable[Any], *names: str) -> Iterator[None]:
    """Afterwards these attributes are as before, of objects that have them."""
    before = [(each, name, getattr(each, name)) for each in objects for name in names if hasattr(each, name)]
    try:
        yield
    finally:
        for each, name, value in before:
            setattr(each, name, value)


@contextmanager
def at_depths(layers: Iterable[tuple[InfiniteLayer, int]]) -> Iterator[None]:
    """Within it, layers go exactly so deep; those of an equilibrium make so many steps."""
    chosen = list(layers)
    with restored((layer for layer, _ in chosen), "steps", "depth_rule", "last_solution"):
        for layer, depth in chosen:
            if isinstance(layer, EquilibriumConv):
                layer.steps = depth
            else:
                layer.depth_rule = Fixed(depth)
        yield
