"""The logits of a few nodes from their neighbourhood alone, wherever it is proved to be enough.

The asked rows of the last layer's output differ from those of infinite depth by at most ``eval_tol`` · ‖B‖_F in
the Frobenius norm, where B has the asked rows only: what a full pass promises for all rows together is promised
for these. Whatever comes after the last layer works row by row.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from pprgnn.core.adjacency import Adjacency
from pprgnn.core.csr import LARGE_GRAPH
from pprgnn.data.atomic_io import read_tensors, write_tensors
from pprgnn.data.dataset import GraphDataset
from pprgnn.data.sparse_features import normalize_rows, not_finite, row_norms, split_rows, take_rows
from pprgnn.data.store import derived_path
from pprgnn.errors import DataError
from pprgnn.local.neighbourhood import Neighbourhood, NotWorthwhile, Push, RowGrowth
from pprgnn.training.build import EDGES, digest, features
from pprgnn.training.errors import TrainingError
from pprgnn.training.reach import norm_of, stages

if TYPE_CHECKING:
    from pprgnn.training.model import Model

ROWS_AT_ONCE = 1 << 16
ATTEMPTS = 3  # the scale of the error is known for sure only after the layers before the last have run


@dataclass(frozen=True)
class Effort:
    """What an answer for some nodes took, and what is known about it."""

    asked: int  # nodes that were asked for, each once
    nodes: int  # on how many the answer was computed, of how many
    all_nodes: int
    edges: int  # entries of Ã that were used, of how many
    all_edges: int
    entries: int | None  # read by the steps of all recursions together; ``None`` for a full pass
    certified: bool  # whether the neighbourhood was used, with a proof
    error_bound: float | None  # proved, relative to the asked rows of B; ``None`` for a full pass
    reason: str  # why it was a full pass; empty otherwise
    seconds: float  # all of it, without loading model and data

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class FewNodes:
    """Answers for a few nodes at a time; what holds for the whole graph is found once, and kept on disk.

    Args:
        model: A trained model for nodes.
        dataset: The graph.
    """

    def __init__(self, model: Model, dataset: GraphDataset) -> None:
        self.model, self.dataset, self.reason = model, dataset, ""
        if model.facts.task != "node":
            raise TrainingError("This model labels whole graphs, so it cannot be asked for nodes; leave them out.")
        try:
            self._prepare()
        except NotWorthwhile as why:
            self.reason = str(why)

    def _prepare(self) -> None:
        model, dataset, network = self.model, self.dataset, cast(Any, self.model.network)
        if len(dataset) > 1:
            raise NotWorthwhile("there are several graphs")
        self.stages = stages(network)
        options = network.adjacency_options
        self.adj = dataset.adjacency(0, **options).to(torch.get_default_dtype()).to(model.device)
        kept = _GraphFacts(dataset, "-".join(map(str, options.values())))
        edges = kept.find("edge digest", lambda: digest(dataset, EDGES)) if model.shape.edges is not None else None
        model.check_data(dataset, edges=edges)
        self.growth = RowGrowth(**kept.find("row growth", lambda: asdict(RowGrowth.of(self.adj))))
        kind = model.feature_kind
        # What is made from the edges takes a pass over them anyway.
        as_given = kind in ("embedding", "given", "normalized") and model.scaling is None
        self.x = None if as_given else model.features(dataset)
        if kind == "embedding":
            self.size = largest_row(network.embedding.weight.detach(), self.growth, self.adj)
        else:
            model.check_width(dataset, self._source.size(1))
            if model.visible is None and model.scaling is None:
                self.size = kept.find(f"largest row of {kind}", self._feature_size)
            else:  # labels and scaling are the model's and not the graph's
                self.size = largest_row(self._source, self.growth, self.adj)
        kept.keep()

    @property
    def _source(self) -> Tensor:
        """The features of all nodes, before rows are normalised."""
        return self.dataset._all("x") if self.x is None else self.x

    def _feature_size(self) -> float:
        kind = self.model.feature_kind
        size = largest_row(self._source, self.growth, self.adj, normalized=kind == "normalized")
        if not size < math.inf:
            features(self.dataset, kind)  # says which
        return size

    # -------------------------------------------------------------------------------------------------- answering
    def logits(self, nodes: Tensor | Sequence[int]) -> tuple[Tensor, Effort]:
        """One row for each of ``nodes``, which may repeat, and what it took."""
        start = time.perf_counter()
        wanted = self._checked(nodes)
        asked, back = torch.unique(wanted, return_inverse=True)
        try:
            if self.reason:
                raise NotWorthwhile(self.reason)
            logits, hood, entries, error = self._certified(asked)
        except NotWorthwhile as why:
            return self._full(wanted, len(asked), str(why), start)
        effort = Effort(
            len(asked), hood.num_nodes, self.adj.num_nodes, hood.num_edges, self.adj.num_edges, entries,
            True, error, "", time.perf_counter() - start,
        )  # fmt: skip
        return logits[back], effort

    def _checked(self, nodes: Tensor | Sequence[int]) -> Tensor:
        wanted = torch.as_tensor(nodes, device=self.model.device).reshape(-1)
        if not wanted.numel():
            raise TrainingError("At least one node must be asked for, but none is.")
        if wanted.is_floating_point() or wanted.dtype == torch.bool:
            raise TrainingError(f"Nodes must be whole numbers, but came as {wanted.dtype}; give row numbers.")
        count = self.dataset.num_nodes
        if int(wanted.min()) < 0 or int(wanted.max()) >= count:
            raise TrainingError(
                f"Nodes must be in 0 ... {count - 1}, but came as {int(wanted.min())} to {int(wanted.max())}."
            )
        return wanted.long()

    def _full(self, wanted: Tensor, asked: int, reason: str, start: float) -> tuple[Tensor, Effort]:
        logits = self.model.logits(self.dataset)[wanted]
        nodes = self.dataset.num_nodes
        edges = self.adj.num_edges if not self.reason else int(self.dataset._data.edge_index.size(1))
        seconds = time.perf_counter() - start
        return logits, Effort(asked, nodes, nodes, edges, edges, None, False, None, reason, seconds)

    def _certified(self, asked: Tensor) -> tuple[Tensor, Neighbourhood, int, float]:
        tol = self.model.config.training.eval_tol
        rows = asked if self.adj.rank is None else self.adj.rank[asked].long()
        with self.model.precise(), torch.no_grad():
            scale = self._scale(rows)
            allowed = tol * scale * (1.0 if len(self.stages) == 1 else 0.5)
            for _ in range(ATTEMPTS):
                push, hood = self._plan(rows, allowed)
                state = self._encode(hood)
                scale = hood.input_norms[int(self.stages[-1].conv.handle)]
                if push.spent <= tol * scale:
                    logits = self.model.network.decode(state[: len(asked)])
                    return logits, hood, push.entries, push.spent / scale if scale else 0.0
                allowed = 0.5 * tol * scale
        raise NotWorthwhile("the size of the last layer's input cannot be told in advance")

    def _scale(self, rows: Tensor) -> float:
        """‖B‖_F of the asked rows in the last layer, as far as their direct neighbours tell."""
        push = Push(self.adj, self.growth, rows, 0.0, 1)
        push.look_around()
        hood = Neighbourhood(push, len(rows), len(rows), {int(s.conv.handle): [len(rows)] for s in self.stages})
        self._encode(hood)
        return hood.input_norms[int(self.stages[-1].conv.handle)]

    def _encode(self, hood: Neighbourhood) -> Tensor:
        return self.model.network.encode(self._features(hood.nodes), hood)

    def _features(self, nodes: Tensor) -> Tensor | None:
        """Of these nodes alone."""
        kind = self.model.feature_kind
        if kind == "embedding":
            return None
        source = self._source
        x = take_rows(source, nodes.to(source.device)).to(self.model.device, torch.get_default_dtype())
        if not_finite(x) is not None:
            self.model.features(self.dataset)  # says which
        return normalize_rows(x) if kind == "normalized" else x

    # --------------------------------------------------------------------------------------------------- planning
    def _plan(self, asked: Tensor, allowed: float) -> tuple[Push, Neighbourhood]:
        """From the last layer to the first: which rows each level needs."""
        push = Push(self.adj, self.growth, asked, allowed, sum(1 + s.conv.smooth_input for s in self.stages))
        inputs, levels, rows = self._input_sizes(), dict[int, list[int]](), 0
        mine = torch.ones(len(asked), dtype=torch.float64, device=asked.device)  # what the head reads
        out, shares = mine, mine
        for stage, size in zip(reversed(self.stages), reversed(inputs), strict=True):
            conv = stage.conv
            smooth = self.growth.rate if conv.smooth_input else 1.0
            sizes, shares = push.recursion(stage.bounds, shares, smooth * stage.lin * size + stage.bias)
            levels[int(conv.handle)] = sizes
            rows = max(rows, *(sizes if conv.smooth_input else [0, *sizes[:-1]]))
            if conv.smooth_input:
                shares = push.product(shares, stage.lin * size)
            before = stage.lin * shares
            before[: len(out)] += stage.skip * out
            if stage.seen:
                before[: len(mine)] += mine
            out, shares = before, stage.slope_before * before
        return push, Neighbourhood(push, rows, len(asked), levels)

    def _input_sizes(self) -> list[float]:
        """χ of each layer: no row of its input is larger than χ s_j."""
        network, size, sizes = cast(Any, self.model.network), self.size, []
        front = getattr(network, "input_layer", None)
        if front is not None:  # rows behind the linear layer in front of the first one
            size = network.activation.lipschitz * (norm_of(front.weight) * size + norm_of(front.bias))
        for stage in self.stages:
            sizes.append(size)
            smooth = self.growth.rate if stage.conv.smooth_input else 1.0
            out = stage.bounds.row_bounds(smooth * stage.lin * size + stage.bias, self.growth)[0]
            size = min(stage.slope * out, stage.ceiling) + stage.offset + stage.skip * size + stage.skip_offset
        return sizes


# ---------------------------------------------------------------------------------------------- of the whole graph
def largest_row(x: Tensor, growth: RowGrowth, adj: Adjacency, normalized: bool = False) -> float:
    """The smallest χ with ‖x_j‖ <= χ s_j; NaN if there is one."""
    sizes, largest = adj.unpermute(growth.sizes(adj)), 0.0
    for rows, size in zip(split_rows(x, ROWS_AT_ONCE), torch.split(sizes, ROWS_AT_ONCE), strict=True):
        lengths = row_norms(rows, 2).to(size.device)
        if normalized:
            lengths = lengths / row_norms(rows, 1).clamp(min=1e-12)
        largest = max(float((lengths / size).max()), largest, key=lambda each: (each != each, each))
    return largest * (1 + 1e-5)


class _GraphFacts:
    """What takes a pass over the graph, kept in the cache: later calls read it in no time."""

    def __init__(self, dataset: GraphDataset, kind: str) -> None:
        self.new = False
        changed = dataset._indices is not None or dataset.transform is not None
        path = None if changed or dataset.num_nodes < LARGE_GRAPH else dataset.path
        self.path = None if path is None else derived_path(path, f"{kind}.rows")
        self.facts: dict[str, str] = {"prepared": dataset.stamp}
        if self.path is not None:
            with contextlib.suppress(DataError):  # damaged, or not there
                _, facts = read_tensors(self.path)
                self.facts = facts if self.facts.items() <= facts.items() else self.facts

    def find(self, name: str, fresh: Callable[[], Any]) -> Any:
        """A fact, which JSON can hold; found anew if it is not kept."""
        if name not in self.facts:
            self.facts[name], self.new = json.dumps(fresh()), True
        return json.loads(self.facts[name])

    def keep(self) -> None:
        """Write what was found."""
        if self.path is not None and self.new:
            with contextlib.suppress(OSError):  # a read-only folder: found anew each time
                write_tensors(self.path, {}, self.facts)
