"""A trained run, opened to be measured: its model, its data, one evaluation, what its layers solved; time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Batch as Graphs
from torch_geometric.utils import to_undirected

from pprgnn.baselines.ignn import EquilibriumConv
from pprgnn.core import solve as solving
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.passes import permuted, run_pass
from pprgnn.core.depth import Fixed
from pprgnn.core.problem import Problem, as_eps
from pprgnn.core.solution import NotFiniteError
from pprgnn.core.steps import Steps
from pprgnn.data.sparse_features import to_dense
from pprgnn.nn.infinite_depth import InfiniteDepth
from pprgnn.nn.infinite_layer import InfiniteLayer, infinite_layers
from pprgnn.report.measured.results import Missing
from pprgnn.training.errors import TrainingError
from pprgnn.training.evaluation import choose_device, main_metrics
from pprgnn.training.model import Model, forward
from pprgnn.training.run import Run
from pprgnn.training.systems import System, find_system
from pprgnn.training.train import load_data

TIMED_PARTS = 6  # that take time: each gets about so much of what is there
SMALL = 2_000_000  # numbers in a state: up to here, double precision takes no time worth mentioning

Recursion: TypeAlias = "Problem | Steps"
FEW_GRAPHS, FEW_NODES = 32, 4096  # of several graphs, states of so many are looked at
Found = TypeVar("Found")


@dataclass(frozen=True)
class Allowance:
    """The time for one part, which begins now."""

    seconds: float  # for this part
    asked: float  # for all parts together
    folder: Path  # of the run
    started: float = field(default_factory=time.perf_counter)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.perf_counter() - self.started)

    def allows(self, seconds: float) -> bool:
        """Whether so much is left."""
        return seconds <= self.left

    def among(self, count: int) -> Allowance:
        """An equal share of what is left, for one of so many."""
        return replace(self, seconds=self.left / count, started=time.perf_counter())

    def too_long(self, what: str, seconds: float) -> Missing:
        """It is not measured, because it would take so long; and how to have it measured."""
        enough = self.asked + TIMED_PARTS * max(seconds - max(self.left, 0.0), 1.0)
        return Missing(
            f"{what} would take about {math.ceil(seconds)} s; `pprgnn report {self.folder} --seconds "
            f"{10 * math.ceil(enough / 10)}` measures it.",
            seconds,
        )


# ------------------------------------------------------------------------------------------ what its layers solved
@dataclass(frozen=True, eq=False)
class Solve:
    """One layer: what it had to solve, and what came of it."""

    name: str
    layer: InfiniteLayer
    given: Recursion  # in the precision of the network; a Problem where a step is ÃGW
    depth: int
    status: str  # what is known about that depth
    tol: float

    @cached_property
    def problem(self) -> Recursion:
        """The recursion in double precision, where it is a matter of matrices that are small enough."""
        given = self.given
        if isinstance(given, Steps) or given.b.numel() > SMALL or given.b.device.type == "mps":
            return given
        b, weight, eps = (each.double() for each in (given.b, given.weight, given.eps))
        return Problem(b, weight, eps, given.adj.to(torch.float64), given.activation)

    @cached_property
    def step_seconds(self) -> float:
        """What one step of it takes."""
        passes = Passes(self.problem)
        passes.state(1)
        started = time.perf_counter()
        passes.state(2)
        return max((time.perf_counter() - started) / 2, 1e-6)


class Passes:
    """Passes of any depth through a recursion; a state is good until the next one."""

    def __init__(self, problem: Recursion) -> None:
        self.problem = permuted(problem)  # norms do not care about the order of nodes
        self.buffers = [torch.empty_like(problem.b) for _ in range(2)]

    def state(self, depth: int) -> Tensor:
        """G⁽⁰⁾ of a pass of this depth."""
        with torch.no_grad():
            return run_pass(self.problem, depth, 0, self.buffers)[0]


@contextmanager
def recorded(network: torch.nn.Module) -> Iterator[dict[str, Recursion]]:
    """Within it, the last recursion of each layer by its name; layers that solve something else are not there."""
    layers, asked = infinite_layers(network), dict[str, Recursion]()

    def product(name: str, layer: InfiniteLayer, b: Tensor, weight: Tensor, adj: Adjacency) -> Any:
        eps = as_eps(layer.eps, b, weight.size(0))
        asked[name] = Problem(b.contiguous(), weight, eps, adj, layer.activation).detach()
        return type(layer).solve_product(layer, b, weight, adj)

    def steps(name: str, layer: InfiniteDepth, *args: Any, **kwargs: Any) -> Steps:
        found = type(layer).problem(layer, *args, **kwargs)
        asked[name] = found.detach()
        return found

    try:
        for name, layer in layers:
            layer.__dict__["solve_product"] = partial(product, name, layer)
            if isinstance(layer, InfiniteDepth):
                layer.__dict__["problem"] = partial(steps, name, layer)
        yield asked
    finally:
        for _, layer in layers:
            for method in ("solve_product", "problem"):
                layer.__dict__.pop(method, None)


def solved(problem: Problem, b: Tensor, weight: Tensor, depth: int, terms: int) -> Tensor:
    """The state of such a problem at a depth, for other B and W, with a gradient of so many terms."""
    adj, eps, phi = problem.adj, problem.eps, problem.activation
    return solving.solve(b, weight, adj, eps=eps, depth=Fixed(depth), grad_terms=terms, activation=phi).state


# ------------------------------------------------------------------------------------- model, data, one evaluation
class TrainedRun:
    """What the parts look at: model and data are read, and evaluated once."""

    def __init__(self, run: Run) -> None:
        if not run.model_path.is_file():
            raise TrainingError(
                f"The run in {run.folder} has no model yet; continue it with `pprgnn train --resume {run.folder}`."
            )
        self.run, self.model = run, Model.load(run.model_path)
        self.model.network.to(choose_device(self.model.config.training.device))
        self.dataset, self.split = load_data(run.config), run.split
        self.batches = self.model.batches(self.dataset)
        masks = self.split.masks(self.dataset)
        self.masks = {part: mask.to(self.model.device) for part, mask in masks.items()}
        self.part = next(part for part in ("test", "val", "train") if bool(masks[part].any()))  # that is scored
        chosen = self.batches.parts(self.masks["train"])[:FEW_GRAPHS]
        fit = int((self.batches.sizes[chosen].cumsum(0) <= FEW_NODES).sum())
        chosen = chosen[: max(fit, 1)]
        self.graphs: list[int] = chosen.tolist()
        self.few = self.batches.batch(chosen, self.masks["train"])  # the graph, or some of the graphs
        self.solves, self.pass_seconds = list[Solve](), 0.0  # of the layers on ``few``, and what that took
        self.logits = self.y = torch.empty(0)  # of the part that is scored
        self.trouble: Missing | None = None  # why nothing can be measured on the network
        try:
            self._evaluate()
        except NotFiniteError as error:
            self.trouble = Missing(f"The network cannot be evaluated: {error}")
        else:
            if not bool(torch.isfinite(self.logits).all()):
                self.trouble = Missing("The logits of this model are not finite, so there is nothing to measure.")

    def _evaluate(self) -> None:
        """Find logits, and what was solved for ``few``: on one graph, for the same logits."""
        mask, answers = self.masks[self.part], list[tuple[Tensor, Tensor]]()

        def scored() -> None:
            for batch in self.batches.cut(self.batches.parts(mask), self.batches.at_once, mask):
                answers.append((forward(self.model.network, batch), batch.y))

        self.solves, self.pass_seconds = _solves(self.model, scored)
        if len(self.batches.sizes) > 1:
            self.solves, self.pass_seconds = _solves(self.model, lambda: forward(self.model.network, self.few))
        self.logits, self.y = (torch.cat(each) for each in zip(*answers, strict=True))

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


def _solves(model: Model, evaluate: Callable[[], Any]) -> tuple[list[Solve], float]:
    with model.precise(), torch.no_grad(), recorded(model.network) as asked:
        started = time.perf_counter()
        evaluate()
        seconds = time.perf_counter() - started
    solves = [
        Solve(name, layer, asked[name], layer.last_solution.depth, layer.last_solution.status.name, layer.tol)
        for name, layer in infinite_layers(model.network)
        if name in asked and layer.last_solution is not None
    ]
    return solves, seconds
