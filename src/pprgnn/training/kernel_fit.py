"""Training of a graph kernel: the kernel of all pairs of graphs, C by cross-validation, a support vector machine.

Nothing is learned from the test part. C, and the kernel's own setting where there are several, are chosen by
cross-validation inside the training and validation parts; then the machine is fitted to both.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pprgnn.baselines.kernels import KernelNet, Matrix, decisions
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.split import Split
from pprgnn.training.build import Shape, build_network, feature_kind, features
from pprgnn.training.config import Config, TrainingConfig
from pprgnn.training.environment import available_memory, size_text
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import prior_logits
from pprgnn.training.grid_fit import GridTraining, Tried
from pprgnn.training.model import Model

C_VALUES = tuple(10.0**power for power in range(-3, 4))
FOLDS = 5
READ = ("metric", "monitor", "class_weights", "seed", "device", "threads")  # of [training]
ENOUGH = 3.0  # seconds of work, after which one can tell how long all of it takes

NOTE = (
    "The scores of val are of the cross-validation, inside the training and validation parts, that chose C; then "
    "the machine was fitted to both."
)

_kept: dict[tuple[Any, ...], Matrix] = {}  # the kernels of the last data set, for the other splits of a study


class KernelTraining(GridTraining):
    """One run of a graph kernel."""

    def __init__(self, config: Config, dataset: GraphDataset, split: Split, **options: Any) -> None:
        super().__init__(config, dataset, split, **options)
        kind = feature_kind(dataset, config.data.features)
        x = features(dataset, kind)
        shape = Shape.of(dataset, x)
        network = build_network(config.model, shape).to(self.device)
        assert isinstance(network, KernelNet)
        assert x is not None  # only nodes can have learned rows instead
        if dataset.facts.multi_label:
            raise TrainingError(
                f"{self.title} gives every graph one class, but graphs of {dataset.facts.name} may have several; "
                f"use a network."
            )
        self.network, self.model = network, Model(network, config, dataset.facts, shape, kind)
        self.masks = {part: mask.numpy() for part, mask in split.masks(dataset).items()}
        self.fitted = np.flatnonzero(self.masks["train"] | self.masks["val"])
        self.y = dataset.labels().numpy()
        self.model.prior = prior_logits(dataset.labels()[torch.from_numpy(self.masks["train"])], shape.num_classes)
        if len(np.unique(self.y[self.fitted])) < 2:
            raise TrainingError(
                f"{self.title} needs graphs of two classes to learn from, but those of the training part of "
                f"{dataset.facts.name} are all of one; divide differently."
            )
        self.label_columns = network.read_labels(x)
        batches = self.model.batches(dataset)
        batch = batches.batch(batches.all_graphs())
        state = network.encode(batch.x, batch.edges, batch.edge_weight)
        self.graphs = network.graphs(state, batch.graph, batch.num_graphs)
        try:
            self.choices = network.possible_choices(self.graphs)
        except ValueError as error:
            raise TrainingError(str(error)) from error
        own = tuple(sorted((name, str(value)) for name, value in config.model.own.items()))
        self._key = (config.model.system, own, self.graphs.digest())
        self._check_memory()

    @property
    def undefined(self) -> str:
        """What is said when the main metric cannot be computed."""
        return (
            f"The {self.metrics[0]} cannot be computed in cross-validation; change training.metric, or set "
            f"training.monitor=loss."
        )

    def _check_memory(self) -> None:
        """Refuse matrices that do not fit: those to come, and a copy or two of parts."""
        count, free = len(self.graphs), available_memory()
        needed = 8 * count**2 * (3 + self._missing)
        if free is not None and needed > free:
            fewer = f", or name one value of {self.network.choice_name}" if len(self.choices) > 1 else ""
            raise TrainingError(
                f"{self.title} needs about {size_text(needed)} of memory to compare {count:,} graphs with one "
                f"another, but {size_text(free)} are free; use fewer graphs{fewer}."
            )

    @property
    def _missing(self) -> int:
        """The number of kernels that are not kept yet."""
        return sum((*self._key, choice) not in _kept for choice in self.choices)

    # ---------------------------------------------------------------------------------------------------- fitting
    def _fit(self) -> dict[str, Any]:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        self._describe()
        with threadpool_limits(self.settings.threads or None):
            best = max(self._try_all(), key=lambda each: each.figure)  # of equals the smallest C
            c, choice = best.settings["C"], best.settings.get(self.network.choice_name, self.choices[0])
            values = self._values(choice)[:, self.fitted]
            machine = self._machine(values[self.fitted], self.y[self.fitted], c)
            self.network.keep(self.graphs.take(self.fitted), *machine, choice)
            logits = decisions(values, *machine)
        rows = {part: torch.from_numpy(self.masks[part]) for part in ("train", "test")}
        found = self._scores(
            *((part, logits[mask], torch.from_numpy(self.y)[mask]) for part, mask in rows.items())
        )
        # The machine has seen the validation part, so its score is cross-validated.
        scores = found["scores"] | {"val": best.scores}
        return found | {
            "scores": {part: scores[part] for part in ("train", "val", "test") if part in scores},
            "note": " ".join(filter(None, (self.dataset.facts.note, NOTE))),
            "test_chose_the_epoch": False,
            "chosen": best.settings,
            "parameters": sum(p.numel() for p in self.network.parameters()),
        }

    def _describe(self) -> None:
        labels = f"{self.label_columns} columns of zeros and ones" if self.label_columns else "their degrees"
        other = self.network.in_channels - self.label_columns
        words = f"labels of nodes are {labels}" if self.network.uses_labels else "labels of nodes play no part"
        unused = f"; {other} other features are not used" if other else ""
        self.listener.note(f"{self.title} on {self.dataset.facts.name}, {self.split.protocol}: {words}{unused}.")
        left_out = [f"{each:g}" for each in self.network.choices if each not in self.choices]
        if left_out:
            self.listener.note(f"Too large for these graphs: {self.network.choice_name} {', '.join(left_out)}.")
        usual, given = TrainingConfig(), self.settings
        changed = [each.name for each in fields(usual) if getattr(given, each.name) != getattr(usual, each.name)]
        unread = ", ".join(name for name in changed if name not in READ)
        if unread:
            self.listener.note(f"A graph kernel has no use for these settings of [training]: {unread}.")

    def _try_all(self) -> list[Tried]:
        """Every C with every choice of the kernel's own setting, scored by cross-validation."""
        name, metric, y = self.network.choice_name, self.metrics[0], torch.from_numpy(self.y[self.fitted])
        for choice in self.choices:
            started = time.perf_counter()
            logits = self._out_of_fold(self._values(choice))
            seconds = time.perf_counter() - started
            own = {name: choice} if name else {}
            for c, each in zip(C_VALUES, logits, strict=True):
                self._try(own | {"C": c}, each, y, seconds / len(C_VALUES))
            best = self.best
            assert best is not None
            chosen = ", ".join(f"{key} {value:g}" for key, value in best.settings.items())
            self.listener.note(
                f"{f'{name} {choice:g}' if name else 'Kernel'}: {seconds:.1f} s; best so far {chosen}, with "
                f"{100 * best.scores[metric]:.2f}% {metric} in cross-validation."
            )
        return self.tried

    # ----------------------------------------------------------------------------------------------- kernel values
    def _values(self, choice: float) -> Matrix:
        """The kernel of all pairs of graphs. Classes play no part in it, so the splits of a study share it."""
        for key in [key for key in _kept if key[:-1] != self._key]:
            del _kept[key]
        key = (*self._key, choice)
        started, estimated = time.perf_counter(), False

        def done(share: float) -> None:
            nonlocal estimated
            passed = time.perf_counter() - started
            if not estimated and passed > ENOUGH:
                estimated = True
                self._check_time(passed / share)

        if key not in _kept:
            _kept[key] = self.network.matrix(self.graphs, choice, done)
        return _kept[key]

    def _check_time(self, seconds: float) -> None:
        """Refuse what takes too long; tell how long it takes."""
        hours, most = seconds * self._missing / 3600, self.network.max_hours
        if hours > most:
            raise TrainingError(
                f"{self.title} would take about {hours:.1g} hours to compare all pairs of the "
                f"{len(self.graphs):,} graphs of {self.dataset.facts.name}, but max_hours is {most:g}; allow more "
                f"with --set max_hours={math.ceil(1.2 * hours)}, or use a faster kernel such as wl."
            )
        name = self.network.choice_name
        self.listener.note(
            f"It takes about {seconds / 60:.1f} min to compare all pairs of graphs, for each {name}."
        )

    # ------------------------------------------------------------------------------------------------- the machine
    def _out_of_fold(self, values: Matrix) -> Tensor:
        """For every C, the logits of each fitted graph, by a machine that has not seen it."""
        from sklearn.model_selection import StratifiedKFold  # type: ignore[import-untyped]

        y = self.y[self.fitted]
        smallest = int(np.unique(y, return_counts=True)[1].min())
        folds = StratifiedKFold(max(2, min(FOLDS, smallest)), shuffle=True, random_state=self.settings.seed)
        with warnings.catch_warnings():  # a class of one graph cannot be in every fold
            warnings.filterwarnings("ignore", "The least populated class in y has only", UserWarning)
            parts = list(folds.split(y, y))
        logits = torch.empty(len(C_VALUES), len(y), self.network.num_classes)
        for train, held_out in parts:
            inside, outside = self.fitted[train], self.fitted[held_out]
            among, between = values[np.ix_(inside, inside)], values[np.ix_(outside, inside)]
            for number, c in enumerate(C_VALUES):
                logits[number, torch.from_numpy(held_out)] = decisions(between, *self._machine(among, y[train], c))
        return logits

    def _machine(self, values: Matrix, y: NDArray[np.int64], c: float) -> tuple[Matrix, Matrix]:
        """Dual coefficients (graphs × machines) and intercepts.

        Of two classes the second against the first, of more each against the rest; a class that all or none of the
        graphs have needs no machine.
        """
        from sklearn.svm import SVC  # type: ignore[import-untyped]

        weights = None if self.settings.class_weights == "none" else self.settings.class_weights
        intercept = np.zeros(len(self.network.intercept))
        dual = np.zeros((len(y), len(intercept)))
        for number in range(len(intercept)):
            inside = y == (1 if len(intercept) == 1 else number)
            if inside.all() or not inside.any():
                intercept[number] = 1.0 if inside.all() else -1.0
                continue
            machine = SVC(C=c, kernel="precomputed", class_weight=weights).fit(values, inside)
            dual[machine.support_, number] = machine.dual_coef_[0]
            intercept[number] = machine.intercept_[0]
        return dual, intercept
