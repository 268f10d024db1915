"""Embeddings by one operator with shared weights: a few rounds (structure2vec), or its steady state (SSE)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from pprgnn.baselines.baseline import Baseline
from pprgnn.baselines.fixed_point import iterate
from pprgnn.core.adjacency import Adjacency
from pprgnn.core.backend.kernel import multiply
from pprgnn.core.csr import fingerprint
from pprgnn.data.sparse_features import take_rows

NO_GRAPH, SEVERAL_GRAPHS = 0, -1  # in the place of a graph's fingerprint
REMEDY = "set model.own.contraction to 0.9 or less, so that it must become so, or raise model.own.max_sweeps"


class Structure2VecNet(Baseline):
    """Embedded mean field: μ ← relu(W₁x_v + W₂ Σ_u μ_u) over the neighbours u, ``rounds`` times from μ = 0.

    From `"Discriminative Embeddings of Latent Variable Models for Structured Data"
    <https://arxiv.org/abs/1603.05629>`_. All rounds share their weights, and a node sees ``rounds - 1`` hops far.
    The sum over neighbours is as published: states grow with (largest eigenvalue of A · ‖W₂‖) to the power of
    ``rounds - 1``, so that on graphs with large degrees training starts from huge states; ``aggregate="mean"``
    keeps them small.

    Args:
        rounds: Of mean field.
        aggregate: ``"sum"`` as published, or ``"mean"``, over the neighbours; both weigh them by the edges.
    """

    defaults: ClassVar[dict[str, Any]] = {"hidden": 64, "dropout": 0.5, "pooling": "sum"}
    self_loops = False
    encode_is_deterministic = True  # dropout is in the head only

    def __init__(
        self, *shape: Any, rounds: int = 4, aggregate: Literal["sum", "mean"] = "sum", **settings: Any
    ) -> None:
        super().__init__(*shape, **settings)
        self.add_head(self.hidden, node_layers=1)
        if rounds < 1:
            raise ValueError(f"rounds must be >= 1, but came as {rounds}.")
        self.rounds, self.normalize = rounds, "row" if aggregate == "mean" else None
        self.read = torch.nn.Linear(self.in_channels, self.hidden)
        self.mix = torch.nn.Linear(self.hidden, self.hidden, bias=False)

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        given = self.read(x)
        state: Tensor = given.relu()
        for _ in range(self.rounds - 1):
            state = (given + self.mix(adj @ state)).relu()
        return state


class SSENet(Baseline):
    r"""Embeddings that a learned operator leaves as they are, learned while they are still on the way there.

    From `"Learning Steady-States of Iterative Algorithms over Graphs"
    <https://proceedings.mlr.press/v80/dai18a.html>`_: the embeddings solve

    .. math::
        \mathbf{h}_v = T(\mathbf{h})_v = \mathbf{W}_1 \, \mathrm{relu}\Big(\mathbf{W}_2 \Big[\mathbf{x}_v,
        \sum_{u \in N(v)} [\mathbf{h}_u, \mathbf{x}_u]\Big]\Big)

    The network keeps the embeddings of the graph it learns from. In training, a pass makes ``updates`` damped
    updates :math:`\mathbf{h}_v \leftarrow (1 - \alpha)\mathbf{h}_v + \alpha T(\mathbf{h})_v`, each of a random
    share of the nodes and without gradients; the head then reads :math:`T(\mathbf{h})`, one application with
    gradients for :math:`\mathbf{W}_1, \mathbf{W}_2`. In evaluation, whole sweeps go on from the embeddings that
    are kept until they are steady, and leave those as they are. On other graphs, or with other features, they
    start from 0. With several graphs to learn from, or labels per graph, nothing is kept: training makes
    ``updates`` whole sweeps from 0.

    In the paper nothing forces T to be a contraction, and within few steps of training it is none: then there is
    no steady state, and evaluation warns or overflows. Here ``contraction`` bounds how far T may enlarge
    differences, by scaling the part of W₂ that reads embeddings; 0 leaves T as published.

    Args:
        aggregate: ``"mean"`` over the neighbours, or ``"sum"``; both weigh them by the edges.
        updates: How many updates, or sweeps, for each step of the weights.
        share: Of the nodes, for each update.
        step: α, the part of the new embedding.
        contraction: Below 1: T moves embeddings together by this factor at least, in the largest norm of a row for
            the mean, in the Frobenius norm for the sum. 0: it need not.
        steady_tol: Change, relative to the size of the embeddings, that counts as steady in evaluation.
        max_sweeps: Most sweeps in evaluation.
    """

    defaults: ClassVar[dict[str, Any]] = {"hidden": 64, "dropout": 0.5, "pooling": "sum"}
    self_loops = False
    sparse_input = False
    encode_is_deterministic = False  # updates are of random nodes, and training does not wait for a steady state
    state: Tensor
    graph: Tensor

    def __init__(
        self,
        *shape: Any,
        # PAPER: its formula has the sum, but its authors' code the mean over neighbours; the sum seldom contracts.
        aggregate: Literal["mean", "sum"] = "mean",
        updates: int = 10,
        share: float = 0.1,
        step: float = 0.5,
        contraction: float = 0.9,  # PAPER: 0
        steady_tol: float = 1e-4,
        max_sweeps: int = 200,
        **settings: Any,
    ) -> None:
        super().__init__(*shape, **settings)
        self.add_head(self.hidden, node_layers=2)
        if not (updates >= 1 and max_sweeps >= 1 and 0 < share <= 1 and 0 < step <= 1):
            raise ValueError(
                f"updates and max_sweeps must be >= 1, share and step above 0 and at most 1, but came as "
                f"{updates}, {max_sweeps}, {share} and {step}."
            )
        if not (steady_tol > 0 and 0 <= contraction < 1):
            raise ValueError(
                f"steady_tol must be above 0 and contraction at least 0 and below 1, but came as {steady_tol} and "
                f"{contraction}."
            )
        self.aggregate, self.normalize = aggregate, "row" if aggregate == "mean" else None
        self.updates, self.share, self.step, self.contraction = updates, share, step, contraction
        self.steady_tol, self.max_sweeps = steady_tol, max_sweeps
        # W₂ in three parts, for x_v, x_u and h_u; those of the features are applied once per pass.
        in_channels, hidden = self.in_channels, self.hidden
        self.read = torch.nn.Linear(in_channels, hidden)
        self.read_neighbours = torch.nn.Linear(in_channels, hidden, bias=False)
        self.mix = torch.nn.Linear(hidden, hidden, bias=False)
        self.lift = torch.nn.Linear(hidden, hidden)  # W₁
        self.register_buffer("state", torch.empty(0, hidden))
        self.register_buffer("graph", torch.tensor(NO_GRAPH))
        self._features: tuple[Tensor, int] | None = None  # those seen last, and their fingerprint

    def reset_parameters(self) -> None:
        """Draw all parameters anew, and forget the embeddings."""
        super().reset_parameters()
        self.state, self.graph = self.state.new_empty(0, self.hidden), torch.full_like(self.graph, NO_GRAPH)

    def propagate(self, x: Tensor, adj: Adjacency) -> Tensor:
        """Embeddings nearer to the steady state, or steady; then one application of T with gradients."""
        given = self.read(x) + adj @ self.read_neighbours(x)
        mix = self._contracting_mix(adj)
        return self._operator(given, mix, adj @ self._embeddings(adj, given, mix, self._keeps(adj, x)))

    def _operator(self, given: Tensor, mix: Tensor, sums: Tensor) -> Tensor:
        """T, from what W₂ makes of the features, its part for embeddings, and the neighbours' embeddings."""
        result: Tensor = self.lift((given + sums @ mix.t()).relu())
        return result

    def _contracting_mix(self, adj: Adjacency) -> Tensor:
        weight: Tensor = self.mix.weight
        if not self.contraction:
            return weight
        gain = 1.0 if self.aggregate == "mean" else adj.norm_bound
        slope = gain * torch.linalg.matrix_norm(weight, ord=2) * torch.linalg.matrix_norm(self.lift.weight, ord=2)
        scale: Tensor = self.contraction / slope.clamp(min=self.contraction)
        return weight * scale

    @torch.no_grad()
    def _embeddings(self, adj: Adjacency, given: Tensor, mix: Tensor, kept: bool) -> Tensor:
        if self.training and kept:
            self._update(adj, given, mix)
            return self.state
        state = self.state if kept else given.new_zeros(adj.num_nodes, self.hidden)

        def sweep(state: Tensor) -> Tensor:
            return self._operator(given, mix, adj @ state)

        if self.training:
            for _ in range(self.updates):
                state.lerp_(sweep(state), self.step)
            return state
        step = 1.0 if self.contraction else self.step  # a contraction needs no damping
        return iterate(sweep, state, step=step, tol=self.steady_tol, cap=self.max_sweeps, remedy=REMEDY)

    def _update(self, adj: Adjacency, given: Tensor, mix: Tensor) -> None:
        """Random shares of the nodes, one after the other: each sees what those before have changed."""
        given, state = adj.permute(given), adj.permute(self.state)
        count = max(1, round(self.share * adj.num_nodes))
        for _ in range(self.updates):
            nodes = torch.randperm(adj.num_nodes, device=given.device)[:count]
            product = multiply(take_rows(adj.matrix, nodes), state, out=state.new_empty(count, self.hidden))
            new = self._operator(given[nodes], mix, product)
            state[nodes] = torch.lerp(state[nodes], new, self.step)
        self.state = adj.unpermute(state)

    def _keeps(self, adj: Adjacency, x: Tensor) -> bool:
        """Whether the embeddings kept are this graph's; training on one graph begins with keeping them."""
        graph = int(self.graph)
        if self.for_graphs or graph == SEVERAL_GRAPHS:
            return False
        found = self._identity(adj, x)
        if self.training and graph != found:
            first = graph == NO_GRAPH
            graph = found if first else SEVERAL_GRAPHS
            self.state = x.new_zeros(adj.num_nodes if first else 0, self.hidden)
            self.graph.fill_(graph)
        return graph == found

    def _identity(self, adj: Adjacency, x: Tensor) -> int:
        """A number for the graph and its features: graphs of the same edges are told apart by those."""
        if x.requires_grad:  # learned rows, which change with every step
            return adj.fingerprint
        if self._features is None or not torch.equal(self._features[0], x):
            self._features = x, fingerprint(x)
        return (adj.fingerprint + self._features[1]) % 2**62

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        saved = state_dict.get(f"{prefix}state")
        if saved is not None and saved.shape[1:] == (self.hidden,):  # else the error is torch's
            self.state = self.state.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)
