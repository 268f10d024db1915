"""``NodeClassifier`` and ``GraphClassifier``: training in the manner of scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch_geometric.data.data import BaseData

from pprgnn.data.catalog import Task
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.own.objects import checked_graph, from_pyg
from pprgnn.data.registry import load
from pprgnn.data.split import Split
from pprgnn.training.config import Config, ModelConfig, settings
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import evaluate, main_metrics
from pprgnn.training.listener import Listener
from pprgnn.training.model import Model
from pprgnn.training.recipes import find_recipe
from pprgnn.training.train import choose_split, train

Graphs: TypeAlias = Any  # GraphDataset | Data | Sequence[Data] | str | Path, but mypy does not see PyG's types
Self = TypeVar("Self", bound="_Classifier")


class _Classifier:
    """What both have in common; the settings are those of :class:`pprgnn.training.Config`, without sections."""

    task: Task

    def __init__(self, **changes: Any) -> None:
        self.config = Config.for_task(self.task).with_values(changes)
        self.model_: Model | None = None
        self.summary_: dict[str, Any] = {}
        self.split_: Split | None = None
        self._dataset: GraphDataset | None = None

    @classmethod
    def from_recipe(cls: type[Self], name: str | Path, **changes: Any) -> Self:
        """One with the settings of a recipe: a TOML file, or the name of a shipped one."""
        path = find_recipe(str(name))
        if path is None:
            raise TrainingError(f"There is no recipe {str(name)!r}; `pprgnn train --settings` lists them.")
        classifier = cls()
        classifier.config = Config.from_toml(path).with_values(changes)
        return classifier

    def fit(
        self: Self,
        data: Graphs,
        *,
        split: Split | None = None,
        folder: Path | str | None = None,
        verbose: bool = False,
        listener: Listener | None = None,
    ) -> Self:
        """Train on the training part of ``data``, choose the epoch on its validation part.

        Args:
            data: A PyG ``Data`` (its masks divide it, otherwise 60/20/20), a list of them, a data set, or the name
                or file of one.
            split: How to divide it, if not as the settings say.
            folder: Keep the run there.
            verbose: Show progress.
            listener: Is told how it goes.
        """
        dataset = self._labelled(data)
        if verbose and listener is None:
            from pprgnn.training.terminal import EpochLines

            listener = EpochLines()
        split = choose_split(self.config, dataset) if split is None else split
        trained = train(self.config, dataset=dataset, split=split, folder=folder, listener=listener)
        self.model_, self.summary_ = trained.model, trained.summary
        self.split_, self._dataset = split, dataset
        return self

    def predict(self, data: Graphs | None = None, nodes: Tensor | Sequence[int] | None = None) -> Tensor:
        """The class of every node or graph; with several labels, a matrix of zeros and ones.

        A label is one where its probability is above the threshold that the validation part chose:
        ``summary_["threshold"]``, and ``model_.threshold`` of a model that was loaded.

        Without ``data``, of the graphs it was fitted on. With ``nodes``, of these alone, at the price of their
        neighbourhood. ``classes_`` names the classes.
        """
        return self._model.decide(self._model.logits(self._like_trained(data), nodes)).long()

    def predict_proba(self, data: Graphs | None = None, nodes: Tensor | Sequence[int] | None = None) -> Tensor:
        """The probability of every class, one row per node or graph, or per node of ``nodes``."""
        return self._model.probabilities(self._model.logits(self._like_trained(data), nodes))

    def score(self, data: Graphs | None = None, part: str = "test") -> float:
        """The main metric: of one part of the data it was fitted on, or of all labels of other data."""
        model = self._model
        if data is None and self.summary_:
            if part not in self.summary_["scores"]:
                raise TrainingError(f"part must be one of {', '.join(self.summary_['scores'])}, but is {part!r}.")
            return float(self.summary_["scores"][part][self.summary_["metric"]])
        dataset = self._like_trained(data)
        metrics = main_metrics(model.config, model.facts)
        mask = dataset.labelled().to(model.device)
        if not bool(mask.any()):
            raise TrainingError(f"Nothing in {dataset.facts.name} is labelled, so there is nothing to score.")
        scores, _, _ = evaluate(model, model.batches(dataset), {"all": mask}, metrics)
        return scores["all"][metrics[0]]

    @property
    def classes_(self) -> tuple[str, ...]:
        """The names of the classes, in the order of :meth:`predict_proba`."""
        return self._model.facts.class_names

    def save(self, path: Path | str) -> None:
        """Keep the model in one safetensors file."""
        self._model.save(path)

    @classmethod
    def load(cls: type[Self], path: Path | str, device: str | torch.device = "cpu") -> Self:
        """Read a file that :meth:`save` wrote, or the folder of a run; nothing in it can run code."""
        model = Model.load(path, device)
        if model.facts.task != cls.task:
            other = "NodeClassifier" if cls.task == "graph" else "GraphClassifier"
            raise TrainingError(f"{path} holds a model for labels per {model.facts.task}; use {other}.load.")
        classifier = cls()
        classifier.config, classifier.model_ = model.config, model
        return classifier

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All settings that its system reads, as scikit-learn has them."""
        return {each.name: self.config.value(each.key) for each in settings(self.config.model.system)}

    def set_params(self: Self, **changes: Any) -> Self:
        """Change settings; another ``system`` brings its usual ones for all others."""
        self.config = self.config.with_values(changes)
        return self

    @property
    def _model(self) -> Model:
        if self.model_ is None:
            raise TrainingError(f"This {type(self).__name__} is not trained yet; call fit first, or load a model.")
        return self.model_

    def _labelled(self, data: Graphs) -> GraphDataset:
        """The data to fit on."""
        dataset = load(data) if isinstance(data, str | Path) else data
        if not isinstance(dataset, GraphDataset):
            dataset = from_pyg(data)
        if dataset.facts.task != self.task:
            other = "NodeClassifier" if self.task == "graph" else "GraphClassifier"
            raise TrainingError(
                f"{type(self).__name__} needs labels per {self.task}, but {dataset.facts.name} has them per "
                f"{dataset.facts.task}; use {other}."
            )
        return dataset

    def _like_trained(self, data: Graphs | None) -> GraphDataset:
        """The data to predict: PyG graphs are taken to be of the kind that the model was trained on."""
        facts = self._model.facts
        if data is None:
            if self._dataset is None:
                raise TrainingError("A model that was loaded does not hold its data; pass the graphs to predict.")
            return self._dataset
        if isinstance(data, str | Path | GraphDataset):
            return data if isinstance(data, GraphDataset) else load(data)
        graphs = [data] if isinstance(data, BaseData) else list(data)
        checked = [checked_graph(graph, f"graph {number}") for number, graph in enumerate(graphs)]
        return GraphDataset.from_graphs(checked, replace(facts, name="the graphs"))

    def __repr__(self) -> str:
        system = self.config.model.system
        usual = Config.for_task(self.task).with_values({"model.system": system})
        changed = [] if system == ModelConfig.system else [f"system={system!r}"]
        for each in settings(system):
            value = self.config.value(each.key)
            changed += [f"{each.name}={value!r}"] if value != usual.value(each.key) else []
        return f"{type(self).__name__}({', '.join(changed)})"


class NodeClassifier(_Classifier):
    """Classifies the nodes of a graph, or of several; also of graphs it has never seen.

    Args:
        **changes: Any setting of :class:`pprgnn.training.Config` by its name, such as ``hidden``, ``eps``,
            ``learn_eps``, ``dropout``, ``lr``, ``epochs`` or ``seed``; `pprgnn train --settings` lists them.
            With ``system="gat"``, another system learns, with its usual settings and those that only it has.

    Example:
        >>> import pprgnn
        >>> chains = pprgnn.data.load("chains", length=8)
        >>> model = pprgnn.NodeClassifier(hidden=16, dropout=0.0, epochs=60, lr=0.05).fit(chains)
        >>> model.score() > 0.9
        True
        >>> model.predict_proba(chains[0]).shape
        torch.Size([8, 2])
    """

    task: Task = "node"


class GraphClassifier(_Classifier):
    """Classifies whole graphs.

    Args:
        **changes: as in :class:`NodeClassifier`.
    """

    task: Task = "graph"
