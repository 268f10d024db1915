"""A trained run, opened to be measured: its model, its data, one evaluation of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Batch as Graphs
from torch_geometric.utils import to_undirected

from pprgnn.baselines.ignn import EquilibriumConv
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.solution import NotFiniteError
from pprgnn.data.sparse_features import to_dense
from pprgnn.nn.layers import infinite_layers
from pprgnn.report.measured.budget import Allowance
from pprgnn.report.measured.results import Missing
from pprgnn.report.measured.solves import Solve, recorded, solves_of
from pprgnn.training.batches import Batches
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import choose_device, main_metrics
from pprgnn.training.model import Model, forward
from pprgnn.training.run import Run
from pprgnn.training.systems import System, find_system
from pprgnn.training.train import load_data

FEW_GRAPHS, FEW_NODES = 32, 4096  # of several graphs, states of so many are looked at
Found = TypeVar("Found")


class TrainedRun:
    """What the parts look at: model and data are read, and evaluated once.

    Attributes:
        run, model, dataset, split, batches: Of the run.
        masks: For each part of the split, which labels it holds.
        part: The part that is scored: the test part if there is one.
        logits, y: Of that part.
        graphs: The numbers of the graphs in ``few``.
        few: The graph, or some graphs; scored are their training labels.
        solves: What its infinite-depth layers solved there.
        pass_seconds: What one evaluation of ``few`` took.
        trouble: Why nothing can be measured on the network, if so.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.model = run, _model(run)
        self.dataset, self.split = load_data(run.config), run.split
        self.batches = self.model.batches(self.dataset)
        masks = self.split.masks(self.dataset)
        self.masks = {part: mask.to(self.model.device) for part, mask in masks.items()}
        self.part = next(part for part in ("test", "val", "train") if bool(masks[part].any()))
        chosen = _few(self.batches, self.batches.parts(self.masks["train"]))
        self.graphs: list[int] = chosen.tolist()
        self.few = self.batches.batch(chosen, self.masks["train"])
        self.solves, self.pass_seconds = list[Solve](), 0.0
        self.logits = self.y = torch.empty(0)
        self.trouble: Missing | None = None
        try:
            self._evaluate()
        except NotFiniteError as error:
            self.trouble = Missing(f"The network cannot be evaluated: {error}")
        else:
            if not bool(torch.isfinite(self.logits).all()):
                self.trouble = Missing("The logits of this model are not finite, so there is nothing to measure.")

    def _evaluate(self) -> None:
        """Find logits, and what was solved for ``few``: on one graph, for the same logits."""
        answers: list[tuple[Tensor, Tensor]] = []
        scored = _solves(self.model, lambda: answers.extend(self._answers()))
        few = len(self.batches.sizes) > 1
        solved = _solves(self.model, lambda: forward(self.model.network, self.few)) if few else scored
        self.solves, self.pass_seconds = solved
        self.logits, self.y = (torch.cat(each) for each in zip(*answers, strict=True))

    def _answers(self) -> list[tuple[Tensor, Tensor]]:
        """Logits and truth of the part that is scored, batch by batch."""
        mask = self.masks[self.part]
        parts = self.batches.cut(self.batches.parts(mask), self.batches.at_once, mask)
        return [(forward(self.model.network, batch), batch.y) for batch in parts]

    # --------------------------------------------------------------------------------------------------- facts
    @property
    def system(self) -> System:
        """What was trained."""
        return find_system(self.model.config.model.system)

    @property
    def metric(self) -> str:
        """The main one."""
        return main_metrics(self.model.config, self.model.facts)[0]

    @property
    def input(self) -> Tensor:
        """What the network reads for each node of ``few``: features, or learned rows."""
        if self.few.x is not None:
            return to_dense(self.few.x)
        rows: Any = self.model.network.embedding
        learned: Tensor = rows.weight.detach()
        return learned

    @property
    def _is_equilibrium(self) -> bool:
        return any(isinstance(layer, EquilibriumConv) for _, layer in infinite_layers(self.model.network))

    def without_recursion(self) -> Missing:
        """Why there are no solves to look at."""
        title = self.system.title
        if self._is_equilibrium:
            return Missing(
                f"{title} repeats the same step until nothing changes: nothing decays with depth, so there are "
                f"neither rates of decay nor a certificate made of them."
            )
        return Missing(f"{title} has no infinite-depth layer, so its depth is a setting and not a result.")

    def without_product(self) -> Missing:
        """Why no solve is one of matrices alone."""
        if self._is_equilibrium:
            return Missing(
                f"The gradient of {self.system.title} is that of an equilibrium: it needs one state, and no terms "
                f"are left out."
            )
        if not self.solves:
            return self.without_recursion()
        return Missing(
            "A step of these layers is a convolution of its own and not a product of matrices, so its gradient is "
            "left to automatic differentiation; this is measured for PPRConv alone."
        )

    # -------------------------------------------------------------------------------------------------- matrices
    def usual_adjacency(self, graphs: list[int], *, undirected: bool) -> Adjacency:
        """Ã of these graphs as GCN, SGC and APPNP have it: with self-loops, symmetrically normalised."""
        own = self.batches.adj
        usual = {"normalize": "sym", "add_self_loops": True}
        if len(self.batches.sizes) == 1 and own is not None and self.model.network.adjacency_options == usual:
            value = own.value
            if bool((value >= 0).all()) and (own.is_symmetric or not undirected):
                return own
        data = Graphs.from_data_list([self.dataset[number] for number in graphs])
        edges, weight = data.edge_index, data.get("edge_weight")
        weight = None if weight is None else weight.abs().to(torch.get_default_dtype())
        if undirected:
            edges = to_undirected(edges, weight, data.num_nodes, reduce="mean")
            edges, weight = edges if isinstance(edges, tuple) else (edges, None)
        adj = Adjacency.from_edge_index(edges, weight, data.num_nodes, normalize="sym", add_self_loops=True)
        return adj.to(torch.get_default_dtype()).to(self.model.device)


def of_layers(
    solves: list[Solve], allowance: Allowance, of_layer: Callable[[Solve, Allowance], Found | Missing]
) -> list[Found] | Missing:
    """The same for each layer, in equal shares of the time; why not, if there is none for which it can be had."""
    found = list[Found]()
    missing = Missing("There is no layer to look at.")
    for number, solve in enumerate(solves):
        one = of_layer(solve, allowance.among(len(solves) - number))
        if isinstance(one, Missing):
            missing = one
        else:
            found.append(one)
    if missing.seconds is not None:
        missing = replace(missing, seconds=len(solves) * missing.seconds)
    return found or missing


def _model(run: Run) -> Model:
    if not run.model_path.is_file():
        raise TrainingError(
            f"The run in {run.folder} has no model yet; continue it with `pprgnn train --resume {run.folder}`."
        )
    model = Model.load(run.model_path)
    model.network.to(choose_device(model.config.training.device))
    return model


def _few(batches: Batches, graphs: Tensor) -> Tensor:
    graphs = graphs[:FEW_GRAPHS]
    fit = int((batches.sizes[graphs].cumsum(0) <= FEW_NODES).sum())
    return graphs[: max(fit, 1)]


def _solves(model: Model, evaluate: Callable[[], Any]) -> tuple[list[Solve], float]:
    with model.precise(), torch.no_grad(), recorded(model.network) as asked:
        started = time.perf_counter()
        evaluate()
        return solves_of(model.network, asked), time.perf_counter() - started
